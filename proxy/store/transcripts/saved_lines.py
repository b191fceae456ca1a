"""The lines of a transcript file (https://jsonlines.org): one message is one line of JSON.

    {"v":1,"at":"<link>","after":"<link before it>","seen":"2026-11-21T09:00:00.000Z","under":["<head>"],"message":{…}}
    {"v":1,"head":"<hash>","seen":"…","message":{…}}
    {"v":1,"answer":0,"to":"<link>","seen":"…","model":"…","finish":"stop","usage":{…},"message":{…}}

A link stands for all messages up to this one, so a history that is sent again adds only its new messages, and forks
share their trunk. System prompts and answers are no links: clients change the former and echo the latter differently.
The first line also names the tenant. The message is the client's own bytes; `altered` lists secrets that were removed
from it (and `line-breaks`, if JSON had any between its values).
"""

import json
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import msgspec

from proxy.history import splice
from proxy.wire.answer_assembly import Answer
from proxy.wire.redaction import Redaction

VERSION = 1
_ID = re.compile(rb'\{"v":1,"(?:at|head)":"([!#-~]*)"')
_SPACES_FOR_BREAKS = bytes.maketrans(b"\r\n", b"  ")  # in JSON a bare line break is always white space
_MESSAGE = b',"message":'
_ANSWER = b'{"v":1,"answer":'


@dataclass(frozen=True, slots=True)
class History:
    """Messages of one request. `links[i]` is the link at `messages[i]`."""

    tenant: str
    conversation: str
    links: Sequence[str]
    messages: Sequence[bytes]
    head: Sequence[bytes] = ()
    """System prompts."""
    origin: str = ""
    """The link before the first of these messages."""
    policy: str = ""
    """Name and version of the policy of the request."""
    wire: str = ""
    """The API of the request, unless that is Chat Completions."""
    size: int = 0
    """Bytes that it holds while it waits to be written."""

    def to_lines(self, known_ids: Container[str], seen: str, redaction: Redaction) -> dict[str, bytes]:
        """Return the lines whose ids are not known, by their ids."""
        lines: dict[str, bytes] = {}
        heads = {hash_head(message): message for message in self.head}
        for name, message in heads.items():
            if name not in known_ids:
                lines[name] = _format({"head": name, "seen": seen}, message, redaction)
        start = len(self.links)  # all messages before a known one are known, too
        while start and self.links[start - 1] not in known_ids:
            start -= 1
        for index in range(start, len(self.links)):
            fields: dict[str, Any] = {"at": self.links[index], "after": self.origin, "seen": seen}
            if index:
                fields["after"] = self.links[index - 1]
            else:
                fields |= _drop_empty(tenant=self.tenant, wire=self.wire)
            fields |= _drop_empty(under=tuple(heads), policy=self.policy)
            lines[self.links[index]] = _format(fields, self.messages[index], redaction)
        return lines


class MessageLine(msgspec.Struct, frozen=True):
    """A message, read back."""

    at: str
    after: str
    seen: str
    message: bytes
    under: tuple[str, ...] = ()
    altered: tuple[str, ...] = ()
    tenant: str = ""
    policy: str = ""
    wire: str = ""


class HeadLine(msgspec.Struct, frozen=True):
    """A system prompt, read back."""

    name: str = msgspec.field(name="head")
    seen: str
    message: bytes
    altered: tuple[str, ...] = ()


class AnswerLine(msgspec.Struct, frozen=True):
    """A model's answer to the history that ends at the link `to`, read back."""

    to: str
    seen: str
    choice: int = msgspec.field(name="answer")
    message: bytes
    model: str = ""
    finish: str = ""
    usage: Mapping[str, Any] = {}
    error: Any = None
    cut: bool = False
    altered: tuple[str, ...] = ()


def render_answer_lines(to: str, answer: Answer, seen: str, redaction: Redaction) -> bytes:
    """Render an answer, one line for each of its choices; the first carries the usage."""
    error = json.loads(redaction.of_json(json.dumps(answer.error).encode())[0])
    extra = _drop_empty(model=answer.model, usage=answer.usage, error=error, cut=not answer.whole)
    lines = b""
    for choice in answer.choices:
        fields = {"answer": choice.index, "to": to, "seen": seen, "finish": choice.finish or "", **extra}
        lines += _format(fields, choice.message, redaction)
        extra.pop("usage", None)
    return lines


def hash_head(message: bytes) -> str:
    return blake2b(message, digest_size=16).hexdigest()


def find_ids(lines: Iterable[bytes]) -> Iterator[str]:
    """Yield the ids of whole lines."""
    for line in lines:
        match = _ID.match(line)
        if match and line.endswith(b"\n"):
            yield match[1].decode()


def parse(line: bytes) -> MessageLine | HeadLine | AnswerLine | None:
    """Read a whole line back; None for one that this format does not know."""
    try:
        if line.startswith(_ANSWER):
            # Member by member: an upstream's error may hold anything, also the bytes that begin a message elsewhere.
            members = {member.key: line[member.start : member.stop] for member in splice.iterate_members(line)}
            message = members.pop("message")
            fields = {name: json.loads(value) for name, value in members.items()}
        else:
            start, _, rest = line.partition(_MESSAGE)
            fields, message = json.loads(start + b"}"), rest[: rest.rindex(b"}")]
        if fields["v"] != VERSION:
            return None
        values = {**fields, "message": message}
        if "answer" in fields:
            return msgspec.convert(values, AnswerLine)
        if "head" in fields:
            return msgspec.convert(values, HeadLine)
        return msgspec.convert(values, MessageLine)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):  # ValidationError is a ValueError
        return None


def _format(fields: Mapping[str, Any], message: bytes, redaction: Redaction) -> bytes:
    clean, alterations = redaction.of_json(message)
    if b"\n" in clean or b"\r" in clean:
        clean, alterations = clean.translate(_SPACES_FOR_BREAKS), (*alterations, "line-breaks")
    line = {"v": VERSION, **fields, **_drop_empty(altered=alterations)}
    start = json.dumps(line, separators=(",", ":")).encode()
    return start[:-1] + _MESSAGE + clean + b"}\n"


def _drop_empty(**fields: Any) -> dict[str, Any]:  # noqa: ANN401 (any JSON)
    return {name: value for name, value in fields.items() if value}
