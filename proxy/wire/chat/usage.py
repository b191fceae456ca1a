"""Token counts of an answer, from the last `usage` object in it, be it one body or a stream of events.

Only the end of an answer is kept for this, because that is where servers write the object.
"""

import json
import re
from collections import deque
from collections.abc import Mapping
from typing import Any

from proxy.core.accounting import LARGEST_COUNT, Usage

TAIL_BYTES = 64 * 1024
LONGEST_OBJECT_BYTES = 16 * 1024
OBJECTS_TRIED_MAX = 16
"""Objects that are tried, from the last on: each costs up to `LONGEST_OBJECT_BYTES` of parsing, in the event loop."""
# `null` does not match: a stream may repeat it in each of its events.
_USAGE = re.compile(rb'"usage"\s*:\s*(?=\{)')


class Tail:
    """Keeps the last bytes of an answer as they pass."""

    __slots__ = ("_pieces", "_size")

    def __init__(self) -> None:
        self._pieces: deque[bytes] = deque()
        self._size = 0

    def feed(self, chunk: bytes) -> None:
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
        text = self.end
        objects = (_object_at(text, name.end()) for name in [*_USAGE.finditer(text)][: -OBJECTS_TRIED_MAX - 1 : -1])
        return next((found for found in objects if found is not None), None)


def _object_at(text: bytes, at: int) -> dict[str, Any] | None:
    try:
        found, _ = json.JSONDecoder().raw_decode(text[at : at + LONGEST_OBJECT_BYTES].decode(errors="replace"))
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def read(usage: Mapping[str, Any] | None) -> Usage:
    """The counts of a usage object. Missing, zero or absurd means not reported, never empty."""
    reported = usage or {}
    details = reported.get("prompt_tokens_details")
    cached = _count(details.get("cached_tokens")) if isinstance(details, Mapping) else None
    prompt, written = _count(reported.get("prompt_tokens")), _count(reported.get("completion_tokens"))
    return Usage(prompt or 0, cached, written or 0)


def _count(value: object) -> int | None:
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST_COUNT
    return value if is_count else None  # type: ignore[return-value]
