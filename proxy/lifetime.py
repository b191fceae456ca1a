"""Lifetimes: leases on what several users share, and tasks and threads that outlive the request that starts them.

Nothing here awaits when something is given back, so that no cancellation can come between a user's end and its release.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Self, TypeVar

T = TypeVar("T")


class Lease:
    """The right to use a shared resource until it is released. Releasing it twice counts once."""

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


class BackgroundTasks:
    """Tasks that outlive the request that starts them: bounded in number, and awaited by their owner's end."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, work: Callable[[], Coroutine[Any, Any, T]], lease: Lease) -> asyncio.Task[T] | None:
        """Start a task that holds a lease until it ends. None: too many are under way, and the lease is released."""
        if self._is_closed or len(self._tasks) >= self._limit:
            lease.release()
            return None
        task = asyncio.get_running_loop().create_task(work())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # Not within `work`: a task that is cancelled before its first step never gets there.
        task.add_done_callback(lambda _: lease.release())
        return task

    async def wait_idle(self) -> None:
        """Return once no task is under way."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def close(self, seconds: float) -> int:
        """Wait this long for the tasks under way, and for those that they start. Returns how many were cancelled."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.wait_idle()
        self._is_closed = True
        unfinished = tuple(self._tasks)
        for task in unfinished:
            task.cancel()
        await asyncio.gather(*unfinished, return_exceptions=True)
        return len(unfinished)


class WorkerThread:
    """A thread whose function is called again after an unexpected exception, until it returns.

    The exception itself goes to `threading.excepthook`, which reports it. A daemon: a thread that is stuck in a write
    must not keep the process alive.
    """

    def __init__(self, name: str, work: Callable[[], None], on_fault: Callable[[], None] | None = None) -> None:
        self._name = name
        self._work = work
        self._on_fault = on_fault
        self._start()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def join(self, seconds: float) -> bool:
        """Wait this long for the function to return; True if it has."""
        end = time.monotonic() + seconds
        while self.is_alive and time.monotonic() < end:
            self._thread.join(max(0.0, end - time.monotonic()))  # another may have taken its place by then
        return not self.is_alive

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        has_returned = False
        try:
            self._work()
            has_returned = True
        finally:
            if not has_returned:
                if self._on_fault is not None:
                    self._on_fault()
                self._start()
