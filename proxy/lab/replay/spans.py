r"""Needed spans (docs/replay-your-sessions.md): text that the agent repeats next and that the forwarded view still has.

    read:     "    12\tdef charge(berth):\n    13\t    return 2 * berth.fee"
    written:  {"old_string": "def charge(berth):\n    return 2 * berth.fee"}
    needed:   "def charge(berth): return 2 * berth.fee"

Its *own words* are needed in the same way: pieces of its earlier texts and calls that it writes again, code above all.
A fold takes them. They have a share of their own, without a charge.

A lost span makes the agent read again. Each need is charged once; the spans of one result that are lost at one request
are one re-read: one more request like that one, with the result as new tokens.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from operator import attrgetter

from msgspec import Struct

from proxy.history.messages import Message, iterate_strings
from proxy.tools.tool_call import ToolCall

SPAN_CHARACTERS = 24
EVERY_REQUESTS = 5
LEAST_TOKENS = 14_000
NEXT_MESSAGES = 16
NEWEST_MESSAGES = 3
_LINE_NUMBER = re.compile(r"^[ \t]*\d{1,6}(?:\t|→| ?[|:] ?)", re.MULTILINE)


class Span(Struct, frozen=True):
    text: str
    source: int
    """Index of the newest message that holds it."""
    written: int
    """Index of the message in which the agent writes it."""


def normalize(text: str) -> str:
    return " ".join(_LINE_NUMBER.sub("", text).split())


def normalize_message(message: Message) -> str:
    """One text or argument a line: no span crosses a line break."""
    return "\n".join(filter(None, map(normalize, _list_texts(message))))


def _list_texts(message: Message) -> Iterator[str]:
    yield message.text
    for call in message.calls:
        yield from _list_arguments(call)


def _list_arguments(call: ToolCall) -> Iterable[str]:
    return [call.arguments] if call.value is None else iterate_strings(call.value)


def choose_requests(places: Sequence[int], tokens: Sequence[int]) -> list[int]:
    """`tokens`: of each request, as sent."""
    large = [place for place, size in zip(places, tokens, strict=True) if size >= LEAST_TOKENS]
    return large[::EVERY_REQUESTS]


def is_written(message: Message) -> bool:
    return message.role == "assistant" and not message.is_bulk


class NeededSpans:
    """Found once and judged against any number of views."""

    def __init__(self, messages: Sequence[Message], chosen: Sequence[int], *, own: bool = False) -> None:
        """*own*: spans of the agent's own words in place of those of outputs."""
        self._messages = messages
        self._chosen = chosen
        self._own = own
        self._texts: dict[bytes, str] = {}

    @cached_property
    def by_place(self) -> Mapping[int, Sequence[Span]]:
        """By chosen request, if it has some."""
        spans = {place: list(self._find(place)) for place in self._chosen}
        return {place: needed_spans for place, needed_spans in spans.items() if needed_spans}

    def find_lost(self, place: int, view: Iterable[Message]) -> list[Span]:
        text = "\n".join(map(self._read, view))
        return [span for span in self.by_place[place] if span.text not in text]

    def _read(self, message: Message) -> str:
        text = self._texts.get(message.raw)
        if text is None:
            text = self._texts[message.raw] = normalize_message(message)
        return text

    def _find(self, place: int) -> Iterator[Span]:
        messages = self._messages
        newest = messages[max(0, place - NEWEST_MESSAGES) : place]
        others = [message for message in messages[:place] if self._is_elsewhere(message)]
        elsewhere = "\n".join(map(self._read, (*newest, *others)))
        for index in range(place, min(place + NEXT_MESSAGES, len(messages))):
            text = self._read(messages[index])
            if is_written(messages[index]):
                for piece, source in self._cut(text, place):
                    if piece not in elsewhere:
                        yield Span(piece, source, index)
            elsewhere += f"\n{text}"

    def _is_elsewhere(self, message: Message) -> bool:
        """Whether this message, also if it is old, gives the agent the text without an output, or without its own."""
        return not message.is_bulk and not (self._own and message.role == "assistant")

    def _cut(self, text: str, place: int) -> Iterator[tuple[str, int]]:
        """Yield the longest pieces that stand in earlier outputs, each with the newest output that holds it."""
        start = 0
        while start + SPAN_CHARACTERS <= len(text):
            stop = self._end_of_run(text, start, place)
            if stop == start:
                start += 1
                continue
            stop, source = self._end_of_piece(text, start, stop, place)
            piece = text[start:stop].strip()
            if len(piece) >= SPAN_CHARACTERS:
                yield piece, source
            start = stop

    def _end_of_run(self, text: str, start: int, place: int) -> int:
        """Return the end of the known 24-character pieces that begin here; `start` if none does."""
        stop = start
        while self._first_outputs.get(text[stop : stop + SPAN_CHARACTERS], place) < place:
            stop += 1
        return stop if stop == start else stop - 1 + SPAN_CHARACTERS

    def _end_of_piece(self, text: str, start: int, stop: int, place: int) -> tuple[int, int]:
        """Return the end of the longest piece that stands in one output, and the newest such output."""
        source = self._find_output(text[start:stop], place)
        if source is not None:
            return stop, source
        short, long, holder = start + SPAN_CHARACTERS, stop, 0
        while short < long:
            middle = (short + long + 1) // 2
            if self._find_output(text[start:middle], place) is None:
                long = middle - 1
            else:
                short = middle
        holder = self._find_output(text[start:short], place) or 0
        return short, holder

    def _find_output(self, piece: str, place: int) -> int | None:
        outputs = (at for at in reversed(self._outputs) if at < place)
        return next((at for at in outputs if piece in self._read(self._messages[at])), None)

    @cached_property
    def _outputs(self) -> Sequence[int]:
        """The messages that spans come from."""
        is_source = is_written if self._own else attrgetter("is_bulk")
        return [at for at, message in enumerate(self._messages) if is_source(message)]

    @cached_property
    def _first_outputs(self) -> Mapping[str, int]:
        """By 24-character piece of a later answer, the first output that has it."""
        texts = {
            self._read(self._messages[at])
            for place in self._chosen
            for at in range(place, min(place + NEXT_MESSAGES, len(self._messages)))
            if is_written(self._messages[at])
        }
        wanted_pieces = {piece for text in texts for piece in _pieces(text)}
        first: dict[str, int] = {}
        for at in self._outputs:
            for piece in wanted_pieces.intersection(_pieces(self._read(self._messages[at]))):
                first.setdefault(piece, at)
        return first


def _pieces(text: str) -> Iterator[str]:
    return (text[at : at + SPAN_CHARACTERS] for at in range(len(text) - SPAN_CHARACTERS + 1))
