"""A stream that is relayed, watched as it passes: its line ends, its finish, its errors.

- Line ends, because the proxy may write a heartbeat or an error between two lines only. The part of a line waits for
  the rest; no client can use half a line, so no client waits longer.
- The finish, because most client libraries take a clean end of the connection for success.
- A bare error object, because those libraries skip it silently.
"""

import json
import re
from dataclasses import dataclass

from proxy.wire.lenient import read_json, read_object
from proxy.wire.sse import DATA, LineReader

HEARTBEAT = b": keep-alive\n\n"
HEARTBEAT_WITHIN_EVENT = b": keep-alive\n"
"""Without the empty line, which would end an event of which only some lines have come."""
_EVENT_ENDS = (b"\n\n", b"\n\r\n", b"\r\r", b"\n\r")
HELD_MAX_BYTES = 64 * 1024
"""A longer line is relayed in pieces: a picture must not pile up here."""

# Two expressions, because each begins with letters: as one with an `|` they cost ten times as much.
_FINISH_REASON = re.compile(rb'"finish_reason"\s*:\s*"')
_ENDS = rb"message_stop|response\.(?:completed|incomplete|failed)"
_DONE = re.compile(rb"[\r\n](?:data:\s*\[DONE\]|(?:event:\s*|data:\s*\{\s*\"type\"\s*:\s*\")(?:" + _ENDS + rb"))")
_END_TYPE = re.compile(rb'"type"\s*:\s*"(?:' + _ENDS + rb')"')
_END_TYPES = frozenset({"message_stop", "response.completed", "response.incomplete", "response.failed"})
_REMEMBERED_BYTES = 64
"""A line that is relayed in pieces may be cut within the words that tell the finish."""
ErrorObject = dict[str, object]


@dataclass(frozen=True, slots=True)
class LineError:
    """The error in one line of a stream."""

    error: ErrorObject
    is_bare: bool
    """It is no event of the API, and client libraries skip it silently: they would take the end for a success."""


class StreamWatch:
    """Watches one stream: `feed` returns the bytes that may be relayed now, up to the end of a line."""

    __slots__ = ("_flat_errors", "_lines", "_must_finish", "_tail", "error", "finished", "is_done", "names_events")

    def __init__(self, *, must_finish: bool, names_events: bool = False, flat_errors: bool = False) -> None:
        self.names_events = names_events
        """Messages: see `make_error_event`."""
        self._flat_errors = flat_errors
        """Responses: see `find_line_error`."""
        self._lines = LineReader(HELD_MAX_BYTES)
        self._tail = b"\n\n"
        """The end of what was relayed; a stream begins between two events."""
        self._must_finish = must_finish
        self.finished = not must_finish
        self.is_done = False
        """The last event was relayed: nothing follows, whatever the connection does then."""
        self.error: ErrorObject | None = None

    @property
    def at_boundary(self) -> bool:
        """True if the proxy may write a line now."""
        return self._tail.endswith((b"\n", b"\r"))

    @property
    def heartbeat(self) -> bytes:
        """A comment that changes no event if it is written now; empty in the middle of a line."""
        if not self.at_boundary:
            return b""
        if self._tail.endswith(_EVENT_ENDS):
            return HEARTBEAT
        return HEARTBEAT_WITHIN_EVENT

    def feed(self, chunk: bytes) -> bytes:
        """Return the bytes that may be relayed now."""
        return self._watch(self._lines.feed(chunk))

    def close(self) -> bytes:
        """Return what was held; the stream has ended, perhaps within a line."""
        return self._watch(self._lines.close())

    def _watch(self, ready: bytes) -> bytes:
        if not ready:
            return ready
        recent_bytes = self._tail + ready
        if self._must_finish:
            # Not by `any`: for each chunk, it would cost more than all of these searches.
            if not self.is_done and (
                b"response." in recent_bytes or b"[DONE]" in recent_bytes or b"message_stop" in recent_bytes
            ):
                self.is_done = _DONE.search(recent_bytes) is not None or self._holds_last_event(ready)
            if not self.finished and (self.is_done or _FINISH_REASON.search(recent_bytes)):
                self.finished = True
            if b'"error"' in ready:
                ready = self._cut_at_error(ready)
                recent_bytes = self._tail + ready
        self._tail = recent_bytes[-_REMEMBERED_BYTES:]
        return ready

    def _holds_last_event(self, ready: bytes) -> bool:
        """True if these lines hold the last event, without a name and with other members before its type."""
        lines = ready.splitlines(keepends=True)
        if self._lines.continues_line:
            first_line = self._tail.splitlines()[-1] + lines.pop(0)
            if _END_TYPE.search(first_line) is not None:
                return True
        return any(map(_is_last_event, lines))

    def _cut_at_error(self, ready: bytes) -> bytes:
        """The bytes before a bare error; it and all after it are held back, because some clients fail on it."""
        start = 0
        for line in ready.splitlines(keepends=True):
            fault = find_line_error(line, may_be_flat=self._flat_errors)
            if fault is not None and fault.is_bare:
                self.error = fault.error
                return ready[:start]
            if fault is not None:
                self.finished = True  # every client raises on an error object in its proper place
            start += len(line)
        return ready


def _is_last_event(line: bytes) -> bool:
    """True if this line is the last event of a stream.

    Data within an event may have such a type, so a whole line is parsed; few lines get so far.
    """
    if _END_TYPE.search(line) is None:
        return False
    if not line.endswith((b"\n", b"\r")):
        return True  # the beginning of a line that is relayed in pieces
    data = DATA.match(line)
    if data is None:
        return False
    event = read_object(line[data.end() :])
    return event is not None and str(event.get("type")) in _END_TYPES


def find_line_error(line: bytes, *, may_be_flat: bool) -> LineError | None:
    """The error in this line, or None.

    `may_be_flat`: code and message may be members of the event itself, as in Responses:
    <https://platform.openai.com/docs/api-reference/responses-streaming>.
    """
    data = DATA.match(line)
    text = line
    if data is not None:
        text = line[data.end() :]
    if not text.lstrip().startswith(b"{"):
        return None
    value = read_object(text)
    if value is None:
        return None
    if value.get("object") == "error":
        return LineError(as_error(value), is_bare=True)
    if may_be_flat and "error" not in value and value.get("type") == "error":
        return LineError(as_error(value), is_bare=data is None)
    if "error" in value and "choices" not in value:
        return LineError(as_error(value["error"]), is_bare=data is None)
    return None


def as_error(value: object) -> ErrorObject:
    """The error of a server with the four members that clients of OpenAI know."""
    error = value
    if not isinstance(error, dict):
        error = {"message": str(value)}
    return {name: error.get(name) for name in ("message", "type", "param", "code")}


def read_error(body: bytes) -> ErrorObject:
    """The error in the body of a refusal."""
    value = read_json(body)
    if value is None:
        value = body.decode("utf-8", "replace")
    if isinstance(value, dict):
        value = value.get("error", value)
    return as_error(value)


def make_error_event(error: ErrorObject, *, at_boundary: bool, named: bool = False) -> bytes:
    """An event that every client library raises on, on a line of its own.

    `named`: for clients of Messages, which ignore an error in an event without a name:
    <https://platform.claude.com/docs/en/build-with-claude/streaming#error-events>.
    """
    lead = "\n\n"
    if at_boundary:
        lead = "\n"
    if not named:
        return f"{lead}data: {json.dumps({'error': error})}\n\n".encode()
    kind = error.get("type")
    if not isinstance(kind, str) or not kind.endswith("_error") or kind == "proxy_error":
        kind = "api_error"
    event = {"type": "error", "error": {"type": kind, "message": error.get("message")}}
    return f"{lead}event: error\ndata: {json.dumps(event)}\n\n".encode()
