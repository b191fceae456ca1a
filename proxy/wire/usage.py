"""What an answer says about its own cost: the last `usage` object in it, whole answer or stream of events.

Only the end of an answer is kept for this, because that is where servers write it; the rest passes by.
"""

import json
from collections import deque
from typing import Any

KEPT = 64 * 1024
_NAME = b'"usage"'


class Tail:
    """Keeps the last bytes of an answer as they pass."""

    __slots__ = ("_pieces", "_size")

    def __init__(self) -> None:
        self._pieces: deque[bytes] = deque()
        self._size = 0

    def feed(self, chunk: bytes) -> None:
        self._pieces.append(chunk)
        self._size += len(chunk)
        while self._size - len(self._pieces[0]) >= KEPT:
            self._size -= len(self._pieces.popleft())

    def usage(self) -> dict[str, Any] | None:
        """The last usage object. A name within a text is escaped there, and so is never taken for one."""
        text = b"".join(self._pieces)
        at = len(text)
        while (at := text.rfind(_NAME, 0, at)) >= 0:
            found = _object_after(text[at + len(_NAME) :])
            if found is not None:
                return found
        return None


def _object_after(text: bytes) -> dict[str, Any] | None:
    value = text.lstrip()
    if not value.startswith(b":"):
        return None
    try:
        found, _ = json.JSONDecoder().raw_decode(value[1:].lstrip().decode(errors="replace"))
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
