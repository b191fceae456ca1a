"""The values that the store remembers of a conversation.

LastRequest        the request before this one: its place in the chain, the upstream's count, how ours relates to it
SummaryCandidate   a summary that a model writes, has written, or could not write
Memory             the values found
"""

import json
from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from msgspec import Struct
from msgspec.structs import replace

from proxy.history.identity import OBSERVED, Identity
from proxy.shorten.block import Block
from proxy.shorten.economics import NOTHING_SEEN, UNCALIBRATED, CacheMemory, Calibration, Window, decode_window
from proxy.shorten.rules import Anchor
from proxy.shorten.stored import StoredValue

DAY_SECONDS = 24 * 3600.0
FACT_SECONDS = 7 * DAY_SECONDS

ReadBlock = Callable[[bytes], Block | None]


class Stored(Protocol):
    @property
    def key(self) -> str: ...
    @property
    def value(self) -> bytes: ...


FoundValues = Sequence[Stored | None]
"""A block, a fact, a window, a summary and the memory of a cache; None for each that is not stored."""


class LastRequest(StoredValue, frozen=True, array_like=True, tag=6):
    anchor: Anchor
    forwarded_at: float
    counter: str
    calibration: Calibration
    refused_views: int = 0
    """The number of requests that the upstream accepted only as the client had sent them."""
    asked_covers: int = 0
    """Messages that the last question for a summary was about; 0 if none was asked."""
    read_since_question: int = 0
    """Tokens that requests have read since that question."""

    @classmethod
    def from_bytes(cls, data: bytes) -> "LastRequest | None":
        return super().from_bytes(data) or _read_last_request_of_0_3(data)


def _read_last_request_of_0_3(data: bytes) -> LastRequest | None:
    try:
        version, link, tokens, view_id, forwarded_at, counter, ratio, observations, *numbers = json.loads(data)
        if version != 4:  # noqa: PLR2004 (its format)
            return None
        anchor = Anchor(bytes.fromhex(link), int(tokens), bytes.fromhex(view_id))
        calibration = Calibration(float(ratio), int(observations))
        return LastRequest(anchor, float(forwarded_at), str(counter), calibration, *map(int, numbers[2:3]))
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None


class SummaryCandidate(StoredValue, frozen=True, array_like=True, tag=1):
    """A summary of `body[:covers]`, stored under the chain link of its last message."""

    state: Literal["making", "ready", "failed"]
    text: str = ""
    """The summary if it is ready, or the owner of the claim while it is being made."""
    failures: int = 0
    """Calls in a row, up to this one, that failed or whose summary was not used."""
    covers: int = 0
    """The messages that it covers. They follow from its key (`read_candidate`): the stored number is ignored."""
    conversation: str = ""
    """The name of its conversation, by which it is found if that conversation is deleted."""

    @classmethod
    def claim(cls, owner: str) -> "SummaryCandidate":
        """Return a claim. *owner* is unique, so that the end of an expired claim does not undo the next one."""
        return cls("making", owner)

    @classmethod
    def of_answer(cls, text: str, earlier_failures: int, conversation: str = "") -> "SummaryCandidate":
        """Return the result of a call; *text* is empty if the call failed."""
        if text:
            return cls("ready", text, earlier_failures, conversation=conversation)
        return cls("failed", failures=earlier_failures + 1)


NO_CANDIDATE = SummaryCandidate("failed")


class Memory(Struct, frozen=True):
    block: Block | None = None
    block_key: str = ""
    """The key at which the block is stored, where a deeper one replaces it."""
    block_bytes: bytes | None = None
    observed: bool = False
    last: LastRequest | None = None
    calibration: Calibration = UNCALIBRATED
    window: Window | None = None
    candidate: SummaryCandidate | None = None
    cache: CacheMemory = NOTHING_SEEN
    answered: bool = True
    """Whether the store has answered: a request of which nothing is found may be the first of its conversation."""

    @classmethod
    def read(
        cls,
        values: FoundValues | None,
        summary_keys: Sequence[str],
        identity: Identity,
        prior: Calibration,
        read_block: ReadBlock,
    ) -> "Memory":
        if values is None:
            return cls(calibration=prior, answered=False)
        stored_block, fact, stored_window, summary, stored_cache = values
        last, calibration = _read_fact(fact, identity, prior)
        window = decode_window(stored_window.value) if stored_window is not None else None
        cache = CacheMemory.from_bytes(stored_cache.value) if stored_cache is not None else None
        memory = cls(
            last=last,
            calibration=calibration,
            window=window,
            candidate=read_candidate(summary, summary_keys),
            cache=cache or NOTHING_SEEN,
        )
        if stored_block is None:
            return memory
        return replace(
            memory,
            block=read_block(stored_block.value),
            block_key=stored_block.key,
            block_bytes=stored_block.value,  # also of an unreadable block: a new one must be able to take its place
            observed=stored_block.key.startswith(f"{identity.tenant}/{OBSERVED}/"),
        )

    @property
    def asked_covers(self) -> int:
        """Messages that the newest question for a summary was about; 0 if none was asked."""
        covers = 0 if self.last is None else self.last.asked_covers
        if self.candidate is not None:
            covers = max(covers, self.candidate.covers)
        if self.block is not None and self.block.summary is not None:
            covers = max(covers, self.block.summary.covers)
        return covers

    def count_read_since_question(self) -> int | None:
        """Tokens that requests have read since a model was last asked for a summary; None if none was asked."""
        asked_covers = self.asked_covers
        if not asked_covers:
            return None
        if self.last is None or self.last.asked_covers < asked_covers:
            return 0
        return self.last.read_since_question

    def count_unused_summaries(self) -> int:
        """Calls for a summary in a row that failed, or whose summary is in no block."""
        candidate, block = self.candidate, self.block
        if candidate is None:
            return 0
        if block is not None and block.summary is not None and block.summary.covers >= candidate.covers:
            return 0
        return candidate.failures + (candidate.state == "ready")


def read_candidate(stored: Stored | None, keys: Sequence[str]) -> SummaryCandidate | None:
    """Read a stored summary. How much it covers follows from the place of its key in *keys*, the longest first."""
    if stored is None:
        return None
    candidate = SummaryCandidate.from_bytes(stored.value)
    if candidate is None:
        return None
    return replace(candidate, covers=len(keys) - 1 - keys.index(stored.key))


def _read_fact(fact: Stored | None, identity: Identity, prior: Calibration) -> tuple[LastRequest | None, Calibration]:
    if fact is None:
        return None, prior
    if fact.key == identity.scale_key:
        # A new conversation: only the calibration of the tenant's last one is known.
        return None, Calibration.from_bytes(fact.value) or prior
    last = LastRequest.from_bytes(fact.value)
    # The counts of one upstream and family of models say nothing about those of another.
    if last is None or last.counter != identity.counter:
        return last, prior
    return last, last.calibration
