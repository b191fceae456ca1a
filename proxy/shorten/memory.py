"""Memory of a conversation between two requests: the values, and the bytes that a store keeps.

Everything here may be lost: a value that is missing or unreadable means "unknown", never an error, and is written again
by the next request. Workers keep no other state, so that all of them forward the same bytes.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, TypeVar

from proxy.history.identity import OBSERVED, Identity
from proxy.shorten.block import Block
from proxy.shorten.calibration import UNCALIBRATED, Calibration
from proxy.shorten.rules import Anchor
from proxy.shorten.window import Window, decode_window

DAY_SECONDS = 24 * 3600.0
FACT_SECONDS = 7 * DAY_SECONDS
FAILED_SECONDS = 600.0
MAX_FAILURES = 2
"""After this many failed calls for a summary in a row, no model is asked again for a day."""
LAST_REQUEST_FORMAT_VERSION = 4
CANDIDATE_FORMAT_VERSION = 1

T = TypeVar("T")
ReadBlock = Callable[[bytes], Block | None]


class Stored(Protocol):
    """A value as the store has it, and the key it was found under."""

    @property
    def key(self) -> str: ...
    @property
    def value(self) -> bytes: ...


FoundValues = Sequence[Stored | None]
"""The first value under each list of keys of a look-up."""


@dataclass(frozen=True, slots=True)
class LastRequest:
    """The last request of a history: when it was forwarded, and how many tokens the upstream counted (0: unknown)."""

    anchor: Anchor
    forwarded_at: float
    counter: str
    calibration: Calibration
    useless_blocks: int = 0
    """Blocks in a row that did not help."""
    requests_since_block: int = 0
    """Requests since a block was made because of the window."""
    refused_views: int = 0
    """Requests of this history that the upstream accepted only as the client had sent them."""

    def to_bytes(self) -> bytes:
        anchor, scale = self.anchor, self.calibration
        fields = [
            *(anchor.link.hex(), anchor.tokens, anchor.view_id.hex(), self.forwarded_at),
            *(self.counter, scale.ratio, scale.observations, self.useless_blocks, self.requests_since_block),
        ]
        if self.refused_views:
            fields.append(self.refused_views)
        return json.dumps([LAST_REQUEST_FORMAT_VERSION, *fields]).encode()

    @classmethod
    def from_bytes(cls, value: bytes) -> "LastRequest | None":
        return _read(value, cls._of)

    @classmethod
    def _of(cls, fields: Any) -> "LastRequest | None":  # noqa: ANN401 (any JSON)
        version, link, tokens, view_id, forwarded_at, counter, ratio, observations, *numbers = fields
        if version != LAST_REQUEST_FORMAT_VERSION:
            return None
        anchor = Anchor(bytes.fromhex(link), int(tokens), bytes.fromhex(view_id))
        calibration = Calibration(float(ratio), int(observations))
        useless_blocks, requests_since_block, *refused_views = map(int, numbers)
        return cls(
            anchor, float(forwarded_at), str(counter), calibration, useless_blocks, requests_since_block, *refused_views
        )


@dataclass(frozen=True, slots=True)
class SummaryCandidate:
    """A summary of `body[:covers]` before a block uses it: being made, ready, or failed.

    It is stored under the chain link of the last message that it covers, so that every worker sees its state.
    """

    state: Literal["making", "ready", "failed"]
    text: str = ""
    """The summary; while it is being made, the worker that makes it."""
    failures: int = 0
    """Calls in a row that failed."""
    covers: int = 0
    """Not stored: it follows from the key."""

    def to_bytes(self) -> bytes:
        return json.dumps([CANDIDATE_FORMAT_VERSION, self.state, self.text, self.failures]).encode()

    @classmethod
    def from_bytes(cls, value: bytes, covers: int = 0) -> "SummaryCandidate | None":
        return _read(value, lambda fields: cls._of(fields, covers))

    @classmethod
    def _of(cls, fields: Any, covers: int) -> "SummaryCandidate | None":  # noqa: ANN401 (any JSON)
        version, state, text, failures = fields
        if version != CANDIDATE_FORMAT_VERSION or state not in ("making", "ready", "failed"):
            return None
        return cls(state, str(text), int(failures), covers)

    @classmethod
    def claim(cls, owner: str) -> "SummaryCandidate":
        """Return a worker's claim to be making it. *owner* is unique: an expired claim must not undo the next one."""
        return cls("making", owner)


NO_CANDIDATE = SummaryCandidate("failed")


@dataclass(frozen=True, slots=True)
class LookUp:
    """Look these keys up in the store, in one round trip. Result: `FoundValues`, None if the store did not answer."""

    blocks: Sequence[str] = ()
    facts: Sequence[str] = ()
    windows: Sequence[str] = ()
    summaries: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Memory:
    """All that the store has of a conversation."""

    block: Block | None = None
    block_key: str = ""
    """The key the block was found under, and its bytes: a deeper block at the same key takes their place."""
    block_bytes: bytes | None = None
    observed: bool = False
    """The block was only observed: it is not applied."""
    last: LastRequest | None = None
    calibration: Calibration = UNCALIBRATED
    window: Window | None = None
    """The window as an overflow or, else, as an upstream told it to another worker."""
    candidate: SummaryCandidate | None = None
    """The newest summary that was asked for."""
    answered: bool = True
    """Whether the store answered at all."""

    @property
    def is_new(self) -> bool:
        """Whether the store has nothing of the conversation."""
        return self.answered and self.last is None and not self.block_bytes

    @classmethod
    def read(
        cls, found: FoundValues | None, looked_up: LookUp, identity: Identity, prior: Calibration, read_block: ReadBlock
    ) -> "Memory":
        """Return the memory of these stored values. *prior* is the calibration if nothing was learned yet."""
        if found is None:
            return cls(calibration=prior, answered=False)
        stored, fact, stored_window, summary = found
        last, calibration = _read_fact(fact, identity, prior)
        window = None
        if stored_window is not None:
            window = _read(stored_window.value, decode_window, is_json=False)
        memory = cls(
            last=last,
            calibration=calibration,
            window=window,
            candidate=read_candidate(summary, looked_up.summaries),
        )
        if stored is None:
            return memory
        return replace(
            memory,
            block=read_block(stored.value),
            block_key=stored.key,
            block_bytes=stored.value,  # also of an unreadable block: a new one must be able to take its place
            observed=stored.key.startswith(f"{identity.tenant}/{OBSERVED}/"),
        )


def read_candidate(stored: Stored | None, keys: Sequence[str]) -> SummaryCandidate | None:
    """Return the stored candidate. Its place in *keys*, which come longest first, tells how much it covers."""
    if stored is None:
        return None
    return SummaryCandidate.from_bytes(stored.value, len(keys) - 1 - keys.index(stored.key))


def _read_fact(fact: Stored | None, identity: Identity, prior: Calibration) -> tuple[LastRequest | None, Calibration]:
    """Return the last request and how this upstream counts this model, if they are known."""
    if fact is None:
        return None, prior
    if fact.key == identity.scale_key:
        return None, _read(fact.value, Calibration.from_bytes, is_json=False) or prior
    last = LastRequest.from_bytes(fact.value)
    if last is None or last.counter != identity.counter:
        return last, prior
    return last, last.calibration


def _read(value: bytes, convert: Callable[[Any], T | None], *, is_json: bool = True) -> T | None:
    """Read a value; None if the bytes hold another format, or garbage."""
    try:
        if is_json:
            return convert(json.loads(value))
        return convert(value)
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None
