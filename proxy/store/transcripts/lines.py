"""One message, one line of JSON: the format of the originals, written and read.

    {"v":1,"at":"<link>","after":"<the one before>","seen":"2026-11-21T09:00:00.000Z","under":["<head>"],"message":{…}}
    {"v":1,"head":"<hash>","seen":"…","message":{…}}                          system prompts stand outside the chain
    {"v":1,"answer":0,"to":"<link>","seen":"…","model":"…","finish":"stop","usage":{…},"message":{…}}

A link of the chain stands for all that came before it, so a history that is sent again adds only what is new, and
from any line one can walk back to the first; forks share their trunk. The first line also tells the `tenant`, and its
`after` is the link that the chain begins with. What a model answered stands beside the chain, because a client's echo
of it, which comes with the next request, is another text.

The message is the client's own bytes. Where it was changed before it was written, `altered` says by what (the kind of
a secret that was taken out, `line-breaks` outside of its texts), and its link still stands for the original.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from proxy.core import splice
from proxy.wire.answers import Answer
from proxy.wire.redaction import Redaction

VERSION = 1
LINE_BREAKS = "line-breaks"
_ID = re.compile(rb'\{"v":1,"(?:at|head)":"([!#-~]*)"')
_BREAK = re.compile(rb"[\r\n]")
_BREAKS = bytes.maketrans(b"\r\n", b"  ")  # in JSON a bare line break is only ever white space
_MESSAGE = b',"message":'
_ANSWER = b'{"v":1,"answer":'


@dataclass(frozen=True, slots=True)
class History:
    """What one request carried. `chain[i]` is the link at `messages[i]`; the head is not part of the chain."""

    tenant: str
    conversation: str
    chain: Sequence[str]
    messages: Sequence[bytes]
    head: Sequence[bytes] = ()
    origin: str = ""
    """The link before the first message."""
    policy: str = ""
    """By which policy it was treated, and by which version of it."""

    @property
    def size(self) -> int:
        return sum(map(len, self.messages)) + sum(map(len, self.head))


@dataclass(frozen=True, slots=True)
class Said:
    """A line of a transcript, read back."""

    at: str
    after: str
    seen: str
    message: bytes
    under: tuple[str, ...] = ()
    altered: tuple[str, ...] = ()
    tenant: str = ""
    policy: str = ""


@dataclass(frozen=True, slots=True)
class Head:
    """A system prompt, read back."""

    name: str
    seen: str
    message: bytes
    altered: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Answered:
    """What a model said to the history that ends at the link `to`."""

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


def of_history(history: History, known: set[str], seen: str, redaction: Redaction) -> dict[str, bytes]:
    """The lines a history adds to what is known, by their ids."""
    heads = {blake2b(message, digest_size=16).hexdigest(): message for message in history.head}
    lines = {
        name: _line([("head", name), ("seen", seen)], message, redaction)
        for name, message in heads.items()
        if name not in known
    }
    before = (history.origin, *history.chain)
    for at in _unknown(history.chain, known):
        tells: list[tuple[str, Any]] = [("at", history.chain[at]), ("after", before[at])]
        tells += [("tenant", history.tenant)] if at == 0 else []
        tells += [("seen", seen)] + ([("under", list(heads))] if heads else [])
        tells += [("policy", history.policy)] if history.policy else []
        lines[history.chain[at]] = _line(tells, history.messages[at], redaction)
    return lines


def of_answer(to: str, answer: Answer, seen: str, redaction: Redaction) -> bytes:
    """The lines of an answer, one for each of its choices; what it cost stands in the first."""
    error = json.loads(redaction.of_json(json.dumps(answer.error).encode())[0])
    told = {"model": answer.model, "usage": answer.usage, "error": error, "cut": not answer.whole}
    about = [(name, value) for name, value in told.items() if value]
    lines = []
    for choice in answer.choices:
        tells = [("answer", choice.index), ("to", to), ("seen", seen), ("finish", choice.finish or ""), *about]
        lines.append(_line(tells, choice.message, redaction))
        about = [pair for pair in about if pair[0] != "usage"]
    return b"".join(lines)


def ids_in(lines: Iterable[bytes]) -> Iterator[str]:
    """The ids of whole lines."""
    for line in lines:
        if found := _ID.match(line):
            yield found[1].decode()


def read(line: bytes) -> Said | Head | Answered | None:
    """A whole line read back; None for one that this format does not know."""
    start, found, rest = line.partition(_MESSAGE)
    try:
        if line.startswith(_ANSWER):
            return _answered(line)
        told = json.loads(start + b"}") if found else {}
        if told.get("v") != VERSION:
            return None
        message = rest[: rest.rindex(b"}")]
        altered = tuple(told.get("altered", ()))
        if "head" in told:
            return Head(told["head"], told["seen"], message, altered)
        under = tuple(told.get("under", ()))
        said = told["at"], told["after"], told["seen"]
        return Said(*said, message, under, altered, told.get("tenant", ""), told.get("policy", ""))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _answered(line: bytes) -> Answered:
    told = {each.key: line[each.start : each.stop] for each in splice.members(line)}
    message = told.pop("message")
    say = {key: json.loads(value) for key, value in told.items()}
    return Answered(
        say["to"],
        say["seen"],
        say["answer"],
        message,
        say.get("model", ""),
        say.get("finish", ""),
        say.get("usage") or {},
        say.get("error"),
        bool(say.get("cut")),
        tuple(say.get("altered", ())),
    )


def _unknown(chain: Sequence[str], known: set[str]) -> range:
    """From the newest back to the first that is known: all before it is known, too."""
    start = len(chain)
    while start and chain[start - 1] not in known:
        start -= 1
    return range(start, len(chain))


def _line(tells: Sequence[tuple[str, Any]], message: bytes, redaction: Redaction) -> bytes:
    clean, kinds = redaction.of_json(message)
    if _BREAK.search(clean):
        clean, kinds = clean.translate(_BREAKS), (*kinds, LINE_BREAKS)
    told = {"v": VERSION, **dict(tells), **({"altered": kinds} if kinds else {})}
    start = json.dumps(told, separators=(",", ":")).encode()
    return start[:-1] + _MESSAGE + clean + b"}\n"
