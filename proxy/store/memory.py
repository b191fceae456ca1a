"""A store for one process, without a disk: for tests, the demo, and `state.store: memory`."""

import secrets
from collections.abc import Callable, Sequence

from proxy.lru import ByteBoundedCache
from proxy.store.clock import read_elapsed
from proxy.store.contract import SECRET_BYTES, Found, StoreLimits

DEFAULT = StoreLimits()


class _ExpiringValues:
    """Values with a bound of their bytes, each until its time."""

    def __init__(self, max_bytes: int) -> None:
        self._values: ByteBoundedCache[str, tuple[bytes, float]] = ByteBoundedCache(max_bytes)

    def read(self, key: str, now: float) -> bytes | None:
        value, until = self._values.get(key) or (None, 0.0)
        if until <= now:
            return None
        return value

    def write(self, key: str, value: bytes, until: float) -> None:
        self._values[key] = value, until

    def find_first(self, keys: Sequence[str], now: float) -> Found | None:
        for key in self._values.find_known(keys):  # skips most of the many keys of a long history at little cost
            value = self.read(key, now)
            if value is not None:
                return Found(key, value)
        return None


class MemoryStore:
    """Blocks, facts and documents in this process."""

    def __init__(self, limits: StoreLimits = DEFAULT, clock: Callable[[], float] = read_elapsed) -> None:
        self._blocks = _ExpiringValues(limits.block_bytes)
        self._facts = _ExpiringValues(limits.fact_bytes)
        self._block_seconds = limits.block_seconds
        self._clock = clock
        self._secret: bytes | None = None
        self._documents: dict[str, bytes] = {}

    async def find_first(
        self, blocks: Sequence[str], facts: Sequence[str] = (), *fact_lists: Sequence[str]
    ) -> tuple[Found | None, ...]:
        now = self._clock()
        block = self._blocks.find_first(blocks, now)
        if block:
            self.remember(block.key, block.value)
        return block, *(self._facts.find_first(keys, now) for keys in (facts, *fact_lists))

    async def put_block(self, key: str, value: bytes, over: bytes | None = None) -> bytes:
        stored_block = self._blocks.read(key, self._clock())
        if stored_block is None or stored_block == over:
            stored_block = value
        self.remember(key, stored_block)
        return stored_block

    def remember(self, key: str, block: bytes) -> None:
        """Keep a block, and replace any other. For `FallbackStore`, because the shared store has the last word."""
        self._blocks.write(key, block, self._clock() + self._block_seconds)

    async def read_fact(self, key: str) -> bytes | None:
        return self._facts.read(key, self._clock())

    async def write_fact(self, key: str, value: bytes, seconds: float, over: bytes | None = None) -> None:
        now = self._clock()
        if over is None or self._facts.read(key, now) in (None, over):
            self._facts.write(key, value, now + seconds)

    async def claim_fact(self, key: str, value: bytes, seconds: float) -> bool:
        now = self._clock()
        if self._facts.read(key, now) is not None:
            return False
        self._facts.write(key, value, now + seconds)
        return True

    async def load_secret(self, current_secret: bytes | None = None) -> bytes:
        self._secret = self._secret or current_secret or secrets.token_bytes(SECRET_BYTES)
        return self._secret

    async def read_document(self, key: str) -> bytes | None:
        return self._documents.get(key)

    async def replace_document(self, key: str, old_value: bytes | None, new_value: bytes) -> bool:
        if self._documents.get(key) != old_value:
            return False
        self._documents[key] = new_value
        return True

    async def close(self) -> None:
        """Release nothing: there are no connections and no files."""
