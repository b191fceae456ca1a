"""Recall: the tool by which a model reads earlier messages again, word for word, and the search in a conversation.

The client sends its whole history with every request, so what was shortened is still there: a call of the tool is
answered from the request that it belongs to. Messages are numbered from 1, without the head, in placeholders, in notes
and by `transcripts show` alike. Operators and models search by the same function.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from proxy.history.calls import list_argument_texts
from proxy.history.messages import HEAD, Message, ToolCall
from proxy.history.pairing import find_callers
from proxy.recall.own_tools import RECALL

TOOL = RECALL.name


def render_handle(start: int, stop: int) -> str:
    """How the model calls the tool for `body[start:stop]`."""
    numbers = f"{start + 1}" if stop <= start + 1 else f"{start + 1}-{stop}"
    return f'{TOOL} with messages "{numbers}"'


# --- search -----------------------------------------------------------------------------------------------------------

T = TypeVar("T")
CONTEXT_BEFORE_CHARACTERS, CONTEXT_AFTER_CHARACTERS = 40, 60
SEARCHED_CHARACTERS = 200
"""How much of a text a model may search for."""


@dataclass(frozen=True, slots=True)
class Match:
    """A stretch of a text that was found."""

    text: str
    start: int
    stop: int


Finder = Callable[[str], Match | None]
"""Finds the first match in a text."""


def find_text(wanted: str, *, distinguish_case: bool = False) -> Finder:
    """A finder of this text. Its time grows with the length of the text that is searched, and with no product.

    An expression that ignores case takes the product of both lengths, and holds the interpreter for that time.
    """
    folded = wanted if distinguish_case else _fold_case(wanted)

    def find(text: str) -> Match | None:
        start = (text if distinguish_case else _fold_case(text)).find(folded)
        return Match(text, start, start + len(wanted)) if start >= 0 else None

    return find


def find_pattern(pattern: re.Pattern[str]) -> Finder:
    """A finder of this expression."""

    def find(text: str) -> Match | None:
        match = pattern.search(text)
        return Match(text, match.start(), match.end()) if match is not None else None

    return find


def _fold_case(text: str) -> str:
    """The text in small letters, of the same length: places in it are places in the text.

    `str.lower` makes two characters of the Turkish capital I, and writes a sigma at the end of a word differently.
    """
    return text.replace("\u0130", "i").lower().replace("\u03c2", "\u03c3")


def write_out(message: Message) -> str:
    """The text of a message with its calls, as it is recalled."""
    return "\n".join(filter(None, [message.text, *map(_write_call, message.calls)]))


def _write_call(call: ToolCall) -> str:
    return f"{call.name}({call.arguments})"


def list_searched_texts(message: Message) -> Iterator[str]:
    """The texts of a message that are searched: all that is recalled, then the texts in its calls that JSON escapes.

    A line of a file is searched for as it is in the file, without the escapes of JSON.
    """
    yield write_out(message)
    for call in message.calls:
        yield from _list_escaped_texts(call)


def _list_escaped_texts(call: ToolCall) -> Iterator[str]:
    """The texts inside the arguments, where JSON escapes any of them."""
    if "\\" in call.arguments:
        try:
            yield from list_argument_texts(call)
        except RecursionError:
            return  # arguments that are nested too deep are searched as they were sent only


def search(messages: Iterable[tuple[T, Iterable[str]]], find: Finder) -> Iterator[tuple[T, Match]]:
    """Each message, given by its texts, in which something is found, with its first match."""
    for about, texts in messages:
        match = next(filter(None, map(find, texts)), None)
        if match is not None:
            yield about, match


def find_line(message: Message, match: Match) -> int:
    """The number of the line of the recalled message that holds a match; of a text in a call, that of the call."""
    written = write_out(message)
    if match.text == written:
        return written.count("\n", 0, match.start) + 1
    lines = message.text.count("\n") + 1 if message.text else 0
    for call in message.calls:
        if match.text in _list_escaped_texts(call):
            break
        lines += _write_call(call).count("\n") + 1
    return lines + 1


def render_match(match: Match) -> str:
    """A match in one line, with the words around it."""
    start = max(0, match.start - CONTEXT_BEFORE_CHARACTERS)
    return " ".join(match.text[start : match.stop + CONTEXT_AFTER_CHARACTERS].split())


# --- answers ----------------------------------------------------------------------------------------------------------

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
        asked, pattern = values.get("messages"), values.get("search")
        numbers = (1, len(self.body)) if asked in (None, "") else _read_range(asked, len(self.body))
        if numbers is None:
            return f'There are no such messages: give a number or a range such as "12-48", from 1 to {len(self.body)}.'
        if isinstance(pattern, str) and pattern.strip():
            return _cut(self._search(pattern, numbers), room_bytes)
        if asked in (None, ""):
            return 'Nothing to recall: give `messages`, such as "17" or "12-48", or a text to `search` for.'
        first, last = numbers
        if first < last:
            return _cut("\n\n".join(map(self._write, range(first, last + 1))), room_bytes)
        return self._read_lines(first, values.get("lines"), room_bytes)

    def _read_lines(self, number: int, asked: object, room_bytes: int) -> str:
        """These lines of a message, or all of them."""
        text = self.read(number)
        if asked in (None, "") or not self._find_text(number):
            return _cut(text, room_bytes)
        lines = text.split("\n")
        found = _read_range(asked, len(lines))
        if found is None:
            return f"There are no such lines: message {number} has {len(lines):,}."
        return _cut("\n".join(lines[found[0] - 1 : found[1]]), room_bytes, first_line=found[0])

    def read(self, number: int) -> str:
        """One message; of a result exactly its text. A sentence where there is none, as of an image alone."""
        return self._find_text(number) or f"Message {number} holds no text: it cannot be recalled."

    def _find_text(self, number: int) -> str:
        message = self.body[number - 1]
        return message.text if message.is_result else write_out(message)

    def _write(self, number: int) -> str:
        return f"[{number}] {self._name(number)}:\n{self.read(number)}"

    def _name(self, number: int) -> str:
        """The speaker of a message."""
        message = self.body[number - 1]
        call = self._calls[number - 1]
        if message.is_result:
            return f"result of {call.name}" if call is not None else "result"
        return "instruction" if message.role in HEAD else message.role

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
    return value if isinstance(value, dict) else {}


def _read_range(asked: object, most: int) -> tuple[int, int] | None:
    """The first and the last number of a range, within 1 and `most`; None where it names none of these."""
    match asked:
        case bool():
            return None
        case [first, *_, last] if isinstance(first, int) and isinstance(last, int):
            asked = f"{first}-{last}"
        case [str(only)] | [int(only)]:
            asked = only
    if not isinstance(asked, str | int):
        return None
    found = _RANGE.fullmatch(str(asked))
    if found is None:
        return None
    first = int(found[1])
    last = min(most, int(found[2] or first))
    return (first, last) if 1 <= first <= last else None


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
