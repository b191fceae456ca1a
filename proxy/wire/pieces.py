"""Requests of an API that is read as chat messages: each message remembers what it came from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from proxy.core.messages import NOTE, Message, Request


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
        place = self.places.get(id(message))
        if place is None:
            if message.made == NOTE or message.stop != message.start + 1:
                return None
            place = self.head_size + message.start
            if place >= len(self.messages) or self.messages[place].role != message.role:
                return None
        return self.pieces[place]


def differs(one: Message, other: Message) -> bool:
    """True where the two have other bytes."""
    return one is not other and one.raw != other.raw


def is_changed(request: Request, view: Any) -> bool:  # noqa: ANN401 - any sequence of messages
    """True where the view is not what the client sent."""
    return len(view) != len(request.messages) or any(map(differs, view, request.messages))
