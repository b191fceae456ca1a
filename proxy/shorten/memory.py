"""Memory of a conversation between two requests: the values, and the bytes that a store keeps.

Keys begin with the tenant. Everything here may be lost: a value that is missing or unreadable means "unknown", never
an error, and is written again by the next request. Nothing is known beside it: what one worker knew alone, another
would not, and the two would forward different bytes.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
    """The last request of a history: when it was forwarded, and what the upstream counted (0: unknown)."""

    anchor: Anchor
    forwarded_at: float
    counter: str
    calibration: Calibration
    useless_blocks: int = 0
    """How many blocks in a row did not help."""
    requests_since_block: int = 0
    """How many requests ago a block was last made because of the window."""
    refused_views: int = 0
    """How many requests of this history the upstream accepted only as the client had sent them."""

    def to_bytes(self) -> bytes:
        anchor, scale = self.anchor, self.calibration
        anchored = anchor.link.hex(), anchor.tokens, anchor.view_id.hex()
        counted = self.counter, scale.ratio, scale.observations
        # Written where there are any: a worker of an earlier version reads what it has always read.
        refused = (self.refused_views,) if self.refused_views else ()
        blocks = self.useless_blocks, self.requests_since_block, *refused
        return json.dumps([LAST_REQUEST_FORMAT_VERSION, *anchored, self.forwarded_at, *counted, *blocks]).encode()

    @classmethod
    def from_bytes(cls, value: bytes) -> "LastRequest | None":
        return _read(value, cls._of)

    @classmethod
    def _of(cls, fields: Any) -> "LastRequest | None":  # noqa: ANN401 (any JSON)
        version, link, tokens, basis, at, counter, ratio, observations, useless, since, *refused = fields
        if version != LAST_REQUEST_FORMAT_VERSION:
            return None
        anchor = Anchor(bytes.fromhex(link), int(tokens), bytes.fromhex(basis))
        calibration = Calibration(float(ratio), int(observations))
        return cls(anchor, float(at), str(counter), calibration, int(useless), int(since), *map(int, refused))


@dataclass(frozen=True, slots=True)
class SummaryCandidate:
    """A summary of `body[:covers]` before a block uses it: being made, ready, or failed.

    It is stored under the chain link of what it covers, so that every worker sees how far it is.
    """

    state: Literal["making", "ready", "failed"]
    text: str = ""
    """The summary; while it is being made, the worker that makes it."""
    failures: int = 0
    """How many calls in a row failed."""
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
        is_known = version == CANDIDATE_FORMAT_VERSION and state in ("making", "ready", "failed")
        return cls(state, str(text), int(failures), covers) if is_known else None

    @classmethod
    def claim(cls, owner: str) -> "SummaryCandidate":
        """A worker's claim to be making it. `owner` is unique: an expired claim must not undo the next worker's."""
        return cls("making", owner)


NO_CANDIDATE = SummaryCandidate("failed")


@dataclass(frozen=True, slots=True)
class LookUp:
    """Look these keys up in the store, in one round trip. Result: `FoundValues`; None: the store did not answer."""

    blocks: Sequence[str] = ()
    facts: Sequence[str] = ()
    windows: Sequence[str] = ()
    summaries: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Memory:
    """All that a look-up found of a conversation."""

    block: Block | None = None
    block_key: str = ""
    """The key the block was found under, and its bytes: a deeper block at the same key takes their place."""
    block_bytes: bytes | None = None
    observed: bool = False
    """The block was only observed: it is not in force."""
    last: LastRequest | None = None
    calibration: Calibration = UNCALIBRATED
    window: Window | None = None
    """What an overflow taught of the window, or else what an upstream told another worker."""
    candidate: SummaryCandidate | None = None
    """The newest summary that was asked for, and how far it is."""
    answered: bool = True
    """Whether the store answered at all."""

    @property
    def is_new(self) -> bool:
        """True where the store knows nothing of the conversation."""
        return self.answered and self.last is None and not self.block_bytes

    @classmethod
    def read(
        cls, found: FoundValues | None, looked_up: LookUp, identity: Identity, prior: Calibration, read_block: ReadBlock
    ) -> "Memory":
        """The memory that the stored values make. `prior`: the calibration where nothing was learned yet."""
        if found is None:
            return cls(calibration=prior, answered=False)
        stored, fact, window, summary = found
        last, calibration = _read_fact(fact, identity, prior)
        block = None if stored is None else read_block(stored.value)
        return cls(
            block=block,
            block_key="" if stored is None else stored.key,
            # Kept even where the block is unreadable: a new one must be able to take its place.
            block_bytes=None if stored is None else stored.value,
            observed=stored is not None and stored.key.startswith(f"{identity.tenant}/{OBSERVED}/"),
            last=last,
            calibration=calibration,
            window=None if window is None else _read(window.value, decode_window, is_json=False),
            candidate=read_candidate(summary, looked_up.summaries),
        )


def read_candidate(stored: Stored | None, keys: Sequence[str]) -> SummaryCandidate | None:
    """The candidate found under one of these keys. They come longest first, which tells what it covers."""
    return None if stored is None else SummaryCandidate.from_bytes(stored.value, len(keys) - 1 - keys.index(stored.key))


def _read_fact(fact: Stored | None, identity: Identity, prior: Calibration) -> tuple[LastRequest | None, Calibration]:
    """The last request, if there was one, and how this upstream counts this model, as far as that is known."""
    if fact is None:
        return None, prior
    if fact.key == identity.scale_key:
        return None, _read(fact.value, Calibration.from_bytes, is_json=False) or prior
    last = LastRequest.from_bytes(fact.value)
    return last, last.calibration if last is not None and last.counter == identity.counter else prior


def _read(value: bytes, convert: Callable[[Any], T | None], *, is_json: bool = True) -> T | None:
    """The value that these bytes hold; None where they hold another format, or garbage."""
    try:
        return convert(json.loads(value) if is_json else value)
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None
