"""The contract of all stores.

Four kinds of values:

- A *block* replaces the first messages of a history, in every later request, on any worker. So the first writer wins,
  and the second one uses the stored block. Only a deeper block that was built on the stored one replaces it.
- A *fact* is small and may be outdated tomorrow: a usage anchor, a learned window, a calibration.
- The *secret* keys the hash by which conversations are recognised. The first worker makes it.
- A *document* is small, kept for good and changed by several workers: each change names the value that it replaces.

Keys begin with the tenant. Values are opaque bytes that carry their own version.
"""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct

SECRET_BYTES = 33
MEBIBYTE = 1024 * 1024
FACT_SECONDS_MAX = 7 * 24 * 3600.0
"""The longest lifetime of a fact."""
RECORDED_USES_PER_LIFETIME = 32
"""A look-up puts off the expiry of its block, but writes that only this often."""

NO_DOCUMENT = "none"
"""No document has this key: replacing it tells if a store can be written."""


def ignore(_warning: str) -> None:
    """Do nothing with a sentence: the default for listeners of stores."""


class StoreUnavailable(Exception):
    """The store cannot be reached or does not answer. No method of a store raises another exception."""


class Found(Struct, frozen=True):
    key: str
    value: bytes


class StoreLimits(Struct, frozen=True):
    """How much a store holds. What was not used for longest goes first."""

    block_bytes: int = 256 * MEBIBYTE
    fact_bytes: int = 32 * MEBIBYTE
    block_seconds: float = 7 * 24 * 3600.0
    """A block expires this long after its last use."""


class Store(Protocol):
    async def find_first(
        self, blocks: Sequence[str], facts: Sequence[str] = (), *fact_lists: Sequence[str]
    ) -> tuple[Found | None, ...]:
        """Return the first block and the first fact of each list of keys, in one round trip. Newest keys first."""

    async def put_block(self, key: str, value: bytes, over: bytes | None = None) -> bytes:
        """Return the stored block: that of an earlier writer, unless it is `over`, or else this one."""

    async def read_fact(self, key: str) -> bytes | None: ...

    async def write_fact(self, key: str, value: bytes, seconds: float, over: bytes | None = None) -> None:
        """Replace any other fact, or with `over` no value but this one."""

    async def claim_fact(self, key: str, value: bytes, seconds: float) -> bool:
        """Store a fact if there is none. Of several workers one gets True."""

    async def load_secret(self, current_secret: bytes | None = None) -> bytes:
        """Return the secret. If there is none, it becomes `current_secret` or a new one."""

    async def read_document(self, key: str) -> bytes | None: ...

    async def replace_document(self, key: str, old_value: bytes | None, new_value: bytes) -> bool:
        """Replace a document. Return False if it has another value by now; None is the value of a missing one."""

    async def close(self) -> None: ...


JUMP_SECONDS = 3600.0
"""A clock that jumps ahead by more than this is believed once it has run evenly for as long."""


def read_elapsed() -> float:
    """Return seconds since some moment, by a clock that cannot be set.

    It includes suspended time: https://man7.org/linux/man-pages/man2/clock_gettime.2.html (on macOS the monotonic one).
    """
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class SystemClock:
    """The time of day, and the believed time by which stores judge age. Any thread may read it.

    If a clock that is far ahead were believed at once, the next sweep would remove everything.
    """

    def __init__(self, now: Callable[[], float] = time.time, elapsed_clock: Callable[[], float] = read_elapsed) -> None:
        self._now = now
        self._elapsed = elapsed_clock
        self._lock = threading.Lock()
        self._offset = now() - elapsed_clock()
        """The time of day less the elapsed time."""
        self._jumped: tuple[float, float] | None = None
        """The offset after a jump that is not believed yet, and the elapsed time when it was first seen."""

    def read(self) -> float:
        return self._now()

    def read_believed(self) -> float:
        now, elapsed_seconds = self._now(), self._elapsed()
        with self._lock:
            offset = now - elapsed_seconds
            if offset - self._offset > JUMP_SECONDS:
                if self._jumped is None or abs(offset - self._jumped[0]) > JUMP_SECONDS:
                    self._jumped = offset, elapsed_seconds
                if elapsed_seconds - self._jumped[1] < JUMP_SECONDS:
                    return self._offset + elapsed_seconds
            self._offset, self._jumped = offset, None
            return now
