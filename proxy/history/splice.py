"""Change one value inside JSON bytes and leave every other byte as it was.

A JSON parser loses whatever its language cannot hold: big integers, `1e400`, repeated keys, lone surrogates, spacing.
Bytes of an agent must leave as they came, so nothing here parses and dumps: it finds the beginning and the end of a
value, and cuts there. All functions take JSON that a real parser has accepted before.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet

from msgspec import Struct

_STRING = rb'"(?:[^"\\]++|\\.)*+"'
_SPACE = re.compile(rb"[ \t\n\r]*+")
TEXT = re.compile(_STRING, re.DOTALL)
_BRACKETS = re.compile(_STRING + rb"|[{}\[\]]", re.DOTALL)
_SCALAR = re.compile(rb"[^\s,\]}]++")


class Member(Struct, frozen=True):
    key: str
    at: int
    start: int
    stop: int


def find_value_end(raw: bytes, start: int) -> int:
    opening = raw[start : start + 1]
    if opening == b'"':
        return _find_text_end(raw, start)
    if opening not in (b"{", b"["):
        return _find_end(_SCALAR.match(raw, start))
    depth = 0
    for token in _BRACKETS.finditer(raw, start):
        mark = raw[token.start()]
        if mark in b"{[":
            depth += 1
        elif mark in b"}]":
            depth -= 1
            if depth == 0:
                return token.end()
    raise ValueError(f"the JSON value at byte {start} does not end")


def iterate_members(raw: bytes, start: int = 0) -> Iterator[Member]:
    """In order, with repeated keys."""
    at = _skip(raw, _skip(raw, start) + 1)
    while raw[at] != ord("}"):
        key_end = _find_text_end(raw, at)
        value = _skip(raw, _skip(raw, key_end) + 1)
        stop = find_value_end(raw, value)
        yield Member(_read_key(raw[at:key_end]), at, value, stop)
        at = _find_next(raw, stop)


def iterate_elements(raw: bytes, start: int = 0) -> Iterator[tuple[int, int]]:
    at = _skip(raw, _skip(raw, start) + 1)
    while raw[at] != ord("]"):
        stop = find_value_end(raw, at)
        yield at, stop
        at = _find_next(raw, stop)


def find_member(raw: bytes, key: str, start: int = 0) -> Member | None:
    """The last one with this key: JSON parsers take that."""
    last = None
    for member in iterate_members(raw, start):
        if member.key == key:
            last = member
    return last


def replace_bytes(raw: bytes, start: int, stop: int, value: bytes) -> bytes:
    return raw[:start] + value + raw[stop:]


def replace_spans(raw: bytes, changes: Iterable[tuple[int, int, bytes]]) -> bytes:
    """Several stretches, in order. Joined once: a message may have 100,000 parts."""
    pieces, at = [], 0
    for start, stop, value in changes:
        pieces += [raw[at:start], value]
        at = stop
    return b"".join([*pieces, raw[at:]])


def set_members(raw: bytes, values: Mapping[str, bytes]) -> bytes:
    """A new value takes the place of the old one, new members come last: an upstream has cached the beginning."""
    members = [member for member in iterate_members(raw) if member.key in values]
    raw = replace_spans(raw, ((member.start, member.stop, values[member.key]) for member in members))
    missing = sorted(values.keys() - {member.key for member in members})
    end = raw.rindex(b"}")
    return raw[:end] + b"".join(b',"%b":%b' % (key.encode(), values[key]) for key in missing) + raw[end:]


def replace_elements(raw: bytes, start: int, change: Callable[[bytes], bytes]) -> bytes:
    """*change* returns the new bytes of each element of the array at *start*."""
    return replace_spans(raw, ((at, stop, change(raw[at:stop])) for at, stop in iterate_elements(raw, start)))


def remove_members(raw: bytes, keys: AbstractSet[str]) -> bytes:
    """With their commas."""
    members = list(iterate_members(raw))
    opening = _skip(raw, 0) + 1
    pieces: list[bytes] = []
    before = opening  # the end of the member before, so that each piece begins with its own comma and spacing
    for member in members:
        if member.key not in keys:
            if pieces:
                pieces.append(raw[before : member.stop])
            else:
                pieces.append(raw[opening : members[0].at] + raw[member.at : member.stop])
        before = member.stop
    if len(pieces) == len(members):
        return raw
    return raw[:opening] + b"".join(pieces) + raw[before:]


def quote(text: str) -> bytes:
    """Plain UTF-8, or escapes if it holds half a surrogate pair, which UTF-8 cannot."""
    try:
        return json.dumps(text, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.dumps(text).encode()


def _read_key(text: bytes) -> str:
    if b"\\" in text:
        return str(json.loads(text))
    # Hardly any key has an escape, and this takes a tenth of the time.
    return text[1:-1].decode("utf-8", "surrogatepass")


def _find_text_end(raw: bytes, start: int) -> int:
    # Searching for the next quote takes a tenth of the time of the expression, which handles escaped ones.
    end = raw.find(b'"', start + 1)
    if end > 0 and raw[end - 1] != ord("\\") and raw[start] == ord('"'):
        return end + 1
    return _find_end(TEXT.match(raw, start))


def _skip(raw: bytes, at: int) -> int:
    return _find_end(_SPACE.match(raw, at))


def _find_next(raw: bytes, stop: int) -> int:
    at = _skip(raw, stop)
    if raw[at] == ord(","):
        return _skip(raw, at + 1)
    return at


def _find_end(match: re.Match[bytes] | None) -> int:
    if match is None:
        raise ValueError("these bytes are not JSON")
    return match.end()
