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
"""The lists that may be rewritten: given twice, servers do not agree on which one counts."""


def find_values(source: bytes) -> dict[str, tuple[int, int]]:
    """Start and end of each top-level value, by key."""
    try:
        places = _walk(source, _outline.decode(source))
    except msgspec.MsgspecError:
        places = None
    return _scan(source) if places is None else places


def _walk(source: bytes, outline: dict[str, msgspec.Raw]) -> dict[str, tuple[int, int]] | None:
    """One step per key, the values already known; None when a key is there twice and hides a value."""
    at, places = source.index(b"{") + 1, {}
    for key, value in outline.items():
        found = _KEY.match(source, at)
        raw = bytes(value)
        if found is None or _decode_key(found[1]) != key or not source.startswith(raw, found.end()):
            return None
        places[key] = found.end(), found.end() + len(raw)
        at = skip(_COMMA, source, found.end() + len(raw))
    return places if source[at - 1 : at] == b"}" else None


def _decode_key(key: bytes) -> str:
    return str(json.loads(b'"' + key + b'"')) if b"\\" in key else key.decode()


def _scan(source: bytes) -> dict[str, tuple[int, int]]:
    """Find the top-level values by reading every byte; a list of `_LISTS` that is given twice is rejected."""
    if not isinstance(json.loads(source), dict):
        raise ValueError("a request is an object")  # noqa: TRY004 - for the caller it is one of many things JSON can be
    places: dict[str, tuple[int, int]] = {}
    for each in splice.iterate_members(source):
        if each.key in places and each.key in _LISTS:
            raise ValueError(f"{each.key} is there twice")
        places[each.key] = each.start, each.stop
    return places


def read_elements(raw: bytes) -> list[bytes]:
    """The elements of a JSON array; by the slow parser where a string holds half a surrogate pair."""
    try:
        return list(map(bytes, _array.decode(raw)))
    except msgspec.MsgspecError:
        return [raw[start:stop] for start, stop in splice.iterate_elements(raw)]


def locate(source: bytes, at: int, elements: Iterable[bytes]) -> list[tuple[int, int]]:
    """The start and end of each of these elements, which follow each other from `at` on."""
    spans = []
    for raw in elements:
        start = skip(BETWEEN, source, at)
        at = start + len(raw)
        spans.append((start, at))
    return spans


def skip(pattern: re.Pattern[bytes], source: bytes, at: int) -> int:
    """The place behind this pattern; `at` itself where it is not there."""
    found = pattern.match(source, at)
    return at if found is None else found.end()


class _ModelMember(msgspec.Struct):
    model: str | None = None


_model_decoder = msgspec.json.Decoder(_ModelMember)


def find_model(body: bytes) -> str | None:
    """The model that a request names; it decides which upstream the request goes to."""
    try:
        return _model_decoder.decode(body).model
    except (msgspec.DecodeError, RecursionError):  # clients send lone surrogates, NaN and byte order marks
        return as_text((read_object(body) or {}).get("model")) or None
