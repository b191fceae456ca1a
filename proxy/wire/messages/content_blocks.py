"""Content blocks of Messages: a message of this API as the chat messages that say the same, and back.

    {"role": "user", "content": [{"type": "tool_result", ...}, {"type": "text", ...}]}
    ->  {"role": "tool", ...}, {"role": "user", ...}

Each chat message remembers the blocks that it came from (`Piece`), and an untouched one leaves in their bytes.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from proxy.history import splice
from proxy.history.messages import Message, ToolCall, read_message
from proxy.wire.lenient import as_text
from proxy.wire.outline import read_elements
from proxy.wire.pieces import Piece
from proxy.wire.struct_reader import TextFields, build_reader

_NULL = msgspec.Raw(b"null")


class _MessageFields(msgspec.Struct):
    role: str
    content: msgspec.Raw = _NULL


class Block(TextFields):
    """One block. In a block of another type, a member may be of another kind."""

    TEXTS = ("id", "name", "tool_use_id")
    type: str = ""
    id: Any = ""
    name: Any = ""
    input: msgspec.Raw = _NULL
    tool_use_id: Any = ""
    content: msgspec.Raw = _NULL
    caller: msgspec.Raw = _NULL


decode_message = build_reader(_MessageFields)
decode_block = build_reader(Block)


def split_messages(
    containers: Sequence[bytes], first: int, _known_pieces: Sequence[Piece | None], /
) -> Iterator[tuple[Message, Piece]]:
    """The chat messages that these messages are, the first of which has this number in the client's list."""
    for number, container in enumerate(containers, first):
        yield from _split(container, number)


def _split(container: bytes, number: int) -> Iterator[tuple[Message, Piece]]:
    """The chat messages of one message of this API: each tool result by itself, then its other blocks."""
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
    return Message(b'{"role":%b,"content":%b}' % (splice.quote(role), content), role, content)


def _text_block(content: bytes) -> bytes:
    return b'{"type":"text","text":%b}' % content


def _read_result(raw: bytes, block: Block) -> Message:
    content, call_id = bytes(block.content), block.tool_use_id
    members = splice.remove_members(raw, frozenset({"type", "tool_use_id", "content"}))[1:-1].strip()
    if members:
        members = b"," + members
    template = b'{"role":"tool","tool_call_id":%b,"content":%b%b}' % (splice.quote(call_id), content, members)
    return Message(template, "tool", content, answers=call_id)


def _read_assistant(raw_blocks: Sequence[bytes]) -> Message:
    content_blocks: list[bytes] = []
    calls: list[ToolCall] = []
    written_calls: list[bytes] = []
    for raw in raw_blocks:
        block = decode_block(raw)
        if block.type == "tool_use":
            call = ToolCall(block.id, block.name, bytes(block.input).decode())
            calls.append(call)
            written_calls.append(_write_call(call, bytes(block.caller)))
        else:
            content_blocks.append(raw)
    content, tool_calls = b"null", b""
    if content_blocks:
        content = b"[" + b",".join(content_blocks) + b"]"
    if calls:
        tool_calls = b',"tool_calls":[%b]' % b",".join(written_calls)
    return Message(b'{"role":"assistant","content":%b%b}' % (content, tool_calls), "assistant", content, tuple(calls))


def _write_call(call: ToolCall, caller: bytes) -> bytes:
    """The call as chat completions have it."""
    member = b""
    if caller != b"null":
        member = b',"caller":' + caller
    fields = splice.quote(call.id), splice.quote(call.name), splice.quote(call.arguments), member
    return b'{"id":%b,"type":"function","function":{"name":%b,"arguments":%b}%b}' % fields


def write_blocks(raw: bytes) -> tuple[bytes, ...]:
    """The content blocks of this chat message."""
    return tuple(_iterate_blocks(read_message(json.loads(raw), raw)))


def change_answer(own_blocks: Sequence[bytes], raw: bytes) -> tuple[bytes, ...]:
    """The blocks of an answer that are left in this chat message, in their order; changed words come first.

    What the chat message does not hold of a call (a caller, a cache mark, unknown keys) stays in its block.
    """
    message = read_message(json.loads(raw), raw)
    calls = {call.id: call for call in message.calls}
    words = list(_iterate_blocks(replace(message, calls=())))
    are_own = all(word in own_blocks for word in words)
    blocks: list[bytes] = []
    if not are_own:
        blocks += words
    for own_block in own_blocks:
        block = decode_block(own_block)
        if block.type == "tool_use":
            if block.id in calls:
                blocks.append(_change_input(own_block, calls[block.id]))
        elif are_own and own_block in words:
            blocks.append(own_block)
    return tuple(blocks)


def _change_input(block: bytes, call: ToolCall) -> bytes:
    member = splice.find_member(block, "input")
    if member is None or block[member.start : member.stop].decode() == call.arguments:
        return block
    return splice.replace_bytes(block, member.start, member.stop, _write_input(call))


def _iterate_blocks(message: Message) -> Iterator[bytes]:
    """The content blocks of this chat message. No text is empty: the API refuses that."""
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
