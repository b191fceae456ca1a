"""Leases: a resource that several users share is closed after the last of them, and never before."""

from collections.abc import Callable
from typing import Self


class Lease:
    """The right to use a shared resource until it is released. Releasing it twice counts once.

    Releasing does not await anything, so that no cancellation can come between a user's end and its release.
    """

    __slots__ = ("_leases",)

    def __init__(self, leases: "Leases") -> None:
        self._leases: Leases | None = leases

    def release(self) -> None:
        leases, self._leases = self._leases, None
        if leases is not None:
            leases.give_back()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class Leases:
    """The count of a resource's users. `close` is called once, when the last lease is returned."""

    __slots__ = ("_close", "_count", "is_closed")

    def __init__(self, close: Callable[[], None]) -> None:
        self._close = close
        self._count = 0
        self.is_closed = False

    def take(self) -> Lease:
        """A further lease. Only somebody who holds one may ask for more: a closed resource stays closed."""
        if self.is_closed:
            raise RuntimeError("this resource is closed: take a lease before the last one is released")
        self._count += 1
        return Lease(self)

    def give_back(self) -> None:
        self._count -= 1
        if not self._count:
            self.is_closed = True
            self._close()
