"""Content blocks of Messages: a message of this API as the chat messages that say the same, and back.

    {"role": "user", "content": [{"type": "tool_result", ...}, {"type": "text", ...}]}
    ->  {"role": "tool", ...}, {"role": "user", ...}

Each chat message remembers the blocks that it came from (`Piece`), and an untouched one leaves in their bytes.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from proxy.history import splice
from proxy.history.messages import Message, ToolCall, read_message
from proxy.wire.lenient import as_text
from proxy.wire.outline import read_elements
from proxy.wire.pieces import Piece, TextFields, build_reader

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
    """The chat messages that one message of this API is: each tool result by itself, then what else it holds."""
    fields = decode_message(container)
    role, content = fields.role, bytes(fields.content)
    if content[:1] != b"[":
        raw = b'{"role":%b,"content":%b}' % (splice.quote(role), content)
        yield Message(raw, role, content), Piece(number, role, (_text_block(content),))
        return
    blocks = [(raw, decode_block(raw)) for raw in read_elements(content)]
    if role == "assistant":
        yield _read_assistant(blocks), Piece(number, role, tuple(raw for raw, _ in blocks))
        return
    words: list[bytes] = []
    for raw, block in blocks:
        if block.type == "tool_result":
            yield _read_result(raw, block), Piece(number, role, (raw,))
        else:
            words.append(raw)
    if words or not blocks:
        content = b"[" + b",".join(words) + b"]"
        yield (
            Message(b'{"role":%b,"content":%b}' % (splice.quote(role), content), role, content),
            Piece(number, role, tuple(words)),
        )


def _text_block(content: bytes) -> bytes:
    return b'{"type":"text","text":%b}' % content


def _read_result(raw: bytes, block: Block) -> Message:
    content, id_ = bytes(block.content), block.tool_use_id
    more = splice.remove_members(raw, frozenset({"type", "tool_use_id", "content"}))[1:-1].strip()
    written = b'{"role":"tool","tool_call_id":%b,"content":%b%b%b}'
    return Message(written % (splice.quote(id_), content, b"," if more else b"", more), "tool", content, answers=id_)


def _read_assistant(blocks: Iterable[tuple[bytes, Block]]) -> Message:
    content_blocks: list[bytes] = []
    calls: list[ToolCall] = []
    callers: list[bytes] = []
    for raw, block in blocks:
        if block.type == "tool_use":
            calls.append(ToolCall(block.id, block.name, bytes(block.input).decode()))
            callers.append(bytes(block.caller))
        else:
            content_blocks.append(raw)
    content = b"[" + b",".join(content_blocks) + b"]" if content_blocks else b"null"
    written = b",".join(map(_write_call, calls, callers))
    raw = b'{"role":"assistant","content":%b%b}' % (content, b',"tool_calls":[%b]' % written if calls else b"")
    return Message(raw, "assistant", content, tuple(calls))


def _write_call(call: ToolCall, caller: bytes) -> bytes:
    return b'{"id":%b,"type":"function","function":{"name":%b,"arguments":%b}%b}' % (
        splice.quote(call.id),
        splice.quote(call.name),
        splice.quote(call.arguments),
        b"" if caller == b"null" else b',"caller":' + caller,
    )


def write_blocks(raw: bytes) -> tuple[bytes, ...]:
    return tuple(_blocks(read_message(json.loads(raw), raw)))


def change_answer(own: Sequence[bytes], raw: bytes) -> tuple[bytes, ...]:
    """The blocks of an answer that are left in this chat message, in their order; words that were changed come first.

    What the chat message does not hold of a call (a caller, a cache mark, keys that are not known) stays in its block.
    """
    message = read_message(json.loads(raw), raw)
    calls = {call.id: call for call in message.calls}
    words = [*_blocks(replace(message, calls=()))]
    are_own = all(word in own for word in words)
    kept = [] if are_own else words
    for block in own:
        found = decode_block(block)
        if found.type != "tool_use":
            kept += [block] if are_own and block in words else []
        elif found.id in calls:
            kept.append(_change_input(block, calls[found.id]))
    return tuple(kept)


def _change_input(block: bytes, call: ToolCall) -> bytes:
    place = splice.find_member(block, "input")
    if place is None or block[place.start : place.stop].decode() == call.arguments:
        return block
    return splice.replace_bytes(block, place.start, place.stop, _write_input(call))


def _blocks(message: Message) -> Iterator[bytes]:
    """The content blocks that say what this chat message says. No text is empty: the API refuses that."""
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
        names = splice.quote(call.id), splice.quote(call.name)
        yield b'{"type":"tool_use","id":%b,"name":%b,"input":%b}' % (*names, _write_input(call))


def _write_input(call: ToolCall) -> bytes:
    return call.arguments.encode("utf-8", "surrogatepass") if isinstance(call.value, dict) else b"{}"


def _write_result(message: Message) -> bytes:
    more = splice.remove_members(message.raw, frozenset({"role", "tool_call_id", "content", "name"}))[1:-1].strip()
    written = b'{"type":"tool_result","tool_use_id":%b,"content":%b%b%b}'
    return written % (splice.quote(message.answers), message.content, b"," if more else b"", more)
