r"""A block: "a history that begins with this chain link is forwarded as these parts, then its other messages".

Every worker must forward the same bytes each time. A block covers all that earlier ones covered, and carries the
always-steps for the messages after it, as they were then.

As JSON: {"format":2,"covers":6,"parts":[[0,1],[1,6,"{\"role\":...}","clear_results"]],"always":[...],...}
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from hashlib import blake2b
from itertools import starmap
from typing import Any, Literal, Protocol, TypeVar

from msgspec import Struct, convert, to_builtins
from msgspec.structs import asdict, replace

from proxy.history.chain import remove_cache_marker
from proxy.history.identity import OBSERVED, Identity
from proxy.history.messages import NOTE, Message, as_read_back, make_literal
from proxy.shorten.economics import NOTHING_SEEN, UNCALIBRATED, CacheMemory, Calibration, Window, decode_window
from proxy.shorten.pipeline import Step
from proxy.shorten.reasons import BlockReason
from proxy.shorten.rules import Anchor
from proxy.shorten.steps import step_from_json, step_to_json
from proxy.shorten.summary import Summary

NOTES_HEADING = b"Notes on older results that are shortened above, written by a model before they were:"
"""Version 0.3 put such notes into blocks."""


class StoredFormat(IntEnum):
    """A value of another version is read as if there were none."""

    BLOCK = 2
    LAST_REQUEST = 5
    SUMMARY_CANDIDATE = 1


_BACK_OFF = ("made_at", "fetches", "carry_tokens")


@dataclass(frozen=True, slots=True)
class Part:
    start: int
    stop: int
    literal: bytes = b""
    made: str = ""
    message: Message | None = field(default=None, compare=False, repr=False)


class Fetch(Struct, frozen=True, array_like=True):
    """A result that brings an earlier one again, which was shortened in the view that the model had read."""

    place: int
    earlier: int
    carried: tuple[int, ...] = ()
    """Other shortened results that are shown again behind it."""


class Block(Struct, frozen=True, dict=True):  # with a dict: its digest is computed once
    covers: int
    parts: tuple[Part, ...]
    always: tuple[Step, ...] = ()
    window: int | None = None
    """The usable window of its request, also for the always-steps on later messages."""
    reason: BlockReason = ""
    policy: str = ""
    pruned: tuple[str, ...] = ()
    summary: Summary | None = None
    text_style: bool = False
    """Made before the first tool call: user messages before that call may be observations."""
    head: str = ""
    """The digest of the head that its summary was written under; empty for any head."""
    focus: str = ""
    reasoning_until: int = 0
    """Messages before this place leave without their reasoning, which is bound to the history before it."""
    is_reasoning_refused: bool = False
    """By the upstream, though the model is not known to bind it."""
    nominal_tokens: int | None = None
    made_at: int = 0
    """The number of messages of its request: the model had read earlier views when it asked for these."""
    fetches: tuple[Fetch, ...] = ()
    """Those before `made_at`."""
    carry_tokens: int = 0
    """The size of a view up to which shortened results are shown again; see `back_off.py`."""

    def to_bytes(self) -> bytes:
        value = {"format": StoredFormat.BLOCK, **asdict(self)}
        value["parts"] = list(map(_write_part, self.parts))
        value["always"] = list(map(step_to_json, self.always))
        if self.summary is not None:
            value["summary"] = [self.summary.covers, self.summary.text]
        value["fetches"] = to_builtins(self.fetches)
        for name in (
            "text_style",
            "head",
            "focus",
            "reasoning_until",
            "is_reasoning_refused",
            "nominal_tokens",
            *_BACK_OFF,
        ):
            if not value[name]:
                del value[name]
        try:
            return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
        except UnicodeEncodeError:
            # A model may write half a surrogate pair, which UTF-8 cannot hold.
            return json.dumps(value, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> "Block | None":
        """None for garbage, another format, and a step of a later release."""
        try:
            value = json.loads(data)
            if value["format"] != StoredFormat.BLOCK:
                return None
            block = cls._of(value)
            block._check()  # noqa: SLF001 (its own class)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError):
            return None
        return block

    def _check(self) -> None:
        """Raise for a wrong type or range: a history under a damaged block would be refused."""
        places, texts = [self.covers], [self.reason, self.policy, self.head, self.focus, *self.pruned]
        for part in self.parts:
            places += [part.start, part.stop]
            if part.start > part.stop:
                raise ValueError("a part that ends before it starts")
        if self.summary is not None:
            places.append(self.summary.covers)
            texts.append(self.summary.text)
        convert(texts, list[str])
        convert([*places, self.reasoning_until], list[int])
        convert([self.window, self.nominal_tokens], list[int | None])
        convert([self.text_style, self.is_reasoning_refused], list[bool])
        convert([self.made_at, self.carry_tokens], list[int])
        for fetch in self.fetches:
            sources = fetch.earlier, *fetch.carried
            if not (min(sources) >= 0 and max(sources) < fetch.place < self.made_at):
                raise ValueError("a fetch that does not follow what it brings again")
        if min(places) < 0 or max(places) > self.covers:
            raise ValueError("a place outside of the block")

    @classmethod
    def _of(cls, value: dict[str, Any]) -> "Block":
        members = {name: value[name] for name in cls.__struct_fields__ if name in value}
        members["parts"] = tuple(starmap(_read_part, value["parts"]))
        members["always"] = tuple(starmap(step_from_json, value["always"]))
        members["pruned"] = tuple(value["pruned"])
        members["fetches"] = convert(value.get("fetches", ()), tuple[Fetch, ...])
        if value["summary"] is not None:
            members["summary"] = Summary(*value["summary"])
        return cls(**members)

    @property
    def is_for_window(self) -> bool:
        return self.reason in ("window", "cliff")

    @cached_property
    def digest(self) -> bytes:
        digest = blake2b(digest_size=8)
        for part in self.parts:
            digest.update(b"%d %d %d " % (part.start, part.stop, len(part.literal)))
            digest.update(part.literal)
        return digest.digest()

    def bound_to(self, head: str) -> "Block":
        """The block as it is stored: what a model wrote is bound to the head that it had read."""
        has_notes = any(part.made == NOTE and NOTES_HEADING in part.literal for part in self.parts)
        if self.summary is None and not has_notes:
            return self
        return replace(self, head=head)

    def serves(self, head: str) -> bool:
        return self.head in ("", head)

    def fits(self, length: int, last: int | None) -> bool:
        """After a rewind a block may have folded the last words of a person, at *last*."""
        if self.covers > length:
            return False
        if last is None or last >= self.covers:
            return True
        return any(part.start <= last < part.stop and not part.literal for part in self.parts)

    def apply(self, body: Sequence[Message]) -> tuple[Message, ...]:
        view: list[Message] = []
        for part in self.parts:
            if not part.literal:
                view += body[part.start : part.stop]
            elif part.message is not None:
                view.append(part.message)
            else:
                view.append(make_literal(part.literal, part.start, part.stop, part.made))
        return tuple(view)


def close(view: Iterable[Message]) -> tuple[Part, ...]:
    """The parts of a block that shows these messages; untouched neighbours become one."""
    parts: list[Part] = []
    for message in view:
        if message.literal:
            parts.append(_make_literal_part(message.raw, message.start, message.stop, message.made, message))
        elif parts and not parts[-1].literal and parts[-1].stop == message.start:
            parts[-1] = Part(parts[-1].start, message.stop)
        else:
            parts.append(Part(message.start, message.stop))
    return tuple(parts)


def _write_part(part: Part) -> list[Any]:
    if not part.literal:
        return [part.start, part.stop]
    return [part.start, part.stop, part.literal.decode(), part.made]


def _read_part(start: int, stop: int, raw: str = "", made: str = "") -> Part:
    if not raw:
        return Part(start, stop)
    return _make_literal_part(raw.encode(), start, stop, made)


def _make_literal_part(raw: bytes, start: int, stop: int, made: str, message: Message | None = None) -> Part:
    """Without cache markers: clients move theirs, and an API takes four at most."""
    unmarked_raw = remove_cache_marker(raw)
    if message is None or unmarked_raw != raw:
        return Part(start, stop, unmarked_raw, made, make_literal(unmarked_raw, start, stop, made))
    return Part(start, stop, raw, made, as_read_back(message))


DAY_SECONDS = 24 * 3600.0
FACT_SECONDS = 7 * DAY_SECONDS

T = TypeVar("T")
ReadBlock = Callable[[bytes], Block | None]


class Stored(Protocol):
    @property
    def key(self) -> str: ...
    @property
    def value(self) -> bytes: ...


FoundValues = Sequence[Stored | None]


class LastRequest(Struct, frozen=True):
    anchor: Anchor
    forwarded_at: float
    counter: str
    calibration: Calibration
    refused_views: int = 0
    """Requests that the upstream accepted only as the client had sent them."""
    asked_covers: int = 0
    """Messages that the last question for a summary was about; 0 if none was asked."""
    read_since_question: int = 0
    """Tokens that requests have read since then."""

    def to_bytes(self) -> bytes:
        anchor, scale = self.anchor, self.calibration
        fields = [
            *(anchor.link.hex(), anchor.tokens, anchor.view_id.hex(), self.forwarded_at),
            *(self.counter, scale.ratio, scale.observations),
            *(self.refused_views, self.asked_covers, self.read_since_question),
        ]
        return json.dumps([StoredFormat.LAST_REQUEST, *fields]).encode()

    @classmethod
    def from_bytes(cls, value: bytes) -> "LastRequest | None":
        return _read(value, cls._of)

    @classmethod
    def _of(cls, value: bytes) -> "LastRequest | None":
        version, link, tokens, view_id, forwarded_at, counter, ratio, observations, *numbers = json.loads(value)
        if version == StoredFormat.LAST_REQUEST - 1:
            numbers = numbers[2:]  # until version 0.3 two counts of blocks stood here
        elif version != StoredFormat.LAST_REQUEST:
            return None
        anchor = Anchor(bytes.fromhex(link), int(tokens), bytes.fromhex(view_id))
        calibration = Calibration(float(ratio), int(observations))
        return cls(anchor, float(forwarded_at), str(counter), calibration, *map(int, numbers))


class SummaryCandidate(Struct, frozen=True):
    """A summary of `body[:covers]`, stored under the chain link of its last message."""

    state: Literal["making", "ready", "failed"]
    text: str = ""
    """The summary, or the worker that makes it."""
    failures: int = 0
    """Calls in a row before this one that failed, or whose summary was not used, and this one if it failed."""
    covers: int = 0

    def to_bytes(self) -> bytes:
        return json.dumps([StoredFormat.SUMMARY_CANDIDATE, self.state, self.text, self.failures]).encode()

    @classmethod
    def from_bytes(cls, value: bytes, covers: int = 0) -> "SummaryCandidate | None":
        return _read(value, lambda value: cls._of(value, covers))

    @classmethod
    def _of(cls, value: bytes, covers: int) -> "SummaryCandidate | None":
        version, state, text, failures = json.loads(value)
        if version != StoredFormat.SUMMARY_CANDIDATE or state not in ("making", "ready", "failed"):
            return None
        return cls(state, str(text), int(failures), covers)

    @classmethod
    def claim(cls, owner: str) -> "SummaryCandidate":
        """*owner* is unique: an expired claim must not undo the next one."""
        return cls("making", owner)

    @classmethod
    def of_answer(cls, text: str, earlier_failures: int) -> "SummaryCandidate":
        """*text* is empty if the call failed."""
        if text:
            return cls("ready", text, earlier_failures)
        return cls("failed", failures=earlier_failures + 1)


NO_CANDIDATE = SummaryCandidate("failed")


class LookUp(Struct, frozen=True):
    """In one round trip. Result: `FoundValues`, None if the store did not answer."""

    blocks: Sequence[str] = ()
    facts: Sequence[str] = ()
    windows: Sequence[str] = ()
    summaries: Sequence[str] = ()
    caches: Sequence[str] = ()


class Memory(Struct, frozen=True):
    block: Block | None = None
    block_key: str = ""
    """A deeper block at the same key replaces the bytes."""
    block_bytes: bytes | None = None
    observed: bool = False
    last: LastRequest | None = None
    calibration: Calibration = UNCALIBRATED
    window: Window | None = None
    candidate: SummaryCandidate | None = None
    cache: CacheMemory = NOTHING_SEEN
    answered: bool = True

    @classmethod
    def read(
        cls,
        values: FoundValues | None,
        looked_up: LookUp,
        identity: Identity,
        prior: Calibration,
        read_block: ReadBlock,
    ) -> "Memory":
        if values is None:
            return cls(calibration=prior, answered=False)
        stored_block, fact, stored_window, summary, stored_cache = values
        last, calibration = _read_fact(fact, identity, prior)
        window = None
        if stored_window is not None:
            window = _read(stored_window.value, decode_window)
        cache = None
        if stored_cache is not None:
            cache = _read(stored_cache.value, CacheMemory.from_bytes)
        memory = cls(
            last=last,
            calibration=calibration,
            window=window,
            candidate=read_candidate(summary, looked_up.summaries),
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


def read_candidate(stored: Stored | None, keys: Sequence[str]) -> SummaryCandidate | None:
    """The place of its key in *keys*, longest first, tells how much it covers."""
    if stored is None:
        return None
    return SummaryCandidate.from_bytes(stored.value, len(keys) - 1 - keys.index(stored.key))


def _read_fact(fact: Stored | None, identity: Identity, prior: Calibration) -> tuple[LastRequest | None, Calibration]:
    if fact is None:
        return None, prior
    if fact.key == identity.scale_key:
        return None, _read(fact.value, Calibration.from_bytes) or prior
    last = LastRequest.from_bytes(fact.value)
    if last is None or last.counter != identity.counter:
        return last, prior
    return last, last.calibration


def _read(value: bytes, convert: Callable[[bytes], T | None]) -> T | None:
    try:
        return convert(value)
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None
