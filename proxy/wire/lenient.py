"""Lenient JSON: read where it is JSON at all, and of what has another kind than expected, nothing."""

import json
from typing import Any

import msgspec


def read_json(data: bytes) -> Any:  # noqa: ANN401 - any JSON
    """The value in these bytes; None where they hold none.

    The fast parser refuses half of a surrogate pair, NaN and bytes that are no UTF-8: the standard library reads them.
    """
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def read_object(data: bytes) -> dict[str, Any] | None:
    """The JSON object in these bytes; None where they hold none."""
    value = read_json(data)
    return value if isinstance(value, dict) else None


def as_object(value: object) -> dict[str, Any]:
    """The value where it is an object, or else an empty one."""
    return value if isinstance(value, dict) else {}


def as_text(value: object) -> str:
    """The value where it is a text, or else an empty one."""
    return value if isinstance(value, str) else ""


def write_json(value: object) -> bytes:
    """A JSON value in bytes, also where a text holds half a surrogate pair."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()
