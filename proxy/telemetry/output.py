"""JSON of odd values, escapes for terminals, and fields of events.

Names come from clients and figures from upstreams. Half a surrogate pair or an integer of 400 digits must not cost a
log line; a control character that a tool has fetched must not set the title of a terminal, fill its clipboard or forge
lines (https://invisible-island.net/xterm/ctlseqs/ctlseqs.html).
"""

import json
import re
from collections.abc import Mapping
from typing import Any, TextIO

import msgspec

from proxy import events

_encode = msgspec.json.Encoder(enc_hook=str).encode

# C0 and C1 controls but for line feed and tab, marks that reverse the direction of text, and half surrogate pairs,
# which cannot be printed.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def encode_json(fields: Mapping[str, Any]) -> bytes:
    """Return the JSON of one object, on one line."""
    try:
        return _encode(fields)
    except (UnicodeEncodeError, OverflowError):  # half a surrogate pair; an integer of more than 64 bits
        return json.dumps(fields, default=str, separators=(",", ":")).encode()


def escape_controls(text: str) -> str:
    r"""Write each control character as `\x1b` or `\u202e`."""
    return _CONTROLS.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code <= 0xFF:  # noqa: PLR2004
        return f"\\x{code:02x}"
    return f"\\u{code:04x}"


class EscapedOutput:
    """A text stream that escapes written text. Bytes that are written to its `buffer` stay as they are."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write(escape_controls(text))

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._stream, name)


def pick_fields(event: msgspec.Struct, *names: str) -> dict[str, Any]:
    """Return these fields of an event."""
    return {name: getattr(event, name) for name in names}


def list_steps(event: events.CompactionEnded) -> dict[str, Any]:
    """Return the steps of a compaction and their effects, as one field."""
    return {"steps": [{"step": name, "messages": messages, "saved": saved} for name, messages, saved in event.steps]}


def to_milliseconds(seconds: float | None) -> float | None:
    if seconds is None:
        return None
    return round(seconds * 1000, 3)
