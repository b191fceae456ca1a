"""The outline of a body: its top-level values, the elements of a list, and its model."""

import json
import re
from collections.abc import Iterable, Mapping

import msgspec

from proxy.history import splice
from proxy.wire.lenient import as_text, read_object

Places = Mapping[str, tuple[int, int]]
"""Where each top-level value of a body begins and ends."""
BETWEEN = re.compile(rb"[ \t\n\r,]*+")
"""What is between the elements of an array."""
_outline = msgspec.json.Decoder(dict[str, msgspec.Raw])
_array = msgspec.json.Decoder(list[msgspec.Raw])
_KEY = re.compile(rb'[ \t\n\r]*+"((?:[^"\\]++|\\.)*+)"[ \t\n\r]*+:[ \t\n\r]*+', re.DOTALL)
_COMMA = re.compile(rb"[ \t\n\r]*+[,}]")
_LISTS = frozenset({"messages", "input", "tools"})
"""The lists that may be rewritten. If one is there twice, servers do not agree on which one counts."""


def find_values(source: bytes) -> dict[str, tuple[int, int]]:
    """Start and end of each top-level value, by key. Raises ValueError if the body is no JSON object."""
    try:
        places = _walk(source, _outline.decode(source))
    except msgspec.MsgspecError:
        places = None
    if places is None:
        return _scan(source)
    return places


def _walk(source: bytes, values: dict[str, msgspec.Raw]) -> dict[str, tuple[int, int]] | None:
    """The places of these values, one step for each key; None if a key is there twice and hides a value."""
    start = source.index(b"{") + 1
    places: dict[str, tuple[int, int]] = {}
    for key, value in values.items():
        raw = bytes(value)
        member = _KEY.match(source, start)
        if member is None or _decode_key(member[1]) != key or not source.startswith(raw, member.end()):
            return None
        stop = member.end() + len(raw)
        places[key] = member.end(), stop
        start = skip(_COMMA, source, stop)
    if source[start - 1 : start] != b"}":
        return None
    return places


def _decode_key(key: bytes) -> str:
    if b"\\" in key:
        return str(json.loads(b'"' + key + b'"'))
    return key.decode()


def _scan(source: bytes) -> dict[str, tuple[int, int]]:
    """Find the top-level values by reading every byte; a list of `_LISTS` that is there twice is rejected."""
    if not isinstance(json.loads(source), dict):
        raise ValueError("a request is an object")  # noqa: TRY004 - for the caller it is one of many things JSON can be
    places: dict[str, tuple[int, int]] = {}
    for member in splice.iterate_members(source):
        if member.key in places and member.key in _LISTS:
            raise ValueError(f"{member.key} is there twice")
        places[member.key] = member.start, member.stop
    return places


def read_elements(raw: bytes) -> list[bytes]:
    """The elements of a JSON array; by the slow parser if a string holds half a surrogate pair."""
    try:
        return list(map(bytes, _array.decode(raw)))
    except msgspec.MsgspecError:
        return [raw[start:stop] for start, stop in splice.iterate_elements(raw)]


def locate(source: bytes, first_start: int, elements: Iterable[bytes]) -> list[tuple[int, int]]:
    """The start and end of each of these elements, which follow each other."""
    spans: list[tuple[int, int]] = []
    stop = first_start
    for raw in elements:
        start = skip(BETWEEN, source, stop)
        stop = start + len(raw)
        spans.append((start, stop))
    return spans


def skip(pattern: re.Pattern[bytes], source: bytes, start: int) -> int:
    """The end of this pattern if it is at `start`, else `start`."""
    match = pattern.match(source, start)
    if match is None:
        return start
    return match.end()


class _ModelMember(msgspec.Struct):
    model: str | None = None


_model_decoder = msgspec.json.Decoder(_ModelMember)


def find_model(body: bytes) -> str | None:
    """The model that a request names; it decides which upstream the request goes to."""
    try:
        return _model_decoder.decode(body).model
    except (msgspec.DecodeError, RecursionError):  # clients send lone surrogates, NaN and byte order marks
        return as_text((read_object(body) or {}).get("model")) or None
