"""The system's clock, as stores use it: the time of day, and the one by which they judge how old something is.

One reading of a clock that is far ahead makes everything too old, and the next sweep removes it all.
"""

import threading
import time
from collections.abc import Callable

JUMP_SECONDS = 3600.0
"""A clock that goes forward by so much more than the time that passed was set, or a virtual machine was paused."""
EVEN_SECONDS = 3600.0
"""A clock that jumped ahead is believed once it has gone on evenly for so long."""
# Linux has a clock that goes on while the machine is suspended. Elsewhere (macOS) the monotonic one does.
_ELAPSED = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def read_elapsed() -> float:
    """Seconds since some moment, with those in which the machine was suspended. This clock cannot be set."""
    return time.clock_gettime(_ELAPSED)


class SystemClock:
    """The time of day, and the one that is believed. Any thread may read it.

    After a jump ahead the believed time goes on as if there had been none, until the clock has gone on evenly.
    """

    def __init__(self, now: Callable[[], float] = time.time, elapsed: Callable[[], float] = read_elapsed) -> None:
        self._now = now
        self._elapsed = elapsed
        self._lock = threading.Lock()
        self._offset = now() - elapsed()
        """Time of day less elapsed time, as it was last believed."""
        self._jumped: tuple[float, float] | None = None
        """The same after a jump, and the elapsed time of it."""

    def read(self) -> float:
        """The time of day as the system shows it, for what is written down."""
        return self._now()

    def read_believed(self) -> float:
        """The time of day by which to judge whether something is too old."""
        now, elapsed = self._now(), self._elapsed()
        with self._lock:
            offset = now - elapsed
            if offset - self._offset > JUMP_SECONDS:
                if self._jumped is None or abs(offset - self._jumped[0]) > JUMP_SECONDS:
                    self._jumped = offset, elapsed
                if elapsed - self._jumped[1] < EVEN_SECONDS:
                    return self._offset + elapsed
            self._offset, self._jumped = offset, None
            return now
