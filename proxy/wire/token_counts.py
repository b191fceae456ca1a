"""Token counts of an answer: the last `usage` object in it, and the one that its client sees.

If a client did not ask for usage, the proxy asks for that of a shortened or nearly full history, and removes it from
the stream. If the policy says `client_view`, clients that compact by themselves see the tokens of the history as they
sent it.
"""

import json
import re
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from proxy.history import splice
from proxy.shorten.economics import Usage
from proxy.wire.event_streams import LineReader, find_data
from proxy.wire.json_body import as_object

TAIL_BYTES = 64 * 1024


class AnswerEnds:
    """Keeps the last bytes of an answer, and its first, in which Messages reports the tokens of the prompt.

    <https://platform.claude.com/docs/en/build-with-claude/streaming#event-types>.
    """

    def __init__(self) -> None:
        self._first = b""
        self._pieces: deque[bytes] = deque()
        self._size = 0

    def feed(self, chunk: bytes) -> None:
        if len(self._first) < 4_096:  # noqa: PLR2004 (the usage stands in the first event)
            self._first += chunk[:4_096]
        self._pieces.append(chunk)
        self._size += len(chunk)
        while self._size - len(self._pieces[0]) >= TAIL_BYTES:
            self._size -= len(self._pieces.popleft())

    @property
    def end(self) -> bytes:
        return b"".join(self._pieces)

    def usage(self) -> dict[str, Any] | None:
        last = _find_usage(self.end, last=True)
        if last is None or "output_tokens" not in last:
            return last
        usage = _find_usage(self._first, last=False) or {}
        for name, count in last.items():
            if count:
                usage[name] = count
        return usage


def _find_usage(text: bytes, *, last: bool) -> dict[str, Any] | None:
    # `null`, which a stream may repeat in each event, does not match.
    names = list(re.finditer(rb'"usage"\s*:\s*(?=\{)', text))
    if last:
        names.reverse()
    for name in names[:16]:  # each costs up to 16 KiB of parsing, in the event loop
        value = text[name.end() : name.end() + 16 * 1024].decode(errors="replace")
        try:
            usage: dict[str, Any] = json.JSONDecoder().raw_decode(value)[0]
        except (ValueError, RecursionError):
            continue
        return usage
    return None


def read_usage(usage: Mapping[str, Any] | None) -> Usage:
    """Read the usage of an answer. A count that is missing, zero or absurd was not reported."""
    if usage is None:
        return Usage(0, None, 0)
    prompt_name, answer_name = "prompt_tokens", "completion_tokens"
    if "input_tokens" in usage:  # in Messages and Responses
        prompt_name, answer_name = "input_tokens", "output_tokens"
    prompt_tokens, answer_tokens = read_count(usage.get(prompt_name)) or 0, read_count(usage.get(answer_name)) or 0
    details = usage.get(f"{prompt_name}_details")
    if prompt_name == "prompt_tokens" or isinstance(details, Mapping):
        return Usage(prompt_tokens, read_count(as_object(details).get("cached_tokens")), answer_tokens)
    # Messages counts the tokens that came from its cache, or went there, apart:
    # <https://platform.claude.com/docs/en/build-with-claude/prompt-caching#tracking-cache-performance>.
    cached_tokens = read_count(usage.get("cache_read_input_tokens"))
    written_tokens = read_count(usage.get("cache_creation_input_tokens")) or 0
    return Usage(prompt_tokens + (cached_tokens or 0) + written_tokens, cached_tokens, answer_tokens)


def read_count(value: object) -> int | None:
    largest_count = 10**9  # more is no count of tokens: any upstream may write any number
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= largest_count:
        return value
    return None


def says_truncated(tail: bytes) -> bool:
    """Return True if the upstream cut the prompt silently: its finish reason says so, or a stream has no choices."""
    # Within a text, the quotes would be escaped.
    reason = rb'"(?:finish|stop)_reason"\s*:\s*"model_context_window_exceeded"'
    return re.search(reason, tail) is not None or (b"[DONE]" in tail and b'"choices"' not in tail)


class UsageView(Struct, frozen=True):
    """How the usage that a client sees differs from the upstream's."""

    hides_usage: bool = False
    extra_tokens: int = 0
    """With `usage: client_view`, the tokens by which the client's history is longer than the forwarded one."""
    find_first_usage: Callable[[], Mapping[str, Any] | None] = lambda: None
    """Finds the usage of the first of several rounds: the sum of their prompts is not the size of a history."""


class StreamRewriter:
    """Rewrites the usage in the lines of a stream, or drops the event that the client did not ask for."""

    def __init__(self, view: UsageView) -> None:
        self._view = view
        self._lines = LineReader(1024 * 1024)  # no server writes a usage object in a longer line
        self._hides_event = False

    def feed(self, data: bytes) -> bytes:
        return self._rewrite(self._lines.feed(data))

    def close(self) -> bytes:
        return self._rewrite(self._lines.close())

    def _rewrite(self, block: bytes) -> bytes:
        if not self._hides_event and b'"usage"' not in block:
            return block
        lines = block.splitlines(keepends=True)
        rewritten: list[bytes] = []
        if self._lines.continues_line and lines:
            rewritten.append(lines.pop(0))
        for line in lines:
            data = find_data(line) if b'"usage"' in line else None
            if self._hides_event and not line.strip():
                self._hides_event = False  # with the line that ends the event
            elif data is None:
                rewritten.append(line)
            else:
                event = data.rstrip(b"\r\n")
                shown_event = rewrite_usage(event, self._view)
                if shown_event is None:
                    self._hides_event = True
                else:
                    rewritten += [line.removesuffix(data), shown_event, data.removeprefix(event)]
        return b"".join(rewritten)


class BodyRewriter:
    """Holds a body to its end, unless it is larger than any answer."""

    def __init__(self, view: UsageView) -> None:
        self._view = view
        self._held = bytearray()
        self._is_too_large = False

    def feed(self, data: bytes) -> bytes:
        self._held += data
        self._is_too_large = self._is_too_large or len(self._held) > 16 * 1024 * 1024
        return self._release() if self._is_too_large else b""

    def close(self) -> bytes:
        body = self._release()
        return rewrite_usage(body, self._view) or body

    def _release(self) -> bytes:
        body = bytes(self._held)
        self._held.clear()
        return body


Rewriter = StreamRewriter | BodyRewriter


def rewrite_usage(raw: bytes, view: UsageView) -> bytes | None:
    """Return an event or a body as the client sees it; None if the event is dropped."""
    try:
        answer = as_object(json.loads(raw.decode("utf-8", "surrogatepass")))
    except (ValueError, RecursionError):
        return raw  # no JSON, or not in UTF-8
    start = 0
    for name in ("message", "response"):  # the first event of Messages and the last of Responses hold it in a member
        member = splice.find_member(raw, name) if isinstance(answer.get(name), dict) else None
        if member is not None:
            answer, start = answer[name], member.start
            break
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


def _write_with_first_prompt(usage: Mapping[str, Any], first_usage: Mapping[str, Any]) -> bytes:
    later_tokens = 0
    for name in ("prompt_tokens", "input_tokens"):
        later_tokens += (read_count(usage.get(name)) or 0) - (read_count(first_usage.get(name)) or 0)
    prompt_names = ("prompt_tokens", "input_tokens", "cache_")
    prompt = {name: count for name, count in first_usage.items() if name.startswith(prompt_names)}
    shown_usage = {**usage, **prompt}
    if isinstance(usage.get("total_tokens"), int):
        shown_usage["total_tokens"] = usage["total_tokens"] - later_tokens
    return json.dumps(shown_usage).encode()


def _add_tokens(usage: bytes, extra_tokens: int) -> bytes:
    changes: list[tuple[int, int, bytes]] = []
    for member in splice.iterate_members(usage):
        if member.key in ("prompt_tokens", "total_tokens", "input_tokens"):
            count: object = json.loads(usage[member.start : member.stop])
            if isinstance(count, int):
                changes.append((member.start, member.stop, b"%d" % (count + extra_tokens)))
    return splice.replace_spans(usage, changes)
