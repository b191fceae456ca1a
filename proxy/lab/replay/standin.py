"""A stand-in for the model that writes summaries: extractive, deterministic, and no model at all.

Offline runs need an answer of a summary's size, after a summary's time, with a summary's kind of words in it. It names
what the old part named: what people asked, which files were touched, what was run and how it ended, what went wrong,
what was said last. A real model tells more of why and less of what; retention with this one is an indication, and
every table made with it says so.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from proxy.core.messages import Message
from proxy.core.placeholder import argument, failure
from proxy.core.placeholder import failed as has_failed

LABEL = "stand-in (extractive, no model)"
LENGTH = 11_300
"""Bytes: the median of 64 recorded summaries of coding agents (half have from 9,500 to 15,000)."""
_LINE = 320
_SHOWN = 60
_HEADINGS = ("Goal", "Progress", "Files", "Errors", "Next step")
_PATHS = re.compile(r"(?<![\w/])[\w.~-]*/[\w./-]*\w\.\w{1,5}\b")
_HEADING = re.compile(r"^#{1,3} +(\S.{0,60})$", re.MULTILINE)
_MOST_HEADINGS = 12
_FIRST, _READ_A_SECOND, _WRITTEN_A_SECOND = 1.5, 8_000, 60


@dataclass(frozen=True, slots=True)
class Pace:
    """How long a model takes."""

    first: float = _FIRST
    """Seconds to the first word."""
    read: int = _READ_A_SECOND
    """Tokens a second that it has not in its cache."""
    written: int = _WRITTEN_A_SECOND

    def seconds(self, fresh: int, written: int) -> float:
        return self.first + fresh / self.read + written / self.written


def account(messages: Sequence[Message], headings: Sequence[str] = (), most: int = LENGTH) -> str:
    """A summary of these messages under these headings, in at most `most` bytes."""
    sections = headings or _HEADINGS
    parts = (_asked(messages), _done(messages), _touched(messages), _failures(messages), _said(messages))
    told: list[str] = []
    for at, heading in enumerate(sections):
        room = most // (len(sections) - at) - len(f"## {heading}\n\n".encode())
        told.append(f"## {heading}\n{_within(parts[at % len(parts)], room) or '-'}")
        most -= len(told[-1].encode("utf-8", "replace")) + len("\n\n")
    return "\n\n".join(told)


def demanded(demand: str) -> list[str]:
    """The headings that a demand for a summary names."""
    return list(dict.fromkeys(_HEADING.findall(demand)))[:_MOST_HEADINGS]


def _asked(messages: Iterable[Message]) -> list[str]:
    said = [_short(message.text) for message in messages if message.is_user]
    return said[:1] + said[1:][-_SHOWN:]


def _done(messages: Sequence[Message]) -> list[str]:
    made = [f"{call.name}: {argument(call)}" for message in messages for call in message.calls]
    return list(dict.fromkeys(_short(each) for each in made))[-_SHOWN:]


def _touched(messages: Iterable[Message]) -> list[str]:
    found = (path for message in messages for call in message.calls for path in _PATHS.findall(call.arguments))
    return list(dict.fromkeys(found))[-_SHOWN:]


def _failures(messages: Iterable[Message]) -> list[str]:
    texts = (message.text for message in messages if message.is_bulk)
    return list(dict.fromkeys(_short(failure(each)) for each in texts if has_failed(each)))[-_SHOWN:]


def _said(messages: Iterable[Message]) -> list[str]:
    texts = [message.text for message in messages if message.role == "assistant"]
    return [_short(each) for each in texts if each.strip()][-_SHOWN:]


def _within(rows: Iterable[str], most: int) -> str:
    """The last rows that fit, and always as much of one as there is room for."""
    kept: list[str] = []
    for row in reversed([*rows]):
        most -= len(row.encode("utf-8", "replace")) + len("- \n")
        if most < 0:
            break
        kept.insert(0, f"- {row}")
    return "\n".join(kept)


def _short(said: str) -> str:
    line = " ".join(said.split())
    return line if len(line) <= _LINE else line[: _LINE - 1] + "…"
