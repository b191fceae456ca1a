"""A store in this process: alone (`state.store: memory`), or as a fallback while Redis is out or a disk is full.

Without the fallback, every turn of a conversation would be shortened at another place while the store is away, and
paid for in full. So a worker remembers the blocks it made or read, and the facts it wrote. While the store answers, it
has the last word; a block that it lost is written again. Documents are not remembered: other workers may change them.
"""

import asyncio
import sys
from collections.abc import Callable, Collection, Sequence
from itertools import takewhile, tee

from proxy.foundation.lru import ByteBoundedCache
from proxy.store.contract import (
    MEBIBYTE,
    RECORDED_USES_PER_LIFETIME,
    Found,
    Keys,
    Kind,
    RareReports,
    Replaced,
    Store,
    StoreLimits,
    StoreUnavailable,
    ignore,
    read_elapsed,
)


class MemoryStore(Store):
    def __init__(self, limits: StoreLimits = StoreLimits(), clock: Callable[[], float] = read_elapsed) -> None:
        super().__init__(limits)
        self._clock = clock
        self._values: dict[Kind, ByteBoundedCache[str, tuple[bytes, float]]] = {
            Kind.BLOCK: ByteBoundedCache(limits.block_bytes),
            Kind.FACT: ByteBoundedCache(limits.fact_bytes),
            # They are kept for good: nothing could derive them again.
            Kind.DOCUMENT: ByteBoundedCache(sys.maxsize),
        }
        """Each value with the time until which it counts."""

    async def find(self, *lists: Keys) -> tuple[Found | None, ...]:
        return tuple([self.find_newest(keys)[0] for keys in lists])

    def find_newest(self, keys: Keys) -> tuple[Found | None, list[str]]:
        """Return the first value, and the keys up to it; or None and all keys."""
        kind, (names, again) = keys.kind, tee(keys.names)
        for key in self._values[kind].find_known(names):  # skips most of the many keys of a long history
            value, until = self._values[kind].get(key) or (b"", 0.0)
            now = self._clock()
            if until <= now:
                continue
            next_until = now + self.limits.block_seconds
            if kind is Kind.BLOCK and next_until - until > self.limits.block_seconds / RECORDED_USES_PER_LIFETIME:
                self._values[kind][key] = value, next_until
            return Found(key, value), [*takewhile(key.__ne__, again), key]
        return None, [*again]

    async def put(self, kind: Kind, key: str, value: bytes, seconds: float, replaces: Replaced = None) -> bytes:
        stored_value, until = self._values[kind].get(key) or (b"", 0.0)
        if until > self._clock() and replaces not in (stored_value, "anything"):
            return stored_value
        self._values[kind][key] = value, self._clock() + seconds
        return value

    async def remove(self, tenants: Collection[str], is_wanted: Callable[[str, bytes], bool]) -> None:
        for kind in (Kind.BLOCK, Kind.FACT):
            values = self._values[kind]
            for key in list(values):
                value, _ = values.get(key) or (b"", 0.0)
                if key.partition("/")[0] in tenants and is_wanted(key, value):
                    values.pop(key)
                await asyncio.sleep(0)  # requests are served in between

    def clear(self) -> None:
        """Remove all blocks and facts."""
        for kind in (Kind.BLOCK, Kind.FACT):
            self._values[kind].clear()

    async def close(self) -> None:
        """Release nothing: there are no connections and no files."""


FALLBACK_LIMITS = StoreLimits(block_bytes=32 * MEBIBYTE, fact_bytes=4 * MEBIBYTE)


class FallbackStore(Store):
    """A store and this worker's memory of it, which answers while the store does not."""

    def __init__(
        self,
        store: Store,
        limits: StoreLimits = FALLBACK_LIMITS,
        clock: Callable[[], float] = read_elapsed,
        warn: Callable[[str], None] = ignore,
    ) -> None:
        super().__init__(limits)
        self._store = store
        self._reports = RareReports(warn, clock)
        self._memory = MemoryStore(limits, clock)

    async def find(self, *lists: Keys) -> tuple[Found | None, ...]:
        """Ask the store for nothing older than the remembered values: for a few keys of a history, not thousands."""
        remembered_values: list[Found | None] = []
        newest: list[Keys] = []
        for keys in lists:
            value, names = self._memory.find_newest(keys)
            remembered_values.append(value)
            newest.append(Keys(keys.kind, names))
        try:
            values = list(await self._store.find(*newest))
            await self._find_older(values, lists, newest)
        except StoreUnavailable as fault:
            self._reports.add(str(fault), 1.0)  # many requests fail at once
            if any(keys.kind is Kind.DOCUMENT for keys in lists):
                raise
            return tuple(remembered_values)
        for place, keys in enumerate(lists):
            if keys.kind is not Kind.BLOCK:
                continue
            block, remembered = values[place], remembered_values[place]
            if block is not None and block == remembered:
                continue
            if block is not None:
                await self._memory.put(Kind.BLOCK, block.key, block.value, self.limits.block_seconds, "anything")
            elif remembered is not None:  # the store has lost it
                values[place] = Found(remembered.key, await self.put_block(remembered.key, remembered.value))
        return tuple(values)

    async def put(self, kind: Kind, key: str, value: bytes, seconds: float, replaces: Replaced = None) -> bytes:
        try:
            stored_value = await self._store.put(kind, key, value, seconds, replaces)
        except StoreUnavailable as fault:
            self._reports.add(str(fault), 1.0)
            if kind is Kind.DOCUMENT:
                raise
            return await self._memory.put(kind, key, value, seconds, replaces)
        if kind is Kind.BLOCK or (kind is Kind.FACT and stored_value == value):
            await self._memory.put(kind, key, stored_value, seconds, "anything")
        return stored_value

    async def remove(self, tenants: Collection[str], is_wanted: Callable[[str, bytes], bool]) -> None:
        self.forget()
        await self._store.remove(tenants, is_wanted)

    def forget(self) -> None:
        self._memory.clear()

    async def close(self) -> None:
        await self._store.close()

    async def _find_older(self, values: list[Found | None], lists: Sequence[Keys], newest: Sequence[Keys]) -> None:
        """Find facts that are older than a remembered one that the store has lost, in one more round trip."""
        lost: dict[int, Keys] = {}
        for place, keys in enumerate(lists):
            has_older = len(newest[place].names) < len(keys.names)
            if keys.kind is Kind.FACT and has_older and values[place] is None:
                lost[place] = keys
        if lost:
            for place, value in zip(lost, await self._store.find(*lost.values()), strict=True):
                values[place] = value
