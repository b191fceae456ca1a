"""Answers on their way to the client: streams watched, refusals within them found, their usage read and rewritten.

All of this is done to the bytes as they pass. What a model said is put together in `assembly`.
"""

import json
import re
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from proxy.history import splice
from proxy.shorten.window import LARGEST_COUNT, Usage
from proxy.wire.event_lines import DATA, LINE_END, LINES
from proxy.wire.lenient import as_object, as_text, read_object

# --- streams ----------------------------------------------------------------------------------------------------------
# Their line ends, their finish and their errors, observed while they are relayed.
#
# Three things must be known about a stream. Its line ends, because the proxy may write a heartbeat or an error only
# between lines: the unfinished end of a chunk waits for its newline (no client can use half a line, so no client waits
# longer). Its finish, because most client libraries take a clean end of file for success. And an error that a server
# wrote as a bare object, because those libraries skip it silently.

HEARTBEAT = b": keep-alive\n\n"
# A blank line would end an event of which only some lines have come.
HEARTBEAT_WITHIN = b": keep-alive\n"

# A line longer than this is passed on in pieces: a media delta must not pile up here.
HELD_MAX_BYTES = 64 * 1024

# Two expressions, for each begins with letters: as one with an `|` they cost ten times as much, for every chunk.
_FINISH_REASON = re.compile(rb'"finish_reason"\s*:\s*"')
_ENDS = rb"message_stop|response\.(?:completed|incomplete|failed)"
_DONE = re.compile(rb"[\r\n](?:data:\s*\[DONE\]|(?:event:\s*|data:\s*\{\s*\"type\"\s*:\s*\")(?:" + _ENDS + rb"))")
_END_TYPE = re.compile(rb'"type"\s*:\s*"(?:' + _ENDS + rb')"')
_END_TYPES = frozenset({"message_stop", "response.completed", "response.incomplete", "response.failed"})
# A long line leaves in pieces, and what tells the finish may be cut in two: this many bytes are remembered.
_REMEMBERED_BYTES = 64
_SAYS_ERROR = b'"error"'

ErrorObject = dict[str, Any]


class StreamWatch:
    """Observer of one stream: `feed` returns the bytes that may leave now, up to the end of a line."""

    __slots__ = ("_flat_errors", "_held", "_left", "_must_finish", "error", "finished", "is_done", "names_events")

    def __init__(self, *, must_finish: bool, names_events: bool = False, flat_errors: bool = False) -> None:
        self.names_events = names_events
        """Anthropic's API: its clients ignore an error in an event without a name."""
        # OpenAI's Responses: the code and the message of an error event may be members of the event itself.
        self._flat_errors = flat_errors
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
            return self._release(data)
        end = _find_last_line_end(data)
        if len(data) - end > HELD_MAX_BYTES or (not end and not self.at_boundary):
            end = len(data)
        self._held = data[end:]
        return self._release(data[:end])

    def close(self) -> bytes:
        """The stream ended: what was held leaves, a whole line or not."""
        rest, self._held = self._held, b""
        return self._release(rest)

    def _release(self, ready: bytes) -> bytes:
        if not ready:
            return ready
        seen = self._left + ready
        if self._must_finish:
            # Not by `any`: for each chunk, it would cost more than all of these searches.
            if not self.is_done and (b"response." in seen or b"[DONE]" in seen or b"message_stop" in seen):
                self.is_done = _DONE.search(seen) is not None or self._ends_unnamed(seen, ready)
            if not self.finished and (self.is_done or _FINISH_REASON.search(seen)):
                self.finished = True
            if _SAYS_ERROR in ready:
                ready = self._cut_at_error(ready)
                seen = self._left + ready
        self._left = seen[-_REMEMBERED_BYTES:]
        return ready

    def _ends_unnamed(self, seen: bytes, ready: bytes) -> bool:
        """True where the last event is in these lines, without a name and with its type behind other members."""
        if not (
            b'"response.completed"' in seen
            or b'"message_stop"' in seen
            or b'"response.incomplete"' in seen
            or b'"response.failed"' in seen
        ):
            return False
        begun = self._left[_find_last_line_end(self._left) :]
        first, *others = ready.splitlines(keepends=True)
        is_end = _END_TYPE.search(begun + first) is not None if begun else _is_end(first)
        return is_end or any(map(_is_end, others))

    def _cut_at_error(self, ready: bytes) -> bytes:
        """The bytes before a bare error object; it and all after it are held back, because some clients fail on it."""
        at = 0
        for line in ready.splitlines(keepends=True):
            found = _find_error(line, may_be_flat=self._flat_errors)
            if found is not None and found.bare:
                self.error = found.error
                return ready[:at]
            if found is not None:
                self.finished = True  # every client raises on an error object in its proper place
            at += len(line)
        return ready


@dataclass(frozen=True, slots=True)
class _FoundError:
    error: ErrorObject
    bare: bool


def _find_last_line_end(data: bytes) -> int:
    return max(data.rfind(b"\n"), data.rfind(b"\r")) + 1


def _is_end(line: bytes) -> bool:
    """True where this line holds the last event of a stream. Of a line that leaves in pieces, what it says is enough.

    Data within an event may have such a type as well, so a whole line is parsed; few lines come so far.
    """
    if _END_TYPE.search(line) is None:
        return False
    if not line.endswith((b"\n", b"\r")):
        return True
    found = DATA.match(line)
    value = None if found is None else read_object(line[found.end() :])
    return value is not None and str(value.get("type")) in _END_TYPES


def _find_error(line: bytes, *, may_be_flat: bool) -> _FoundError | None:
    is_data = (found := DATA.match(line)) is not None
    text = line[found.end() :] if found is not None else line
    if not text.lstrip().startswith(b"{"):
        return None
    value = read_object(text)
    if value is None:
        return None
    if value.get("object") == "error":
        return _FoundError(_as_error(value), bare=True)
    if may_be_flat and "error" not in value and value.get("type") == "error":
        return _FoundError(_as_error(value), bare=not is_data)
    if "error" not in value or "choices" in value:
        return None
    return _FoundError(_as_error(value["error"]), bare=not is_data)


def _as_error(value: object) -> ErrorObject:
    """The error of a server in the form that clients know."""
    error = value if isinstance(value, dict) else {"message": str(value)}
    return {name: error.get(name) for name in ("message", "type", "param", "code")}


def read_error(body: bytes) -> ErrorObject:
    """The error of a server in the body of its refusal."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        value = body.decode("utf-8", "replace")
    return _as_error(value.get("error", value) if isinstance(value, dict) else value)


def make_error_event(error: ErrorObject, *, at_boundary: bool, named: bool = False) -> bytes:
    """An error event that every client library raises on, on a line of its own."""
    lead = "\n" if at_boundary else "\n\n"
    if named:
        kind = error.get("type")
        is_own = isinstance(kind, str) and kind.endswith("_error") and kind != "proxy_error"
        event = {
            "type": "error",
            "error": {"type": kind if is_own else "api_error", "message": error.get("message")},
        }
        return f"{lead}event: error\ndata: {json.dumps(event)}\n\n".encode()
    return f"{lead}data: {json.dumps({'error': error})}\n\n".encode()


# --- late refusals ----------------------------------------------------------------------------------------------------
# Refusals within a stream of status 200, behind events that say only that the request was taken.
#
# OpenAI's Responses refuses so what is too long. A gateway that asks OpenAI for a client of Messages passes it on so.
# One that began a stream of Chat Completions before its own upstream answered can refuse in its first event only.

OPENING_MAX_BYTES = 2 * 1024 * 1024
"""Of the first events: OpenAI repeats the instructions and the tools of a request in two of them."""
_TYPE_FIRST = re.compile(rb'\{\s*"type"\s*:\s*"([\w.]+)"')
# Events that a refusal may still follow; so it may any other that carries no output (`ping`, `codex.rate_limits`).
_TAKEN = frozenset({"response.created", "response.in_progress", "response.queued", "message_start"})
_CARRIES_OUTPUT = re.compile(
    r"content_block_|message_(?:delta|stop)"
    r"|response\.(?:\w+\.|output|content|reasoning|function_call|completed|incomplete|cancelled)"
)


class StreamOpening:
    """The first events of a stream, up to the first that shows an answer or a refusal."""

    __slots__ = ("_first_decides", "_is_decided", "_judged_bytes", "_refusal", "_seen_bytes")

    def __init__(self, *, first_decides: bool = False) -> None:
        # Chat Completions: nothing comes before an answer but comments.
        self._first_decides = first_decides
        self._is_decided = False
        self._refusal: bytes | None = None
        self._seen_bytes = 0
        self._judged_bytes = 0
        """Up to the end of a line: what was cut in the midst of one tells nothing yet."""

    def is_decided(self, read: bytes | bytearray) -> bool:
        """True once nothing more needs to be awaited. `read`: all that has come, of which only what is new is read."""
        end = max(read.rfind(b"\n", self._seen_bytes), read.rfind(b"\r", self._seen_bytes)) + 1
        self._seen_bytes = len(read)
        if end > self._judged_bytes:
            self._judge(read[self._judged_bytes : end])
            self._judged_bytes = end
        return self._is_decided or len(read) > OPENING_MAX_BYTES

    def find_refusal(self, read: bytes | bytearray) -> bytes | None:
        """The error in these events, as the body of a refusal; None where there is none. No more is awaited."""
        self.is_decided(read)
        self._judge(read[self._judged_bytes :])  # servers may end a stream without the end of its line
        return self._refusal

    def _judge(self, lines: bytes | bytearray) -> None:
        for line in bytes(lines).splitlines():
            if self._is_decided:
                return
            if (found := DATA.match(line)) is not None:
                self._judge_data(line[found.end() :].strip())
            elif line.startswith(b"{"):  # an error that a server wrote without `data:`
                self._judge_data(line)

    def _judge_data(self, data: bytes) -> None:
        found = _TYPE_FIRST.match(data)
        kind = "" if found is None else found[1].decode()
        if not data or (kind in _TAKEN and not self._first_decides):
            return  # told without parsing: with what they repeat, these are large
        event = read_object(data)
        if event is None:
            self._is_decided = True
            return
        self._refusal = _find_refusal(event)
        kind = as_text(event.get("type"))
        is_output = not kind or "choices" in event or _CARRIES_OUTPUT.match(kind) is not None
        self._is_decided = is_output or self._first_decides or self._refusal is not None


def find_refusal(beginning: bytes) -> bytes | None:
    """The error in the first events of a stream, as the body of a refusal; None while only the request was taken."""
    return StreamOpening().find_refusal(beginning)


def _find_refusal(event: Mapping[str, Any]) -> bytes | None:
    """The error of an event, as the body of a refusal; None where it carries none."""
    kind, error = event.get("type"), event.get("error")
    if kind == "response.failed":
        error = as_object(event.get("response")).get("error")
    elif kind == "error" or event.get("object") == "error":
        error = error or event
    elif not error or event.get("choices"):
        return None
    return json.dumps({"error": error}).encode()


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
        last = _find_last_usage(self.end)
        if last is None or "output_tokens" not in last:
            return last
        return {**(_find_first_usage(self._first) or {}), **{name: count for name, count in last.items() if count}}


def _find_last_usage(text: bytes) -> dict[str, Any] | None:
    objects = (_read_object_at(text, name.end()) for name in [*_USAGE.finditer(text)][: -OBJECTS_TRIED_MAX - 1 : -1])
    return next((found for found in objects if found is not None), None)


def _find_first_usage(text: bytes) -> dict[str, Any] | None:
    name = _USAGE.search(text)
    return None if name is None else _read_object_at(text, name.end())


def _read_object_at(text: bytes, at: int) -> dict[str, Any] | None:
    try:
        found, _ = json.JSONDecoder().raw_decode(text[at : at + LONGEST_OBJECT_BYTES].decode(errors="replace"))
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def read_usage(usage: Mapping[str, Any] | None) -> Usage:
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

_USAGE_KEY = b'"usage"'
_WITHIN = ("message", "response")
"""Members of an event that hold an answer with its usage."""
_PROMPTS = ("prompt_tokens", "input_tokens")
_PROMPT_DETAILS = (
    *("prompt_tokens_details", "input_tokens_details"),
    *("cache_read_input_tokens", "cache_creation_input_tokens", "cache_creation"),
)
MOST_HELD_BYTES = 16 * 1024 * 1024
# A longer line holds no usage object of any server. It passes as it comes: held back, it would fill the memory, and be
# copied with each piece that arrives.
LONGEST_LINE_BYTES = 1024 * 1024


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

    def __init__(self, view: UsageView) -> None:
        self._view = view
        self._held = bytearray()
        self._swallows = False
        self._passes = False

    def feed(self, data: bytes) -> bytes:
        if self._passes:
            found = LINE_END.search(data)
            if found is None:
                return data
            self._passes = False
            return data[: found.end()] + self.feed(data[found.end() :])
        end = _find_last_line_end(data)
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
        if not self._swallows and _USAGE_KEY not in data:
            return data
        return b"".join(map(self._rewrite_line, LINES.findall(data)))

    def _rewrite_line(self, line: bytes) -> bytes:
        if self._swallows and not line.strip():
            self._swallows = False  # the end of the event that went
            return b""
        if _USAGE_KEY not in line or (found := DATA.match(line)) is None:
            return line
        at = found.end()
        end = len(line.rstrip(b"\r\n"))
        rewritten = _rewrite(line[at:end], self._view)
        self._swallows = rewritten is None
        return b"" if rewritten is None else line[:at] + rewritten + line[end:]


class BodyRewriter:
    """A whole answer on its way to the client: it is held until its end, unless it grows beyond all measure."""

    def __init__(self, view: UsageView) -> None:
        self._view = view
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
        rewritten = _rewrite(bytes(self._held), self._view)
        return bytes(self._held) if rewritten is None else rewritten


def _rewrite(raw: bytes, view: UsageView) -> bytes | None:
    """The object as the client shall see it; None: not at all."""
    try:
        return _show(json.loads(raw), raw, view)
    except (ValueError, RecursionError, IndexError):
        return raw  # no JSON, or not in UTF-8


def _show(value: Any, raw: bytes, view: UsageView) -> bytes | None:  # noqa: ANN401 - JSON
    at = 0
    # The first event of Anthropic's API, and the last of Responses.
    name = next((name for name in _WITHIN if isinstance(value, dict) and isinstance(value.get(name), dict)), None)
    if name is not None:
        inner = splice.find_member(raw, name)
        value, at = value[name], inner.start if inner is not None else 0
    if not isinstance(value, dict) or "usage" not in value:
        return raw
    usage = value["usage"]
    if view.hides_usage and usage is None:
        return splice.remove_members(raw, frozenset({"usage"}))
    if view.hides_usage and value.get("choices") == []:
        return None
    place = splice.find_member(raw, "usage", at) if isinstance(usage, dict) and view.extra_tokens else None
    if place is None:
        return raw
    own = _with_prompt_of(view.find_first_usage(), usage, raw[place.start : place.stop])
    return splice.replace_bytes(raw, place.start, place.stop, _longer(own, view.extra_tokens))


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
        place = splice.find_member(usage, name)
        value: Any = None if place is None else json.loads(usage[place.start : place.stop])
        if place is not None and isinstance(value, int):
            usage = splice.replace_bytes(usage, place.start, place.stop, b"%d" % (value + more))
    return usage


# --- truncation -------------------------------------------------------------------------------------------------------
# Silent truncation: how an answer shows that its prompt was cut before the model read it.
#
# Some servers take any prompt and cut what does not fit, without an error. Their figures give it away
# (`path.accounting.is_silently_cut`), or the way their answer ends.

_CONTEXT_EXCEEDED = re.compile(rb'"(?:finish|stop)_reason"\s*:\s*"model_context_window_exceeded"')


def says_truncated(tail: bytes) -> bool:
    """True where the end of an answer shows a cut prompt: by its finish reason, or by a stream without choices."""
    return _CONTEXT_EXCEEDED.search(tail) is not None or (b"[DONE]" in tail and b'"choices"' not in tail)
