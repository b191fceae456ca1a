"""Event streams (SSE): cut into lines and events, judged at their opening, watched while they pass.

A network cuts a stream anywhere, so a part of a line is held until its end has come. Bytes are never changed; a bare
error and all that follows it are left out.
<https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream>
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec import Struct

from proxy.history import splice
from proxy.wire.json_body import as_object, as_text, read_json, read_object


class LineReader:
    """Cuts a stream at the ends of its lines.

    A CR at the end of a chunk waits for the next byte, which may be its LF; after another CR it does not wait.
    """

    def __init__(self, max_held_bytes: int) -> None:
        self._max_held_bytes = max_held_bytes
        self._held = bytearray()
        self._is_within_line = False
        self.continues_line = False
        """Whether the last result of `feed` begins in the middle of a line that was too long to hold."""

    @property
    def held(self) -> bytes:
        return bytes(self._held)

    def feed(self, chunk: bytes) -> bytes:
        self.continues_line = self._is_within_line
        buffer = self._held
        if not buffer and chunk.endswith(b"\n"):
            self._is_within_line = False
            return chunk
        searched_bytes = max(0, len(buffer) - 2)  # a CR at the end of the held bytes is looked at again
        buffer += chunk
        stop = len(buffer)
        if buffer.endswith(b"\r") and not buffer.endswith(b"\r\r"):
            stop -= 1
        end = max(buffer.rfind(b"\n", searched_bytes, stop), buffer.rfind(b"\r", searched_bytes, stop)) + 1
        if end:
            self._is_within_line = False
        if len(buffer) - end > self._max_held_bytes or (self._is_within_line and stop):
            self._is_within_line = True
            end = stop
        ready = bytes(buffer[:end])
        del buffer[:end]
        return ready

    def close(self) -> bytes:
        """Return the held bytes."""
        self.continues_line = self._is_within_line
        rest = bytes(self._held)
        self._held.clear()
        return rest


class EventReader:
    """Cuts a stream after the empty lines that end its events."""

    def __init__(self, max_event_bytes: int) -> None:
        self._max_event_bytes = max_event_bytes
        self._lines = LineReader(max_event_bytes)
        self._event = bytearray()
        self.has_cut = False
        """An event was too long to hold, and was returned in pieces."""

    @property
    def held(self) -> bytes:
        return bytes(self._event) + self._lines.held

    def feed(self, chunk: bytes) -> list[bytes]:
        events: list[bytes] = []
        is_line_start = True
        for line in self._lines.feed(chunk).splitlines(keepends=True):
            # The first line may be only the end of a long line that was cut: it is not empty then.
            is_empty = line in (b"\n", b"\r\n", b"\r") and not (is_line_start and self._lines.continues_line)
            is_line_start = False
            self._event += line
            if is_empty:
                events.append(bytes(self._event))
                self._event.clear()
        if len(self._event) > self._max_event_bytes:
            self.has_cut = True
            events.append(bytes(self._event))
            self._event.clear()
        return events

    def close(self) -> bytes:
        rest = bytes(self._event) + self._lines.close()
        self._event.clear()
        return rest


def find_data(line: bytes) -> bytes | None:
    """Return the data of a line, or None. The line may follow the byte order mark at the start of a stream."""
    if line.startswith(b"\xef\xbb\xbf"):
        line = line[3:]
    return line[5:].removeprefix(b" ") if line.startswith(b"data:") else None


def read_event(event: bytes) -> dict[str, Any] | None:
    data = b"\n".join(filter(None, map(find_data, event.splitlines())))
    return read_object(data) if data.startswith(b"{") else None


def has_name(event: bytes) -> bool:
    lines = event.removeprefix(b"\xef\xbb\xbf").splitlines()
    return any(line.startswith(b"event:") for line in lines)


def write_event(value: Mapping[str, Any], *, named: bool = False) -> bytes:
    """Write an event. If `named`, its type is its name, as in Messages and Responses."""
    name = b"event: %b\n" % str(value.get("type")).encode() if named else b""
    return b"%bdata: %b\n\n" % (name, splice.write_json(value))


def write_named_events(values: Iterable[Mapping[str, Any]]) -> bytes:
    return b"".join([write_event(value, named=True) for value in values])


ErrorObject = dict[str, object]


class StreamForm(Struct, frozen=True, kw_only=True):
    """What an API has of its own in a stream of events."""

    outputs: str | None
    """A pattern of the types of events by which it is certain that the model answers; None if the first data tells."""
    last_event: re.Pattern[bytes]
    """The types of the events that end a stream. In every API, some servers write `[DONE]` at its end."""
    has_flat_errors: bool
    """Whether code and message of an error may be members of its event (`find_line_error`)."""
    write_error: Callable[[ErrorObject], bytes]
    """Write an error as an event that clients raise on."""


def write_bare_error(error: ErrorObject) -> bytes:
    return b"data: %b\n\n" % json.dumps({"error": error}).encode()


OPENING_MAX_BYTES = 2 * 1024 * 1024
"""OpenAI repeats the instructions and the tools of a request in its first events."""


class StreamOpening:
    """Reads the first events of a stream until one tells whether the model answers or the upstream refuses."""

    def __init__(self, outputs: str | None) -> None:
        self._outputs = outputs
        self._is_decided = False
        self._refusal: bytes | None = None
        self._lines = LineReader(OPENING_MAX_BYTES)
        self._read_bytes = 0

    def is_decided(self, beginning: bytes | bytearray) -> bool:
        """Return True once it is certain whether the upstream refuses. `beginning`: all bytes that have come so far."""
        new_bytes = bytes(beginning[self._read_bytes :])
        self._read_bytes = len(beginning)
        self._judge(self._lines.feed(new_bytes))
        return self._is_decided or len(beginning) > OPENING_MAX_BYTES

    def find_refusal(self, beginning: bytes | bytearray) -> bytes | None:
        if len(beginning) > self._read_bytes:
            self.is_decided(beginning)
        if not self._is_decided:
            self._judge(self._lines.close())  # some servers do not end the last line of a stream
        return self._refusal

    def _judge(self, lines: bytes) -> None:
        for line in lines.splitlines():
            if self._is_decided:
                return
            data = find_data(line)
            if data is None and line.startswith(b"{"):  # an error that a server wrote without `data:`
                data = line
            data = (data or b"").strip()
            # A refusal may still follow these. They repeat the request, so they are not parsed.
            has_begun = re.match(rb'\{"type": ?"response\.(?:created|in_progress|queued)"', data) is not None
            if not data or (has_begun and self._outputs is not None):
                continue
            event = read_object(data) or {}
            kind, error = as_text(event.get("type")), event.get("error")
            if kind == "response.failed":
                self._refusal = splice.write_json({"error": as_object(event.get("response")).get("error")})
            elif kind == "error" or event.get("object") == "error":
                self._refusal = splice.write_json({"error": error or event})
            elif error and not event.get("choices"):
                self._refusal = splice.write_json({"error": error})
            is_output = not kind or "choices" in event or self._outputs is None or re.match(self._outputs, kind)
            self._is_decided = bool(is_output) or self._refusal is not None


HELD_MAX_BYTES = 64 * 1024
"""A longer line, such as one with an image, is relayed in pieces."""

_FINISH_REASON = re.compile(rb'"finish_reason"\s*:\s*"')


class StreamWatch:
    """Watches a relayed stream for its end and its errors.

    `feed` returns the bytes that may be relayed, up to the end of a line.
    """

    def __init__(self, form: StreamForm, *, must_finish: bool) -> None:
        self._form = form
        self._lines = LineReader(HELD_MAX_BYTES)
        self._tail = b"\n\n"
        """The end of the relayed bytes, searched again: a long line may be cut within a word that is looked for."""
        self._must_finish = must_finish
        self.finished = not must_finish
        self.is_done = False
        """The last event has come."""
        self.error: ErrorObject | None = None

    @property
    def at_boundary(self) -> bool:
        return self._tail.endswith((b"\n", b"\r"))

    @property
    def heartbeat(self) -> bytes:
        """Return a comment that changes no event if it is written now; empty within a line."""
        if not self.at_boundary:
            return b""
        if self._tail.endswith((b"\n\n", b"\n\r\n", b"\r\r", b"\n\r")):
            return b": keep-alive\n\n"
        return b": keep-alive\n"  # an empty line would end an event too early

    def write_error(self, error: ErrorObject) -> bytes:
        """Write the error that the upstream has reported, or else this one, as the last event of the stream."""
        lead = b"\n" if self.at_boundary else b"\n\n"
        return lead + self._form.write_error(self.error or error)

    def feed(self, chunk: bytes) -> bytes:
        return self._watch(self._lines.feed(chunk))

    def close(self) -> bytes:
        return self._watch(self._lines.close())

    def _watch(self, ready: bytes) -> bytes:
        if not ready:
            return ready
        recent_bytes = self._tail + ready
        if self._must_finish:
            last_event = self._form.last_event
            if not self.is_done and (b"[DONE]" in recent_bytes or last_event.search(recent_bytes)):
                lines = ready.splitlines(keepends=True)
                if self._lines.continues_line:
                    first_line = self._tail.splitlines()[-1] + lines.pop(0)
                    self.is_done = _has_last_type(first_line, last_event)
                self.is_done = self.is_done or any(_is_last_event(line, last_event) for line in reversed(lines))
            if not self.finished and (self.is_done or _FINISH_REASON.search(recent_bytes)):
                self.finished = True
            if b'"error"' in ready:
                ready = self._cut_at_error(ready)
                recent_bytes = self._tail + ready
        self._tail = recent_bytes[-64:]
        return ready

    def _cut_at_error(self, ready: bytes) -> bytes:
        """Return the bytes before a bare error: some clients fail on it and on all that follows."""
        start = 0
        for line in ready.splitlines(keepends=True):
            error, is_bare = find_line_error(line, may_be_flat=self._form.has_flat_errors)
            if error is not None and is_bare:
                self.error = error
                return ready[:start]
            if error is not None:
                self.finished = True  # every client raises on an error object in its proper place
            start += len(line)
        return ready


def _has_last_type(data: bytes, last_event: re.Pattern[bytes]) -> bool:
    return re.search(rb'"type"\s*:\s*"(?:%b)"' % last_event.pattern, data) is not None


def _is_last_event(line: bytes, last_event: re.Pattern[bytes]) -> bool:
    if line.startswith(b"event:"):
        return last_event.fullmatch(line[6:].strip()) is not None
    data = find_data(line)
    if data is None:
        return False
    if data.lstrip().startswith(b"[DONE]"):
        return True
    if not _has_last_type(data, last_event):
        return False
    if not line.endswith((b"\n", b"\r")):
        return True  # the beginning of a line that is relayed in pieces
    # Data within an event may have such a type.
    event = read_object(data)
    return event is not None and last_event.fullmatch(as_text(event.get("type")).encode(errors="replace")) is not None


def find_line_error(line: bytes, *, may_be_flat: bool) -> tuple[ErrorObject | None, bool]:
    """Return the error of a line, and whether it is bare.

    Client libraries skip a bare error, and take the end of the stream for a success.

    `may_be_flat`: code and message may be members of the event:
    <https://platform.openai.com/docs/api-reference/responses-streaming>.
    """
    data = find_data(line)
    text = data if data is not None else line
    value = read_object(text) if text.lstrip().startswith(b"{") else None
    if value is None:
        return None, False
    if value.get("object") == "error":
        return normalize_error(value), True
    if may_be_flat and "error" not in value and value.get("type") == "error":
        return normalize_error(value), data is None
    if value.get("error") and "choices" not in value:
        return normalize_error(value["error"]), data is None
    return None, False


def normalize_error(value: object) -> ErrorObject:
    """Return an error with the four members that clients of OpenAI know."""
    error = value if isinstance(value, dict) else {"message": str(value)}
    return {name: error.get(name) for name in ("message", "type", "param", "code")}


def read_error(body: bytes) -> ErrorObject:
    value = read_json(body)
    if value is None:
        value = body.decode("utf-8", "replace")
    if isinstance(value, dict):
        value = value.get("error", value)
    return normalize_error(value)
