"""Requests of an API that is read as chat messages: each chat message remembers the piece that it came from.

client's list     [ {user: result A, result B, words}, {assistant: ...} ]
chat messages       tool A, tool B, user               assistant
pieces              (0, A)  (0, B)  (0, words)         (1, all blocks)
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from proxy.history import splice
from proxy.history.messages import NOTE, Message
from proxy.history.request import Request


@dataclass(frozen=True, slots=True)
class Piece:
    """The part of the client's request that one chat message was read from."""

    container: int
    """The place in the client's list."""
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
    """The place of each message of the head, which has no place in the body, by its `id()`."""

    def find_end(self, count: int) -> int:
        """The end of the element that the last of the first `count` messages came from."""
        piece = self.pieces[count - 1]
        if piece is None:
            return self.list_at[0]
        return self.spans[piece.container][1]

    def find_cut(self, count: int) -> int:
        """The same if another history may continue there: the element is whole, and so is the model's answer; else 0.

        The items of one answer may be continued by more items, so no cut is after the assistant.
        """
        piece = self.pieces[count - 1]
        if piece is None or piece.role == "assistant":
            return 0
        next_piece = None
        if count < len(self.pieces):
            next_piece = self.pieces[count]
        if next_piece is not None and next_piece.container == piece.container:
            return 0
        return self.find_end(count)

    def count_blocks(self, container: int) -> int:
        """The number of blocks of an element of the client's list."""
        start = bisect_left(self.pieces, container, key=_get_container)
        stop = bisect_right(self.pieces, container, key=_get_container)
        return sum(len(piece.blocks) for piece in self.pieces[start:stop] if piece is not None)

    def find_origin(self, message: Message) -> tuple[Piece | None, bool]:
        """The piece that this message came from, shortened or not, and whether its bytes are unchanged.

        The piece is None if the proxy wrote the message. Its other members (an observation, say) do not matter.
        """
        place = self._find_place(message)
        if place is None:
            return None, False
        own = self.messages[place]
        return self.pieces[place], own is message or own.raw == message.raw

    def _find_place(self, message: Message) -> int | None:
        place = self.head_places.get(id(message))
        if place is not None or message.made == NOTE or message.stop != message.start + 1:
            return place
        place = self.head_size + message.start
        if place < len(self.messages) and self.messages[place].role == message.role:
            return place
        return None


def _get_container(piece: Piece | None) -> int:
    if piece is None:
        return -1
    return piece.container


def replace_list(
    request: Request,
    view: Sequence[Message],
    tools: bytes | None,
    write_list: Callable[[PiecedRequest, Sequence[Message]], Iterable[bytes]],
) -> bytes:
    """The request with `view` in its list, written by `write_list`; `tools` replaces the tools it came with."""
    assert isinstance(request, PiecedRequest)  # noqa: S101 - `piece_reader` made it
    changes: list[tuple[int, int, bytes]] = []
    if request.is_changed_by(view):
        # With its brackets: the client may have sent a text instead of the list.
        changes.append((*request.list_at, b"[%b]" % b",".join(write_list(request, view))))
    if tools is not None and request.tools is not None and tools != request.tools:
        changes.append((request.tools_at, request.tools_at + len(request.tools), tools))
    if not changes:
        return request.source
    return splice.replace_spans(request.source, sorted(changes))
