"""Change one value inside JSON bytes and leave every other byte as it was.

A JSON parser loses what its language cannot hold: big integers, `1e400`, repeated keys, lone surrogates, the spacing.
What an agent sent must leave as it came, so nothing here parses and dumps: it finds where a value begins and ends,
and cuts there. All functions take JSON that a real parser has accepted before.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

_STRING = rb'"(?:[^"\\]++|\\.)*+"'
_SPACE = re.compile(rb"[ \t\n\r]*+")
_TEXT = re.compile(_STRING, re.DOTALL)
_BRACKETS = re.compile(_STRING + rb"|[{}\[\]]", re.DOTALL)
_SCALAR = re.compile(rb"[^\s,\]}]++")


@dataclass(frozen=True, slots=True)
class Member:
    """One `"key": value` of an object: where the pair starts, where its value starts and stops."""

    key: str
    at: int
    start: int
    stop: int


def find_value_end(raw: bytes, start: int) -> int:
    """The end of the value that starts at `start`."""
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
    """The members of the object at `start`, in order, repeated keys included."""
    at = _skip(raw, _skip(raw, start) + 1)
    while raw[at] != ord("}"):
        key_end = _find_text_end(raw, at)
        value = _skip(raw, _skip(raw, key_end) + 1)
        stop = find_value_end(raw, value)
        yield Member(_read_key(raw[at:key_end]), at, value, stop)
        at = _find_next(raw, stop)


def iterate_elements(raw: bytes, start: int = 0) -> Iterator[tuple[int, int]]:
    """The start and the end of each element of the array at `start`."""
    at = _skip(raw, _skip(raw, start) + 1)
    while raw[at] != ord("]"):
        stop = find_value_end(raw, at)
        yield at, stop
        at = _find_next(raw, stop)


def find_member(raw: bytes, key: str, start: int = 0) -> Member | None:
    """The member that counts under this key: the last one, as every JSON parser has it."""
    found = None
    for each in iterate_members(raw, start):
        if each.key == key:
            found = each
    return found


def replace_bytes(raw: bytes, start: int, stop: int, value: bytes) -> bytes:
    """`raw` with the bytes from `start` to `stop` exchanged for `value`."""
    return raw[:start] + value + raw[stop:]


def replace_spans(raw: bytes, changes: Iterable[tuple[int, int, bytes]]) -> bytes:
    """`raw` with several stretches exchanged, given in order. Joined once: a message may have 100,000 parts."""
    pieces, at = [], 0
    for start, stop, value in changes:
        pieces += [raw[at:start], value]
        at = stop
    return b"".join([*pieces, raw[at:]])


def set_members(raw: bytes, values: Mapping[str, bytes]) -> bytes:
    """An object with these members: each in the place of its own value, or else behind all others.

    So what an upstream has cached begins with the same bytes.
    """
    given = [member for member in iterate_members(raw) if member.key in values]
    raw = replace_spans(raw, ((member.start, member.stop, values[member.key]) for member in given))
    missing = sorted(values.keys() - {member.key for member in given})
    end = raw.rindex(b"}")
    return raw[:end] + b"".join(b',"%b":%b' % (key.encode(), values[key]) for key in missing) + raw[end:]


def replace_elements(raw: bytes, start: int, change: Callable[[bytes], bytes]) -> bytes:
    """`raw` with each element of the array at `start` replaced by what `change` makes of it."""
    return replace_spans(raw, ((at, stop, change(raw[at:stop])) for at, stop in iterate_elements(raw, start)))


def remove_members(raw: bytes, keys: AbstractSet[str]) -> bytes:
    """The object without these members, each gone with the comma that belonged to it."""
    found = list(iterate_members(raw))
    kept = [each for each in found if each.key not in keys]
    if len(kept) == len(found):
        return raw
    opening = _skip(raw, 0) + 1
    if not kept:
        return raw[:opening] + raw[found[-1].stop :]
    lead = raw[opening : found[0].at]
    pieces = [lead + raw[kept[0].at : kept[0].stop]]
    follows = {each.at: found[place - 1].stop for place, each in enumerate(found) if place}
    pieces += [raw[follows[each.at] : each.stop] for each in kept[1:]]
    return raw[:opening] + b"".join(pieces) + raw[found[-1].stop :]


def quote(text: str) -> bytes:
    """A string as JSON: plain UTF-8, or escapes where it holds half a surrogate pair and UTF-8 cannot."""
    try:
        return json.dumps(text, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.dumps(text).encode()


def _read_key(text: bytes) -> str:
    # A key hardly ever has an escape. Without one it is read at a tenth of the cost.
    return json.loads(text) if b"\\" in text else text[1:-1].decode("utf-8", "surrogatepass")


def _find_text_end(raw: bytes, start: int) -> int:
    # To search for the next quote takes a tenth of the time of the expression, which knows escaped ones.
    end = raw.find(b'"', start + 1)
    if end > 0 and raw[end - 1] != ord("\\") and raw[start] == ord('"'):
        return end + 1
    return _find_end(_TEXT.match(raw, start))


def _skip(raw: bytes, at: int) -> int:
    return _find_end(_SPACE.match(raw, at))


def _find_next(raw: bytes, stop: int) -> int:
    at = _skip(raw, stop)
    return _skip(raw, at + 1) if raw[at] == ord(",") else at


def _find_end(match: re.Match[bytes] | None) -> int:
    if match is None:
        raise ValueError("these bytes are not JSON")
    return match.end()
