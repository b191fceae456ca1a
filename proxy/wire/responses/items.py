"""Items of Responses as the chat messages that say the same, and chat messages as the items of a request.

    reasoning, message, function_call (one response of the model)  ->  one message of the assistant
    function_call_output                                           ->  one message of a tool

Each kind of call has its own kind of output, and the API refuses any other.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from proxy.history import splice
from proxy.history.messages import Message, read_message
from proxy.tools.tool_call import ToolCall
from proxy.wire.json_body import NULL, as_text, build_reader, read_elements
from proxy.wire.pieces import Piece, PiecedRequest, build_answer, write_call

CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
"""The member of each call that holds the model's text."""
ACTIONS = {"local_shell_call": "action", "shell_call": "action", "apply_patch_call": "operation"}
"""The member of each call of a tool that the API defines: an object, left as it is."""
OUTPUTS = frozenset({f"{call}_output" for call in (*CALLS, *ACTIONS)})


def is_call(kind: str) -> bool:
    return kind in CALLS or kind in ACTIONS


def write_output(call: str, id_: str, text: str) -> bytes:
    """Write the output of a call that has not come to an end."""
    quoted_id, output = splice.quote(id_), splice.quote(text)
    if call == "local_shell_call":  # it names its call by `id`, and has no `call_id`
        return b'{"type":"local_shell_call_output","id":%b,"output":%b}' % (quoted_id, output)
    other_members = b""
    if call == "shell_call":
        output = b"[" + json.dumps({"stdout": text, "stderr": "", "outcome": {"type": "timeout"}}).encode() + b"]"
    elif call == "apply_patch_call":
        other_members = b',"status":"failed"'
    kind = call if is_call(call) else "function_call"
    return b'{"type":"%b_output","call_id":%b,"output":%b%b}' % (kind.encode(), quoted_id, output, other_members)


ANSWER_TYPES = frozenset(
    {"reasoning", "mcp_list_tools", "web_search_call", "file_search_call", "code_interpreter_call"}
    | {"image_generation_call", "mcp_call"}
)
"""The other types of items that a model makes. An item of an unknown type keeps its place."""
NAMED_BY = "named_by"
"""Marks a result whose item names its call by `id` and has no `call_id`."""
_TEXT_PART = b'{"type":"text","text":%b}'


class Item(msgspec.Struct):
    """The members that items may have. Those of type `Any` are texts in most items, and other values in some."""

    type: str = "message"
    id: Any = None
    role: Any = ""
    content: msgspec.Raw = NULL
    call_id: Any = ""
    name: Any = ""
    arguments: Any = ""
    input: Any = ""
    output: msgspec.Raw = NULL
    action: msgspec.Raw = NULL
    operation: msgspec.Raw = NULL

    @property
    def pairing_id(self) -> str:
        """The id by which calls and outputs are paired. A local shell's output has that of its call as its `id`."""
        return as_text(self.call_id) or as_text(self.id)


decode_item = build_reader(Item)


def as_user_item(text: bytes) -> bytes:
    """Return the message that the API reads from an input that is only a text."""
    return b'{"type":"message","role":"user","content":%b}' % text


def read_items(
    items: Sequence[bytes], first: int, known_pieces: Sequence[Piece | None]
) -> Iterator[tuple[Message, Piece]]:
    """Read items of the client's list, in which the first has the number `first`.

    Consecutive items of the model are one response.
    """
    calls = _CallIndex(known_pieces)
    response: list[tuple[bytes, Item]] = []
    for number, raw in enumerate(items, first):
        item = decode_item(raw)
        is_message_of_model = item.type == "message" and item.role == "assistant"
        if is_message_of_model or is_call(item.type) or item.type in ANSWER_TYPES:
            response.append((raw, item))
            calls.add(item)
            continue
        yield from _read_response(response, number, _find_needed(response, item))
        response = []
        yield _read_item(raw, item, calls), Piece(number, as_text(item.role), (raw,))
    yield from _read_response(response, first + len(items), len(response))


def _read_response(
    response: Sequence[tuple[bytes, Item]], stop: int, removable_count: int
) -> Iterator[tuple[Message, Piece]]:
    """Read the items of a response. Those after `removable_count` are never shortened: the next item needs them."""
    removable, fixed_items = response[:removable_count], response[removable_count:]
    if removable:
        yield _read_answer(removable, stop - len(fixed_items))
    if fixed_items:
        message, piece = _read_answer(fixed_items, stop)
        yield replace(message, is_fixed=True), piece


def _find_needed(response: Sequence[tuple[bytes, Item]], next_item: Item) -> int:
    """Return the number of items before those that the next item needs.

    The API refuses an item without the reasoning of its response, and reasoning without the item after it:
    <https://platform.openai.com/docs/guides/reasoning#keeping-reasoning-items-in-context>.
    """
    types = [item.type for _, item in response]
    place = len(types)
    if as_text(next_item.role) or next_item.type in OUTPUTS:
        return place
    is_of_client = next_item.type.endswith(("_output", "_response", "_trigger"))
    if not is_of_client and "reasoning" in types:
        return types.index("reasoning")
    while place and types[place - 1] == "reasoning":
        place -= 1
    return place


class _CallIndex:
    """Finds the call that an output names: clients name a local shell's call by either of its two ids."""

    def __init__(self, known_pieces: Sequence[Piece | None]) -> None:
        self._known_pieces = reversed(known_pieces)
        """Read back from the newest when an output needs them, which is rare."""
        self._pairing_ids: dict[str, str] = {}

    def add(self, item: Item) -> None:
        for name in self._list_names(item):
            self._pairing_ids[name] = item.pairing_id

    def find(self, name: str) -> str:
        """Return the pairing id of the newest call of this name; the name itself if there is none."""
        if not name or name in self._pairing_ids:
            return self._pairing_ids.get(name, name)
        for piece in self._known_pieces:
            if piece is None:
                continue
            for raw in reversed(piece.blocks):
                item = decode_item(raw)
                for known_name in self._list_names(item):
                    self._pairing_ids.setdefault(known_name, item.pairing_id)
            if name in self._pairing_ids:
                return self._pairing_ids[name]
        return name

    @staticmethod
    def _list_names(item: Item) -> Iterator[str]:
        if item.type == "local_shell_call":
            yield as_text(item.id)
        if is_call(item.type):
            yield item.pairing_id


def _read_item(raw: bytes, item: Item, calls: _CallIndex) -> Message:
    if item.type in OUTPUTS:
        return _read_output(raw, item, calls.find(item.pairing_id))
    role = as_text(item.role)
    if item.type == "message" and role:
        content = bytes(item.content)
        return Message.of(b'{"role":%b,"content":%b}' % (splice.quote(role), content), role, content)
    # An unknown item is kept whole, as an instruction is.
    content = b"[" + raw + b"]"
    return Message.of(b'{"role":"developer","content":%b}' % content, "developer", content)


def _read_output(raw: bytes, item: Item, call_id: str) -> Message:
    removed_keys = {"output"}
    own_id = as_text(item.call_id)
    if own_id == call_id:
        removed_keys.add("call_id")  # another id stays as it came
    members = splice.remove_members(raw, removed_keys)[1:-1].strip()
    content = bytes(item.output)
    if item.type == "shell_call_output":
        content, outcome = _read_shell_output(content)
        members += b',"outcome":' + outcome
    if not own_id and call_id:
        members += b',"%b":"id"' % NAMED_BY.encode()
    template = b'{"role":"tool","tool_call_id":%b,"content":%b,%b}' % (splice.quote(call_id), content, members)
    return Message.of(template, "tool", content, answers=call_id)


def _read_shell_output(output: bytes) -> tuple[bytes, bytes]:
    """Return a part of text for each command, and how the last one ended."""
    commands = json.loads(output)
    if not isinstance(commands, list):
        commands = []
    parts: list[bytes] = []
    outcome: object = None
    for command in commands:
        if isinstance(command, dict):
            outcome = command.get("outcome")
            for name in ("stdout", "stderr"):
                text = command.get(name)
                if isinstance(text, str) and text:
                    parts.append(_TEXT_PART % splice.quote(text))
    return b"[" + b",".join(parts) + b"]", json.dumps(outcome or {"type": "exit", "exit_code": 0}).encode()


def _read_answer(items: Sequence[tuple[bytes, Item]], stop: int) -> tuple[Message, Piece]:
    blocks: list[bytes] = []
    parts: list[bytes] = []
    calls: list[ToolCall] = []
    for raw, item in items:
        blocks.append(raw)
        if is_call(item.type):
            calls.append(read_call(item))
        elif item.type == "message":
            content = bytes(item.content)
            if content[:1] == b'"':
                parts.append(_TEXT_PART % content)
            elif content[:1] == b"[":
                parts += read_elements(content)
        else:
            parts.append(raw)
    message = build_answer(parts, calls, list(map(write_call, calls)))
    return message, Piece(stop - 1, "assistant", tuple(blocks))


def read_call(item: Item) -> ToolCall:
    if item.type == "custom_tool_call":
        return ToolCall(item.pairing_id, as_text(item.name), as_text(item.input), "custom")
    if item.type in CALLS:
        return ToolCall(item.pairing_id, as_text(item.name), as_text(item.arguments))
    action = item.operation if item.type == "apply_patch_call" else item.action
    return ToolCall(item.pairing_id, item.type.removesuffix("_call"), bytes(action).decode())


def write_items(request: PiecedRequest, view: Sequence[Message]) -> list[bytes]:
    """Write the items of each message of a view."""

    def write(message: Message) -> bytes:
        return b",".join(_write_message(request, message))

    return [items for items in request.write(view, write) if items]


def _write_message(request: PiecedRequest, message: Message) -> Sequence[bytes]:
    piece, is_unchanged = request.find_origin(message)
    if is_unchanged:
        return piece.blocks if piece is not None else ()
    if message.made == "repair":
        return [_write_missing_output(request, message)]
    # Of a changed message, only the bytes are up to date.
    changed_message = read_message(json.loads(message.raw), message.raw)
    if piece is not None and message.role == "assistant":
        return list(_change_response(piece, changed_message))
    if piece is not None and message.role in ("system", "developer") and message.has_parts:
        return piece.blocks
    if changed_message.is_result:
        return [_write_output(changed_message)]
    is_empty = message.role == "assistant" and not changed_message.text.strip()
    return [] if is_empty else [_write_text(changed_message)]


def _write_missing_output(request: PiecedRequest, message: Message) -> bytes:
    """Write the output that `repair` added after the message that calls."""
    place = request.head_size + message.start - 1
    if 0 <= place < len(request.pieces):
        piece = request.pieces[place]
        if piece is not None:
            for item in map(decode_item, piece.blocks):
                if is_call(item.type) and item.pairing_id == message.answers:
                    return write_output(item.type, message.answers, message.text)
    return write_output("function_call", message.answers, message.text)


def _write_output(message: Message) -> bytes:
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
    if outcome is not None:  # of a shell: the whole text becomes the output of one command
        fields = splice.quote(message.text), message.raw[outcome.start : outcome.stop]
        content = b'[{"stdout":%b,"stderr":"","outcome":%b}]' % fields
    return b'{%b%b%b%b"output":%b}' % (kind, members, comma, name, content)


def _change_response(piece: Piece, message: Message) -> Iterator[bytes]:
    calls = {call.id: call for call in message.calls}
    for raw in piece.blocks:
        item = decode_item(raw)
        call = calls.get(item.pairing_id)
        if item.type == "reasoning":
            # Reasoning with an id stays: the API refuses the items that name it if it is missing.
            if item.id is not None or raw in message.content:
                yield raw
        elif item.type in CALLS:
            if call is not None and call.arguments == (as_text(item.input) or as_text(item.arguments)):
                yield raw
            elif call is not None:
                yield splice.set_members(raw, {CALLS[item.type]: splice.quote(call.arguments)})
        elif item.type not in ACTIONS or call is not None:
            yield raw


def _write_text(message: Message) -> bytes:
    content = message.content
    if content[:1] == b'"':
        kind = b"output_text" if message.role == "assistant" else b"input_text"
        content = b'[{"type":"%b","text":%b}]' % (kind, content)
    elif message.role != "assistant":
        content = _as_input(content)
    return b'{"type":"message","role":%b,"content":%b}' % (splice.quote(message.role), content)


def _as_input(content: bytes) -> bytes:
    if content[:1] != b"[" or b'"text"' not in content:
        return content

    def name_as_input(part: bytes) -> bytes:
        kind = splice.find_member(part, "type")
        if kind is None or part[kind.start : kind.stop] != b'"text"':
            return part
        return splice.replace_bytes(part, kind.start, kind.stop, b'"input_text"')

    return splice.replace_elements(content, 0, name_as_input)
