"""Blocks: "a history that begins with this chain link is forwarded as these parts, and then the rest of it".

The client sends the whole history every time, and the upstream caches what it has read. So what was once forwarded in a
shorter form must be forwarded again with the same bytes, by any worker, after any restart. A part is a stretch of the
client's own messages, or bytes of the proxy, so a block is small. It is self-contained: a later one covers what an
earlier one covered, and nothing else has to be found to use it. It also carries the always-steps, as they were set
when it was made, for the messages that come after it.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import groupby
from typing import Any

from proxy.history.identity import remove_cache_marker
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


@dataclass(frozen=True, slots=True)
class Block:
    """The stored replacement for the first `covers` messages of a body."""

    covers: int
    parts: tuple[Part, ...]
    always: tuple[Step, ...] = ()
    window: int | None = None
    """The usable window of the request that it was made for, by which the always-steps go on to act."""
    reason: str = ""
    policy: str = ""
    pruned: tuple[str, ...] = ()
    summary: Summary | None = None
    """The newest summary in it, as the model wrote it: the next one goes on from there."""
    head: str = ""
    """The digest of the head that this summary was written under; empty: of any (no summary, or a block of 0.1)."""
    focus: str = ""
    """What the client wanted its summary to keep above all."""
    reasoning_until: int = 0
    """Messages before this place leave without their reasoning, which is bound to the history that it was written
    under."""
    is_reasoning_refused: bool = False
    """The upstream has refused signed reasoning in this conversation, whose model is not known to bind it."""
    text_style: bool = False
    """It was made before the first tool call: user messages before that call may be observations."""
    nominal_tokens: int | None = None
    """`Facts.nominal_tokens` when it was made; None in a block of an earlier version."""
    _digests: list[bytes] = field(default_factory=list, init=False, compare=False, repr=False)

    def to_bytes(self) -> bytes:
        value = {
            "format": FORMAT_VERSION,
            "covers": self.covers,
            "parts": [_write_part(part) for part in self.parts],
            "always": [step_to_json(step) for step in self.always],
            "window": self.window,
            "reason": self.reason,
            "policy": self.policy,
            "pruned": self.pruned,
            "summary": None if self.summary is None else [self.summary.covers, self.summary.text],
            **({"text_style": True} if self.text_style else {}),
            **({"head": self.head} if self.head else {}),
            **({"focus": self.focus} if self.focus else {}),
            **({"reasoning_until": self.reasoning_until} if self.reasoning_until else {}),
            **({"is_reasoning_refused": True} if self.is_reasoning_refused else {}),
            **({} if self.nominal_tokens is None else {"nominal_tokens": self.nominal_tokens}),
        }
        try:
            return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
        except (
            UnicodeEncodeError
        ):  # a model may write half a surrogate pair, which JSON can escape and UTF-8 cannot hold
            return json.dumps(value, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> "Block | None":
        """The block again; None for one of another format, for garbage, and for a step that a later release knows."""
        try:
            value = json.loads(data)
            if value["format"] != FORMAT_VERSION:
                return None
            block = cls._of(value)
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
            return None
        return block if block._is_sound() else None  # noqa: SLF001 (its own class)

    def _is_sound(self) -> bool:
        """True where its values have valid types and ranges: what a damaged block forwards would be refused."""
        summary = self.summary
        figures = [self.covers, *(figure for part in self.parts for figure in (part.start, part.stop))]
        figures += [] if summary is None else [summary.covers]
        texts = [
            self.reason,
            self.policy,
            self.head,
            self.focus,
            *self.pruned,
            *([] if summary is None else [summary.text]),
        ]
        return (
            all(type(figure) is int and 0 <= figure <= self.covers for figure in figures)
            and all(part.start <= part.stop for part in self.parts)
            and all(isinstance(text, str) for text in texts)
            and all(size is None or type(size) is int for size in (self.window, self.nominal_tokens))
            and type(self.reasoning_until) is int
        )

    @classmethod
    def _of(cls, value: dict[str, Any]) -> "Block":
        return cls(
            covers=value["covers"],
            parts=tuple(_read_part(*part) for part in value["parts"]),
            always=tuple(step_from_json(*step) for step in value["always"]),
            window=value["window"],
            reason=value["reason"],
            policy=value["policy"],
            pruned=tuple(value["pruned"]),
            summary=None if value["summary"] is None else Summary(*value["summary"]),
            text_style=value.get("text_style") is True,
            head=value.get("head", ""),
            focus=value.get("focus", ""),
            reasoning_until=value.get("reasoning_until", 0),
            is_reasoning_refused=value.get("is_reasoning_refused") is True,
            nominal_tokens=value.get("nominal_tokens"),
        )

    @property
    def digest(self) -> bytes:
        """Identifies a block by what it forwards. Computed once: a block is applied on every turn."""
        if not self._digests:
            found = blake2b(digest_size=8)
            for part in self.parts:
                found.update(b"%d %d %d " % (part.start, part.stop, len(part.literal)))
                found.update(part.literal)
            self._digests.append(found.digest())
        return self._digests[0]

    def bound_to(self, head: str) -> "Block":
        """The block as it is stored: with what a model wrote bound to the head that the model had read."""
        return replace(self, head=head) if self.summary is not None or self._holds_notes else self

    @property
    def _holds_notes(self) -> bool:
        """Whether a model has written notes on results that are shortened."""
        return any(part.made == NOTE and NOTES_HEADING.encode() in part.literal for part in self.parts)

    def serves(self, head: str) -> bool:
        """True where it may be used under this head: a summary may repeat what its own head says."""
        return self.head in ("", head)

    def fits(self, length: int, last: int | None) -> bool:
        """True where it may be used for a body of this length: after a rewind it may have folded the user's last words.

        `last`: the place of the newest message of a real user.
        """
        if self.covers > length:
            return False
        if last is None or last >= self.covers:
            return True
        return any(part.start <= last < part.stop and not part.literal for part in self.parts)

    def apply(self, body: Sequence[Message]) -> tuple[Message, ...]:
        """The messages that stand for `body[:covers]`."""
        view: list[Message] = []
        for part in self.parts:
            if part.literal:
                view.append(part.message or make_literal(part.literal, part.start, part.stop, part.made))
            else:
                view += body[part.start : part.stop]
        return tuple(view)


def close(view: Iterable[Message]) -> tuple[Part, ...]:
    """The parts of a block that shows these messages; untouched neighbours become one part."""
    numbered = enumerate(view)
    runs = groupby(numbered, key=lambda pair: pair[0] if pair[1].literal else pair[1].start - pair[0] + 0.5)
    return tuple(_part([message for _, message in run]) for _, run in runs)


def _part(run: list[Message]) -> Part:
    first = run[0]
    if first.literal:
        return _literal_part(first.raw, first.start, first.stop, first.made, first)
    return Part(first.start, run[-1].stop)


def _write_part(part: Part) -> list[Any]:
    return [part.start, part.stop, part.literal.decode(), part.made] if part.literal else [part.start, part.stop]


def _read_part(start: int, stop: int, raw: str = "", made: str = "") -> Part:
    if not raw:
        return Part(start, stop)
    return _literal_part(raw.encode(), start, stop, made)


def _literal_part(raw: bytes, start: int, stop: int, made: str, message: Message | None = None) -> Part:
    """A part with these bytes, without cache markers: clients move theirs every turn, and an API takes four at most."""
    unmarked = remove_cache_marker(raw)
    if message is None or unmarked != raw:
        return Part(start, stop, unmarked, made, make_literal(unmarked, start, stop, made))
    return Part(start, stop, raw, made, as_read_back(message))
