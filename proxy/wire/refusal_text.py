"""The text of an error: the words of the server itself, without the request that it quotes."""

import json
import re
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

from proxy.wire.encodings import decode_body
from proxy.wire.headers import Headers, find_encoding

BODY_MAX_BYTES = 64 * 1024
"""A longer body is no error message."""
TEXT_MAX_CHARACTERS = 4_096
SENTENCES = frozenset({"message", "msg", "detail", "error", "reason", "description", "title", "raw", "error_msg"})
NAMES = frozenset({"code", "type", "error_type", "status"})
NESTING_MAX_LEVELS = 8


def extract_text(status: int, headers: Headers, body: bytes) -> str | None:
    """The error's own words in lower case; a quoted request is left out. None if it is not readable, or no error."""
    try:
        text = decode_body(body, find_encoding(headers), BODY_MAX_BYTES).decode(errors="replace")
    except (KeyError, ValueError):
        return None
    if status == HTTPStatus.OK and not begins_as_error(text.encode()):
        return None
    return "\n".join(_iterate_sentences(_parse_json(text))).lower()[:TEXT_MAX_CHARACTERS]


_ERROR_BEGINS_WITHIN_BYTES = 256
_ERROR = re.compile(rb'[\[\s]*\{\s*"(?:error"|object"\s*:\s*"error")')


def begins_as_error(body: bytes | bytearray) -> bool:
    """True if an answer of status 200 begins as an error object."""
    return _ERROR.match(body) is not None


def may_begin_as_error(body: bytes | bytearray) -> bool:
    """True if it does, or is still so short that it may. White space does not count: it keeps clients alive.

    The first name of the object decides, and of `object` the value.
    """
    start = bytes(body[:_ERROR_BEGINS_WITHIN_BYTES]).translate(None, b" \t\r\n[")
    is_cut = bool(start) and any(error.startswith(start) for error in (b'{"error"', b'{"object":"error"'))
    return is_cut or begins_as_error(body)


def _iterate_sentences(value: Any, name: str = "message", level: int = 0) -> Iterator[str]:  # noqa: ANN401 - any JSON
    """The texts in this value that are the server's own words; `name` is that of the member that holds it."""
    match value:
        case str() if name in NAMES:
            yield value.replace("_", " ")
        case str() if name in SENTENCES:
            inner = _parse_json(value)
            if isinstance(inner, str):
                yield value
            else:
                yield from _iterate_sentences(inner, name, level + 1)
        case int() if "token" in name or "ctx" in name:
            yield f"{name}={value}"
        case list() if level < NESTING_MAX_LEVELS:
            for element in value:
                yield from _iterate_sentences(element, name, level + 1)
        case dict() if level < NESTING_MAX_LEVELS:
            for key, member in value.items():
                yield from _iterate_sentences(member, key, level + 1)


def _parse_json(text: str) -> Any:  # noqa: ANN401 - any JSON
    """Read JSON within a text, as routers wrap another server's error; other text is returned as it is."""
    if not text.lstrip().startswith(("{", "[")):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
