r"""A block: "a history that begins with this chain link is forwarded as these parts, then its other messages".

Every worker must forward the same bytes each time. So a block covers all messages that earlier blocks covered, and it
stores the always-steps for the messages after it: a policy whose steps change later does not change their bytes. Those
that change `repair`, `keep_documents` or `recall` may, once.

As JSON: {"format":2,"covers":6,"parts":[[0,1],[1,6,"{\"role\":...}","clear_results"]],"always":[...],...}

Like every stored value it has the number of its format. Another format is read as if there were no value.
"""

import json
from collections.abc import Iterable, Sequence
from functools import cached_property
from hashlib import blake2b
from typing import Annotated, Any, Literal, Self

from msgspec import Meta, Struct, convert, field, to_builtins
from msgspec.structs import replace

from proxy.history import splice
from proxy.history.identity import remove_cache_marker
from proxy.history.messages import NOTE, Message, as_read_back, make_literal
from proxy.shorten.pipeline import Step
from proxy.shorten.steps import step_from_json, step_to_json
from proxy.shorten.summary import Summary

BlockReason = Literal["", "stride", "cold", "user", "window", "cliff", "forced", "opening", "signature"]
"""Why a block was made. It is stored with the block."""

Reason = Literal[
    BlockReason,
    "overflow_retry",
    "reasoning-removed",
    "shortened-refused",
    "floor",
    "min_groups",
    "min_turns",
    "summary-pending",
    "switched-off",
    "fetches-high",
    "no-summary",
    "summary-no-gain",
    "summaries-off",
    "focus-unused",
    "originals-unwritable",
    "window-unknown",
    "not-understood",
    "too-much-work",
    "provider-compacts",
    "client-rewrites",
    "history-elsewhere",
    "whole-history-asked",
]
"""Why a request was decided so. Headers, log, metrics and pages show it, and docs/policies.md explains it."""


class StoredValue(Struct, frozen=True):
    """The base of values that are stored. The tag of a subclass is the number of its format."""

    def to_bytes(self) -> bytes:
        return splice.write_json(to_builtins(self))

    @classmethod
    def from_bytes(cls, data: bytes) -> Self | None:
        """Return None for garbage and for another format."""
        try:
            return convert(json.loads(data), cls)
        except (ValueError, RecursionError):
            return None


NOTES_HEADING = b"Notes on older results that are shortened above, written by a model before they were:"
"""The heading of notes that version 0.3 wrote: a block that is still stored may hold them."""


class Part(Struct, frozen=True):
    """A stretch of the client's messages, as they are, or the message that replaces them."""

    start: int
    stop: int
    message: Message | None = None

    @property
    def literal(self) -> bytes:
        return b"" if self.message is None else self.message.raw


class Refetch(Struct, frozen=True, array_like=True):
    """A result that brings an earlier one again, which was shortened in the view that the model had read."""

    place: int
    earlier: int
    carried: tuple[int, ...] = ()
    """Other shortened results that are shown again after it, in the same message."""


Place = Annotated[int, Meta(ge=0)]


class _BlockFields(Struct, frozen=True, kw_only=True):
    """The fields of a block that are stored as they are."""

    window: int | None = None
    """The usable window of its request, also for the always-steps on later messages."""
    reason: BlockReason = ""
    policy: str = ""
    pruned: tuple[str, ...] = ()
    """The names of tools whose definitions are left out of the request."""
    summary: Summary | None = None
    text_style: bool = False
    """The block was made before the first tool call: user messages before that call may be observations."""
    head: str = ""
    """The digest of the head that its summary was written under; empty for any head."""
    focus: str = ""
    reasoning_until: Place = 0
    """Messages before this place leave without their reasoning, which is bound to the history before it."""
    is_reasoning_refused: bool = False
    """The upstream has refused earlier reasoning, though the model is not known to bind it."""
    nominal_tokens: int | None = None
    made_at: int = 0
    """The number of messages of its request. The model asked for the results among them when it had read older views,
    so the refetches among them do not follow from this block and are stored with it."""
    refetches: tuple[Refetch, ...] = field(default=(), name="fetches")
    """The refetches before `made_at`."""
    carry_tokens: int = 0
    """The size of a view up to which shortened results are shown again; see `back_off.py`."""


class _StoredPart(Struct, frozen=True, array_like=True):
    start: Place
    stop: Place
    literal: str = ""
    made: str = ""

    def read(self) -> Part:
        if not self.literal:
            return Part(self.start, self.stop)
        return _make_part(make_literal(self.literal.encode(), self.start, self.stop, self.made))


class _StoredBlock(_BlockFields, StoredValue, frozen=True, tag_field="format", tag=2):
    covers: Place
    parts: tuple[_StoredPart, ...]
    always: tuple[tuple[str, dict[str, Any]], ...]
    conversation: str = ""
    """Its name, by which the block is found again if the conversation is deleted."""

    def is_sound(self) -> bool:
        """Tell if all places are within the block. An upstream would refuse a view that a damaged block makes."""
        places = [0]
        for part in self.parts:
            if part.start > part.stop:
                return False
            places.append(part.stop)
        if self.summary is not None:
            places += [self.summary.covers, self.covers - self.summary.covers]
        for refetch in self.refetches:
            sources = refetch.earlier, *refetch.carried
            if not (min(sources) >= 0 and max(sources) < refetch.place < self.made_at):
                return False  # a refetch follows the results that it brings again
        return min(places) >= 0 and max(places) <= self.covers


class Block(_BlockFields, frozen=True, dict=True):  # with a dict: its digest is computed once
    covers: int
    parts: tuple[Part, ...]
    always: tuple[Step, ...] = ()

    def to_bytes(self, conversation: str = "") -> bytes:
        parts = []
        for part in self.parts:
            made = "" if part.message is None else part.message.made
            parts.append(_StoredPart(part.start, part.stop, part.literal.decode(), made))
        always = [step_to_json(step) for step in self.always]
        return _StoredBlock(self.covers, tuple(parts), tuple(always), conversation, **_read_fields(self)).to_bytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> "Block | None":
        """Return None for garbage, another format, and a step of a later release."""
        stored = _StoredBlock.from_bytes(data)
        if stored is None or not stored.is_sound():
            return None
        try:
            always = tuple([step_from_json(*step) for step in stored.always])
            parts = tuple([part.read() for part in stored.parts])
        except (KeyError, ValueError):
            return None
        return cls(stored.covers, parts, always, **_read_fields(stored))

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
        """Return the block as it is stored: one that holds a model's text serves only the head that the model read."""
        notes = [part.literal for part in self.parts if part.message is not None and part.message.made == NOTE]
        if self.summary is None and not any(NOTES_HEADING in note for note in notes):
            return self
        return replace(self, head=head)

    def serves(self, head: str) -> bool:
        return self.head in ("", head)

    def fits(self, length: int, last: int | None) -> bool:
        """Return whether the block may serve a history of this *length*.

        After a rewind, it may have folded the newest message of a person, at *last*, which must stay.
        """
        if self.covers > length:
            return False
        if last is None or last >= self.covers:
            return True
        return any(part.start <= last < part.stop and part.message is None for part in self.parts)

    def apply(self, body: Sequence[Message]) -> tuple[Message, ...]:
        view: list[Message] = []
        for part in self.parts:
            if part.message is None:
                view += body[part.start : part.stop]
            else:
                view.append(part.message)
        return tuple(view)


def close(view: Iterable[Message]) -> tuple[Part, ...]:
    """Return the parts of a block that shows these messages. Unchanged neighbours are one part."""
    parts: list[Part] = []
    for message in view:
        if message.literal:
            parts.append(_make_part(message))
        elif parts and parts[-1].message is None and parts[-1].stop == message.start:
            parts[-1] = Part(parts[-1].start, message.stop)
        else:
            parts.append(Part(message.start, message.stop))
    return tuple(parts)


def _read_fields(block: _BlockFields) -> dict[str, Any]:
    return {name: getattr(block, name) for name in _BlockFields.__struct_fields__}


def _make_part(message: Message) -> Part:
    """Make a part without cache markers: clients move theirs, and Anthropic refuses a fifth one.

    https://platform.claude.com/docs/en/build-with-claude/prompt-caching
    """
    raw = remove_cache_marker(message.raw)
    if raw != message.raw:
        message = make_literal(raw, message.start, message.stop, message.made)
    return Part(message.start, message.stop, as_read_back(message))
