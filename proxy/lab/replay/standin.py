"""A stand-in for the model that writes summaries: extractive, deterministic, and no model at all.

Offline runs need an answer of a summary's size, after a summary's time, with a summary's kind of words in it. Each
extract stands under the heading that asks for it: the user's words under "Goals and constraints", calls under "Done",
error lines under "Errors". A heading that asks for none of them gets "-". A real model tells more of why and less of
what; figures with this one are an indication, and every table made with it says so.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from proxy.history.messages import Message
from proxy.shorten.outcome import find_outcome
from proxy.shorten.placeholder import choose_argument

LABEL = "stand-in (extractive, no model)"
SUMMARY_BYTES = 11_300
"""Bytes: the median of 64 recorded summaries of coding agents (half have from 9,500 to 15,000)."""
_LINE_CHARACTERS = 320
_ROWS_COUNT = 60
_HEADINGS = ("Goal", "Progress", "Files", "Errors", "Next step")
_NEWEST_WORDS = 3
_PATHS = re.compile(r"(?<![\w/])[\w.~-]*/[\w./-]*\w\.\w{1,5}\b")
_HEADING = re.compile(r"^#{1,3} +(\S.{0,60})$", re.MULTILINE)
_HEADINGS_LIMIT = 12
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


def write_summary(messages: Sequence[Message], headings: Sequence[str] = (), most: int = SUMMARY_BYTES) -> str:
    """A summary of these messages under these headings, in at most `most` bytes."""
    sections = headings if any(map(_find_extract, headings)) else _HEADINGS
    lines: list[str] = []
    for number, heading in enumerate(sections):
        room = most // (len(sections) - number) - len(f"## {heading}\n\n".encode())
        extract = _find_extract(heading)
        rows = extract(messages) if extract else ()
        lines.append(f"## {heading}\n{_fit_rows(rows, room) or '-'}")
        most -= len(lines[-1].encode("utf-8", "replace")) + len("\n\n")
    return "\n\n".join(lines)


def find_headings(demand: str) -> list[str]:
    """The headings that a demand for a summary names."""
    return list(dict.fromkeys(_HEADING.findall(demand)))[:_HEADINGS_LIMIT]


def _user_words(messages: Iterable[Message]) -> list[str]:
    texts = [_shorten(message.text) for message in messages if message.is_user]
    return texts[:1] + texts[1:][-_ROWS_COUNT:]


def _calls_made(messages: Sequence[Message]) -> list[str]:
    made = [f"{call.name}: {choose_argument(call)}" for message in messages for call in message.calls]
    return list(dict.fromkeys(_shorten(each) for each in made))[-_ROWS_COUNT:]


def _files_touched(messages: Iterable[Message]) -> list[str]:
    found = (path for message in messages for call in message.calls for path in _PATHS.findall(call.arguments))
    return list(dict.fromkeys(found))[-_ROWS_COUNT:]


def _failures(messages: Iterable[Message]) -> list[str]:
    outcomes = (find_outcome(message.text) for message in messages if message.is_bulk)
    failures = (outcome.error or outcome.render() for outcome in outcomes if outcome.has_failed)
    return list(dict.fromkeys(map(_shorten, failures)))[-_ROWS_COUNT:]


def _assistant_words(messages: Iterable[Message]) -> list[str]:
    texts = [message.text for message in messages if message.role == "assistant"]
    return [_shorten(text) for text in texts if text.strip()][-_ROWS_COUNT:]


def _newest_words(messages: Iterable[Message]) -> list[str]:
    return _assistant_words(messages)[-_NEWEST_WORDS:]


_EXTRACTS: Sequence[tuple[tuple[str, ...], Callable[[Sequence[Message]], list[str]]]] = (
    (("next", "active", "current", "last"), _newest_words),
    (("goal", "aim", "constraint", "request", "task"), _user_words),
    (("file",), _files_touched),
    (("error", "fail", "problem"), _failures),
    (("done", "progress", "state"), _calls_made),
    (("decision",), _assistant_words),
)
"""By words of a heading, the extract that it asks for; the first that fits."""


def _find_extract(heading: str) -> Callable[[Sequence[Message]], list[str]] | None:
    heading_words = heading.lower()
    for words, extract in _EXTRACTS:
        if any(word in heading_words for word in words):
            return extract
    return None


def _fit_rows(rows: Iterable[str], most: int) -> str:
    """The last rows that fit, and always as much of one as there is room for."""
    kept: list[str] = []
    for row in reversed([*rows]):
        most -= len(row.encode("utf-8", "replace")) + len("- \n")
        if most < 0:
            break
        kept.insert(0, f"- {row}")
    return "\n".join(kept)


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LINE_CHARACTERS else line[: _LINE_CHARACTERS - 1] + "…"
