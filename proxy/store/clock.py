"""The time of day, and the believed time by which stores judge age.

If a clock that is far ahead were believed at once, everything would be too old, and the next sweep would remove it.
"""

import threading
import time
from collections.abc import Callable

JUMP_SECONDS = 3600.0
"""A clock that advances by this much more than the elapsed time was set, or a virtual machine was paused."""
EVEN_SECONDS = 3600.0
"""A clock that jumped ahead is believed after it has run evenly for this long."""
# This clock includes suspended time (https://man7.org/linux/man-pages/man2/clock_gettime.2.html). On macOS the
# monotonic one does.
_ELAPSED = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def read_elapsed() -> float:
    """Return seconds since some moment, including suspended time. This clock cannot be set."""
    return time.clock_gettime(_ELAPSED)


class SystemClock:
    """The time of day and the believed time. Any thread may read it.

    After a jump ahead, the believed time continues as if there had been none, until the clock has run evenly.
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
        """Return the system's time of day, for timestamps."""
        return self._now()

    def read_believed(self) -> float:
        """Return the time of day by which to judge age."""
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
