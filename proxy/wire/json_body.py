"""JSON as clients and servers send it: values, structs, the outline of a body, and its known first messages.

Clients send their whole history with every request. Hashing a megabyte takes a fifth of a millisecond, reading it ten.
JSON without some elements of an array is valid if, and only if, it is valid with them; so the rest is read by the same
parser, as a request with fewer messages.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from proxy.foundation.lru import hash_bytes
from proxy.history import splice
from proxy.history.request import Request

UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)


def read_json(data: bytes) -> Any:  # noqa: ANN401 - any JSON
    """Return the value, or None if it is no JSON. The standard library reads half surrogate pairs and NaN as well."""
    try:
        return msgspec.json.decode(data)
    except UNREADABLE:
        pass
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def read_object(data: bytes) -> dict[str, Any] | None:
    value = read_json(data)
    return value if isinstance(value, dict) else None


def as_object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def as_text(value: object) -> str:
    return value if isinstance(value, str) else ""


Places = Mapping[str, tuple[int, int]]
# Possessive quantifiers (`*+`) never go back, so that no body makes a search slow.
_BETWEEN = re.compile(rb"[ \t\n\r,]*+")
_outline = msgspec.json.Decoder(dict[str, msgspec.Raw])
_array = msgspec.json.Decoder(list[msgspec.Raw])
_END = re.compile(rb"[ \t\n\r]*+\}")
_KEY = re.compile(rb'[ \t\n\r,]*+"((?:[^"\\]++|\\.)*+)"[ \t\n\r]*+:[ \t\n\r]*+', re.DOTALL)


def find_values(source: bytes, lists: Collection[str] = ()) -> dict[str, tuple[int, int]]:
    """Return the place of each value of a JSON object; ValueError if it is none, or has one of these lists twice."""
    try:
        places = _walk(source, _outline.decode(source))
    except msgspec.MsgspecError:
        places = None
    if places is None:
        return _scan(source, lists)
    return places


def find_raw(source: bytes, places: Places, key: str) -> bytes:
    """Return the bytes of a member; empty if there is no such member."""
    return source[slice(*places.get(key, (0, 0)))]


def read_member(source: bytes, places: Places, key: str) -> Any:  # noqa: ANN401 - any JSON
    """Return the value of a member; None if there is no such member."""
    return read_json(find_raw(source, places, key)) if key in places else None


def find_other_members(source: bytes, keys: AbstractSet[str]) -> bytes:
    """Return the members of an object other than these, each after a comma; empty if there are none."""
    members = splice.remove_members(source, keys)[1:-1].strip()
    return b"," + members if members else b""


def has_member(source: bytes, *names: str) -> bool:
    """Return True if a body has one of these members, other than null; False if it cannot be understood."""
    for name in names:
        if b'"%b"' % name.encode() in source:  # a quick test, which a tool's parameter of this name passes too
            try:
                value = find_raw(source, find_values(source), name)
            except UNREADABLE:
                return False
            if value not in (b"", b"null"):
                return True
    return False


def _walk(source: bytes, values: dict[str, msgspec.Raw]) -> dict[str, tuple[int, int]] | None:
    """Return the places of decoded members; None if a repeated key hides a value."""
    start = source.index(b"{") + 1
    places: dict[str, tuple[int, int]] = {}
    for key, value in values.items():
        raw = bytes(value)
        member = _KEY.match(source, start)
        # Of two equal keys, the decoder keeps the last value: the next bytes are others then.
        if member is None:
            return None
        name, value_start = member[1], member.end()
        if not source.startswith(raw, value_start):
            return None
        if name != key.encode() and json.loads(b'"%b"' % name) != key:
            return None
        start = value_start + len(raw)
        places[key] = value_start, start
    if _END.match(source, start) is None:
        return None
    return places


def _scan(source: bytes, lists: Collection[str] = ()) -> dict[str, tuple[int, int]]:
    if not isinstance(json.loads(source), dict):
        raise ValueError("a request is an object")  # noqa: TRY004 - for the caller it is one of many things JSON can be
    places: dict[str, tuple[int, int]] = {}
    for member in splice.iterate_members(source):
        # Servers do not agree on which of two lists counts.
        if member.key in places and member.key in lists:
            raise ValueError(f"{member.key} is there twice")
        places[member.key] = member.start, member.stop
    return places


def split_list(raw: bytes) -> Sequence[bytes | msgspec.Raw]:
    """Return the elements of a list without a copy of each."""
    try:
        return _array.decode(raw)
    except msgspec.MsgspecError:  # a string holds half a surrogate pair
        return [raw[start:stop] for start, stop in splice.iterate_elements(raw)]


def read_elements(raw: bytes) -> list[bytes]:
    return list(map(bytes, split_list(raw)))


def read_list(
    source: bytes, start: int, stop: int, prefix: "Prefix | None"
) -> tuple[list[bytes], list[tuple[int, int]]]:
    """Return the elements of the list at this place, or those after a known prefix, and their places."""
    if prefix is None:
        elements = read_elements(source[start:stop])
        return elements, locate(source, start + 1, elements)
    elements = read_elements(b"[%b" % source[prefix.stop : stop])
    return elements, locate(source, prefix.stop, elements)


def locate(source: bytes, first_start: int, elements: Iterable[bytes | msgspec.Raw]) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    stop = first_start
    for raw in elements:
        between = _BETWEEN.match(source, stop)
        start = stop if between is None else between.end()
        stop = start + len(raw)
        spans.append((start, stop))
    return spans


class _ModelMember(msgspec.Struct):
    model: str | None = None


def find_model(body: bytes) -> str | None:
    """Return the model that a request names, or None. An empty name is none."""
    try:
        return msgspec.json.decode(body, type=_ModelMember).model or None
    except (msgspec.DecodeError, RecursionError):  # clients send lone surrogates, NaN and byte order marks
        return as_text((read_object(body) or {}).get("model")) or None


NULL = msgspec.Raw(b"null")
S = TypeVar("S", bound=msgspec.Struct)


def build_reader(struct: type[S]) -> Callable[[bytes], S]:
    """Return a reader of such objects. It takes half a surrogate pair too: clients in JavaScript cut texts in two."""
    decoder = msgspec.json.Decoder(struct)

    def read(raw: bytes) -> S:
        try:
            return decoder.decode(raw)
        except msgspec.MsgspecError:
            places = _scan(raw)
        values: dict[str, object] = {}
        for struct_field in msgspec.structs.fields(struct):
            value = find_raw(raw, places, struct_field.name)
            if value and struct_field.type is msgspec.Raw:
                values[struct_field.name] = msgspec.Raw(value)
            elif value:
                values[struct_field.name] = msgspec.convert(json.loads(value), struct_field.type)
            elif struct_field.required:
                raise ValueError(f"it has no {struct_field.name}")
        return struct(**values)

    return read


_AFTER_MESSAGE = re.compile(rb"[ \t\n\r]*+(?:,|(?=\]))")


class Prefix(Struct, frozen=True):
    """The first `count` messages of another request, found in a body."""

    request: Request
    count: int
    start: int
    stop: int
    """The end of the last of these messages, and of the comma after it."""

    def find_values(self, source: bytes, list_name: str) -> Places | None:
        """Return the place of each value of a body in which these messages stand, without reading them.

        Return None if they are not the beginning of the list. Raise one of `UNREADABLE` if the rest is no object.
        """
        rest = source[: self.start] + source[self.stop :]
        rest.decode()
        places = find_values(rest, (list_name, "tools"))
        start, stop = places.get(list_name, (self.start, self.start))
        ends_in_comma = source[self.stop - 1 : self.stop] == b"," and rest[self.start : stop].strip() == b"]"
        if rest[start : self.start].strip() != b"[" or ends_in_comma:
            return None
        removed_bytes = self.stop - self.start
        for key, (start, stop) in places.items():
            if start > self.start:
                places[key] = start + removed_bytes, stop + removed_bytes
            elif stop > self.start:  # the list itself
                places[key] = start, stop + removed_bytes
        return places

    @property
    def moved_bytes(self) -> int:
        """The number of bytes by which the messages stand later in this body than in the other request."""
        return self.start - self.request.offsets[0]


def find_prefix(request: Request, source: bytes, start: int) -> Prefix | None:
    """Return the longest prefix of a request that *source* has at *start*; None if it lacks a stable message."""
    body = memoryview(source)
    count, stop = 0, start
    for stretch in request.stretches:
        if hash_bytes(body[stop : stop + stretch.size]) != stretch.hash:
            break
        count, stop = stretch.count, stop + stretch.size
    if not 0 < request.stable_count <= count:
        return None
    comma = _AFTER_MESSAGE.match(source, stop)
    if comma is None:
        return None
    return Prefix(request, count, start, comma.end())
