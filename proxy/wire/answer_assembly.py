"""A model's answer, assembled from the events of a stream or read from one body.

Servers have many dialects: reasoning under three names, tool calls by index, without one, or all at index 0,
several choices interleaved, unknown keys. So pieces are joined by rules that fit all of them:

    {"content": "Hel"}  {"content": "lo"}                 -> {"content": "Hello"}
    {"tool_calls": [{"index": 0, "id": "a", ...}]}        members of a list with the same index are joined
    {"role": "assistant"}  {"role": "assistant"}          -> the first value, of keys that identify
    {"signature": ""}  {"signature": "EqQB"}              -> the last value that is not empty
"""

import json
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from msgspec import Struct, field

from proxy.wire.api_format import ApiFormat
from proxy.wire.encodings import DecodedTooLarge, UndecodableBody, decode_body
from proxy.wire.event_streams import EventReader, read_event
from proxy.wire.json_body import as_object, as_text, find_values, read_elements

ANSWER_MAX_BYTES = 16 * 1024 * 1024


class Choice(Struct, frozen=True):
    index: int
    message: bytes
    finish: str | None = None


class Answer(Struct, frozen=True):
    """A model's answer. It is not `whole` if its end is missing, an event of it told of an error, or it was too long.

    The end is missing if the client left or the upstream broke off before it.
    """

    choices: tuple[Choice, ...] = ()
    model: str = ""
    usage: Mapping[str, Any] | None = None
    error: Any = None
    whole: bool = False
    provider_edits: tuple[Any, ...] = ()
    """The parts of the history that the provider has left out, in the form of `applied_edits` in Messages."""


class Assembly:
    """Puts an answer together: `feed` it every piece, then call `answer`.

    It holds at most about `room` bytes of the answer, and as many of an event that has not ended.
    """

    def __init__(self, reader: ApiFormat, content_type: str, encoding: str = "", room: int = ANSWER_MAX_BYTES) -> None:
        self._reader = reader
        self._encoding = encoding
        self._max_bytes = room
        self._room = room
        """The bytes that may still be added. Below 0, a stream is read for all but its message: usage, end, error."""
        self._is_stream = content_type.strip().lower().startswith("text/event-stream")
        self._body = bytearray()
        self._lost = False
        self._events = EventReader(room)
        self._messages: dict[int, dict[str, Any]] = {}
        """The growing message of each choice."""
        self._finishes: dict[int, str | None] = {}
        self._model = ""
        self._usage: Mapping[str, Any] | None = None
        self._error: Any = None
        self._provider_edits: list[Any] = []

    def feed(self, data: bytes) -> None:
        if self._is_stream and not self._encoding:
            self._feed_events(data)
        elif len(self._body) + len(data) <= self._max_bytes:
            self._body += data
        else:
            self._lost = True

    def lose(self) -> None:
        """Note that a piece is missing, so that the answer is not whole."""
        self._lost = True

    def answer(self, *, ended: bool) -> Answer:
        body = bytes(self._body)
        if self._encoding and body:
            try:
                body = decode_body(body, self._encoding, self._max_bytes)
            except (DecodedTooLarge, UndecodableBody):
                return Answer()
        if self._is_stream:
            self._feed_events(body + b"\n\n")  # some servers do not end the last event
            choices: list[Choice] = []
            for index, grown in sorted(self._messages.items()):
                message = self._reader.finish_message(join_texts(grown))
                choices.append(Choice(index, _render_message(message), self._finishes[index]))
            is_finished = bool(choices) and all(choice.finish for choice in choices)
            is_whole = self._room >= 0 and not self._lost and self._error is None and (ended or is_finished)
            edits = tuple(self._provider_edits)
            return Answer(tuple(choices), self._model, self._usage, self._error, is_whole, edits)
        if not ended or self._lost:
            return Answer()
        return _read_whole(self._reader.read_body(body))

    def _feed_events(self, data: bytes) -> None:
        for raw in self._events.feed(data):
            own_event = read_event(raw)
            if own_event is None:
                continue
            event = self._reader.read_event(own_event)
            self._model = self._model or as_text(event.get("model"))
            usage = event.get("usage")
            if isinstance(usage, dict):
                # Messages counts the prompt at the beginning, the answer at the end.
                self._usage = {**(self._usage or {}), **usage}
            self._error = event.get("error") or self._error
            self._provider_edits = _read_edits(event) or self._provider_edits
            choices = event.get("choices")
            for number, choice in enumerate(choices if isinstance(choices, list) else ()):
                if not isinstance(choice, dict):
                    continue
                index = _read_index(choice, number)
                grown = self._messages.setdefault(index, {})
                self._finishes[index] = as_text(choice.get("finish_reason")) or self._finishes.get(index)
                delta = as_object(choice.get("delta")) or as_object(choice.get("message"))
                if self._room >= 0:
                    self._room -= sum(_iterate_weights(delta))
                if self._room >= 0:
                    add_members(grown, delta)
        if self._events.has_cut:
            self._room = -1


def _read_whole(body: bytes) -> Answer:
    choices: list[Choice] = []
    try:
        value = json.loads(body)
        places = find_values(body)  # raises ValueError if the body is no object
        listed_choices = value.get("choices")
        if not isinstance(listed_choices, list):
            return Answer(error=value.get("error"), whole=True)
        raw_choices = read_elements(body[slice(*places["choices"])])
        for number, (choice, raw) in enumerate(zip(listed_choices, raw_choices, strict=True)):
            if isinstance(choice, dict) and isinstance(choice.get("message"), dict):
                message = raw[slice(*find_values(raw)["message"])]
                finish = as_text(choice.get("finish_reason")) or None
                choices.append(Choice(_read_index(choice, number), message, finish))
    except (ValueError, RecursionError, IndexError):
        return Answer()
    usage = as_object(value.get("usage")) or None
    model, edits = as_text(value.get("model")), tuple(_read_edits(value))
    return Answer(tuple(choices), model, usage, value.get("error"), whole=True, provider_edits=edits)


def _read_edits(answer: Mapping[str, Any]) -> list[Any]:
    """Return the context edits of an answer.

    <https://platform.claude.com/docs/en/build-with-claude/context-editing#context-editing-response>
    """
    edits = as_object(answer.get("context_management")).get("applied_edits")
    return edits if isinstance(edits, list) else []


def _read_index(value: Mapping[str, Any], default: int) -> int:
    index = value.get("index")
    return index if isinstance(index, int) else default


class _GrowingText(Struct):
    """A text whose pieces are joined once, at its end: adding each one would copy the whole text every time."""

    pieces: list[str] = field(default_factory=list)


def _render_message(message: dict[str, Any]) -> bytes:
    # Some servers send the role as null in every piece, and an upstream refuses a message without one.
    message = {"role": message.pop("role", None) or "assistant", **message}
    for name in ("tool_calls", "content"):
        members = message.get(name)
        if isinstance(members, list):
            for member in members:
                if isinstance(member, dict):
                    member.pop("index", None)  # it belongs to the pieces of a stream only
    try:
        return json.dumps(message, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # half a surrogate pair, which JSON can hold as an escape only
        return json.dumps(message).encode()


def add_members(grown: dict[str, Any], delta: Mapping[str, Any]) -> None:
    """Add the members of *delta* to an object that grows by pieces. In the end, `join_texts` joins its texts."""
    for key, value in delta.items():
        if value is None:
            grown.setdefault(key, None)
        # Some servers repeat these in each piece.
        elif key in {"id", "type", "role", "name", "index", "format", "signature_type"}:
            grown[key] = grown.get(key) or value
        elif key == "signature":  # no piece is a part of it; some servers begin with an empty one
            grown[key] = value or grown.get(key, value)
        else:
            grown[key] = _add_piece(grown.get(key), value)


def _add_piece(grown: Any, piece: Any) -> Any:  # noqa: ANN401 - any JSON a server sends
    if isinstance(piece, str):
        if isinstance(grown, list):
            return _add_elements(grown, [{"type": "text", "text": piece}] if piece else [])
        if not isinstance(grown, _GrowingText):
            grown = _GrowingText([grown] if isinstance(grown, str) else [])
        grown.pieces.append(piece)
        return grown
    if isinstance(piece, dict):
        members = grown if isinstance(grown, dict) else {}
        add_members(members, piece)
        return members
    if isinstance(piece, list):
        return _add_elements(grown, piece)
    return piece


def _add_elements(grown: Any, pieces: list[Any]) -> list[Any]:  # noqa: ANN401 - any JSON a server sends
    """Add elements to a list. A text that turns into parts is the first of them."""
    elements: list[Any] = []
    if isinstance(grown, list):
        elements = grown
    elif isinstance(grown, _GrowingText) and any(grown.pieces):
        elements.append({"type": "text", "text": grown})
    for number, piece in enumerate(pieces):
        continued_element = _find_continued(elements, piece, is_first=number == 0)
        if continued_element is None:
            elements.append(_add_piece(None, piece))
        else:
            add_members(continued_element, piece)
    return elements


def _find_continued(elements: list[Any], piece: Any, *, is_first: bool) -> dict[str, Any] | None:  # noqa: ANN401
    """Return the element that a piece continues: the last one of its index, unless both have an id and these differ.

    Without an index, a part continues the last one if that is of its kind, and so does a call without a name.
    """
    if not isinstance(piece, dict):
        return None
    if "index" in piece:
        # Bounded, so that the time grows with the length of the answer only: older calls get no more pieces.
        for element in islice(reversed(elements), 500):
            if isinstance(element, dict) and element.get("index") == piece["index"]:
                if piece.get("id") and element.get("id") and element["id"] != piece["id"]:
                    return None
                return element
        return None
    last = elements[-1] if elements else None
    if not isinstance(last, dict):
        return None
    if "function" in piece and not piece.get("id"):
        continues = not as_object(piece["function"]).get("name")
    else:
        # Only the first: parts that come together, such as those of a tool's result, are parts of their own.
        is_part = is_first and piece.keys() <= {"type", "text", "thinking"}
        continues = is_part and piece.keys() == last.keys() and piece.get("type") == last.get("type")
    return last if continues else None


def join_texts(grown: Any) -> Any:  # noqa: ANN401 - any JSON
    if isinstance(grown, _GrowingText):
        return "".join(grown.pieces)
    if isinstance(grown, dict):
        return {key: join_texts(value) for key, value in grown.items()}
    if isinstance(grown, list):
        return [join_texts(element) for element in grown]
    return grown


def _iterate_weights(value: Any, level: int = 0) -> Iterator[int]:  # noqa: ANN401 - any JSON
    """Yield the approximate bytes of each part of a value. One that is nested too deep exceeds every limit."""
    if level >= 64:  # noqa: PLR2004
        yield ANSWER_MAX_BYTES
    elif isinstance(value, str):
        yield len(value)
    else:
        yield 8
        if isinstance(value, dict):
            for member in value.values():
                yield from _iterate_weights(member, level + 1)
        elif isinstance(value, list):
            for element in value:
                yield from _iterate_weights(element, level + 1)
