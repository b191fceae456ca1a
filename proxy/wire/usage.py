"""Token counts of an answer: the last `usage` object in it, be it one body or a stream of events."""

import json
import re
from collections import deque
from collections.abc import Mapping
from typing import Any

from proxy.shorten.economics import LARGEST_COUNT, Usage
from proxy.wire.lenient import as_object

TAIL_BYTES = 64 * 1024
FIRST_BYTES = 4 * 1024
LONGEST_OBJECT_BYTES = 16 * 1024
OBJECTS_TRIED_MAX = 16
"""Objects that are tried, from the last on: each costs up to `LONGEST_OBJECT_BYTES` of parsing, in the event loop."""
# `null` does not match: a stream may repeat it in each of its events.
_USAGE = re.compile(rb'"usage"\s*:\s*(?=\{)')
_CONTEXT_EXCEEDED = re.compile(rb'"(?:finish|stop)_reason"\s*:\s*"model_context_window_exceeded"')


class Tail:
    """Keeps the last bytes of an answer as they pass, and the first.

    Messages reports the tokens of the prompt in its first event:
    <https://platform.claude.com/docs/en/build-with-claude/streaming#event-types>.
    """

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
        """The last bytes of the answer; all of it if it is short."""
        return b"".join(self._pieces)

    def usage(self) -> dict[str, Any] | None:
        """The last usage object. A name within a text is escaped there, and so is never taken for one."""
        last = _find_last_usage(self.end)
        if last is None or "output_tokens" not in last:
            return last
        usage = _find_first_usage(self._first) or {}
        for name, count in last.items():
            if count:
                usage[name] = count
        return usage


def _find_last_usage(text: bytes) -> dict[str, Any] | None:
    names = list(_USAGE.finditer(text))
    for name in reversed(names[-OBJECTS_TRIED_MAX:]):
        usage = _read_object_at(text, name.end())
        if usage is not None:
            return usage
    return None


def _find_first_usage(text: bytes) -> dict[str, Any] | None:
    name = _USAGE.search(text)
    if name is None:
        return None
    return _read_object_at(text, name.end())


def _read_object_at(text: bytes, start: int) -> dict[str, Any] | None:
    try:
        value, _ = json.JSONDecoder().raw_decode(text[start : start + LONGEST_OBJECT_BYTES].decode(errors="replace"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    return value


def read_usage(usage: Mapping[str, Any] | None) -> Usage:
    """The counts of a usage object. A count that is missing, zero or absurd was not reported; it is never empty."""
    if usage is None:
        return Usage(0, None, 0)
    if "input_tokens" not in usage:
        details = as_object(usage.get("prompt_tokens_details"))
        return _build_usage(usage.get("prompt_tokens"), details.get("cached_tokens"), usage.get("completion_tokens"))
    if isinstance(usage.get("input_tokens_details"), Mapping):
        details = usage["input_tokens_details"]
        return _build_usage(usage["input_tokens"], details.get("cached_tokens"), usage.get("output_tokens"))
    # Messages counts the tokens that came from its cache, or went there, apart:
    # <https://platform.claude.com/docs/en/build-with-claude/prompt-caching#tracking-cache-performance>.
    cached_tokens = read_count(usage.get("cache_read_input_tokens"))
    written_tokens = read_count(usage.get("cache_creation_input_tokens"))
    prompt = (read_count(usage["input_tokens"]) or 0) + (cached_tokens or 0) + (written_tokens or 0)
    return Usage(prompt, cached_tokens, read_count(usage.get("output_tokens")) or 0)


def _build_usage(prompt: object, cached_tokens: object, completion: object) -> Usage:
    return Usage(read_count(prompt) or 0, read_count(cached_tokens), read_count(completion) or 0)


def read_count(value: object) -> int | None:
    """The value if it can be a number of tokens, else None."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST_COUNT:
        return value
    return None


def says_truncated(tail: bytes) -> bool:
    """True if the end of an answer shows that its prompt was cut: by its finish reason, or a stream without choices.

    Some servers take any prompt and silently cut what does not fit.
    """
    return _CONTEXT_EXCEEDED.search(tail) is not None or (b"[DONE]" in tail and b'"choices"' not in tail)
