"""Answers of a chat model: put together from a stream, their usage read and rewritten, silent truncation noticed, and
answers that the proxy writes itself.
"""

import json
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Protocol

import msgspec

from proxy.core import splice
from proxy.core.window import LARGEST_COUNT, Usage
from proxy.wire import http
from proxy.wire.http import Headers
from proxy.wire.outline import find_values

# --- answers ----------------------------------------------------------------------------------------------------------
# A model's answer, assembled from the pieces of a stream or read from one body.
#
# Servers send an answer in many dialects: reasoning under three names, tool calls by index, without one, or all at
# index 0, several choices interleaved, unknown keys. So nothing here knows a dialect. A text grows by the text that
# comes after it, an object takes each key of the next one, members of a list with the same `index` are joined; a key
# that identifies (`id`, `type`, `role`, `name`) keeps its first value.
#
# `Assembly` is fed the bytes as they pass, and holds at most `room` of them: the rest is left out, and the answer
# counts as cut.

ANSWER_MAX_BYTES = 16 * 1024 * 1024
_KEPT = frozenset({"id", "type", "role", "name", "index", "format", "signature_type"})
_TEXTS = frozenset({"type", "text", "thinking"})
EVENT_MAX_BYTES = 1024 * 1024
_NESTING_MAX_LEVELS = 64
# Calls of one message whose pieces may still come, mixed with each other: a piece looks for its like among them.
OPEN_CALLS_MAX = 500
_LINE_END = re.compile(rb"\r\n|\n|\r")
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
        told = json.loads(body)
        if not isinstance(told, dict):
            return NOTHING
        places = {each.key: each for each in splice.members(body)}
    except (ValueError, RecursionError, IndexError):
        return NOTHING
    listed = told.get("choices")
    if not isinstance(listed, list):
        return Answer(error=told.get("error"), whole=True)
    slices = splice.elements(body, places["choices"].start)
    choices = [
        choice
        for number, (said, (start, stop)) in enumerate(zip(listed, slices, strict=True))
        if (choice := _choice(number, said, body[start:stop]))
    ]
    return Answer(tuple(choices), _text(told.get("model")), _object(told.get("usage")), told.get("error"), whole=True)


def _choice(number: int, said: Any, raw: bytes) -> Choice | None:  # noqa: ANN401 (any JSON a server sends)
    if not isinstance(said, dict) or not isinstance(said.get("message"), dict):
        return None
    place = splice.member(raw, "message")
    message = raw[place.start : place.stop] if place else b"{}"
    index = said.get("index")
    return Choice(index if isinstance(index, int) else number, message, _text(said.get("finish_reason")) or None)


# --- a stream --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Grown:
    """A text that comes in pieces."""

    pieces: list[str]


@dataclass(slots=True)
class _Said:
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
        self._said: dict[int, _Said] = {}
        self._model = ""
        self._usage: Mapping[str, Any] | None = None
        self._error: Any = None

    def feed(self, data: bytes) -> None:
        rest, *lines = _LINE_END.split(data)
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
        choices = tuple(Choice(index, _message(said), said.finish) for index, said in sorted(self._said.items()))
        finished = bool(self._said) and all(said.finish for said in self._said.values())
        whole = self._room >= 0 and self._error is None and (ended or finished)
        return Answer(choices, self._model, self._usage, self._error, whole)

    def _line(self, line: bytes) -> None:
        if not line:
            self._event()
        elif line.startswith(b"data:"):
            self._data.append(line[5:].removeprefix(b" "))
            self._data_bytes += len(line)

    def _event(self) -> None:
        data, self._data, self._data_bytes = b"\n".join(self._data), [], 0
        told = _object(_read(data))
        if told is None:
            return
        told = told if self._reader is None else dict(self._reader.read_event(told))
        self._model = self._model or _text(told.get("model"))
        if (usage := _object(told.get("usage"))) is not None:
            self._usage = {**(self._usage or {}), **usage}  # one API tells what it read first, what it wrote last
        self._error = told.get("error") or self._error
        listed = told.get("choices")
        for number, choice in enumerate(listed if isinstance(listed, list) else ()):
            if isinstance(choice, dict):
                self._grow(number, choice)

    def _grow(self, number: int, choice: dict[str, Any]) -> None:
        index = choice.get("index")
        said = self._said.setdefault(index if isinstance(index, int) else number, _Said())
        said.finish = _text(choice.get("finish_reason")) or said.finish
        delta = _object(choice.get("delta")) or _object(choice.get("message")) or {}
        self._room -= sum(_weights(delta)) if self._room >= 0 else 0
        if self._room >= 0:
            _take(said.message, delta)


def _message(said: _Said) -> bytes:
    """JSON, without the numbers that only a stream needs."""
    message = {"role": "assistant", **_plain(said.message)}
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


def _read(data: bytes) -> Any:  # noqa: ANN401 (any JSON)
    if not data.startswith(b"{"):
        return None
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):  # the second: bytes that are no UTF-8
        pass
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _object(value: Any) -> dict[str, Any] | None:  # noqa: ANN401 (any JSON)
    return value if isinstance(value, dict) else None


def _text(value: Any) -> str:  # noqa: ANN401 (any JSON)
    return value if isinstance(value, str) else ""


# --- usage ------------------------------------------------------------------------------------------------------------
# Token counts of an answer, from the last `usage` object in it, be it one body or a stream of events.
#
# Only the end of an answer is kept for this, because that is where servers write the object.

TAIL_BYTES = 64 * 1024
FIRST_BYTES = 4 * 1024
LONGEST_OBJECT_BYTES = 16 * 1024
OBJECTS_TRIED_MAX = 16
"""Objects that are tried, from the last on: each costs up to `LONGEST_OBJECT_BYTES` of parsing, in the event loop."""
# `null` does not match: a stream may repeat it in each of its events.
_USAGE = re.compile(rb'"usage"\s*:\s*(?=\{)')


class Tail:
    """Keeps the last bytes of an answer as they pass, and the first: one API tells there what it has read."""

    __slots__ = ("_first", "_pieces", "_size")

    def __init__(self) -> None:
        self._first = b""
        self._pieces: deque[bytes] = deque()
        self._size = 0

    def feed(self, chunk: bytes) -> None:
        if len(self._first) < FIRST_BYTES:
            self._first += chunk[:FIRST_BYTES]
        self._pieces.append(chunk)
        self._size += len(chunk)
        while self._size - len(self._pieces[0]) >= TAIL_BYTES:
            self._size -= len(self._pieces.popleft())

    @property
    def end(self) -> bytes:
        """The last bytes of the answer; all of it where it was short."""
        return b"".join(self._pieces)

    def usage(self) -> dict[str, Any] | None:
        """The last usage object. A name within a text is escaped there, and so is never taken for one."""
        last = _last_usage(self.end)
        if last is None or "output_tokens" not in last:
            return last
        return {**(_first_usage(self._first) or {}), **{name: count for name, count in last.items() if count}}


def _last_usage(text: bytes) -> dict[str, Any] | None:
    objects = (_object_at(text, name.end()) for name in [*_USAGE.finditer(text)][: -OBJECTS_TRIED_MAX - 1 : -1])
    return next((found for found in objects if found is not None), None)


def _first_usage(text: bytes) -> dict[str, Any] | None:
    name = _USAGE.search(text)
    return None if name is None else _object_at(text, name.end())


def _object_at(text: bytes, at: int) -> dict[str, Any] | None:
    try:
        found, _ = json.JSONDecoder().raw_decode(text[at : at + LONGEST_OBJECT_BYTES].decode(errors="replace"))
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def read(usage: Mapping[str, Any] | None) -> Usage:
    """The counts of a usage object. Missing, zero or absurd means not reported, never empty."""
    reported = usage or {}
    if "input_tokens" in reported:
        return _read_apart(reported)
    details = reported.get("prompt_tokens_details")
    cached = _count(details.get("cached_tokens")) if isinstance(details, Mapping) else None
    prompt, written = _count(reported.get("prompt_tokens")), _count(reported.get("completion_tokens"))
    return Usage(prompt or 0, cached, written or 0)


def _read_apart(reported: Mapping[str, Any]) -> Usage:
    """The counts of the other APIs. In Anthropic's, what came from its cache or went there is no `input_tokens`."""
    if isinstance(details := reported.get("input_tokens_details"), Mapping):
        return Usage(
            _count(reported.get("input_tokens")) or 0,
            _count(details.get("cached_tokens")),
            _count(reported.get("output_tokens")) or 0,
        )
    fresh, cached, written_there = (
        _count(reported.get(name))
        for name in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    )
    prompt = (fresh or 0) + (cached or 0) + (written_there or 0)
    return Usage(prompt, cached, _count(reported.get("output_tokens")) or 0)


def _count(value: object) -> int | None:
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST_COUNT
    return value if is_count else None  # type: ignore[return-value]


# --- usage view -------------------------------------------------------------------------------------------------------
# The `usage` of an answer: asked for where a client did not ask, hidden from it again, or shown as it would expect.
#
# A client that reads `usage` as its gauge sees there the size of the shortened history, and that is the truth. But some
# compact by themselves when the gauge is full, and now their own history would grow without end: for them a policy can
# say `client_view`, and the gauge shows what the history as they sent it would have taken.
#
# Only lines that speak of usage are touched; every other byte of an answer stays.

_SPEAKS = b'"usage"'
_PROMPTS = ("prompt_tokens", "input_tokens")
_PROMPT_DETAILS = (
    *("prompt_tokens_details", "input_tokens_details"),
    *("cache_read_input_tokens", "cache_creation_input_tokens", "cache_creation"),
)
_LINES = re.compile(rb"[^\n]*\n|[^\n]+\Z")
_ASKED = b'{"include_usage":true}'
MOST_HELD_BYTES = 16 * 1024 * 1024
# A longer line holds no usage object of any server. It passes as it comes: held back, it would fill the memory, and be
# copied with each piece that arrives.
LONGEST_LINE_BYTES = 1024 * 1024


def request_usage(source: bytes) -> bytes | None:
    """A request for a stream that ends with its usage; None where it asks for that already."""
    place = find_values(source).get("stream_options") if b'"stream_options"' in source else None
    if place is None:
        opening = source.index(b"{") + 1
        return source[:opening] + b'"stream_options":' + _ASKED + b"," + source[opening:]
    options = json.loads(source[slice(*place)])
    if options is None:
        options = {}
    if not isinstance(options, dict) or options.get("include_usage"):
        return None
    return splice.replace_bytes(source, *place, json.dumps({**options, "include_usage": True}).encode())


@dataclass(frozen=True, slots=True)
class UsageView:
    """How a client is to see the figures of one answer."""

    hides_usage: bool = False
    """The client did not ask for usage: the usage that the proxy asked for is removed from its stream."""
    extra_tokens: int = 0
    """Tokens by which the client's own history is longer than the forwarded one."""
    find_first_usage: Callable[[], Mapping[str, Any] | None] = lambda: None
    """The usage of the first of several rounds: the sum of their prompts is no size of a history."""


class Rewriter(Protocol):
    """An answer on its way to the client, piece by piece."""

    def feed(self, data: bytes) -> bytes: ...
    def close(self) -> bytes: ...


class StreamRewriter:
    """A stream on its way to the client, line by line."""

    def __init__(self, gauge: UsageView) -> None:
        self._gauge = gauge
        self._held = bytearray()
        self._swallows = False
        self._passes = False

    def feed(self, data: bytes) -> bytes:
        if self._passes:
            end = data.find(b"\n") + 1
            if not end:
                return data
            self._passes = False
            return data[:end] + self.feed(data[end:])
        end = data.rfind(b"\n") + 1
        if not end:
            self._held += data
            self._passes = len(self._held) > LONGEST_LINE_BYTES
            return self._release() if self._passes else b""
        ready = self._release() + data[:end]
        self._held += data[end:]
        return self._rewrite_lines(ready)

    def close(self) -> bytes:
        return self._rewrite_lines(self._release())

    def _release(self) -> bytes:
        held, self._held = bytes(self._held), bytearray()
        return held

    def _rewrite_lines(self, data: bytes) -> bytes:
        """Rewrite whole lines; without the word `usage` in them they pass as they are."""
        if not self._swallows and _SPEAKS not in data:
            return data
        return b"".join(map(self._rewrite_line, _LINES.findall(data)))

    def _rewrite_line(self, line: bytes) -> bytes:
        if self._swallows and not line.strip():
            self._swallows = False  # the end of the event that went
            return b""
        if _SPEAKS not in line or not line.startswith(b"data:"):
            return line
        at = line.index(b":") + 1
        at += line[at : at + 1] == b" "
        end = len(line.rstrip(b"\r\n"))
        told = _rewrite(line[at:end], self._gauge)
        self._swallows = told is None
        return b"" if told is None else line[:at] + told + line[end:]


class BodyRewriter:
    """A whole answer on its way to the client: it is held until its end, unless it grows beyond all measure."""

    def __init__(self, gauge: UsageView) -> None:
        self._gauge = gauge
        self._held = bytearray()
        self._flows = False

    def feed(self, data: bytes) -> bytes:
        if self._flows:
            return data
        self._held += data
        self._flows = len(self._held) > MOST_HELD_BYTES
        return bytes(self._held) if self._flows else b""

    def close(self) -> bytes:
        if self._flows:
            return b""
        told = _rewrite(bytes(self._held), self._gauge)
        return bytes(self._held) if told is None else told


def _rewrite(raw: bytes, gauge: UsageView) -> bytes | None:
    """The object as the client shall see it; None: not at all."""
    try:
        return _show(json.loads(raw), raw, gauge)
    except (ValueError, RecursionError, IndexError):
        return raw  # no JSON, or not in UTF-8


def _show(value: Any, raw: bytes, gauge: UsageView) -> bytes | None:  # noqa: ANN401 - JSON
    at = 0
    if isinstance(value, dict) and isinstance(value.get("message"), dict):  # the first event of Anthropic's API
        inner = splice.member(raw, "message")
        value, at = value["message"], inner.start if inner is not None else 0
    if not isinstance(value, dict) or "usage" not in value:
        return raw
    usage = value["usage"]
    if gauge.hides_usage and usage is None:
        return splice.without(raw, frozenset({"usage"}))
    if gauge.hides_usage and value.get("choices") == []:
        return None
    place = splice.member(raw, "usage", at) if isinstance(usage, dict) and gauge.extra_tokens else None
    if place is None:
        return raw
    own = _with_prompt_of(gauge.find_first_usage(), usage, raw[place.start : place.stop])
    return splice.replace_bytes(raw, place.start, place.stop, _longer(own, gauge.extra_tokens))


def _with_prompt_of(first: Mapping[str, Any] | None, usage: Mapping[str, Any], raw: bytes) -> bytes:
    """The usage object with the prompt of the first round; as it is, where there was one round only."""
    if first is None:
        return raw
    added = sum(_count(usage.get(name)) or 0 for name in _PROMPTS) - sum(
        _count(first.get(name)) or 0 for name in _PROMPTS
    )
    shown = {**usage, **{name: first[name] for name in (*_PROMPTS, *_PROMPT_DETAILS) if name in first}}
    if isinstance(usage.get("total_tokens"), int):
        shown["total_tokens"] = usage["total_tokens"] - added
    return json.dumps(shown).encode()


def _longer(usage: bytes, more: int) -> bytes:
    """The usage object of a prompt that is longer by `more` tokens."""
    for name in ("prompt_tokens", "total_tokens", "input_tokens"):
        place = splice.member(usage, name)
        value: Any = None if place is None else json.loads(usage[place.start : place.stop])
        if place is not None and isinstance(value, int):
            usage = splice.replace_bytes(usage, place.start, place.stop, b"%d" % (value + more))
    return usage


# --- truncation -------------------------------------------------------------------------------------------------------
# Silent truncation: how an answer shows that its prompt was cut before the model read it.
#
# Some servers take any prompt and cut what does not fit, without an error. Their figures give it away
# (`core.conversation.is_silently_cut`), or the way their answer ends.

_CONTEXT_EXCEEDED = re.compile(rb'"(?:finish|stop)_reason"\s*:\s*"model_context_window_exceeded"')


def says_truncated(tail: bytes) -> bool:
    """True where the end of an answer shows a cut prompt: by its finish reason, or by a stream without choices."""
    return _CONTEXT_EXCEEDED.search(tail) is not None or (b"[DONE]" in tail and b'"choices"' not in tail)


# --- local answer -----------------------------------------------------------------------------------------------------
# Words of our own in the form of a chat completion: for the few questions that this proxy answers itself.

ID = "chatcmpl-compaction-proxy"
JSON: Headers = (("content-type", "application/json"),)
EVENTS: Headers = (("content-type", "text/event-stream; charset=utf-8"), ("cache-control", "no-cache"))
_FREE = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}


def read_event(event: Mapping[str, Any]) -> Mapping[str, Any]:
    """The chunk that is read: a chat answer is what the others are read as."""
    return event


def read_body(body: bytes) -> bytes:
    """The answer that is read."""
    return body


def render_answer(text: str, model: str, created: int, *, stream: bool) -> tuple[Headers, bytes]:
    """An answer that says this, whole or as events, as it was asked for."""
    about = {"id": ID, "created": created, "model": model}
    if not stream:
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return JSON, _json({**about, "object": "chat.completion", "choices": [choice], "usage": _FREE})
    about["object"] = "chat.completion.chunk"
    deltas: list[tuple[dict[str, str], str | None]] = [({"role": "assistant", "content": text}, None), ({}, "stop")]
    choices = ([{"index": 0, "delta": delta, "finish_reason": finish}] for delta, finish in deltas)
    events = [b"data: " + _json({**about, "choices": each}) + b"\n\n" for each in choices]
    return EVENTS, b"".join([*events, b"data: [DONE]\n\n"])


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
