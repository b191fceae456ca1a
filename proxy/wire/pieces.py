"""Requests of an API that is read as chat messages: each message remembers what it came from."""

import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any, ClassVar, TypeVar

import msgspec

from proxy.history import splice
from proxy.history.messages import HEAD, NOTE, Message, Request
from proxy.wire.known_prefix import Prefix
from proxy.wire.lenient import as_text
from proxy.wire.outline import Places, find_values, locate, read_elements


@dataclass(frozen=True, slots=True)
class Piece:
    """The part of the client's request that one chat message stands for."""

    container: int
    """The place in the client's list that it came from."""
    role: str
    blocks: tuple[bytes, ...]
    """The content blocks or items of the client, each in its bytes."""


@dataclass(frozen=True, slots=True)
class PiecedRequest(Request):
    """A request whose `messages` are the chat messages that say the same."""

    list_at: tuple[int, int] = (0, 0)
    """Where the client's list begins and ends in the source."""
    spans: tuple[tuple[int, int], ...] = ()
    """Where each element of that list begins and ends."""
    pieces: tuple[Piece | None, ...] = ()
    """Of each of `messages`; None for what is outside of the list."""
    head_places: Mapping[int, int] = field(default_factory=dict, compare=False)
    """The place of each message of the head, which stands for nothing of the body, by its `id()`."""

    def find_end(self, count: int) -> int:
        """The end of the element that the last of the first `count` messages came from."""
        piece = self.pieces[count - 1]
        return self.list_at[0] if piece is None else self.spans[piece.container][1]

    def find_cut(self, count: int) -> int:
        """The same where another history may go on behind it: an element is whole, and so is what the model said."""
        piece, following = self.pieces[count - 1], self.pieces[count] if count < len(self.pieces) else None
        is_whole = following is None or piece is None or following.container != piece.container
        return self.find_end(count) if is_whole and piece is not None and piece.role != "assistant" else 0

    def count_blocks(self, container: int) -> int:
        """How many blocks an element of the client's list has."""
        start, stop = (find(self.pieces, container, key=_container_of) for find in (bisect_left, bisect_right))
        return sum(len(piece.blocks) for piece in self.pieces[start:stop] if piece is not None)

    def find_origin(self, message: Message) -> tuple[Piece | None, bool]:
        """The piece that this message was, shortened or not (None: the proxy wrote it), and whether it is unchanged.

        What it is taken for (an observation, say) does not matter.
        """
        place = self._place_of(message)
        if place is None:
            return None, False
        known = self.messages[place]
        return self.pieces[place], known is message or known.raw == message.raw

    def _place_of(self, message: Message) -> int | None:
        place = self.head_places.get(id(message))
        if place is not None or message.made == NOTE or message.stop != message.start + 1:
            return place
        place = self.head_size + message.start
        return place if place < len(self.messages) and self.messages[place].role == message.role else None


def _container_of(piece: Piece | None) -> int:
    return -1 if piece is None else piece.container


Split = Callable[[Sequence[bytes], int, Sequence[Piece | None]], Iterable[tuple[Message, Piece]]]
"""The chat messages that elements of a list are, the first of which has this number there, behind what is known."""
S = TypeVar("S", bound=msgspec.Struct)


class TextFields(msgspec.Struct):
    """A value of which some members, of any kind, are read where they are texts and are empty where they are not."""

    TEXTS: ClassVar[tuple[str, ...]] = ()
    """The names of these members."""

    def __post_init__(self) -> None:
        for name in self.TEXTS:
            if not isinstance(getattr(self, name), str):
                setattr(self, name, "")


def build_reader(kind: type[S]) -> Callable[[bytes], S]:
    """A function that reads such values from JSON.

    The fast parser refuses half of a surrogate pair, which clients in JavaScript send where they cut a text in two.
    """
    decoder = msgspec.json.Decoder(kind)

    def read(raw: bytes) -> S:
        try:
            return decoder.decode(raw)
        except msgspec.MsgspecError:
            return kind(**dict(_read_fields(kind, raw)))

    return read


def _read_fields(kind: type[msgspec.Struct], raw: bytes) -> Iterator[tuple[str, object]]:
    value = json.loads(raw)
    if not isinstance(value, dict):
        raise ValueError("it is no object")  # noqa: TRY004 - one of many wrong values
    for each in msgspec.structs.fields(kind):
        place = splice.find_member(raw, each.name) if each.name in value else None
        if place is None and each.required:
            raise ValueError(f"it has no {each.name}")
        if place is not None and each.type is msgspec.Raw:
            yield each.name, msgspec.Raw(raw[place.start : place.stop])
        elif place is not None:
            yield each.name, msgspec.convert(value[each.name], each.type)


class _Typed(TextFields):
    """An item or a block, of which only the type matters."""

    TEXTS = ("type",)
    type: Any = ""


_decode_typed = build_reader(_Typed)


# --- reading ----------------------------------------------------------------------------------------------------------


def read_body(
    source: bytes, prefix: Prefix | None, read: Callable[[bytes, Places, Prefix | None], PiecedRequest | None]
) -> PiecedRequest | None:
    """The request in these bytes, or None when they cannot be understood. What is known of a prefix is not read."""
    try:
        found = None if prefix is None else _read_behind(source, prefix, read)
        if found is not None:
            return found
        source.decode()
        return read(source, find_values(source), None)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def _read_behind(
    source: bytes, prefix: Prefix, read: Callable[[bytes, Places, Prefix | None], PiecedRequest | None]
) -> PiecedRequest | None:
    """The request that begins with this prefix; None where it does not after all."""
    rest = prefix.remove_from(source)
    found = read(rest, find_values(rest), prefix)
    if found is None or not prefix.is_followed(source, rest, found.list_at):
        return None
    known = prefix.request
    cut, count = len(source) - len(rest), _count_elements(prefix)
    behind = ((start + cut, stop + cut) for start, stop in found.spans[count:])
    request = replace(
        found,
        source=source,
        list_at=(found.list_at[0], found.list_at[1] + cut),
        spans=(*found.spans[:count], *behind),
        tools_at=found.tools_at + cut if found.tools_at > prefix.start else found.tools_at,
    )
    request.columns.follow(known.columns, prefix.count - known.head_size)
    return request


def _count_elements(prefix: Prefix) -> int:
    """How many elements of the list are known."""
    assert isinstance(prefix.request, PiecedRequest)  # noqa: S101 - one of another API is not looked at
    piece = prefix.request.pieces[prefix.count - 1]
    return 0 if piece is None else piece.container + 1


def read_list(
    source: bytes,
    places: Places,
    key: str,
    split: Split,
    *,
    system: bytes | None,
    prefix: Prefix | None,
    as_element: Callable[[bytes], bytes] | None = None,
) -> PiecedRequest | None:
    """The history in the list with this key, and what both APIs name alike; None where there is none.

    `system`: what the client says in front of the list. With a prefix, the list is what follows the known elements.
    `as_element`: makes the only element of a text that the client may give in place of the list.
    """
    start, stop = places.get(key, (0, 0))
    if source[start : start + 1] == b"[":
        elements = read_elements(source[start:stop])
        spans = locate(source, start + 1, elements)
    elif source[start : start + 1] == b'"' and as_element is not None:
        elements, spans = [as_element(source[start:stop])], [(start, stop)]
    else:
        return None
    messages: list[Message] = []
    pieces: list[Piece | None] = []
    if system is not None:
        messages.append(Message(b'{"role":"system","content":%b}' % system, "system", system))
        pieces.append(None)
    outside = len(messages)
    known_pieces: Sequence[Piece | None] = ()
    if prefix is not None and isinstance(prefix.request, PiecedRequest):
        known = prefix.request
        first = sum(1 for piece in known.pieces[:1] if piece is None)
        messages += known.messages[first : prefix.count]
        known_pieces = known.pieces[first : prefix.count]
        pieces += known_pieces
        before, moved = known.spans[: _count_elements(prefix)], prefix.start - known.offsets[0]
        spans = [*(before if not moved else ((start + moved, stop + moved) for start, stop in before)), *spans]
    is_body, body = len(messages) > outside and messages[-1].stop > 0, messages[-1].stop if messages else 0
    for message, piece in split(elements, len(spans) - len(elements), known_pieces):
        is_body = is_body or message.role not in HEAD
        messages.append(replace(message, start=body, stop=body + 1) if is_body else message)
        pieces.append(piece)
        body += is_body
    if len(messages) == outside:
        return None
    tools, choice = places.get("tools"), read_value(source, places, "tool_choice")
    return PiecedRequest(
        source,
        tuple(messages),
        (spans[0][0] if spans else start,) * len(messages),
        model=as_text(read_value(source, places, "model")),
        tools=None if tools is None else source[slice(*tools)],
        tools_at=0 if tools is None else tools[0],
        forced_tool=as_text(choice.get("name")) if isinstance(choice, dict) else "",
        stream=read_value(source, places, "stream") is True,
        list_at=(start, stop),
        spans=tuple(spans),
        pieces=tuple(pieces),
        head_places={id(message): place for place, message in enumerate(takewhile(_is_of_head, messages))},
    )


def _is_of_head(message: Message) -> bool:
    return not message.stop


def read_value(source: bytes, places: Places, key: str) -> Any:  # noqa: ANN401 - JSON
    return json.loads(source[slice(*places[key])]) if key in places else None


def find_raw(source: bytes, places: Places, key: str) -> bytes:
    """The value of this member as it came; empty where there is none."""
    return source[slice(*places.get(key, (0, 0)))]


def list_holding(raw: bytes, pattern: re.Pattern[bytes]) -> list[bytes]:
    """The elements of this list in which the pattern is found; none where it is no list."""
    return [each for each in read_elements(raw) if pattern.search(each) is not None] if raw[:1] == b"[" else []


def has_type(raw: bytes, types: re.Pattern[bytes]) -> bool:
    """True where an element of this list has such a type itself: data within it may look alike.

    `types`: the member with the type, as it is written without spaces.
    """
    read = (_decode_typed(element).type for element in list_holding(raw, types))
    return any(types.fullmatch(b'"type":"%b"' % kind.encode(errors="replace")) is not None for kind in read)


# --- writing ----------------------------------------------------------------------------------------------------------


def replace_list(
    request: Request,
    view: Sequence[Message],
    tools: bytes | None,
    write_list: Callable[[PiecedRequest, Sequence[Message]], Iterable[bytes]],
) -> bytes:
    """The request with `view` in its list, written by `write_list`; `tools` replaces the tools it came with."""
    assert isinstance(request, PiecedRequest)  # noqa: S101 - this module made it
    changes = []
    if request.is_changed_by(view):
        # With its brackets: the client may have given a text in place of the list.
        changes.append((*request.list_at, b"[%b]" % b",".join(write_list(request, view))))
    if tools is not None and request.tools is not None and tools != request.tools:
        changes.append((request.tools_at, request.tools_at + len(request.tools), tools))
    return splice.replace_spans(request.source, sorted(changes)) if changes else request.source
