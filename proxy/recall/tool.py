"""Recall: the tool by which a model reads earlier messages again, word for word.

The client sends its whole history with every request, so the shortened messages are still there: a call of the tool is
answered from the request that it belongs to. Messages are numbered from 1, without the head, in placeholders, in notes
and by `transcripts show` alike.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from proxy.history.grouping import find_callers
from proxy.history.messages import HEAD, Message, ToolCall
from proxy.recall.own_tools import RECALL
from proxy.recall.search import (
    SEARCHED_CHARACTERS,
    find_line,
    find_text,
    list_searched_texts,
    render_match,
    search,
    write_out,
)

TOOL = RECALL.name


def render_handle(start: int, stop: int) -> str:
    """How the model calls the tool for `body[start:stop]`."""
    numbers = f"{start + 1}"
    if stop > start + 1:
        numbers = f"{start + 1}-{stop}"
    return f'{TOOL} with messages "{numbers}"'


_RANGE = re.compile(r"\D{0,20}(\d{1,9})(?:\s{0,3}(?:-|\u2013|\.\.|to)\s{0,3}(\d{1,9}))?\D{0,5}")
HITS_MAX = 100
LEAST_BYTES = 200
NO_ROOM = "There is no room in the context for this text: ask for a few lines of one message, or search."


@dataclass(frozen=True)
class EarlierMessages:
    """The history as the client sent it, from which recalls are answered."""

    body: Sequence[Message]

    def answer(self, arguments: str, room_bytes: int) -> str:
        """The answer to a call of the tool, of about so many bytes at most."""
        if room_bytes < LEAST_BYTES:
            return NO_ROOM
        values = _read_arguments(arguments)
        range_text, pattern = values.get("messages"), values.get("search")
        numbers: tuple[int, int] | None = (1, len(self.body))
        if range_text not in (None, ""):
            numbers = _read_range(range_text, len(self.body))
        if numbers is None:
            return f'There are no such messages: give a number or a range such as "12-48", from 1 to {len(self.body)}.'
        if isinstance(pattern, str) and pattern.strip():
            return _cut(self._search(pattern, numbers), room_bytes)
        if range_text in (None, ""):
            return 'Nothing to recall: give `messages`, such as "17" or "12-48", or a text to `search` for.'
        first, last = numbers
        if first < last:
            return _cut("\n\n".join(map(self._write, range(first, last + 1))), room_bytes)
        return self._read_lines(first, values.get("lines"), room_bytes)

    def _read_lines(self, number: int, range_text: object, room_bytes: int) -> str:
        """These lines of a message, or all of them."""
        text = self.read(number)
        if range_text in (None, "") or not self._find_text(number):
            return _cut(text, room_bytes)
        lines = text.split("\n")
        line_range = _read_range(range_text, len(lines))
        if line_range is None:
            return f"There are no such lines: message {number} has {len(lines):,}."
        return _cut("\n".join(lines[line_range[0] - 1 : line_range[1]]), room_bytes, first_line=line_range[0])

    def read(self, number: int) -> str:
        """One message; of a result exactly its text. A sentence if there is none, as of an image alone."""
        return self._find_text(number) or f"Message {number} holds no text: it cannot be recalled."

    def _find_text(self, number: int) -> str:
        message = self.body[number - 1]
        if message.is_result:
            return message.text
        return write_out(message)

    def _write(self, number: int) -> str:
        return f"[{number}] {self._name(number)}:\n{self.read(number)}"

    def _name(self, number: int) -> str:
        """The speaker of a message."""
        message = self.body[number - 1]
        call = self._calls[number - 1]
        if message.is_result:
            if call is not None:
                return f"result of {call.name}"
            return "result"
        if message.role in HEAD:
            return "instruction"
        return message.role

    @cached_property
    def _calls(self) -> Sequence[ToolCall | None]:
        return [*find_callers(self.body)]

    def _search(self, text: str, numbers: tuple[int, int]) -> str:
        first, last = numbers
        messages = ((number, list_searched_texts(self.body[number - 1])) for number in range(first, last + 1))
        hits = list(search(messages, find_text(text[:SEARCHED_CHARACTERS])))
        lines = [
            f"[{number}] {self._name(number)}, line {find_line(self.body[number - 1], match)}: " + render_match(match)
            for number, match in hits[:HITS_MAX]
        ]
        if not lines:
            lines.append("No message holds this text.")
        if len(hits) > HITS_MAX:
            lines.append(f"{len(hits) - HITS_MAX:,} more messages hold it.")
        if len(text) > SEARCHED_CHARACTERS:
            lines.append(f"Only the first {SEARCHED_CHARACTERS} characters of the text were searched for.")
        return "\n".join(lines)


def _read_arguments(arguments: str) -> dict[str, Any]:
    try:
        value = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return {}
    if isinstance(value, dict):
        return value
    return {}


def _read_range(value: object, upper_bound: int) -> tuple[int, int] | None:
    """The first and the last number of a range, within 1 and `upper_bound`; None if it names none of these."""
    match value:
        case bool():
            return None
        case [first, *_, last] if isinstance(first, int) and isinstance(last, int):
            value = f"{first}-{last}"
        case [str(only)] | [int(only)]:
            value = only
    if not isinstance(value, str | int):
        return None
    match = _RANGE.fullmatch(str(value))
    if match is None:
        return None
    first = int(match[1])
    last = min(upper_bound, int(match[2] or first))
    if not 1 <= first <= last:
        return None
    return (first, last)


def _cut(text: str, room_bytes: int, *, first_line: int = 1) -> str:
    """The text, or as many of its first lines as there is room for, and how to get the rest."""
    raw = text.encode("utf-8", "surrogatepass")
    if len(raw) <= room_bytes:
        return text
    head = raw[:room_bytes].decode("utf-8", "ignore")
    end = head.rfind("\n")
    head = head[:end] if end > len(head) // 2 else head
    line, last = first_line + head.count("\n"), first_line + text.count("\n")
    return f"{head}\n[… cut here by the context proxy, in line {line:,} of {last:,}]"
