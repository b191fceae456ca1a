"""The outline of a body: the places of its top-level values and of the elements of a list, and messages read before."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from proxy.history import splice
from proxy.history.request import Request

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


# --- known beginnings -------------------------------------------------------------------------------------------------
# A history that begins with messages which were read before: only what follows them is read.
#
# Clients send all their messages again with every request. Comparing a megabyte with the one before takes fifty
# microseconds, reading it takes ten milliseconds. JSON behind whole elements of an array is valid exactly where it is
# valid without them: so the rest is read by the same parser, as a request with fewer messages.

CHANGING_MESSAGES = 8
"""The newest messages, which clients change while they go on: cache markers move, reminders are taken out."""
_SAMPLE_BYTES = 64
_AFTER_MESSAGE = re.compile(rb"[ \t\n\r]*+(?:,|(?=\]))")


@dataclass(frozen=True, slots=True)
class Prefix:
    """The first messages of another request, found in a body that is still to be read."""

    request: Request
    """The other request, of which `count` messages are found."""
    count: int
    start: int
    """Where the first of them begins in the body."""
    stop: int
    """Where what follows them begins, behind the comma."""

    def remove_from(self, source: bytes) -> bytes:
        """The body without these messages; raises ValueError where it is no text."""
        rest = source[: self.start] + source[self.stop :]
        rest.decode()
        return rest

    def is_followed(self, source: bytes, rest: bytes, place: tuple[int, int] | None) -> bool:
        """True where the list, which is at `place` of the rest, begins with these messages."""
        start, stop = place or (self.start, self.start)
        if rest[start : self.start].strip() != b"[":
            return False
        return source[self.stop - 1 : self.stop] != b"," or rest[self.start : stop].strip() != b"]"


def find_first_element(source: bytes, name: re.Pattern[bytes]) -> int:
    """The probable place of the first element of a list; -1 for none: another list may have this name as well."""
    found = name.search(source)
    return -1 if found is None else found.end()


def list_named(key: str) -> re.Pattern[bytes]:
    """The pattern of a list with this key, up to its first element."""
    return re.compile(rb'"%b"[ \t\n\r]*+:[ \t\n\r]*+\[[ \t\n\r]*+' % key.encode())


def count_stable(request: Request) -> int:
    """The least number of this request's first messages that another must begin with; 0 where none will do."""
    least, most = request.head_size, len(request.messages)
    count = max(least + 1, most - CHANGING_MESSAGES)
    while least < count <= most and not request.find_cut(count):
        count -= 1
    return count if least < count <= most else 0


def find_prefix(request: Request, source: bytes, start: int) -> Prefix | None:
    """The messages of this request that other bytes have at `start` as well: all but the newest, or more."""
    count, most = count_stable(request), len(request.messages)
    if not count:
        return None
    known, first = memoryview(request.source), request.offsets[0]
    shift, stop = start - first, request.find_cut(count)
    # Most candidates are other conversations, which a few bytes tell apart.
    for at in (max(first, stop - _SAMPLE_BYTES), first):
        if not source.startswith(known[at:stop], at + shift):
            return None
    for more in range(count + 1, most + 1):
        if end := request.find_cut(more):
            if not source.startswith(known[stop:end], stop + shift):
                break
            count, stop = more, end
    behind = _AFTER_MESSAGE.match(source, stop + shift)
    return None if behind is None else Prefix(request, count, start, behind.end())
