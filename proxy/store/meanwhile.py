"""What a worker goes on with while the shared store is out, and what it gives back to one that has forgotten.

Without it every turn of a conversation would be a stranger's until the store is back: shortened anew each time, each
time elsewhere, and paid for in full. So a worker remembers the promises it made or read, and the facts it noted. It
counts only where the store has nothing newer: while that answers it has the last word, and all workers agree. A promise
that the store lost (flushed, evicted, restarted empty) is made again there by whoever still holds it; one that grew
old there has grown old here, too.

The secret, once told, is known. The documents are not for one worker to make up: of these the store alone can tell.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from proxy.store.memory import MemoryStore
from proxy.store.promises import MEBIBYTE, Bounds, Found, Store, StoreUnavailable

HELD = Bounds(promises=32 * MEBIBYTE, facts=4 * MEBIBYTE)


class Meanwhile:
    """Any store, and this worker's memory of it."""

    def __init__(self, store: Store, bounds: Bounds = HELD, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._held = MemoryStore(bounds, clock)
        self._secret: bytes | None = None

    async def longest(
        self, promises: Sequence[str], facts: Sequence[str] = (), *more: Sequence[str]
    ) -> tuple[Found | None, ...]:
        """What is held here bounds what is asked: of a long history the newest few keys, and not a thousand."""
        held, noted = await self._held.longest(promises, facts)
        asked, recent = _down_to(promises, held), _down_to(facts, noted)
        try:
            promise, fact, *others = await self._store.longest(asked, recent, *more)
            if fact is None and len(recent) < len(facts):  # it was lost there, and an older one may stand
                _, fact = await self._store.longest((), facts[len(recent) :])
        except StoreUnavailable:
            return await self._held.longest(promises, facts, *more)
        return await self._newest(held, promise), fact, *others

    async def put(self, key: str, value: bytes, over: bytes | None = None) -> bytes:
        try:
            standing = await self._store.put(key, value, over)
        except StoreUnavailable:
            return await self._held.put(key, value, over)
        self._held.hold(key, standing)
        return standing

    async def fact(self, key: str) -> bytes | None:
        try:
            return await self._store.fact(key)
        except StoreUnavailable:
            return await self._held.fact(key)

    async def note(self, key: str, value: bytes, seconds: float, over: bytes | None = None) -> None:
        await self._held.note(key, value, seconds, over)
        with suppress(StoreUnavailable):
            await self._store.note(key, value, seconds, over)

    async def claim(self, key: str, value: bytes, seconds: float) -> bool:
        try:
            return await self._store.claim(key, value, seconds)
        except StoreUnavailable:
            return await self._held.claim(key, value, seconds)

    async def secret(self, held: bytes | None = None) -> bytes:
        try:
            self._secret = await self._store.secret(held)
        except StoreUnavailable:
            if self._secret is None:
                raise
        return self._secret

    async def document(self, key: str) -> bytes | None:
        return await self._store.document(key)

    async def swap(self, key: str, old: bytes | None, new: bytes) -> bool:
        return await self._store.swap(key, old, new)

    async def close(self) -> None:
        await self._store.close()

    async def _newest(self, held: Found | None, found: Found | None) -> Found | None:
        """The store was asked for nothing older than what is held here: what it does not have is given back to it."""
        if found is not None:
            self._held.hold(found.key, found.value)
        elif held is not None:
            return Found(held.key, await self.put(held.key, held.value))
        return found


def _down_to(keys: Sequence[str], held: Found | None) -> Sequence[str]:
    return keys if held is None else keys[: keys.index(held.key) + 1]
