"""Content blocks of Messages as the chat messages that say the same, and a view of chat messages as a list of messages.

1. Blocks that came in one message and are kept leave in one message, results first.
2. Consecutive words of the user leave in one message, unless the client had parted them.
3. System messages within the conversation come before an answer, or last: the API refuses them before a user's message.
4. A message of which nothing was touched leaves in the client's bytes.
"""

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from proxy.history import splice
from proxy.history.known import Known, is_other
from proxy.history.messages import Message, read_message
from proxy.tools.tool_call import ToolCall
from proxy.wire.cache_placement import LOOK_BACK_BLOCKS, BlockPlace
from proxy.wire.json_body import NULL, as_text, build_reader, read_elements
from proxy.wire.pieces import Piece, PiecedRequest, build_answer


class _MessageFields(msgspec.Struct):
    role: str
    content: msgspec.Raw = NULL


class ContentBlock(msgspec.Struct):
    """In a block of another type, a member may be of another kind."""

    type: str = ""
    id: Any = ""
    name: Any = ""
    input: msgspec.Raw = NULL
    tool_use_id: Any = ""
    content: msgspec.Raw = NULL
    caller: msgspec.Raw = NULL


decode_message = build_reader(_MessageFields)
decode_block = build_reader(ContentBlock)


def split_messages(
    containers: Sequence[bytes], first: int, _known_pieces: Sequence[Piece | None], /
) -> Iterator[tuple[Message, Piece]]:
    """`first`: the number of the first in the client's list."""
    for number, container in enumerate(containers, first):
        yield from _split(container, number)


def _split(container: bytes, number: int) -> Iterator[tuple[Message, Piece]]:
    fields = decode_message(container)
    role, content = fields.role, bytes(fields.content)
    if content[:1] != b"[":
        yield _make_message(role, content), Piece(number, role, (_text_block(content),))
        return
    raw_blocks = read_elements(content)
    if role == "assistant":
        yield _read_assistant(raw_blocks), Piece(number, role, tuple(raw_blocks))
        return
    other_blocks: list[bytes] = []
    for raw in raw_blocks:
        block = decode_block(raw)
        if block.type == "tool_result":
            yield _read_result(raw, block), Piece(number, role, (raw,))
        else:
            other_blocks.append(raw)
    if other_blocks or not raw_blocks:
        yield _make_message(role, b"[" + b",".join(other_blocks) + b"]"), Piece(number, role, tuple(other_blocks))


def _make_message(role: str, content: bytes) -> Message:
    return Message.of(b'{"role":%b,"content":%b}' % (splice.quote(role), content), role, content)


def _text_block(content: bytes) -> bytes:
    return b'{"type":"text","text":%b}' % content


def _read_result(raw: bytes, block: ContentBlock) -> Message:
    content, call_id = bytes(block.content), as_text(block.tool_use_id)
    members = splice.remove_members(raw, frozenset({"type", "tool_use_id", "content"}))[1:-1].strip()
    if members:
        members = b"," + members
    template = b'{"role":"tool","tool_call_id":%b,"content":%b%b}' % (splice.quote(call_id), content, members)
    return Message.of(template, "tool", content, answers=call_id)


def _read_assistant(raw_blocks: Sequence[bytes]) -> Message:
    content_blocks: list[bytes] = []
    calls: list[ToolCall] = []
    written_calls: list[bytes] = []
    is_compacted = False
    for raw in raw_blocks:
        block = decode_block(raw)
        is_compacted |= block.type == "compaction"
        if block.type == "tool_use":
            call = ToolCall(as_text(block.id), as_text(block.name), bytes(block.input).decode())
            calls.append(call)
            written_calls.append(_write_call(call, bytes(block.caller)))
        else:
            content_blocks.append(raw)
    answer = build_answer(content_blocks, calls, written_calls)
    if is_compacted:
        # The API reads a history from its last compaction on:
        # <https://platform.claude.com/docs/en/build-with-claude/compaction>.
        return replace(answer, is_fixed=True)
    return answer


def _write_call(call: ToolCall, caller: bytes) -> bytes:
    member = b""
    if caller != b"null":
        member = b',"caller":' + caller
    fields = splice.quote(call.id), splice.quote(call.name), splice.quote(call.arguments), member
    return b'{"id":%b,"type":"function","function":{"name":%b,"arguments":%b}%b}' % fields


def _change_answer(own_blocks: Sequence[bytes], message: Message) -> Sequence[bytes]:
    """Changed words come first. Members that the chat message does not hold (a cache mark, unknown keys) stay."""
    calls = {call.id: call for call in message.calls}
    words = list(_iterate_blocks(replace(message, calls=())))
    are_own = set(own_blocks).issuperset(words)
    blocks: list[bytes] = []
    if not are_own:
        blocks += words
    for own_block in own_blocks:
        block = decode_block(own_block)
        if block.type == "tool_use":
            call = calls.get(as_text(block.id))
            if call is not None and bytes(block.input).decode() == call.arguments:
                blocks.append(own_block)
            elif call is not None:
                blocks.append(splice.set_members(own_block, {"input": _write_input(call)}))
        elif are_own and own_block in words:
            blocks.append(own_block)
    return blocks


def _iterate_blocks(message: Message) -> Iterator[bytes]:
    """No text is empty: the API refuses that."""
    if message.is_result:
        yield _write_result(message)
        return
    content = json.loads(message.content)
    if isinstance(content, str) and content.strip():
        yield _text_block(message.content)
    elif isinstance(content, list):
        for start, stop in splice.iterate_elements(message.content):
            part = message.content[start:stop]
            if decode_block(part).type != "text" or as_text(json.loads(part).get("text")).strip():
                yield part
    for call in message.calls:
        fields = splice.quote(call.id), splice.quote(call.name), _write_input(call)
        yield b'{"type":"tool_use","id":%b,"name":%b,"input":%b}' % fields


def _write_input(call: ToolCall) -> bytes:
    if isinstance(call.value, dict):
        return call.arguments.encode("utf-8", "surrogatepass")
    return b"{}"


def _write_result(message: Message) -> bytes:
    removed_keys = frozenset({"role", "tool_call_id", "content", "name"})
    members = splice.remove_members(message.raw, removed_keys)[1:-1].strip()
    if members:
        members = b"," + members
    fields = splice.quote(message.answers), message.content, members
    return b'{"type":"tool_result","tool_use_id":%b,"content":%b%b}' % fields


class WrittenMessage(Struct, frozen=True):
    raw: bytes
    role: str
    blocks: Sequence[bytes]
    changed_blocks: int = 0
    """Up to the last that the proxy wrote."""
    shortened_blocks: int = 0
    """The same, without those still to be shortened."""


def write_message(role: str, blocks: Iterable[bytes]) -> bytes:
    return b'{"role":%b,"content":[%b]}' % (splice.quote(role), b",".join(blocks))


def find_fold_ends(request: PiecedRequest, view: Sequence[Message], prefix_size: int) -> list[BlockPlace]:
    """Return where marks of the shortened part belong: most important first, none if nothing is shortened.

    The first is the end of the messages that the upstream has read before, of which the view has `prefix_size`. Then
    comes the end of the shortened part, and places before it in the distance over which the API looks back.
    """
    head, body = view[: request.head_size], view[request.head_size :]
    steps = _write_steps(request, head, body)
    messages = _join_steps(request, head, body, steps)
    starts = [0]
    changed_end = shortened_end = 0
    for message in messages:
        if message.changed_blocks:
            changed_end = starts[-1] + message.changed_blocks
        if message.shortened_blocks:
            shortened_end = starts[-1] + message.shortened_blocks
        starts.append(starts[-1] + len(message.blocks))
    end = shortened_end or changed_end
    if not end:
        return []
    prefix_blocks = 0
    prefix = view[request.head_size : prefix_size]
    if prefix:
        for message in _join_steps(request, head, prefix, steps[: len(prefix)]):
            prefix_blocks += len(message.blocks)
    fold_ends: list[BlockPlace] = []
    for number in dict.fromkeys((prefix_blocks, *range(end, 0, -LOOK_BACK_BLOCKS))):
        if number:
            place = bisect_right(starts, number - 1) - 1
            fold_ends.append((place, number - 1 - starts[place]))
    return fold_ends


class WriteStep(Struct, frozen=True):
    complete: Sequence[WrittenMessage] = ()
    is_checkpoint: bool = False
    """Writing can resume here."""


def write_list(request: PiecedRequest, view: Sequence[Message]) -> Iterator[bytes]:
    head, body = view[: request.head_size], view[request.head_size :]
    for message in _join_steps(request, head, body, _write_steps(request, head, body)):
        yield message.raw


def _write_steps(request: PiecedRequest, head: Sequence[Message], body: Sequence[Message]) -> Sequence[WriteStep]:
    """Blocks that were written for the request before are not written again."""
    known_view = Known(tuple(body)) if is_other(head, request.head) else request.known.find_view(body)

    def write_new(steps: Sequence[WriteStep]) -> Iterator[WriteStep]:
        start = _find_checkpoint(steps)
        writer = _start_writer(request, head)
        return islice(map(writer.add, body[start:]), len(steps) - start, None)

    return known_view.column("written", write_new)


def _join_steps(
    request: PiecedRequest, head: Sequence[Message], body: Sequence[Message], steps: Sequence[WriteStep]
) -> list[WrittenMessage]:
    """Their messages, and the one that is open at the end of the body."""
    messages: list[WrittenMessage] = []
    for step in steps:
        messages += step.complete
    writer = _start_writer(request, head)
    for message in body[_find_checkpoint(steps) :]:
        writer.add(message)
    return messages + writer.close()


def _start_writer(request: PiecedRequest, head: Sequence[Message]) -> "_Writer":
    writer = _Writer(request)
    for message in head:
        writer.add(message)
    return writer


def _find_checkpoint(steps: Sequence[WriteStep]) -> int:
    for place in reversed(range(len(steps))):
        if steps[place].is_checkpoint:
            return place
    return 0


class _Writer:
    """The newest message stays open, because the next may belong to it."""

    def __init__(self, request: PiecedRequest) -> None:
        self._request = request
        self._system_messages: list[WrittenMessage] = []
        """Waiting for an answer."""
        self._role = ""
        self._container: int | None = None
        """The client's message that is open, if any."""
        self._last_container: int | None = None
        """The one that the last block is from."""
        self._blocks: list[bytes] = []
        self._changed_blocks = self._shortened_blocks = 0
        self._is_touched = False
        self._ends_with_result = False

    def add(self, message: Message) -> WriteStep:
        piece, is_unchanged = self._request.find_origin(message)
        if is_unchanged and piece is None:
            return WriteStep()  # the system prompt, which is not in the list
        blocks = _find_blocks(piece, message, is_unchanged=is_unchanged)
        if not blocks:
            return WriteStep()
        role, container = message.role, None
        if piece is not None:
            role, container = piece.role, piece.container
        elif message.is_result:
            role = "user"
        step = WriteStep()
        if not self._blocks or role != self._role or not self._continues(role, container, message):
            complete = self._complete()
            if role == "assistant":
                complete += self._system_messages
                self._system_messages = []
            step = WriteStep(complete, role == "assistant")
            self._role, self._container, self._is_touched = role, container, False
            self._changed_blocks = self._shortened_blocks = 0
        self._blocks += blocks
        if not is_unchanged:
            self._changed_blocks = len(self._blocks)
            # Those steps change messages that are still to be shortened.
            if message.made not in {"", "strip_reasoning", "clip_output", "dedup_arrivals"}:
                self._shortened_blocks = len(self._blocks)
        self._is_touched |= not is_unchanged or container != self._container
        self._ends_with_result = message.is_result
        self._last_container = container
        return step

    def close(self) -> list[WrittenMessage]:
        return self._complete() + self._system_messages

    def _continues(self, role: str, container: int | None, message: Message) -> bool:
        if container is not None and container == self._last_container:
            return True
        if message.is_result and self._ends_with_result:
            return True
        is_parted = container is not None and self._last_container is not None and container == self._last_container + 1
        return role == "user" and not is_parted

    def _complete(self) -> list[WrittenMessage]:
        blocks, self._blocks = self._blocks, []
        if not blocks:
            return []
        container = self._container
        if container is None or self._is_touched or len(blocks) != self._request.count_blocks(container):
            raw = write_message(self._role, blocks)
        else:
            raw = self._request.source[slice(*self._request.spans[container])]
        written_message = WrittenMessage(raw, self._role, blocks, self._changed_blocks, self._shortened_blocks)
        if self._role == "system":
            self._system_messages.append(written_message)
            return []
        return [written_message]


def _find_blocks(piece: Piece | None, message: Message, *, is_unchanged: bool) -> Sequence[bytes]:
    if piece is not None and is_unchanged:
        return piece.blocks
    # Of a changed message, only the bytes are up to date.
    changed_message = read_message(json.loads(message.raw), message.raw)
    if piece is not None and message.role == "assistant" and piece.blocks:
        return _change_answer(piece.blocks, changed_message)
    return list(_iterate_blocks(changed_message))
