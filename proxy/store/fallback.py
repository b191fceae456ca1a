"""A store with this worker's memory as a fallback, for a Redis that is out or a disk that is full.

Without it, every turn of a conversation would look like its first one until the store is back: compacted again each
time, at another place, and paid for in full. So a worker remembers the blocks it made or read, and the facts it wrote.
While the store answers, it has the last word, so that all workers agree. If the store lost a block (flushed, evicted,
restarted empty), the next worker that looks it up and still remembers it writes it again.

The secret is remembered once it was read. Documents are not, because other workers may have changed them.
"""

import time
from collections.abc import Callable, Sequence

from proxy.store.clock import read_elapsed
from proxy.store.contract import MEBIBYTE, Found, Store, StoreLimits, StoreUnavailable, ignore
from proxy.store.memory import MemoryStore

FALLBACK_LIMITS = StoreLimits(block_bytes=32 * MEBIBYTE, fact_bytes=4 * MEBIBYTE)
REPORT_INTERVAL_SECONDS = 1.0


class FallbackStore:
    """Any store, and this worker's memory of it. `warn` gets the faults that the memory makes up for."""

    def __init__(
        self,
        store: Store,
        limits: StoreLimits = FALLBACK_LIMITS,
        clock: Callable[[], float] = read_elapsed,
        warn: Callable[[str], None] = ignore,
    ) -> None:
        self._store = store
        self._warn = warn
        self._reported = "", float("-inf")
        self._memory = MemoryStore(limits, clock)
        self._secret: bytes | None = None

    async def find_first(
        self, blocks: Sequence[str], facts: Sequence[str] = (), *fact_lists: Sequence[str]
    ) -> tuple[Found | None, ...]:
        """Return the first of each list.

        The store is asked for nothing older than the remembered values, so a few of the newest keys of a long history
        are sent, not thousands.
        """
        remembered_block, remembered_fact = await self._memory.find_first(blocks, facts)
        newest_blocks, newest_facts = _cut_at(blocks, remembered_block), _cut_at(facts, remembered_fact)
        try:
            block, fact, *other_facts = await self._store.find_first(newest_blocks, newest_facts, *fact_lists)
            if fact is None and len(newest_facts) < len(facts):
                # The store has lost the remembered fact. It may still have an older one.
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
        except StoreUnavailable:
            if self._secret is None:
                raise
        return self._secret

    async def read_document(self, key: str) -> bytes | None:
        return await self._store.read_document(key)

    async def replace_document(self, key: str, old_value: bytes | None, new_value: bytes) -> bool:
        return await self._store.replace_document(key, old_value, new_value)

    async def close(self) -> None:
        await self._store.close()

    def _report_fault(self, fault: str) -> None:
        """Report a fault, the same one at most once a second."""
        last_fault, reported_at = self._reported
        if fault != last_fault or time.monotonic() - reported_at >= REPORT_INTERVAL_SECONDS:
            self._reported = fault, time.monotonic()
            self._warn(fault)

    async def _settle(self, remembered_block: Found | None, stored_block: Found | None) -> Found | None:
        """Return the block to use: remember the stored one, or store the remembered one again."""
        if stored_block is not None:
            self._memory.remember(stored_block.key, stored_block.value)
            return stored_block
        if remembered_block is not None:
            return Found(remembered_block.key, await self.put_block(remembered_block.key, remembered_block.value))
        return None


def _cut_at(keys: Sequence[str], last: Found | None) -> Sequence[str]:
    """Return the keys up to that of `last`, or all of them."""
    if last is None:
        return keys
    return keys[: keys.index(last.key) + 1]
