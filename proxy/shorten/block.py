r"""A block: "a history that begins with this chain link is forwarded as these parts, then its other messages".

The client sends the whole history every time, and the upstream caches what it has read. So a shorter form must have
the same bytes each time it is forwarded, by any worker, after any restart. A part is a stretch of the client's own
messages, or bytes of the proxy, so a block is small. It is self-contained: a later one covers all that an
earlier one covered. It also carries the always-steps for the messages after it, with their settings of that time.

As JSON: {"format":2,"covers":6,"parts":[[0,1],[1,6,"{\"role\":...}","clear_results"]],"always":[...],...}
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from typing import Any

from proxy.history.chain import remove_cache_marker
from proxy.history.messages import NOTE, Message, as_read_back, make_literal
from proxy.shorten.pipeline import Step
from proxy.shorten.step_registry import step_from_json, step_to_json
from proxy.shorten.summary import NOTES_HEADING, Summary

FORMAT_VERSION = 2


@dataclass(frozen=True, slots=True)
class Part:
    """`body[start:stop]` as the client sent it, or these bytes in its place."""

    start: int
    stop: int
    literal: bytes = b""
    made: str = ""
    message: Message | None = field(default=None, compare=False, repr=False)
    """The literal bytes, parsed. Kept with them because a block is applied on every turn."""


@dataclass(frozen=True)  # without slots: its digest is computed once
class Block:
    """The stored replacement for the first `covers` messages of a body."""

    covers: int
    parts: tuple[Part, ...]
    always: tuple[Step, ...] = ()
    window: int | None = None
    """The usable window of the request that it was made for; the always-steps use it for later messages, too."""
    reason: str = ""
    policy: str = ""
    pruned: tuple[str, ...] = ()
    summary: Summary | None = None
    """The newest summary in it, as the model wrote it: the next one continues it."""
    head: str = ""
    """The digest of the head that this summary was written under; empty if it serves any head, without a summary."""
    focus: str = ""
    """The focus that the client set for its summary."""
    reasoning_until: int = 0
    """Messages before this place leave without their reasoning: it is bound to the history before it."""
    is_reasoning_refused: bool = False
    """The upstream has refused signed reasoning in this conversation, whose model is not known to bind it."""
    text_style: bool = False
    """It was made before the first tool call: user messages before that call may be observations."""
    nominal_tokens: int | None = None
    """`Facts.nominal_tokens` when it was made; None in a block of an earlier version."""

    def to_bytes(self) -> bytes:
        """Return the block as it is stored. Later members are written only if they are set."""
        summary = None
        if self.summary is not None:
            summary = [self.summary.covers, self.summary.text]
        value: dict[str, Any] = {
            "format": FORMAT_VERSION,
            "covers": self.covers,
            "parts": [_write_part(part) for part in self.parts],
            "always": [step_to_json(step) for step in self.always],
            "window": self.window,
            "reason": self.reason,
            "policy": self.policy,
            "pruned": self.pruned,
            "summary": summary,
        }
        for name in ("text_style", "head", "focus", "reasoning_until", "is_reasoning_refused"):
            if getattr(self, name):
                value[name] = getattr(self, name)
        if self.nominal_tokens is not None:
            value["nominal_tokens"] = self.nominal_tokens
        try:
            return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
        except UnicodeEncodeError:
            # A model may write half a surrogate pair, which JSON can escape and UTF-8 cannot hold.
            return json.dumps(value, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> "Block | None":
        """Read a stored block; None for another format, for garbage, and for a step that only a later release has."""
        try:
            value = json.loads(data)
            if value["format"] != FORMAT_VERSION:
                return None
            block = cls._of(value)
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
            return None
        if not block._is_sound():  # noqa: SLF001 (its own class)
            return None
        return block

    def _is_sound(self) -> bool:
        """Whether its values have valid types and ranges: a history under a damaged block would be refused."""
        places, texts = [self.covers], [self.reason, self.policy, self.head, self.focus, *self.pruned]
        for part in self.parts:
            places += [part.start, part.stop]
            if part.start > part.stop:
                return False
        if self.summary is not None:
            places.append(self.summary.covers)
            texts.append(self.summary.text)
        for place in places:
            if type(place) is not int or not 0 <= place <= self.covers:
                return False
        for size in (self.window, self.nominal_tokens):
            if size is not None and type(size) is not int:
                return False
        return all(isinstance(text, str) for text in texts) and type(self.reasoning_until) is int

    @classmethod
    def _of(cls, value: dict[str, Any]) -> "Block":
        summary = value["summary"]
        if summary is not None:
            summary = Summary(*summary)
        return cls(
            covers=value["covers"],
            parts=tuple(_read_part(*part) for part in value["parts"]),
            always=tuple(step_from_json(*step) for step in value["always"]),
            window=value["window"],
            reason=value["reason"],
            policy=value["policy"],
            pruned=tuple(value["pruned"]),
            summary=summary,
            text_style=value.get("text_style") is True,
            head=value.get("head", ""),
            focus=value.get("focus", ""),
            reasoning_until=value.get("reasoning_until", 0),
            is_reasoning_refused=value.get("is_reasoning_refused") is True,
            nominal_tokens=value.get("nominal_tokens"),
        )

    @cached_property
    def digest(self) -> bytes:
        """A hash of the messages that it forwards."""
        digest = blake2b(digest_size=8)
        for part in self.parts:
            digest.update(b"%d %d %d " % (part.start, part.stop, len(part.literal)))
            digest.update(part.literal)
        return digest.digest()

    def bound_to(self, head: str) -> "Block":
        """Return the block as it is stored: text that a model wrote is bound to the head that the model had read."""
        if self.summary is None and not self._holds_notes():
            return self
        return replace(self, head=head)

    def _holds_notes(self) -> bool:
        """Whether a model has written notes on results that are shortened."""
        return any(part.made == NOTE and NOTES_HEADING.encode() in part.literal for part in self.parts)

    def serves(self, head: str) -> bool:
        """Whether it may be used under this head: a summary may repeat its own head."""
        return self.head in ("", head)

    def fits(self, length: int, last: int | None) -> bool:
        """Whether it may be used for a body of this length: after a rewind it may have folded the user's last words.

        *last* is the place of the newest message of a person.
        """
        if self.covers > length:
            return False
        if last is None or last >= self.covers:
            return True
        return any(part.start <= last < part.stop and not part.literal for part in self.parts)

    def apply(self, body: Sequence[Message]) -> tuple[Message, ...]:
        """Return the messages in place of `body[:covers]`."""
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
    """Return the parts of a block that shows these messages; untouched neighbours become one part."""
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
    """Make a part of these bytes, without cache markers: clients move theirs, and an API takes four at most."""
    unmarked_raw = remove_cache_marker(raw)
    if message is None or unmarked_raw != raw:
        return Part(start, stop, unmarked_raw, made, make_literal(unmarked_raw, start, stop, made))
    return Part(start, stop, raw, made, as_read_back(message))
