"""The contract of all stores, and the kinds of values that the proxy keeps in them.

A back end finds values and puts them, as compare-and-set with a lifetime. Everything else is written here, once:

- A *block* replaces the first messages of a history, in every later request, on any worker. So the first writer wins,
  and the second one uses the stored block. Only a block that was built on the stored one replaces it.
- A *fact* is small and may be outdated tomorrow: a usage anchor, a learned window, a calibration. A *claim* is a fact
  that one of several workers gets.
- A *document* is small and kept for good. If several workers change it, each names the value that it replaces.
- The *secret* keys the hash by which conversations are recognised. The first worker makes it.

Keys begin with the tenant. Values are opaque bytes that carry their own version.

A circuit breaker: while a store is out, calls fail at once, and a task in the background tries it again.
"""

import asyncio
import math
import secrets
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Sequence
from enum import Enum, auto
from hashlib import blake2b
from typing import Literal, NamedTuple

from msgspec import Struct, field

SECRET_BYTES = 33
MEBIBYTE = 1024 * 1024
FACT_SECONDS_MAX = 7 * 24 * 3600.0
"""The longest lifetime of a fact."""
RECORDED_USES_PER_LIFETIME = 32
"""A look-up puts off the expiry of its block. To spare writes, it does so only this often in the block's lifetime."""


def ignore(_warning: str) -> None:
    """Do nothing with a sentence: the default for listeners of stores."""


class RareReports(Struct, eq=False):
    """Warns of a cause of failures at most once in a time, and counts all failures. Any thread may use it."""

    warn: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    count: int = 0
    _last_times: dict[object, float] = {}
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, text: str, quiet_seconds: float, cause: object = None) -> None:
        now = self.clock()
        # Threads that fail at one moment must not all report it.
        with self._lock:
            self.count += 1
            is_news = now - self._last_times.get(cause, -math.inf) >= quiet_seconds
            if is_news:
                self._last_times[cause] = now
        if is_news:
            self.warn(text)


class StoreUnavailable(Exception):
    """The store cannot be reached or does not answer. No method of a store raises another exception."""


class Kind(Enum):
    """Kinds of values. Each has its keys and its room to itself."""

    BLOCK = auto()
    """A look-up puts off its expiry."""
    FACT = auto()
    DOCUMENT = auto()
    """It is kept for good."""


class Keys(NamedTuple):
    kind: Kind
    names: Sequence[str]


class Found(Struct, frozen=True):
    key: str
    value: bytes


Replaced = bytes | Literal["anything"] | None
"""The value that a new one may replace. None: there must be none."""


class StoreLimits(Struct, frozen=True):
    """The limits of a store, by `state.mib` and `state.days`. Blocks unused for longest are removed first."""

    block_bytes: int = 256 * MEBIBYTE
    fact_bytes: int = 32 * MEBIBYTE
    block_seconds: float = 7 * 24 * 3600.0
    """A block expires this long after its last use."""


class Store(ABC):
    def __init__(self, limits: StoreLimits) -> None:
        self.limits = limits

    @abstractmethod
    async def find(self, *lists: Keys) -> tuple[Found | None, ...]:
        """Return the first value of each list of keys, in one round trip. The newest keys come first."""

    @abstractmethod
    async def put(self, kind: Kind, key: str, value: bytes, seconds: float, replaces: Replaced = None) -> bytes:
        """Store a value for this long, unless there is another one than *replaces*. Return the value that is stored."""

    @abstractmethod
    async def remove(self, tenants: Collection[str], is_wanted: Callable[[str, bytes], bool]) -> None:
        """Remove the blocks and facts of these tenants whose key and value are wanted, and their traces on a disk."""

    @abstractmethod
    async def close(self) -> None: ...

    def forget(self) -> None:  # noqa: B027 (most stores remember nothing)
        """Forget what this worker remembers of a store that it shares, before values are removed there."""

    async def find_first(
        self, blocks: Sequence[str], facts: Sequence[str] = (), *fact_lists: Sequence[str]
    ) -> tuple[Found | None, ...]:
        """Return the first block, and the first fact of each list of keys."""
        lists = [Keys(Kind.FACT, keys) for keys in (facts, *fact_lists)]
        return await self.find(Keys(Kind.BLOCK, blocks), *lists)

    async def put_block(self, key: str, value: bytes, over: bytes | None = None) -> bytes:
        """Store a block unless another one than *over* is stored. Return the block that is stored then."""
        return await self.put(Kind.BLOCK, key, value, self.limits.block_seconds, over)

    async def read_fact(self, key: str) -> bytes | None:
        return await self._read(Kind.FACT, key)

    async def write_fact(self, key: str, value: bytes, seconds: float, over: bytes | None = None) -> None:
        """Store a fact instead of any other. If *over* is given, replace only that value."""
        await self.put(Kind.FACT, key, value, seconds, "anything" if over is None else over)

    async def claim_fact(self, key: str, value: bytes, seconds: float) -> bool:
        """Store a fact if there is none. Of several workers, each with its own value, one gets True."""
        return await self.put(Kind.FACT, key, value, seconds) == value

    async def load_secret(self, current_secret: bytes | None = None) -> bytes:
        """Return the secret. If there is none, or none that can be used, it becomes *current_secret* or a new one."""
        new_secret = current_secret or secrets.token_bytes(SECRET_BYTES)
        secret = await self.put(Kind.DOCUMENT, "secret", new_secret, math.inf)
        # blake2b takes no longer key, and with an empty one its hashes would be no secret.
        if not 1 <= len(secret) <= blake2b.MAX_KEY_SIZE:
            secret = await self.put(Kind.DOCUMENT, "secret", new_secret, math.inf, secret)
        return secret

    async def read_document(self, key: str) -> bytes | None:
        return await self._read(Kind.DOCUMENT, f"document/{key}")

    async def replace_document(self, key: str, old_value: bytes | None, new_value: bytes) -> bool:
        """Store a document. Return False if there is another one than *old_value* by now."""
        return await self.put(Kind.DOCUMENT, f"document/{key}", new_value, math.inf, old_value) == new_value

    async def check_writable(self) -> None:
        """Raise StoreUnavailable if nothing can be written."""
        # It has expired when it is written, so it stands for nothing.
        await self.put(Kind.DOCUMENT, "document/none", b"", 0.0, "anything")

    async def _read(self, kind: Kind, key: str) -> bytes | None:
        (found,) = await self.find(Keys(kind, (key,)))
        return None if found is None else found.value


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


class Breaker(Struct, eq=False):
    """The state of a store: it is out while `fault` is set.

    Any thread may set that, and `attempt` clears it if the store works again. The rest is for the event loop.
    """

    attempt: Callable[[], Awaitable[None]]
    pause_seconds: float
    fault: str = ""
    """The reason why the store cannot be used now, or empty."""
    _trying: asyncio.Task[None] | None = None
    _is_closed: bool = False

    def check(self) -> None:
        """Raise StoreUnavailable during an outage."""
        if self.fault:
            # A thread that has set the fault could not start a task.
            self.begin_trying()
            raise StoreUnavailable(self.fault)

    def open(self, fault: str) -> StoreUnavailable:
        """Begin an outage, and return the exception for the call that noticed it."""
        self.fault = fault
        self.begin_trying()
        return StoreUnavailable(fault)

    def begin_trying(self) -> None:
        if self.fault and not self._is_closed and (self._trying is None or self._trying.done()):
            self._trying = asyncio.get_running_loop().create_task(self._try())

    async def close(self) -> None:
        self._is_closed = True
        if self._trying is not None:
            self._trying.cancel()
            await asyncio.gather(self._trying, return_exceptions=True)

    async def _try(self) -> None:
        while self.fault:
            await self.attempt()
            if self.fault:
                await asyncio.sleep(self.pause_seconds)
