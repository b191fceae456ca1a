"""A model's answer, assembled from the pieces of a stream or read from one body.

Servers send an answer in many dialects: reasoning under three names, tool calls by index, without one, or all at
index 0, several choices interleaved, unknown keys. So nothing here knows a dialect. A text grows by the text that
comes after it, an object takes each key of the next one, members of a list with the same `index` are joined; a key
that identifies (`id`, `type`, `role`, `name`) keeps its first value.

`Assembly` is fed the bytes as they pass, and holds at most `room` of them: the rest is left out, and the answer
counts as cut.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Protocol

from proxy.wire import http
from proxy.wire.event_lines import DATA, LINE_END
from proxy.wire.lenient import as_text, read_object
from proxy.wire.outline import find_values, read_elements

ANSWER_MAX_BYTES = 16 * 1024 * 1024
_KEPT = frozenset({"id", "type", "role", "name", "index", "format", "signature_type"})
_TEXTS = frozenset({"type", "text", "thinking"})
EVENT_MAX_BYTES = 1024 * 1024
_NESTING_MAX_LEVELS = 64
# Calls of one message whose pieces may still come, mixed with each other: a piece looks for its like among them.
OPEN_CALLS_MAX = 500
_EVENTS = "text/event-stream"


@dataclass(frozen=True, slots=True)
class Choice:
    """A choice of the answer, complete; `message` is JSON."""

    index: int
    message: bytes
    finish: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """All that a model said to one request. Not whole: the client left, the upstream broke off, or it was too long."""

    choices: tuple[Choice, ...] = ()
    model: str = ""
    usage: Mapping[str, Any] | None = None
    error: Any = None
    whole: bool = False


NOTHING = Answer()


class AnswerReader(Protocol):
    """Reads the answers of another API as chat answers."""

    def read_event(self, event: Mapping[str, Any]) -> Mapping[str, Any]: ...
    def read_body(self, body: bytes) -> bytes: ...


class Assembly:
    """Collector of one answer: `feed` it every piece, then call `answer`."""

    def __init__(
        self, content_type: str, encoding: str = "", room: int = ANSWER_MAX_BYTES, reader: "AnswerReader | None" = None
    ) -> None:
        self._reader = reader
        self._encoding = encoding
        self._room = room
        self._is_stream = content_type.strip().lower().startswith(_EVENTS)
        self._body = bytearray()
        self._stream = _Stream(room, reader)
        self._lost = False

    def feed(self, data: bytes) -> None:
        """Compressed bytes and whole bodies wait for the end; the events of a stream are taken apart at once."""
        if self._is_stream and not self._encoding:
            self._stream.feed(data)
        elif len(self._body) + len(data) <= self._room:
            self._body += data
        else:
            self._lost = True

    def lose(self) -> bool:
        """Mark the answer as incomplete: some bytes of it will never be fed."""
        self._lost = True
        return True

    def answer(self, *, ended: bool) -> Answer:
        """The answer so far; `ended`: the upstream has sent all of it."""
        body = bytes(self._body)
        if self._encoding and body:
            try:
                body = http.decode(body, self._encoding, self._room)
            except (KeyError, http.TooLarge, http.UndecodableBody):
                return NOTHING
        if not self._is_stream:
            body = body if self._reader is None else self._reader.read_body(body)
            return _whole(body) if ended and not self._lost else NOTHING
        self._stream.feed(body + b"\n\n")
        answer = self._stream.answer(ended=ended)
        return replace(answer, whole=False) if self._lost else answer


# --- a body ----------------------------------------------------------------------------------------------------------


def _whole(body: bytes) -> Answer:
    """Read an answer that is one body; each message keeps its bytes."""
    try:
        value = json.loads(body)
        places = find_values(body)
        listed = value.get("choices")
        if not isinstance(listed, list):
            return Answer(error=value.get("error"), whole=True)
        elements = zip(listed, read_elements(body[slice(*places["choices"])]), strict=True)
        choices = [choice for number, (read, raw) in enumerate(elements) if (choice := _choice(number, read, raw))]
    except (ValueError, RecursionError, IndexError):
        return NOTHING
    return Answer(
        tuple(choices), as_text(value.get("model")), _object(value.get("usage")), value.get("error"), whole=True
    )


def _choice(number: int, value: Any, raw: bytes) -> Choice | None:  # noqa: ANN401 (any JSON a server sends)
    if not isinstance(value, dict) or not isinstance(value.get("message"), dict):
        return None
    message = raw[slice(*find_values(raw)["message"])]
    index = value.get("index")
    return Choice(index if isinstance(index, int) else number, message, as_text(value.get("finish_reason")) or None)


# --- a stream --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Grown:
    """A text that comes in pieces."""

    pieces: list[str]


@dataclass(slots=True)
class _GrowingChoice:
    """A choice of a stream, as far as it has come."""

    message: dict[str, Any] = field(default_factory=dict)
    finish: str | None = None


class _Stream:
    """The events of a stream, taken apart."""

    def __init__(self, room: int, reader: "AnswerReader | None") -> None:
        self._reader = reader
        self._room = room
        self._longest_event = min(room, EVENT_MAX_BYTES)
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._data: list[bytes] = []
        self._data_bytes = 0
        self._growing: dict[int, _GrowingChoice] = {}
        self._model = ""
        self._usage: Mapping[str, Any] | None = None
        self._error: Any = None

    def feed(self, data: bytes) -> None:
        rest, *lines = LINE_END.split(data)
        self._hold(rest)
        for rest in lines:
            self._line(b"".join(self._held))
            self._held, self._held_bytes = [], 0
            self._hold(rest)
        # An answer without room is read on, for its usage and its end, but one event may not take all room again.
        if self._held_bytes + self._data_bytes > (self._room if self._room >= 0 else self._longest_event):
            self._held, self._held_bytes, self._room = [], 0, -1
            self._data, self._data_bytes = [], 0

    def _hold(self, piece: bytes) -> None:
        self._held.append(piece)
        self._held_bytes += len(piece)

    def answer(self, *, ended: bool) -> Answer:
        choices = tuple(
            Choice(index, _message(growing), growing.finish) for index, growing in sorted(self._growing.items())
        )
        finished = bool(self._growing) and all(growing.finish for growing in self._growing.values())
        whole = self._room >= 0 and self._error is None and (ended or finished)
        return Answer(choices, self._model, self._usage, self._error, whole)

    def _line(self, line: bytes) -> None:
        if not line:
            self._event()
        elif (found := DATA.match(line)) is not None:
            self._data.append(line[found.end() :])
            self._data_bytes += len(line)

    def _event(self) -> None:
        data, self._data, self._data_bytes = b"\n".join(self._data), [], 0
        event = read_object(data) if data.startswith(b"{") else None
        if event is None:
            return
        event = event if self._reader is None else dict(self._reader.read_event(event))
        self._model = self._model or as_text(event.get("model"))
        if (usage := _object(event.get("usage"))) is not None:
            self._usage = {**(self._usage or {}), **usage}  # one API tells what it read first, what it wrote last
        self._error = event.get("error") or self._error
        listed = event.get("choices")
        for number, choice in enumerate(listed if isinstance(listed, list) else ()):
            if isinstance(choice, dict):
                self._grow(number, choice)

    def _grow(self, number: int, choice: dict[str, Any]) -> None:
        index = choice.get("index")
        growing = self._growing.setdefault(index if isinstance(index, int) else number, _GrowingChoice())
        growing.finish = as_text(choice.get("finish_reason")) or growing.finish
        delta = _object(choice.get("delta")) or _object(choice.get("message")) or {}
        self._room -= sum(_weights(delta)) if self._room >= 0 else 0
        if self._room >= 0:
            _take(growing.message, delta)


def _message(growing: _GrowingChoice) -> bytes:
    """JSON, without the numbers that only a stream needs."""
    message = {"role": "assistant", **_plain(growing.message)}
    for listed in (message.get("tool_calls"), message.get("content")):
        for each in listed if isinstance(listed, list) else ():
            if isinstance(each, dict):
                each.pop("index", None)
    try:
        return json.dumps(message, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.dumps(message).encode()


def _take(grown: dict[str, Any], more: Mapping[str, Any]) -> None:
    """An object grows by the next piece of it."""
    for key, value in more.items():
        if value is None:
            grown.setdefault(key, None)
        elif not (key in _KEPT and grown.get(key)):
            grown[key] = _join(grown.get(key), value, kept=key in _KEPT)


def _join(old: Any, new: Any, *, kept: bool = False) -> Any:  # noqa: ANN401 (any JSON a server sends)
    if isinstance(new, str) and not kept:
        if isinstance(old, list):
            return _join(old, [{"type": "text", "text": new}] if new else [])
        if isinstance(old, _Grown):
            old.pieces.append(new)
            return old
        return _Grown([new])
    if isinstance(new, dict):
        grown = old if isinstance(old, dict) else {}
        _take(grown, new)
        return grown
    if isinstance(new, list):
        return _join_lists(old, new)
    return new


def _join_lists(old: Any, new: list[Any]) -> list[Any]:  # noqa: ANN401 (any JSON a server sends)
    """A list grows member by member; a text that turns into parts is the first of them."""
    text = "".join(old.pieces) if isinstance(old, _Grown) else ""
    grown = old if isinstance(old, list) else [{"type": "text", "text": _Grown([text])}] if text else []
    for each in new:
        like = _like(grown, each)
        if like is None:
            grown.append(_join(None, each))
        else:
            _take(like, each)
    return grown


def _like(grown: list[Any], new: Any) -> dict[str, Any] | None:  # noqa: ANN401 (any JSON a server sends)
    """The member that this piece goes on with: the last of its index, unless it has an id and that is another."""
    if not isinstance(new, dict):
        return None
    if "index" not in new:
        last = grown[-1] if grown and isinstance(grown[-1], dict) else None
        return last if last is not None and _goes_on(last, new) else None
    newest = islice(reversed(grown), OPEN_CALLS_MAX)
    same = (one for one in newest if isinstance(one, dict) and one.get("index") == new["index"])
    like = next(same, None)
    return None if like and new.get("id") and like.get("id") and like["id"] != new["id"] else like


def _goes_on(last: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """True where a piece without an index continues the last: a part of the same kind, or a call without a name."""
    if "function" in new and not new.get("id"):
        return not (_object(new["function"]) or {}).get("name")
    return new.keys() <= _TEXTS and new.keys() == last.keys() and new.get("type") == last.get("type")


def _plain(grown: Any) -> Any:  # noqa: ANN401 (any JSON)
    """A plain JSON value: the pieces of its texts are joined."""
    if isinstance(grown, _Grown):
        return "".join(grown.pieces)
    if isinstance(grown, dict):
        return {key: _plain(value) for key, value in grown.items()}
    return [_plain(each) for each in grown] if isinstance(grown, list) else grown


def _weights(value: Any, depth: int = 0) -> Iterator[int]:  # noqa: ANN401 (any JSON)
    """Bytes that a piece adds, near enough; what is nested without end weighs more than anything."""
    yield (len(value) if isinstance(value, str) else 8) if depth < _NESTING_MAX_LEVELS else ANSWER_MAX_BYTES
    if depth < _NESTING_MAX_LEVELS and isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _weights(each, depth + 1)


def _object(value: Any) -> dict[str, Any] | None:  # noqa: ANN401 (any JSON)
    return value if isinstance(value, dict) else None
