"""The `usage` of an answer as its client is to see it: hidden again, or with the tokens of its own history.

The proxy asks for usage if a client did not, and takes the figures out of the stream again. A client that reads `usage`
as its gauge sees there the size of the shortened history. But some compact by themselves when the gauge is full, and
now their own history would grow without end: for them a policy can say `client_view`, and the gauge shows the tokens of
the history as they sent it.

Only lines that speak of usage are touched; every other byte of an answer stays.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from proxy.history import splice
from proxy.wire.lenient import as_object
from proxy.wire.sse import DATA, LineReader
from proxy.wire.usage import read_count

_USAGE_KEY = b'"usage"'
_ANSWER_MEMBERS = ("message", "response")
"""Members of an event that hold an answer with its usage: of the first event of Messages, of the last of Responses."""
_PROMPTS = ("prompt_tokens", "input_tokens")
_PROMPT_DETAILS = (
    *("prompt_tokens_details", "input_tokens_details"),
    *("cache_read_input_tokens", "cache_creation_input_tokens", "cache_creation"),
)
BODY_MAX_BYTES = 16 * 1024 * 1024
LINE_MAX_BYTES = 1024 * 1024
"""No server writes a usage object in a longer line, so it is relayed in pieces."""


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
        self._lines = LineReader(LINE_MAX_BYTES)
        self._hides_event = False
        """The data of this event was removed: the empty line that ends it goes, too."""

    def feed(self, data: bytes) -> bytes:
        return self._rewrite(self._lines.feed(data))

    def close(self) -> bytes:
        return self._rewrite(self._lines.close())

    def _rewrite(self, block: bytes) -> bytes:
        if not self._hides_event and _USAGE_KEY not in block:
            return block
        lines = block.splitlines(keepends=True)
        rewritten: list[bytes] = []
        if self._lines.continues_line and lines:
            rewritten.append(lines.pop(0))
        rewritten += map(self._rewrite_line, lines)
        return b"".join(rewritten)

    def _rewrite_line(self, line: bytes) -> bytes:
        if self._hides_event and not line.strip():
            self._hides_event = False
            return b""
        data = DATA.match(line)
        if _USAGE_KEY not in line or data is None:
            return line
        start, end = data.end(), len(line.rstrip(b"\r\n"))
        rewritten = rewrite_usage(line[start:end], self._view)
        if rewritten is None:
            self._hides_event = True
            return b""
        return line[:start] + rewritten + line[end:]


class BodyRewriter:
    """A whole answer on its way to the client: it is held until its end, unless it is larger than any answer."""

    def __init__(self, view: UsageView) -> None:
        self._view = view
        self._held = bytearray()
        self._is_too_large = False

    def feed(self, data: bytes) -> bytes:
        if self._is_too_large:
            return data
        self._held += data
        self._is_too_large = len(self._held) > BODY_MAX_BYTES
        if self._is_too_large:
            return bytes(self._held)
        return b""

    def close(self) -> bytes:
        if self._is_too_large:
            return b""
        body = bytes(self._held)
        rewritten = rewrite_usage(body, self._view)
        if rewritten is None:
            return body
        return rewritten


def rewrite_usage(raw: bytes, view: UsageView) -> bytes | None:
    """The JSON of an event or a body as the client is to see it; None to drop the event."""
    try:
        value = json.loads(raw)
        return _rewrite_value(value, raw, view)
    except (ValueError, RecursionError, IndexError):
        return raw  # no JSON, or not in UTF-8


def _rewrite_value(value: object, raw: bytes, view: UsageView) -> bytes | None:
    answer, start = _find_answer(value, raw)
    usage = answer.get("usage")
    if view.hides_usage and "usage" in answer and usage is None:
        return splice.remove_members(raw, frozenset({"usage"}))
    if view.hides_usage and usage is not None and answer.get("choices") == []:
        return None
    if not isinstance(usage, dict) or not view.extra_tokens:
        return raw
    member = splice.find_member(raw, "usage", start)
    if member is None:
        return raw
    shown_usage = raw[member.start : member.stop]
    first_usage = view.find_first_usage()
    if first_usage is not None:
        shown_usage = _write_with_first_prompt(usage, first_usage)
    return splice.replace_bytes(raw, member.start, member.stop, _add_tokens(shown_usage, view.extra_tokens))


def _find_answer(value: object, raw: bytes) -> tuple[Mapping[str, Any], int]:
    """The object that may hold the usage, and its start: the body, the event, or the answer within the event."""
    answer = as_object(value)
    for name in _ANSWER_MEMBERS:
        member = splice.find_member(raw, name) if isinstance(answer.get(name), dict) else None
        if member is not None:
            return answer[name], member.start
    return answer, 0


def _write_with_first_prompt(usage: Mapping[str, Any], first_usage: Mapping[str, Any]) -> bytes:
    """The usage of several rounds with the prompt of the first."""
    shown_usage = dict(usage)
    later_tokens = 0
    for name in _PROMPTS:
        later_tokens += (read_count(usage.get(name)) or 0) - (read_count(first_usage.get(name)) or 0)
    for name in (*_PROMPTS, *_PROMPT_DETAILS):
        if name in first_usage:
            shown_usage[name] = first_usage[name]
    if isinstance(usage.get("total_tokens"), int):
        shown_usage["total_tokens"] = usage["total_tokens"] - later_tokens
    return json.dumps(shown_usage).encode()


def _add_tokens(usage: bytes, extra_tokens: int) -> bytes:
    """The usage object of a prompt that is longer by so many tokens."""
    for name in ("prompt_tokens", "total_tokens", "input_tokens"):
        member = splice.find_member(usage, name)
        if member is None:
            continue
        count: object = json.loads(usage[member.start : member.stop])
        if isinstance(count, int):
            usage = splice.replace_bytes(usage, member.start, member.stop, b"%d" % (count + extra_tokens))
    return usage
