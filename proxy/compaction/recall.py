"""What the store remembers of a conversation: the block that stands, the last time, and how its upstream counts.

It is found in one look-up, and nothing is known beside it: whatever one worker knew alone, another would not, and the
two would forward different bytes. Where the store does not answer that is reported, and the request goes on like the
first one of a stranger.
"""

import os
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from proxy import events
from proxy.core.calibration import UNCALIBRATED, Calibration
from proxy.core.identity import bound_key, promise_key
from proxy.core.memory import DAY_SECONDS, MOST_FAILURES, Identity, LastRequest, SummaryCandidate, summary_key
from proxy.core.overlay import Block
from proxy.core.plan import Ready
from proxy.store.promises import SECRET_BYTES, Found, Store, StoreUnavailable

OBSERVED = "observed"
BLOCKS_AT_HAND = 64
FACT_SECONDS = 7 * 24 * 3600.0
SECRET_SECONDS = 1.0
# Blocks of other heads that are passed over in one history; each costs a look-up.
MOST_LOOKUPS = 8


@dataclass(frozen=True, slots=True)
class Memory:
    """What was found."""

    block: Block | None = None
    found: Found | None = None
    """The block as the store has it."""
    last: LastRequest | None = None
    calibration: Calibration = UNCALIBRATED
    rehearsed: bool = False
    """The block is one that was only observed."""
    window: bytes | None = None
    """What an overflow taught of the window, or else what an upstream told."""
    candidate: SummaryCandidate | None = None
    """The newest summary that was asked for, and how far it is."""
    answered: bool = True
    """Did the store answer at all?"""


class Recall:
    """Shared by all requests of a worker."""

    def __init__(self, store: Store, emit: events.Listener) -> None:
        self._store = store
        self._emit = emit
        self._secret = os.urandom(SECRET_BYTES)
        self._told = -SECRET_SECONDS

    async def secret(self) -> bytes:
        """The key of the chain. The store has the last word and is asked every second; one that lost it takes ours.

        Until the store has answered once nothing can be found anyway, so any key will do.
        """
        if time.monotonic() - self._told >= SECRET_SECONDS:
            try:
                self._secret = await self._store.secret(self._secret)
                self._told = time.monotonic()
            except StoreUnavailable as fault:
                self._emit(events.StoreFailed(str(fault)))
        return self._secret

    async def find(
        self, identity: Identity, prior: Calibration, *, rehearse: bool, windows: Sequence[str] = (), told: bool = False
    ) -> Memory:
        """All of it at once; while observing, what was only rehearsed counts where nothing else stands.

        `windows`: where what is known of the window is kept, the lesson of an overflow first; `told`: summaries too.
        """
        spaces = (identity.tenant, _rehearsing(identity)) if rehearse else (identity.tenant,)
        newest_first = identity.links[::-1]
        places = [(space, link) for space in spaces for link in newest_first]
        keys = [promise_key(*place) for place in places]
        facts = [*map(identity.anchor_key, newest_first), identity.scale_key]
        accounts = _summary_keys(identity) if told else []
        try:
            block, fact, taught, account = await self._store.longest(keys, facts, windows, accounts)
            if block is not None and not _serves(block, identity):
                block = await self._find_beside(identity, places[keys.index(block.key) :])
        except StoreUnavailable as fault:
            self._emit(events.StoreFailed(str(fault)))
            return Memory(calibration=prior, answered=False)
        last, calibration = _told(fact, identity, prior)
        return Memory(
            block=_block(block.value) if block else None,
            found=block,
            last=last,
            calibration=calibration,
            rehearsed=block is not None and block.key.startswith(_rehearsing(identity)),
            window=taught.value if taught else None,
            candidate=_candidate(account, accounts),
        )

    async def _find_beside(self, identity: Identity, places: Sequence[tuple[str, bytes]]) -> Found | None:
        """The longest block of this head, where the longest of all holds a summary of another one.

        Such a block stands beside the other's, under link and head, or at an earlier link.
        """
        first, *earlier = places
        keys = [bound_key(*first, identity.head)]
        keys += [key for place in earlier for key in (bound_key(*place, identity.head), promise_key(*place))]
        for _ in range(MOST_LOOKUPS):
            found = (await self._store.longest(keys))[0]
            if found is None or _serves(found, identity):
                return found
            keys = keys[keys.index(found.key) + 1 :]
        return None

    async def candidate(self, identity: Identity) -> SummaryCandidate | None:
        """How far the newest summary is by now."""
        keys = _summary_keys(identity)
        try:
            _, account = await self._store.longest((), keys)
        except StoreUnavailable as fault:
            self._emit(events.StoreFailed(str(fault)))
            return None
        return _candidate(account, keys)

    async def disown(self, identity: Identity, covers: int) -> None:
        """A request that used this summary was called invalid: it is not used again, and no other is asked for."""
        given_up = SummaryCandidate("failed", failures=MOST_FAILURES).to_bytes()
        await self._act(self._store.note(summary_key(identity, covers), given_up, DAY_SECONDS))

    async def promise(self, identity: Identity, ready: Ready, memory: Memory, *, rehearsed: bool) -> None:
        """The upstream took it: from now on the block is a promise, in place of the one it was built on."""
        if ready.block is not None:
            place = _rehearsing(identity) if rehearsed else identity.tenant, ready.link
            block = ready.block.bound_to(identity.head).to_bytes()
            await self._act(self._put(identity, place, block, memory.found))

    async def _put(self, identity: Identity, place: tuple[str, bytes], block: bytes, found: Found | None) -> None:
        """Store a block under its link; where a summary of another head stands there, under link and head."""
        for key in (promise_key(*place), bound_key(*place, identity.head)):
            over = found.value if found is not None and found.key == key else None
            if _serves(Found(key, await self._store.put(key, block, over=over)), identity):
                return

    async def note(self, identity: Identity, last: LastRequest, *, first: bool) -> None:
        """The last time of a conversation. What its first one teaches, the next conversation begins with."""
        key = identity.anchor_key(identity.links[-1])
        await self._act(self._store.note(key, last.to_bytes(), FACT_SECONDS))
        if first and last.calibration.observations:
            await self._act(self._store.note(identity.scale_key, last.calibration.to_bytes(), FACT_SECONDS))

    async def close(self) -> None:
        await self._store.close()

    async def _act(self, act: Coroutine[Any, Any, object]) -> None:
        try:
            await act
        except StoreUnavailable as fault:
            self._emit(events.StoreFailed(str(fault)))


@lru_cache(maxsize=BLOCKS_AT_HAND)
def _block(value: bytes) -> Block | None:
    """Remembered, because the block of a long conversation has a hundred kilobytes and comes back every turn."""
    return Block.from_bytes(value)


def _serves(found: Found, identity: Identity) -> bool:
    """Whether a stored block may stand under this history's head."""
    block = _block(found.value)
    return block is None or block.serves(identity.head)


def _summary_keys(identity: Identity) -> list[str]:
    """Longest first."""
    return [summary_key(identity, covers) for covers in reversed(range(len(identity.links)))]


def _candidate(account: Found | None, keys: Sequence[str]) -> SummaryCandidate | None:
    """What it covers follows from the place of its key, for these stand longest first."""
    return (
        None if account is None else SummaryCandidate.from_bytes(account.value, len(keys) - 1 - keys.index(account.key))
    )


def _rehearsing(identity: Identity) -> str:
    return f"{identity.tenant}/{OBSERVED}"


def _told(fact: Found | None, identity: Identity, prior: Calibration) -> tuple[LastRequest | None, Calibration]:
    """The last time, if there was one, and how this upstream counts this model, as far as that is known."""
    if fact is None:
        return None, prior
    if fact.key == identity.scale_key:
        return None, Calibration.from_bytes(fact.value)
    last = LastRequest.from_bytes(fact.value)
    return last, last.calibration if last is not None and last.counter == identity.counter else prior
