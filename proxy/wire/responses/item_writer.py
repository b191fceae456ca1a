"""Writes a view of chat messages as the items of a request: the client's own for each message that is unchanged."""

import json
from collections.abc import Iterator, Sequence

from proxy.history import splice
from proxy.history.messages import Message, ToolCall, read_message
from proxy.wire.pieces import Piece, PiecedRequest
from proxy.wire.responses.call_items import ACTIONS, CALLS, is_call, write_output
from proxy.wire.responses.items import NAMED_BY, decode_item


def write_items(request: PiecedRequest, view: Sequence[Message]) -> Iterator[bytes]:
    """The items of this view; those of one message in one piece."""
    head, body = view[: request.head_size], view[request.head_size :]

    def write(messages: Sequence[Message]) -> Iterator[bytes]:
        for message in messages:
            yield b",".join(_write_message(request, message))

    def write_new(fields: Sequence[bytes]) -> Iterator[bytes]:
        return write(body[len(fields) :])

    return filter(None, (*write(head), *request.columns.find_view(body).extend("written", len(body), write_new)))


def _write_message(request: PiecedRequest, message: Message) -> Sequence[bytes]:
    """The items of this chat message."""
    piece, is_unchanged = request.find_origin(message)
    if is_unchanged:
        return piece.blocks if piece is not None else ()
    if message.made == "repair":
        return [_write_missing_output(request, message)]
    # A changed message is read from its bytes: what was read of it before (a redacted call, say) is outdated.
    changed_message = read_message(json.loads(message.raw), message.raw)
    if piece is not None and message.role == "assistant":
        return list(_change_response(piece, changed_message))
    if piece is not None and message.role in ("system", "developer") and message.content[:1] == b"[":
        return piece.blocks
    return _write_new_items(changed_message)


def _write_new_items(message: Message) -> Sequence[bytes]:
    if message.is_result:
        return [_write_output(message)]
    if message.role == "assistant" and not message.text.strip():
        return []
    return [_write_text(message)]


def _write_missing_output(request: PiecedRequest, message: Message) -> bytes:
    """The output that `history.grouping.repair` adds after the message that calls."""
    place = request.head_size + message.start - 1
    if 0 <= place < len(request.pieces):
        piece = request.pieces[place]
        if piece is not None:
            for item in map(decode_item, piece.blocks):
                if is_call(item.type) and item.pairing_id == message.answers:
                    return write_output(item.type, message.answers, message.text)
    return write_output("function_call", message.answers, message.text)


def _write_output(message: Message) -> bytes:
    """The output item of a result, with the members that it came with."""
    read_here = {"role", "tool_call_id", "content", "name", "outcome", NAMED_BY}
    members = splice.remove_members(message.raw, read_here)[1:-1].strip()
    kind, name, comma = b"", b"", b""
    if b'"type"' not in members:
        kind = b'"type":"function_call_output",'
    if members:
        comma = b","
    if splice.find_member(message.raw, NAMED_BY) is None and splice.find_member(message.raw, "call_id") is None:
        name = b'"call_id":%b,' % splice.quote(message.answers)
    content = _as_input(message.content)
    outcome = splice.find_member(message.raw, "outcome")
    if outcome is not None:  # a shell's: all is the output of one command
        fields = splice.quote(message.text), message.raw[outcome.start : outcome.stop]
        content = b'[{"stdout":%b,"stderr":"","outcome":%b}]' % fields
    return b'{%b%b%b%b"output":%b}' % (kind, members, comma, name, content)


def _change_response(piece: Piece, message: Message) -> Iterator[bytes]:
    """The items of a response, with the calls that are left in the message."""
    calls = {call.id: call for call in message.calls}
    for raw in piece.blocks:
        item = decode_item(raw)
        call = calls.get(item.pairing_id)
        if item.type == "reasoning":
            # With an id it stays: the API refuses the items that name it without it.
            if item.id is not None or raw in message.content:
                yield raw
        elif item.type in CALLS:
            if call is not None:
                yield _change_call(raw, CALLS[item.type], item.input or item.arguments, call)
        elif item.type not in ACTIONS or call is not None:
            yield raw


def _change_call(raw: bytes, member: str, arguments: str, call: ToolCall) -> bytes:
    place = splice.find_member(raw, member)
    if place is None or call.arguments == arguments:
        return raw
    return splice.replace_bytes(raw, place.start, place.stop, splice.quote(call.arguments))


def _write_text(message: Message) -> bytes:
    content = message.content
    if content[:1] == b'"':
        kind = b"output_text" if message.role == "assistant" else b"input_text"
        content = b'[{"type":"%b","text":%b}]' % (kind, content)
    elif message.role != "assistant":
        content = _as_input(content)
    return b'{"type":"message","role":%b,"content":%b}' % (splice.quote(message.role), content)


def _as_input(content: bytes) -> bytes:
    """Parts of chat completions as parts of this API."""
    if content[:1] != b"[" or b'"text"' not in content:
        return content
    return splice.replace_elements(content, 0, _as_input_part)


def _as_input_part(part: bytes) -> bytes:
    kind = splice.find_member(part, "type")
    if kind is None or part[kind.start : kind.stop] != b'"text"':
        return part
    return splice.replace_bytes(part, kind.start, kind.stop, b'"input_text"')
