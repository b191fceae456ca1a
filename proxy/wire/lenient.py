"""JSON as clients and servers send it: read if it is JSON at all, and a value of an unexpected type reads as empty."""

import json
from typing import Any

import msgspec


def read_json(data: bytes) -> Any:  # noqa: ANN401 - any JSON
    """The value in these bytes; None if they hold none.

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
    """The JSON object in these bytes; None if they hold none."""
    value = read_json(data)
    if isinstance(value, dict):
        return value
    return None


def as_object(value: object) -> dict[str, Any]:
    """The value if it is an object, else an empty one."""
    if isinstance(value, dict):
        return value
    return {}


def as_text(value: object) -> str:
    """The value if it is a text, else an empty one."""
    if isinstance(value, str):
        return value
    return ""


def write_json(value: object) -> bytes:
    """A JSON value in bytes, even if a text holds half a surrogate pair."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()
