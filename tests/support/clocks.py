"""Clocks that a test sets: one for the time of day, one for the time that passes."""

from collections.abc import Callable
from dataclasses import dataclass

from proxy.store.contract import SystemClock


def even_clock(read: Callable[[], float]) -> SystemClock:
    """A clock by which all the time passes that it goes forward."""
    return SystemClock(read, read)


@dataclass(slots=True)
class Clocks:
    """What the two clocks show: the time of day, and the seconds since some moment."""

    now: float
    elapsed: float = 5_000.0

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.elapsed += seconds

    def as_system_clock(self) -> SystemClock:
        return SystemClock(lambda: self.now, lambda: self.elapsed)
