"""Search in the messages of a conversation, for operators and for models: the same function finds the same messages."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from proxy.history.messages import Message, ToolCall, list_argument_texts

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


def find_text(text_to_find: str, *, distinguish_case: bool = False) -> Finder:
    """A finder of this text. Its time grows with the length of the text that is searched, and with no product.

    An expression that ignores case takes the product of both lengths, and holds the interpreter for that time.
    """
    folded_text = text_to_find if distinguish_case else _fold_case(text_to_find)

    def find(text: str) -> Match | None:
        start = (text if distinguish_case else _fold_case(text)).find(folded_text)
        if start < 0:
            return None
        return Match(text, start, start + len(text_to_find))

    return find


def find_pattern(pattern: re.Pattern[str]) -> Finder:
    """A finder of this expression."""

    def find(text: str) -> Match | None:
        match = pattern.search(text)
        if match is None:
            return None
        return Match(text, match.start(), match.end())

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
    """The texts inside the arguments, if JSON escapes any of them."""
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
    message_text = write_out(message)
    if match.text == message_text:
        return message_text.count("\n", 0, match.start) + 1
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
