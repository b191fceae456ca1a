"""Text of any content, and fields of events: JSON of odd values, escapes for terminals.

Names come from clients and figures from upstreams. Half a surrogate pair or an integer of 400 digits must not cost a
log line; a control character that a tool has fetched must not set the title of a terminal, fill its clipboard or forge
lines. Used by the log, the hooks and every command that prints.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, TextIO

import msgspec

from proxy import events

_encode = msgspec.json.Encoder(enc_hook=str).encode

# All but the line feed and the tab: C0 and C1 controls, marks that reverse the direction of text, half surrogate pairs
# (these cannot be printed at all).
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def encode_json(fields: Mapping[str, Any]) -> bytes:
    """JSON of one object, on one line."""
    try:
        return _encode(fields)
    except (UnicodeEncodeError, OverflowError):  # half a surrogate pair; an integer of more than 64 bits
        return json.dumps(fields, default=str, separators=(",", ":")).encode()


def escape_controls(text: str) -> str:
    r"""The text with each control character written as `\x1b` or `\u202e`."""
    return _CONTROLS.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}"  # noqa: PLR2004


class EscapedOutput:
    """A text stream that escapes what is written to it; everything else is the stream's own.

    Bytes that are written to its `buffer` are data for a program, and stay as they are.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write(escape_controls(text))

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._stream, name)


def pick_fields(event: msgspec.Struct, *names: str) -> dict[str, Any]:
    """These fields of an event. Each reader names its own: a new field must not reach a log or a program unseen."""
    return {name: getattr(event, name) for name in names}


def list_steps(event: events.CompactionEnded) -> dict[str, Any]:
    """The steps of a compaction and their effects, as one field."""
    return {"steps": [{"step": name, "messages": messages, "saved": saved} for name, messages, saved in event.steps]}


def to_milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)
