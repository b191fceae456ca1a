"""Items of Responses, read as the chat messages that say the same.

    reasoning, message, function_call (one response of the model)  ->  one message of the assistant
    function_call_output                                           ->  one message of a tool

Each chat message remembers the items that it came from (`Piece`).
<https://platform.openai.com/docs/api-reference/responses/create>
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from proxy.history import splice
from proxy.history.messages import Message, ToolCall
from proxy.wire.lenient import as_text
from proxy.wire.pieces import Piece
from proxy.wire.responses.call_items import ACTIONS, CALLS, LOCAL_SHELL, OUTPUTS, SHELL_OUTPUT, is_call
from proxy.wire.struct_reader import TextFields, build_reader

_NULL = msgspec.Raw(b"null")
ANSWER_TYPES = frozenset(
    {
        "reasoning",
        "web_search_call",
        "file_search_call",
        "code_interpreter_call",
        "image_generation_call",
        "mcp_call",
        "mcp_list_tools",
    }
)
"""Items that a model makes, apart from messages and calls. An unknown item stays where it is."""
_CLIENT_ENDINGS = ("_output", "_response")
"""The types of items by which a client answers end so."""
NAMED_BY = "named_by"
"""A member that a result gets here if its item names the call by this member and has no `call_id`."""
_TEXT_PART = b'{"type":"text","text":%b}'


class Item(TextFields):
    """One item. In an item of another type, a member may be of another kind."""

    TEXTS = ("role", "call_id", "name", "arguments", "input")
    type: str = "message"
    id: Any = None
    role: Any = ""
    content: msgspec.Raw = _NULL
    call_id: Any = ""
    name: Any = ""
    arguments: Any = ""
    input: Any = ""
    output: msgspec.Raw = _NULL
    action: msgspec.Raw = _NULL
    operation: msgspec.Raw = _NULL

    @property
    def pairing_id(self) -> str:
        """The id that pairs a call with its output. The output of a local shell has the id of its call as its `id`."""
        return self.call_id or as_text(self.id)


decode_item = build_reader(Item)


def as_user_item(text: bytes) -> bytes:
    """The item that the API reads from an input that is only a text."""
    return b'{"type":"message","role":"user","content":%b}' % text


def read_items(
    items: Sequence[bytes], first: int, known_pieces: Sequence[Piece | None]
) -> Iterator[tuple[Message, Piece]]:
    """The chat messages of these items, the first of which has this number in the client's list.

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
        yield _read_item(raw, item, calls), Piece(number, item.role, (raw,))
    yield from _read_response(response, first + len(items), len(response))


def _read_response(response: Sequence[tuple[bytes, Item]], stop: int, needed: int) -> Iterator[tuple[Message, Piece]]:
    """The messages of these items of one response, the last of which stands before `stop`.

    The items from `needed` on are a message of their own that is never shortened, because the next item needs them.
    """
    removable, fixed_items = response[:needed], response[needed:]
    if removable:
        piece = Piece(stop - len(fixed_items) - 1, "assistant", tuple(raw for raw, _ in removable))
        yield _read_answer(removable), piece
    if fixed_items:
        piece = Piece(stop - 1, "assistant", tuple(raw for raw, _ in fixed_items))
        yield replace(_read_answer(fixed_items), is_fixed=True), piece


def _find_needed(response: Sequence[tuple[bytes, Item]], next_item: Item) -> int:
    """The place in the response from which on items stay because the next item stays.

    The API refuses an item without the reasoning of its response, and reasoning without the item after it:
    <https://platform.openai.com/docs/guides/reasoning#keeping-reasoning-items-in-context>.
    """
    types = [item.type for _, item in response]
    place = len(types)
    if next_item.role or next_item.type in OUTPUTS:
        return place
    if not next_item.type.endswith(_CLIENT_ENDINGS) and "reasoning" in types:
        return types.index("reasoning")
    while place and types[place - 1] == "reasoning":
        place -= 1
    return place


class _CallIndex:
    """The ids of the calls so far, by each name that outputs may use for them.

    In the public schema the output of a local shell has only an `id`, and a call of one has an `id` and a `call_id`.
    Clients and servers do not agree on which of the two is meant.
    """

    def __init__(self, known_pieces: Sequence[Piece | None]) -> None:
        self._known_pieces = reversed(known_pieces)
        """Read when a name is not found among the new items, the newest first: hardly any output needs it."""
        self._pairing_ids: dict[str, str] = {}

    def add(self, item: Item) -> None:
        """Add a call, the newest so far."""
        self._pairing_ids.update((name, item.pairing_id) for name in self._list_names(item))

    def find(self, name: str) -> str:
        """The pairing id of the newest call of this name; the name itself if there is none."""
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
        if item.type == LOCAL_SHELL:
            yield as_text(item.id)
        if is_call(item.type):
            yield item.pairing_id


def _read_item(raw: bytes, item: Item, calls: _CallIndex) -> Message:
    """The message of an item that is not the model's."""
    if item.type in OUTPUTS:
        return _read_output(raw, item, calls.find(item.pairing_id))
    if item.type == "message" and item.role:
        content = bytes(item.content)
        return Message(b'{"role":%b,"content":%b}' % (splice.quote(item.role), content), item.role, content)
    # The conversation depends on this item, or it is unknown: nothing folds an instruction.
    content = b"[" + raw + b"]"
    return Message(b'{"role":"developer","content":%b}' % content, "developer", content)


def _read_output(raw: bytes, item: Item, call_id: str) -> Message:
    removed_keys = {"output"}
    if item.call_id == call_id:
        removed_keys.add("call_id")  # one that names the call in another way stays as it came
    members = splice.remove_members(raw, removed_keys)[1:-1].strip()
    content = bytes(item.output)
    if item.type == SHELL_OUTPUT:
        content, outcome = _read_shell_output(content)
        members += b',"outcome":' + outcome
    if not item.call_id and call_id:
        members += b',"%b":"id"' % NAMED_BY.encode()
    template = b'{"role":"tool","tool_call_id":%b,"content":%b,%b}' % (splice.quote(call_id), content, members)
    return Message(template, "tool", content, answers=call_id)


def _read_shell_output(output: bytes) -> tuple[bytes, bytes]:
    """The output of several commands as parts of text, and how the last command ended."""
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


def _read_answer(items: Sequence[tuple[bytes, Item]]) -> Message:
    """One message of the assistant with the texts and calls of these items."""
    parts: list[bytes] = []
    calls: list[ToolCall] = []
    for raw, item in items:
        if item.type in CALLS or item.type in ACTIONS:
            calls.append(_read_call(item))
        elif item.type == "message":
            parts += _read_parts(bytes(item.content))
        else:
            parts.append(raw)
    content, tool_calls = b"null", b""
    if parts:
        content = b"[" + b",".join(parts) + b"]"
    if calls:
        tool_calls = b',"tool_calls":[%b]' % b",".join(map(_write_call, calls))
    raw = b'{"role":"assistant","content":%b%b}' % (content, tool_calls)
    return Message(raw, "assistant", content, tuple(calls))


def _read_call(item: Item) -> ToolCall:
    if item.type == "custom_tool_call":
        return ToolCall(item.pairing_id, item.name, item.input, "custom")
    if item.type in CALLS:
        return ToolCall(item.pairing_id, item.name, item.arguments)
    action = item.action
    if item.type == "apply_patch_call":
        action = item.operation
    return ToolCall(item.pairing_id, item.type.removesuffix("_call"), bytes(action).decode())


def _read_parts(content: bytes) -> list[bytes]:
    if content[:1] == b'"':
        return [_TEXT_PART % content]
    if content[:1] == b"[":
        return [content[start:stop] for start, stop in splice.iterate_elements(content)]
    return []


def _write_call(call: ToolCall) -> bytes:
    """The call as chat completions have it."""
    kind, member = b"function", b"arguments"
    if call.kind == "custom":
        kind, member = b"custom", b"input"
    fields = splice.quote(call.id), kind, kind, splice.quote(call.name), member, splice.quote(call.arguments)
    return b'{"id":%b,"type":"%b","%b":{"name":%b,"%b":%b}}' % fields
