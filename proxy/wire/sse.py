"""Event streams: their line ends, their finish and their errors, observed while they are relayed.

Three things must be known about a stream. Its line ends, because the proxy may write a heartbeat or an error only
between lines: the unfinished end of a chunk waits for its newline (no client can use half a line, so no client waits
longer). Its finish, because most client libraries take a clean end of file for success. And an error that a server
wrote as a bare object, because those libraries skip it silently.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

HEARTBEAT = b": keep-alive\n\n"
# A blank line would end an event of which only some lines have come.
HEARTBEAT_WITHIN = b": keep-alive\n"

# A line longer than this is passed on in pieces: a media delta must not pile up here.
HELD_MAX_BYTES = 64 * 1024

# Two expressions, for each begins with letters: as one with an `|` they cost ten times as much, for every chunk.
_FINISH_REASON = re.compile(rb'"finish_reason"\s*:\s*"')
_ENDS = rb"message_stop|response\.(?:completed|incomplete|failed)"
_DONE = re.compile(rb"[\r\n](?:data:\s*\[DONE\]|(?:event:\s*|data:\s*\{\s*\"type\"\s*:\s*\")(?:" + _ENDS + rb"))")
_DONE_WORDS = (b"[DONE]", b"message_stop", b"response.")
# A long line leaves in pieces, and what tells the finish may be cut in two: this many bytes are remembered.
_REMEMBERED_BYTES = 32
_SAYS_ERROR = b'"error"'

ErrorObject = dict[str, Any]


class StreamWatch:
    """Observer of one stream: `feed` returns the bytes that may leave now, up to the end of a line."""

    __slots__ = ("_held", "_left", "_must_finish", "error", "finished", "is_done", "names_events")

    def __init__(self, *, must_finish: bool, names_events: bool = False) -> None:
        self.names_events = names_events
        """Anthropic's API: its clients ignore an error in an event without a name."""
        self._held = b""
        self._left = b"\n\n"  # the end of what has left; a stream begins between two events
        self._must_finish = must_finish
        self.finished = not must_finish
        self.is_done = False
        """The last event has left: nothing more follows, whatever the connection does then."""
        self.error: ErrorObject | None = None

    @property
    def at_boundary(self) -> bool:
        """True where the proxy may write a line of its own now; not after a lone CR, whose LF may still come."""
        return self._left.endswith(b"\n")

    @property
    def heartbeat(self) -> bytes:
        """A comment that can be written now and changes no event; nothing in the middle of a line."""
        if not self.at_boundary:
            return b""
        return HEARTBEAT if self._left.endswith((b"\n\n", b"\n\r\n")) else HEARTBEAT_WITHIN

    def feed(self, chunk: bytes) -> bytes:
        data = self._held + chunk if self._held else chunk
        if data.endswith(b"\n"):
            self._held = b""
            return self._leaving(data)
        end = _last_line_end(data)
        if len(data) - end > HELD_MAX_BYTES or (not end and not self.at_boundary):
            end = len(data)
        self._held = data[end:]
        return self._leaving(data[:end])

    def close(self) -> bytes:
        """The stream ended: what was held leaves, a whole line or not."""
        rest, self._held = self._held, b""
        return self._leaving(rest)

    def _leaving(self, ready: bytes) -> bytes:
        if not ready:
            return ready
        if self._must_finish:
            if not self.is_done and any(word in ready for word in _DONE_WORDS):
                self.is_done = _DONE.search(self._left + ready) is not None
            if not self.finished and (self.is_done or _FINISH_REASON.search(self._left + ready)):
                self.finished = True
            if _SAYS_ERROR in ready:
                ready = self._up_to_error(ready)
        self._left = (self._left + ready)[-_REMEMBERED_BYTES:]
        return ready

    def _up_to_error(self, ready: bytes) -> bytes:
        """The bytes before a bare error object; it and all after it are held back, because some clients fail on it."""
        at = 0
        for line in ready.splitlines(keepends=True):
            said = _error_in(line)
            if said is not None and said.bare:
                self.error = said.error
                return ready[:at]
            if said is not None:
                self.finished = True  # every client raises on an error object in its proper place
            at += len(line)
        return ready


@dataclass(frozen=True, slots=True)
class _FoundError:
    error: ErrorObject
    bare: bool


def _last_line_end(data: bytes) -> int:
    return max(data.rfind(b"\n"), data.rfind(b"\r")) + 1


def _error_in(line: bytes) -> _FoundError | None:
    is_data = line.startswith(b"data:")
    text = line[5:] if is_data else line
    if not text.lstrip().startswith(b"{"):
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if value.get("object") == "error":
        return _FoundError(_as_error(value), bare=True)
    if "error" not in value or "choices" in value:
        return None
    return _FoundError(_as_error(value["error"]), bare=not is_data)


def _as_error(said: object) -> ErrorObject:
    """The error of a server in the form that clients know."""
    told = said if isinstance(said, dict) else {"message": str(said)}
    return {name: told.get(name) for name in ("message", "type", "param", "code")}


def read_error(body: bytes) -> ErrorObject:
    """The error of a server in the body of its refusal."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        value = body.decode("utf-8", "replace")
    return _as_error(value.get("error", value) if isinstance(value, dict) else value)


def error_frame(error: ErrorObject, *, at_boundary: bool, named: bool = False) -> bytes:
    """An error event that every client library raises on, on a line of its own."""
    lead = "\n" if at_boundary else "\n\n"
    if named:
        kind = error.get("type")
        is_own = isinstance(kind, str) and kind.endswith("_error") and kind != "proxy_error"
        told = {
            "type": "error",
            "error": {"type": kind if is_own else "api_error", "message": error.get("message")},
        }
        return f"{lead}event: error\ndata: {json.dumps(told)}\n\n".encode()
    return f"{lead}data: {json.dumps({'error': error})}\n\n".encode()
