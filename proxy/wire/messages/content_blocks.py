"""Content blocks of Messages as the chat messages that say the same, and a view of chat messages as a list of messages.

1. Blocks that came in one message and are kept leave in one message, results first.
2. Consecutive words of the user leave in one message, unless the client had parted them.
3. System messages within the conversation come before an answer, or last: the API refuses them before a user's message.
4. A message of which nothing was touched leaves in the client's bytes.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from proxy.history import splice
from proxy.history.messages import Message, read_message
from proxy.tools.tool_call import ToolCall
from proxy.wire.cache_placement import LOOK_BACK_BLOCKS, BlockPlace
from proxy.wire.json_body import NULL, as_text, build_reader, find_other_members, read_elements
from proxy.wire.pieces import Piece, PiecedRequest, build_answer, write_call


class _MessageFields(msgspec.Struct):
    role: str
    content: msgspec.Raw = NULL


class ContentBlock(msgspec.Struct):
    """The members that blocks may have. Those of type `Any` are texts in most blocks, and other values in some."""

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
    """Read messages of the client's list, in which the first has the number `first`."""
    for number, container in enumerate(containers, first):
        fields = decode_message(container)
        role, content = fields.role, bytes(fields.content)
        if content[:1] != b"[":
            yield _make_message(role, content), Piece(number, role, (_text_block(content),))
            continue
        raw_blocks = read_elements(content)
        if role == "assistant":
            yield _read_assistant(raw_blocks), Piece(number, role, tuple(raw_blocks))
            continue
        other_blocks: list[bytes] = []
        for raw in raw_blocks:
            block = decode_block(raw)
            if block.type == "tool_result":
                yield _read_result(raw, block), Piece(number, role, (raw,))
            else:
                other_blocks.append(raw)
        if other_blocks or not raw_blocks:
            content = b"[" + b",".join(other_blocks) + b"]"
            yield _make_message(role, content), Piece(number, role, tuple(other_blocks))


def _make_message(role: str, content: bytes) -> Message:
    return Message.of(b'{"role":%b,"content":%b}' % (splice.quote(role), content), role, content)


def _text_block(content: bytes) -> bytes:
    return b'{"type":"text","text":%b}' % content


def _read_result(raw: bytes, block: ContentBlock) -> Message:
    content, call_id = bytes(block.content), as_text(block.tool_use_id)
    members = find_other_members(raw, {"type", "tool_use_id", "content"})
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
            caller = bytes(block.caller)
            written_calls.append(write_call(call, b',"caller":' + caller if caller != b"null" else b""))
        else:
            content_blocks.append(raw)
    answer = build_answer(content_blocks, calls, written_calls)
    if is_compacted:
        # The API reads a history from its last compaction on:
        # <https://platform.claude.com/docs/en/build-with-claude/compaction>.
        return replace(answer, is_fixed=True)
    return answer


def _change_answer(own_blocks: Sequence[bytes], message: Message) -> Sequence[bytes]:
    """Return the blocks of an answer that was changed: its new words, and the calls that are left.

    Members of a block that the chat message does not hold (a cache mark, unknown keys) stay.
    """
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
    """Write a message as blocks, without empty texts, which the API refuses."""
    if message.is_result:
        members = find_other_members(message.raw, {"role", "tool_call_id", "content", "name"})
        result = splice.quote(message.answers), message.content, members
        yield b'{"type":"tool_result","tool_use_id":%b,"content":%b%b}' % result
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


class WrittenBlocks(Struct, frozen=True):
    """The blocks as which one chat message is forwarded."""

    role: str
    container: int | None
    """The client's message that they came in, by its number; None if the proxy wrote them."""
    blocks: Sequence[bytes]
    is_result: bool
    is_unchanged: bool
    is_shortened: bool
    """The proxy shortened them, and not only by a step that changes messages as they arrive."""


def find_fold_ends(request: PiecedRequest, view: Sequence[Message], prefix_size: int) -> list[BlockPlace]:
    """Return the places for marks of the shortened part: most important first, none if nothing is shortened.

    The first is the end of the messages that the upstream has read before, of which the view has `prefix_size`. Then
    comes the end of the shortened part, and places before it in the distance over which the API looks back.
    """
    parts = request.write(view, partial(_write_blocks, request))
    places: list[BlockPlace] = []
    changed_end = shortened_end = 0
    for number, message_parts in enumerate(_group_parts(parts)):
        start = len(places)
        for part in message_parts:
            places += [(number, len(places) - start + block_number) for block_number in range(len(part.blocks))]
            if not part.is_unchanged:
                changed_end = len(places)
            if part.is_shortened:
                shortened_end = len(places)
    prefix_blocks = 0
    if prefix_size > request.head_size:
        prefix_blocks = sum(len(part.blocks) for part in parts[:prefix_size])
    end = shortened_end or changed_end
    if not end:
        return []
    ends = dict.fromkeys((prefix_blocks, *range(end, 0, -LOOK_BACK_BLOCKS)))
    return [places[block_end - 1] for block_end in ends if block_end]


def write_list(request: PiecedRequest, view: Sequence[Message]) -> Iterator[bytes]:
    """Write the view as the messages of the API."""
    for parts in _group_parts(request.write(view, partial(_write_blocks, request))):
        blocks: list[bytes] = []
        is_untouched = True
        for part in parts:
            blocks += part.blocks
            is_untouched = is_untouched and part.is_unchanged and part.container == parts[0].container
        container = parts[0].container
        if container is not None and is_untouched and len(blocks) == request.block_counts[container]:
            yield request.source[slice(*request.spans[container])]
        else:
            yield b'{"role":%b,"content":[%b]}' % (splice.quote(parts[0].role), b",".join(blocks))


def _write_blocks(request: PiecedRequest, message: Message) -> WrittenBlocks:
    piece, is_unchanged = request.find_origin(message)
    blocks: Sequence[bytes] = ()
    if not is_unchanged:
        # Of a changed message, only the bytes are up to date.
        changed_message = read_message(json.loads(message.raw), message.raw)
        if piece is not None and message.role == "assistant" and piece.blocks:
            blocks = _change_answer(piece.blocks, changed_message)
        else:
            blocks = list(_iterate_blocks(changed_message))
    elif piece is not None:  # else it is the system prompt, which is not in the list
        blocks = piece.blocks
    role, container = message.role, None
    if piece is not None:
        role, container = piece.role, piece.container
    elif message.is_result:
        role = "user"
    # These steps change messages as they arrive, which are still to be shortened.
    is_shortened = not is_unchanged and message.made not in {"", "strip_reasoning", "clip_output", "dedup_arrivals"}
    return WrittenBlocks(role, container, blocks, message.is_result, is_unchanged, is_shortened)


def _group_parts(parts: Iterable[WrittenBlocks]) -> list[list[WrittenBlocks]]:
    """Group the parts by the messages in which they are forwarded, in the order of these."""
    groups: list[list[WrittenBlocks]] = []
    system_groups: list[list[WrittenBlocks]] = []
    """System messages that wait for the next answer, before which they leave."""
    last_part: WrittenBlocks | None = None
    for part in parts:
        if not part.blocks:
            continue
        role_groups = system_groups if part.role == "system" else groups
        if last_part is not None and _belong_together(last_part, part):
            role_groups[-1].append(part)
        else:
            if part.role == "assistant":
                groups += system_groups
                system_groups.clear()
            role_groups.append([part])
        last_part = part
    return groups + system_groups


def _belong_together(part: WrittenBlocks, next_part: WrittenBlocks) -> bool:
    """Return True if both parts are forwarded in one message."""
    if next_part.role != part.role:
        return False
    if part.container is None or next_part.container is None:
        return next_part.role == "user"
    if next_part.container == part.container or (part.is_result and next_part.is_result):
        return True
    return next_part.role == "user" and next_part.container != part.container + 1
