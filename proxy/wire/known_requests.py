"""Requests of an API that is read as chat messages: each chat message remembers the piece that it came from.

client's list     [ {user: result A, result B, words}, {assistant: ...} ]
chat messages       tool A, tool B, user               assistant
pieces              (0, A)  (0, B)  (0, words)         (1, all blocks)

Requests that were read lately, so that only the end of the next one is read. They save time and change no result.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter, itemgetter
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from proxy.foundation.lru import ByteBoundedCache
from proxy.history import splice
from proxy.history.messages import HEAD, NOTE, Message
from proxy.history.request import Request
from proxy.tools.tool_call import ToolCall
from proxy.wire.api_format import ApiFormat
from proxy.wire.json_body import (
    Places,
    Prefix,
    as_object,
    as_text,
    find_prefix,
    find_raw,
    read_elements,
    read_json,
    read_list,
)

V = TypeVar("V")


class Piece(Struct, frozen=True, gc=False):
    """The part of the client's list that a chat message was read from."""

    container: int
    """The number of the client's element in which the chat message ends."""
    role: str
    spans: tuple[tuple[int, int], ...]
    """The places of its blocks, from the start of that element on: the next request has the list at another place."""
    written_as: bytes = b"%b"
    """What makes a block of a text that the client sent by itself."""


class PiecedRequest(Request, frozen=True):
    """A request whose `messages` are the chat messages that say the same as the client's list."""

    list_at: tuple[int, int] = (0, 0)
    sizes: tuple[int, ...] = ()
    """The bytes of each element of the client's list."""
    pieces: tuple[Piece | None, ...] = ()
    """None for a message outside of the list."""

    def find_end(self, count: int) -> int:
        piece = self.pieces[count - 1]
        if piece is None:
            return self.list_at[0]
        return self.offsets[piece.container] + self.sizes[piece.container]

    def find_cut(self, count: int) -> int:
        """Return their end if another history may continue there, else 0. The assistant may still say more."""
        piece = self.pieces[count - 1]
        if piece is None or piece.role == "assistant":
            return 0
        next_piece = self.pieces[count] if count < len(self.pieces) else None
        if next_piece is not None and next_piece.container == piece.container:
            return 0
        return self.find_end(count)

    def list_own_bytes(self, place: int) -> Sequence[bytes]:
        piece = self.pieces[place]
        return () if piece is None else self.list_blocks(piece)

    def list_blocks(self, piece: Piece) -> list[bytes]:
        return list_blocks(self.source, self.offsets, piece)

    def find_element(self, number: int) -> bytes:
        start = self.offsets[number]
        return self.source[start : start + self.sizes[number]]

    @cached_property
    def block_counts(self) -> Sequence[int]:
        """The number of blocks in each element of the client's list."""
        counts = [0] * len(self.sizes)
        for piece in self.pieces:
            if piece is not None:
                counts[piece.container] += len(piece.spans)
        return counts

    def write(self, view: Sequence[Message], write: Callable[[Message], V]) -> list[V]:
        """Write each message of a view. For a message that was written for the request before, use the result again."""
        head, body = view[: self.head_size], view[self.head_size :]
        return [*map(write, head), *self.known.find_view(body).map("written", write)]

    @cached_property
    def _head_places(self) -> Mapping[int, int]:
        return {id(message): number for number, message in enumerate(self.head)}  # a client may send thousands

    def find_origin(self, message: Message) -> tuple[Piece | None, bool]:
        """Return the piece of a message, or None if the proxy wrote it, and whether its bytes are unchanged."""
        number = self._head_places.get(id(message))
        if number is not None:
            return self.pieces[number], True
        place = self.head_size + message.start
        if message.made == NOTE or message.stop != message.start + 1 or place >= len(self.messages):
            return None, False
        own = self.messages[place]
        if own.role != message.role:
            return None, False
        return self.pieces[place], own is message or own.raw == message.raw

    def measure(self, message: Message) -> int:
        piece, is_unchanged = self.find_origin(message)
        if piece is None or not is_unchanged:
            # It becomes at most 48 bytes longer than the chat message:
            # `{"type":"message","role":"user","content":[{"type":"input_text","text":"..."}]}`.
            return len(message.raw) + 48
        size = len(piece.spans) * (len(piece.written_as) - len(b"%b"))
        for start, stop in piece.spans:
            size += stop - start
        return size


def list_blocks(source: bytes, offsets: Sequence[int], piece: Piece) -> list[bytes]:
    """Return the blocks of a piece of *source*, whose elements begin at these *offsets*."""
    origin = offsets[piece.container]
    return [piece.written_as % source[origin + start : origin + stop] for start, stop in piece.spans]


def write_call(call: ToolCall, other_members: bytes = b"") -> bytes:
    kind, member = (b"custom", b"input") if call.kind == "custom" else (b"function", b"arguments")
    write = splice.write_json
    fields = write(call.id), kind, kind, write(call.name), member, write(call.arguments)
    return b'{"id":%b,"type":"%b","%b":{"name":%b,"%b":%b}%b}' % (*fields, other_members)


def build_message(role: str, content: bytes) -> Message:
    return Message.of(b'{"role":%b,"content":%b}' % (splice.write_json(role), content), role, content)


def build_result(call_id: str, content: bytes, other_members: bytes) -> Message:
    fields = splice.write_json(call_id), content, other_members
    return Message.of(b'{"role":"tool","tool_call_id":%b,"content":%b%b}' % fields, "tool", content, answers=call_id)


def build_answer(parts: Sequence[bytes], calls: Sequence[ToolCall], written_calls: Sequence[bytes]) -> Message:
    content = b"[%b]" % b",".join(parts) if parts else b"null"
    tool_calls = b',"tool_calls":[%b]' % b",".join(written_calls) if calls else b""
    return Message.of(
        b'{"role":"assistant","content":%b%b}' % (content, tool_calls), "assistant", content, tuple(calls)
    )


@dataclass(frozen=True, kw_only=True)
class PiecedFormat(ApiFormat):
    """An API whose requests are read as chat messages."""

    split: Callable[[Sequence[bytes], Sequence[int], Iterator[bytes]], Iterable[tuple[Message, Piece]]]
    """Read the newest elements of a list. Given are also the places of all elements, and known blocks, newest first."""
    write_list: Callable[[PiecedRequest, Sequence[Message]], Iterable[bytes]]
    """Write the elements of a list for a view."""
    system_name: str
    """The member that holds a system prompt outside of the list."""
    text_as: bytes
    """What the API makes of a text that the client sends instead of a list; empty if it refuses that."""

    def render(self, request: Request, view: Sequence[Message], tools: bytes | None = None, /) -> bytes:
        assert isinstance(request, PiecedRequest)  # noqa: S101 - `_read` made it
        changes: list[tuple[int, int, bytes]] = []
        if request.is_changed_by(view):
            # With brackets: the client may have sent a text instead.
            changes.append((*request.list_at, b"[%b]" % b",".join(self.write_list(request, view))))
        if tools is not None and request.tools is not None and tools != request.tools:
            changes.append((request.tools_at, request.tools_at + len(request.tools), tools))
        if not changes:
            return request.source
        return splice.replace_spans(request.source, sorted(changes))

    def _find_system(self, source: bytes, places: Places) -> bytes:
        return find_raw(source, places, self.system_name)

    def _read(self, source: bytes, places: Places, prefix: Prefix | None) -> PiecedRequest | None:
        start, stop = places.get(self.list_name, (0, 0))
        is_text = source[start : start + 1] == b'"' and self.text_as != b""
        if is_text:
            elements, spans = [self.text_as % source[start:stop]], [(start, stop)]
        elif source[start : start + 1] == b"[":
            elements, spans = read_list(source, start, stop, prefix)
        else:
            return None
        offsets: list[int] = []
        sizes: list[int] = []
        messages: list[Message] = []
        pieces: list[Piece | None] = []
        system = self._find_system(source, places)
        if system:
            messages.append(build_message("system", system))
            pieces.append(None)
        outside_count = len(messages)
        known_pieces: Sequence[Piece | None] = ()
        if prefix is not None and isinstance(prefix.request, PiecedRequest):
            earlier = prefix.request
            first_in_list = int(earlier.pieces[0] is None)
            known_pieces = earlier.pieces[first_in_list : prefix.count]
            messages += earlier.messages[first_in_list : prefix.count]
            pieces += known_pieces
            newest = earlier.pieces[prefix.count - 1]
            known_count = 0 if newest is None else newest.container + 1
            moved_bytes = prefix.moved_bytes
            offsets += [offset + moved_bytes for offset in earlier.offsets[:known_count]]
            sizes += earlier.sizes[:known_count]
        for element_start, element_stop in spans:
            offsets.append(element_start)
            sizes.append(element_stop - element_start)
        for message, piece in self.split(elements, offsets, _iterate_back(source, offsets, known_pieces)):
            body_size = messages[-1].stop if messages else 0
            if body_size or message.role not in HEAD:
                messages.append(replace(message, start=body_size, stop=body_size + 1))
            else:
                messages.append(message)
            pieces.append(piece)
        if len(messages) == outside_count:
            return None
        if is_text:
            pieces[-1] = Piece(0, "user", ((0, stop - start),), self.text_as)
        return PiecedRequest(
            source,
            tuple(messages),
            tuple(offsets),
            list_at=(start, stop),
            sizes=tuple(sizes),
            pieces=tuple(pieces),
            **self._list_fields(source, places),
        )


def _iterate_back(source: bytes, offsets: Sequence[int], pieces: Sequence[Piece | None]) -> Iterator[bytes]:
    for piece in reversed(pieces):
        if piece is not None:
            yield from reversed(list_blocks(source, offsets, piece))


def find_types(raw: bytes, word: bytes) -> set[str]:
    """Return the types of those elements of a list that contain *word*: data within them may look like a type."""
    types: set[str] = set()
    for element in read_elements(raw) if raw.startswith(b"[") else ():
        if word in element:
            types.add(as_text(as_object(read_json(element)).get("type")))
    return types


WORTHWHILE_BYTES = 8 * 1024
"""A smaller request is read anew, in 3 ms at most, and leaves the room to longer ones."""

DEPTHS = tuple(int(256 * 1.25**number) for number in range(64))
"""Bytes after the start of the first message, up to which samples are compared."""

Key = tuple[tuple[int, str], int, bytes]


class KnownRequests:
    """Keeps each request under samples of its bytes, for one caller may have thousands of conversations.

    Samples go up to the greatest of `DEPTHS` in the part that a client does not change any more.
    """

    def __init__(self, most_bytes: int = 192 * 1024 * 1024) -> None:
        self._requests = ByteBoundedCache[Key, tuple[Request, ...]](
            most_bytes,
            owner_of=itemgetter(0),
            weigh=lambda _, alike: sum(map(_weigh, alike)),
        )

    def find_prefix(self, caller: int, source: bytes, wire: ApiFormat) -> Prefix | None:
        """Return the longest prefix of a body that a request of this caller shares, or None."""
        start = wire.find_first_message(source)
        if start < 0:
            return None
        longest: Prefix | None = None
        for depth in reversed(DEPTHS[: bisect_right(DEPTHS, len(source) - start)]):
            for request in self._requests.get(_make_key(caller, wire.name, depth, source, start)) or ():
                prefix = find_prefix(request, source, start)
                if prefix is not None and (longest is None or prefix.count > longest.count):
                    longest = prefix
            # A request found at a smaller depth shares less, except perhaps for its newest messages.
            if longest is not None:
                break
        return longest

    def add(self, caller: int, request: Request, prefix: Prefix | None) -> None:
        """Keep a request instead of the one that it continues, and a few others that have the same samples."""
        if prefix is not None and request.offsets[:1] != (prefix.start,):
            prefix = None  # it was found in another list of this name, and nothing of the request was read by it
        if prefix is not None:
            key = _make_key(caller, prefix.request.wire, _find_depth(prefix.request), request.source, prefix.start)
            neighbours = [neighbour for neighbour in self._requests.pop(key) or () if neighbour is not prefix.request]
            if neighbours:
                self._requests[key] = tuple(neighbours)
        depth = _find_depth(request)
        if not depth:
            return
        key = _make_key(caller, request.wire, depth, request.source, request.offsets[0])
        alike = [request.without_source() if prefix is None else request.without_source(prefix.request, prefix.count)]
        size, max_bytes, max_requests = 0, 16 * 1024 * 1024, 8
        for neighbour in self._requests.get(key) or ():
            if neighbour.messages == request.messages:
                continue
            size = (size or _weigh(alike[0])) + _weigh(neighbour)  # most requests have no neighbour
            if len(alike) == max_requests or size > max_bytes:
                break
            alike.append(neighbour)
        # The first request of a conversation may be its only one. If one under way is not known, there are too many.
        is_under_way = any(message.role == "assistant" for message in request.body)
        displaces_used = prefix is not None or not is_under_way
        self._requests.add(key, tuple(alike), is_used=is_under_way, displaces_used=displaces_used)


def _weigh(request: Request) -> int:
    size = sum(map(len, map(attrgetter("raw"), request.messages)))
    # 1,500 bytes for the values of a message and all that was computed from it, as measured with many short messages.
    return size + 1_500 * len(request.messages) + 4 * request.known.block_bytes


def _find_depth(request: Request) -> int:
    """Return the depth of the sample that finds a request; 0 if the part that its client does not change is short."""
    count = request.stable_count
    stable_bytes = request.find_cut(count) - request.offsets[0] if count else 0
    depths = bisect_right(DEPTHS, stable_bytes)
    return DEPTHS[depths - 1] if depths else 0


def _make_key(caller: int, api: str, depth: int, source: bytes, start: int) -> Key:
    """Make a key from samples of a body whose first message begins at *start*."""
    end = start + depth
    return (caller, api), depth, source[start : end : depth // 64] + source[end - 64 : end]
