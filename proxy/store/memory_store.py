"""A store in this process: alone (`state.store: memory`), or as a fallback while Redis is out or a disk is full.

Without the fallback, every turn of a conversation would be compacted at another place while the store is away, and
paid for in full. So a worker remembers the blocks it made or read, and the facts it wrote. While the store answers, it
has the last word; a block that it lost is written again. Documents are not remembered: other workers may change them.
"""

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from proxy.foundation.lru import ByteBoundedCache
from proxy.store.contract import (
    MEBIBYTE,
    SECRET_BYTES,
    Found,
    Store,
    StoreLimits,
    StoreUnavailable,
    ignore,
    read_elapsed,
)


class _ExpiringValues:
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
    def __init__(self, limits: StoreLimits = StoreLimits(), clock: Callable[[], float] = read_elapsed) -> None:
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
        """Remember a block in place of any other under this key."""
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


FALLBACK_LIMITS = StoreLimits(block_bytes=32 * MEBIBYTE, fact_bytes=4 * MEBIBYTE)


class FallbackStore:
    """A store and this worker's memory of it, which answers while the store does not."""

    def __init__(
        self,
        store: Store,
        limits: StoreLimits = FALLBACK_LIMITS,
        clock: Callable[[], float] = read_elapsed,
        warn: Callable[[str], None] = ignore,
    ) -> None:
        self._store = store
        self._warn = warn
        self._reported_at = float("-inf")
        self._clock = clock
        self._memory = MemoryStore(limits, clock)
        self._secret: bytes | None = None

    async def find_first(
        self, blocks: Sequence[str], facts: Sequence[str] = (), *fact_lists: Sequence[str]
    ) -> tuple[Found | None, ...]:
        """Ask the store for nothing older than the remembered values: a few keys of a long history, not thousands."""
        remembered_block, remembered_fact = await self._memory.find_first(blocks, facts)
        newest_blocks, newest_facts = _cut_at(blocks, remembered_block), _cut_at(facts, remembered_fact)
        try:
            block, fact, *other_facts = await self._store.find_first(newest_blocks, newest_facts, *fact_lists)
            if fact is None and len(newest_facts) < len(facts):
                # The store has lost the remembered fact, and may have an older one.
                _, fact = await self._store.find_first((), facts[len(newest_facts) :])
        except StoreUnavailable as fault:
            self._report_fault(str(fault))
            return await self._memory.find_first(blocks, facts, *fact_lists)
        return await self._settle(remembered_block, block), fact, *other_facts

    async def put_block(self, key: str, value: bytes, over: bytes | None = None) -> bytes:
        try:
            stored_block = await self._store.put_block(key, value, over)
        except StoreUnavailable as fault:
            self._report_fault(str(fault))
            return await self._memory.put_block(key, value, over)
        self._memory.remember(key, stored_block)
        return stored_block

    async def read_fact(self, key: str) -> bytes | None:
        try:
            return await self._store.read_fact(key)
        except StoreUnavailable as fault:
            self._report_fault(str(fault))
            return await self._memory.read_fact(key)

    async def write_fact(self, key: str, value: bytes, seconds: float, over: bytes | None = None) -> None:
        await self._memory.write_fact(key, value, seconds, over)
        try:
            await self._store.write_fact(key, value, seconds, over)
        except StoreUnavailable as fault:
            self._report_fault(str(fault))

    async def claim_fact(self, key: str, value: bytes, seconds: float) -> bool:
        try:
            return await self._store.claim_fact(key, value, seconds)
        except StoreUnavailable as fault:
            self._report_fault(str(fault))
            return await self._memory.claim_fact(key, value, seconds)

    async def load_secret(self, current_secret: bytes | None = None) -> bytes:
        try:
            self._secret = await self._store.load_secret(current_secret)
        except StoreUnavailable as fault:
            self._report_fault(str(fault))
            if self._secret is None:
                raise
        return self._secret

    async def read_document(self, key: str) -> bytes | None:
        with self._faults_reported():
            return await self._store.read_document(key)

    async def replace_document(self, key: str, old_value: bytes | None, new_value: bytes) -> bool:
        with self._faults_reported():
            return await self._store.replace_document(key, old_value, new_value)

    async def close(self) -> None:
        await self._store.close()

    @contextmanager
    def _faults_reported(self) -> Iterator[None]:
        try:
            yield
        except StoreUnavailable as fault:
            self._report_fault(str(fault))
            raise

    def _report_fault(self, fault: str) -> None:
        """Report a fault, at most once a second: many requests fail at once."""
        now = self._clock()
        if now - self._reported_at >= 1:
            self._reported_at = now
            self._warn(fault)

    async def _settle(self, remembered_block: Found | None, stored_block: Found | None) -> Found | None:
        if stored_block is not None:
            self._memory.remember(stored_block.key, stored_block.value)
            return stored_block
        if remembered_block is not None:
            return Found(remembered_block.key, await self.put_block(remembered_block.key, remembered_block.value))
        return None


def _cut_at(keys: Sequence[str], last: Found | None) -> Sequence[str]:
    if last is None:
        return keys
    return keys[: keys.index(last.key) + 1]
