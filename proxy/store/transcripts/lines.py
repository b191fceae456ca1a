"""Format of a transcript: one message, one line of JSON, written and read.

    {"v":1,"at":"<link>","after":"<the one before>","seen":"2026-11-21T09:00:00.000Z","under":["<head>"],"message":{…}}
    {"v":1,"head":"<hash>","seen":"…","message":{…}}                          system prompts stand outside the chain
    {"v":1,"answer":0,"to":"<link>","seen":"…","model":"…","finish":"stop","usage":{…},"message":{…}}

A link of the chain stands for all that came before it, so a history that is sent again adds only what is new, and from
any line one can walk back to the first; forks share their trunk. The first line also carries the `tenant`, and its
`after` is the link that the chain begins with. What a model answered stands beside the chain, because a client's echo
of it, which comes with the next request, is another text.

The message is the client's own bytes. Where it was changed before it was written, `altered` says by what (the kind of
a secret that was taken out, `line-breaks` outside of its texts), and its link still stands for the original.
"""

import json
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from proxy.core import splice
from proxy.wire.chat.answers import Answer
from proxy.wire.redaction import Redaction

VERSION = 1
LINE_BREAKS = "line-breaks"
_ID = re.compile(rb'\{"v":1,"(?:at|head)":"([!#-~]*)"')
_BREAK = re.compile(rb"[\r\n]")
_BREAKS = bytes.maketrans(b"\r\n", b"  ")  # in JSON a bare line break is only ever white space
_MESSAGE = b',"message":'
_ANSWER = b'{"v":1,"answer":'


@dataclass(frozen=True, slots=True, weakref_slot=True)
class History:
    """All messages of one request. `links[i]` is the link at `messages[i]`; the head is not part of the chain."""

    tenant: str
    conversation: str
    links: Sequence[str]
    messages: Sequence[bytes]
    head: Sequence[bytes] = ()
    origin: str = ""
    """The link before the first message."""
    policy: str = ""
    """The policy by which it was treated, with its version."""

    def part_after(self, links: Container[str] = (), heads: Container[str] = ()) -> "HistoryPart":
        """The messages behind the newest of these links, and the system prompts that are not in `heads`."""
        start = _count_until_known(self.links, links)
        named = {hash_head(message): message for message in self.head}
        return HistoryPart(
            tenant=self.tenant,
            conversation=self.conversation,
            is_beginning=not start,
            after=self.links[start - 1] if start else self.origin,
            links=self.links[start:],
            messages=self.messages[start:],
            under=tuple(named),
            heads={name: message for name, message in named.items() if name not in heads},
            policy=self.policy,
        )


@dataclass(frozen=True, slots=True)
class HistoryPart:
    """The end of a history, or all of it. It can be written where `after` and all of `under` already are."""

    tenant: str
    conversation: str
    is_beginning: bool
    after: str
    links: Sequence[str]
    messages: Sequence[bytes]
    under: tuple[str, ...]
    heads: Mapping[str, bytes]
    policy: str

    @property
    def size(self) -> int:
        return sum(map(len, self.messages)) + sum(map(len, self.heads.values()))

    def to_lines(self, known: Container[str], seen: str, redaction: Redaction) -> dict[str, bytes] | None:
        """The lines that are not known yet, by their ids. None: what this follows is not there."""
        start = _count_until_known(self.links, known)
        if not start and not self.is_beginning and self.after not in known:
            return None
        if any(name not in known and name not in self.heads for name in self.under):
            return None
        lines = {
            name: _format([("head", name), ("seen", seen)], message, redaction)
            for name, message in self.heads.items()
            if name not in known
        }
        before = (self.after, *self.links)
        for index in range(start, len(self.links)):
            fields: list[tuple[str, Any]] = [("at", self.links[index]), ("after", before[index])]
            fields += [("tenant", self.tenant)] if self.is_beginning and not index else []
            fields += [("seen", seen)] + ([("under", self.under)] if self.under else [])
            fields += [("policy", self.policy)] if self.policy else []
            lines[self.links[index]] = _format(fields, self.messages[index], redaction)
        return lines


def _count_until_known(links: Sequence[str], known: Container[str]) -> int:
    """How many of these links are known: searched from the newest back, because all before a known one is, too."""
    count = len(links)
    while count and links[count - 1] not in known:
        count -= 1
    return count


@dataclass(frozen=True, slots=True)
class MessageLine:
    """A message, read back."""

    at: str
    after: str
    seen: str
    message: bytes
    under: tuple[str, ...] = ()
    altered: tuple[str, ...] = ()
    tenant: str = ""
    policy: str = ""


@dataclass(frozen=True, slots=True)
class HeadLine:
    """A system prompt, read back."""

    name: str
    seen: str
    message: bytes
    altered: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AnswerLine:
    """A model's answer to the history that ends at the link `to`, read back."""

    to: str
    seen: str
    choice: int
    message: bytes
    model: str = ""
    finish: str = ""
    usage: Mapping[str, Any] = field(default_factory=dict)
    error: Any = None
    cut: bool = False
    altered: tuple[str, ...] = ()


Line = MessageLine | HeadLine | AnswerLine


def answer_lines(to: str, answer: Answer, seen: str, redaction: Redaction) -> bytes:
    """The lines of an answer, one for each of its choices; the first carries what it cost."""
    error = json.loads(redaction.of_json(json.dumps(answer.error).encode())[0])
    optional = {"model": answer.model, "usage": answer.usage, "error": error, "cut": not answer.whole}
    extra = [(name, value) for name, value in optional.items() if value]
    lines = []
    for choice in answer.choices:
        fields = [("answer", choice.index), ("to", to), ("seen", seen), ("finish", choice.finish or ""), *extra]
        lines.append(_format(fields, choice.message, redaction))
        extra = [pair for pair in extra if pair[0] != "usage"]
    return b"".join(lines)


def hash_head(message: bytes) -> str:
    return blake2b(message, digest_size=16).hexdigest()


def ids_in(lines: Iterable[bytes]) -> Iterator[str]:
    """The ids in those of these lines that are whole."""
    for line in lines:
        if line.endswith(b"\n") and (found := _ID.match(line)):
            yield found[1].decode()


def parse(line: bytes) -> Line | None:
    """A whole line, read back; None for one that this format does not know."""
    start, found, rest = line.partition(_MESSAGE)
    try:
        if line.startswith(_ANSWER):
            return _parse_answer(line)
        fields = json.loads(start + b"}") if found else {}
        if fields.get("v") != VERSION:
            return None
        message = rest[: rest.rindex(b"}")]
        altered = tuple(fields.get("altered", ()))
        if "head" in fields:
            return HeadLine(fields["head"], fields["seen"], message, altered)
        place = fields["at"], fields["after"], fields["seen"]
        under = tuple(fields.get("under", ()))
        return MessageLine(*place, message, under, altered, fields.get("tenant", ""), fields.get("policy", ""))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _parse_answer(line: bytes) -> AnswerLine:
    raw = {each.key: line[each.start : each.stop] for each in splice.members(line)}
    message = raw.pop("message")
    fields = {key: json.loads(value) for key, value in raw.items()}
    return AnswerLine(
        to=fields["to"],
        seen=fields["seen"],
        choice=fields["answer"],
        message=message,
        model=fields.get("model", ""),
        finish=fields.get("finish", ""),
        usage=fields.get("usage") or {},
        error=fields.get("error"),
        cut=bool(fields.get("cut")),
        altered=tuple(fields.get("altered", ())),
    )


def _format(fields: Sequence[tuple[str, Any]], message: bytes, redaction: Redaction) -> bytes:
    clean, kinds = redaction.of_json(message)
    if _BREAK.search(clean):
        clean, kinds = clean.translate(_BREAKS), (*kinds, LINE_BREAKS)
    line = {"v": VERSION, **dict(fields), **({"altered": kinds} if kinds else {})}
    start = json.dumps(line, separators=(",", ":")).encode()
    return start[:-1] + _MESSAGE + clean + b"}\n"
