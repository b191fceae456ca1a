"""Requests of an API that is read as chat messages: each message remembers what it came from."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import msgspec

from proxy.core import splice
from proxy.core.messages import HEAD, NOTE, Message, Request


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
    pieces: tuple[Piece | None, ...] = ()
    """Of each of `messages`; None for what stands outside of the list."""
    places: Mapping[int, int] = field(default_factory=dict)
    """The place of each of `messages`, by its `id()`."""

    def piece_of(self, message: Message) -> Piece | None:
        """The origin of this message, shortened or not; None for one that the proxy wrote."""
        place = self._place_of(message)
        return None if place is None else self.pieces[place]

    def is_own(self, message: Message) -> bool:
        """True where the client sent it so; what it is taken for (an observation, say) does not matter."""
        place = self._place_of(message)
        return place is not None and self.messages[place].raw == message.raw

    def _place_of(self, message: Message) -> int | None:
        place = self.places.get(id(message))
        if place is not None or message.made == NOTE or message.stop != message.start + 1:
            return place
        place = self.head_size + message.start
        return place if place < len(self.messages) and self.messages[place].role == message.role else None


S = TypeVar("S", bound=msgspec.Struct)
_array = msgspec.json.Decoder(list[msgspec.Raw])


def read_elements(raw: bytes) -> list[bytes]:
    """The elements of a JSON array; by the slow parser where a string holds half a surrogate pair."""
    try:
        return list(map(bytes, _array.decode(raw)))
    except msgspec.MsgspecError:
        return [raw[start:stop] for start, stop in splice.elements(raw)]


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
        place = splice.member(raw, each.name) if each.name in value else None
        if place is None and each.required:
            raise ValueError(f"it has no {each.name}")
        if place is not None and each.type is msgspec.Raw:
            yield each.name, msgspec.Raw(raw[place.start : place.stop])
        elif place is not None:
            yield each.name, msgspec.convert(value[each.name], each.type)


def number_body(messages: Sequence[Message]) -> list[Message]:
    """The messages, each of the body with its place there; those of the head stand for nothing of it."""
    leading = next((at for at, each in enumerate(messages) if each.role not in HEAD), len(messages))
    body = (replace(message, start=place, stop=place + 1) for place, message in enumerate(messages[leading:]))
    return [*messages[:leading], *body]


def differs(one: Message, other: Message) -> bool:
    """True where the two have other bytes."""
    return one is not other and one.raw != other.raw


def is_changed(request: Request, view: Sequence[Message]) -> bool:
    """True where the view is not what the client sent."""
    return len(view) != len(request.messages) or any(map(differs, view, request.messages))
