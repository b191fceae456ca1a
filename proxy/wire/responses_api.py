"""OpenAI Responses: items as the chat messages that say the same, and chat messages as the items of a request.

    reasoning, message, function_call (one response of the model)  ->  one message of the assistant
    function_call_output                                           ->  one message of a tool

Each kind of call has its own kind of output, and the API refuses any other.

Requests: <https://platform.openai.com/docs/api-reference/responses/create>.
Answers: <https://platform.openai.com/docs/api-reference/responses-streaming>.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import starmap
from typing import Any

import msgspec
from msgspec import to_builtins
from msgspec.structs import replace

from proxy.foundation.errors import to_json
from proxy.history import splice
from proxy.history.messages import Message, as_name, is_different, read_message
from proxy.history.request import Request
from proxy.recall import RECALL
from proxy.shorten.block import Reason
from proxy.tools.tool_call import ToolCall
from proxy.wire.api_format import (
    Round,
    Rounds,
    Try,
    add_usage,
    make_call,
    make_chunk,
    write_completion,
    write_elements,
)
from proxy.wire.event_streams import StreamForm, has_name, read_event, write_bare_error, write_event, write_named_events
from proxy.wire.http_head import ApiPath, Headers
from proxy.wire.json_body import (
    NULL,
    UNREADABLE,
    Places,
    Prefix,
    as_object,
    as_text,
    build_reader,
    find_other_members,
    find_raw,
    find_values,
    read_elements,
    read_object,
)
from proxy.wire.known_requests import (
    Piece,
    PiecedFormat,
    PiecedRequest,
    build_answer,
    build_message,
    build_result,
    find_types,
    write_call,
)

CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
"""The member of each call that holds the model's text."""
ACTIONS = {"local_shell_call": "action", "shell_call": "action", "apply_patch_call": "operation"}
"""The member of each call of a tool that the API defines: an object, left as it is."""
OUTPUTS = frozenset({f"{call}_output" for call in (*CALLS, *ACTIONS)})


def is_call(kind: str) -> bool:
    return kind in CALLS or kind in ACTIONS


def write_output(call: str, id_: str, text: str) -> bytes:
    """Write the output of a call that has not come to an end."""
    quoted_id, output = splice.write_json(id_), splice.write_json(text)
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
        return as_name(self.call_id) or as_name(self.id)


decode_item = build_reader(Item)


USER_ITEM = b'{"type":"message","role":"user","content":%b}'
"""The message that the API reads from an input that is only a text."""


def read_items(
    items: Sequence[bytes], offsets: Sequence[int], known_blocks: Iterator[bytes]
) -> Iterator[tuple[Message, Piece]]:
    """Read the newest items of the client's list. Consecutive items of the model are one response."""
    first = len(offsets) - len(items)
    calls = _CallIndex(known_blocks)
    response: list[tuple[bytes, Item]] = []
    for number, raw in enumerate(items, first):
        item = decode_item(raw)
        is_message_of_model = item.type == "message" and item.role == "assistant"
        if is_message_of_model or is_call(item.type) or item.type in ANSWER_TYPES:
            response.append((raw, item))
            calls.add(item)
            continue
        yield from _read_response(response, number, _find_needed(response, item), offsets)
        response = []
        role, content = as_name(item.role), bytes(item.content)
        if item.type in OUTPUTS:
            message = _read_output(raw, item, calls.find(item.pairing_id))
        elif item.type == "message" and role:
            message = build_message(role, content)
        else:  # an unknown item is kept whole, as an instruction is
            message = build_message("developer", b"[" + raw + b"]")
        yield message, Piece(number, role, ((0, len(raw)),))
    yield from _read_response(response, len(offsets), len(response), offsets)


def _read_response(
    response: Sequence[tuple[bytes, Item]], stop: int, removable_count: int, offsets: Sequence[int]
) -> Iterator[tuple[Message, Piece]]:
    """Read the items of a response. Those after `removable_count` are never shortened: the next item needs them."""
    removable, fixed_items = response[:removable_count], response[removable_count:]
    if removable:
        yield _read_answer(removable, stop - len(fixed_items), offsets)
    if fixed_items:
        message, piece = _read_answer(fixed_items, stop, offsets)
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

    def __init__(self, known_blocks: Iterator[bytes]) -> None:
        self._known_blocks = known_blocks
        """Read from the newest on when an output needs them, which is rare."""
        self._pairing_ids: dict[str, str] = {}

    def add(self, item: Item) -> None:
        for name in self._list_names(item):
            self._pairing_ids[name] = item.pairing_id

    def find(self, name: str) -> str:
        """Return the pairing id of the newest call of this name; the name itself if there is none."""
        if not name or name in self._pairing_ids:
            return self._pairing_ids.get(name, name)
        for raw in self._known_blocks:
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


def _read_output(raw: bytes, item: Item, call_id: str) -> Message:
    removed_keys = {"output"}
    own_id = as_text(item.call_id)
    if own_id == call_id:
        removed_keys.add("call_id")  # another id stays as it came
    members = find_other_members(raw, removed_keys)
    content = bytes(item.output)
    if item.type == "shell_call_output":
        content, outcome = _read_shell_output(content)
        members += b',"outcome":' + outcome
    if not own_id and call_id:
        members += b',"%b":"id"' % NAMED_BY.encode()
    return build_result(call_id, content, members)


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
                    parts.append(_TEXT_PART % splice.write_json(text))
    return b"[" + b",".join(parts) + b"]", json.dumps(outcome or {"type": "exit", "exit_code": 0}).encode()


def _read_answer(items: Sequence[tuple[bytes, Item]], stop: int, offsets: Sequence[int]) -> tuple[Message, Piece]:
    spans: list[tuple[int, int]] = []
    parts: list[bytes] = []
    calls: list[ToolCall] = []
    for number, (raw, item) in enumerate(items, stop - len(items)):
        start = offsets[number] - offsets[stop - 1]
        spans.append((start, start + len(raw)))
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
    return message, Piece(stop - 1, "assistant", tuple(spans))


def read_call(item: Item) -> ToolCall:
    if item.type == "custom_tool_call":
        return ToolCall(item.pairing_id, as_name(item.name), as_text(item.input), "custom")
    if item.type in CALLS:
        return ToolCall(item.pairing_id, as_name(item.name), as_text(item.arguments))
    action = item.operation if item.type == "apply_patch_call" else item.action
    return ToolCall(item.pairing_id, item.type.removesuffix("_call"), bytes(action).decode())


def write_items(request: PiecedRequest, view: Sequence[Message]) -> Iterator[bytes]:
    """Write the items of each message of a view."""
    types: dict[int, Mapping[str, str]] = {}  # of the calls in messages, for outputs that are missing
    for written in request.write(view, partial(_write_message, request, types)):
        if isinstance(written, Piece):
            yield from request.list_blocks(written)
        else:
            yield from written


def _write_message(
    request: PiecedRequest, types: dict[int, Mapping[str, str]], message: Message
) -> Piece | Sequence[bytes]:
    """Return the items of a message: if they are the client's own, only their places."""
    piece, is_unchanged = request.find_origin(message)
    if is_unchanged:
        return piece or ()
    if message.made == "repair":
        return [_write_missing_output(request, types, message)]
    # Of a changed message, only the bytes are up to date.
    changed_message = read_message(json.loads(message.raw), message.raw)
    if piece is not None and message.role == "assistant":
        return list(_change_response(request.list_blocks(piece), changed_message))
    if piece is not None and message.role in ("system", "developer") and message.has_parts:
        return piece
    if changed_message.is_result:
        return [_write_output(changed_message)]
    role, content = changed_message.role, changed_message.content
    is_empty = role == "assistant" and not changed_message.text.strip()
    if content[:1] == b'"':
        kind = b"output_text" if role == "assistant" else b"input_text"
        content = b'[{"type":"%b","text":%b}]' % (kind, content)
    elif role != "assistant":
        content = _as_input(content)
    return [] if is_empty else [b'{"type":"message","role":%b,"content":%b}' % (splice.write_json(role), content)]


def _write_missing_output(request: PiecedRequest, types: dict[int, Mapping[str, str]], message: Message) -> bytes:
    """Write the output that `repair` added after the message that calls."""
    place = request.head_size + message.start - 1
    if place not in types:
        types[place] = _find_call_types(request.list_own_bytes(place) if 0 <= place < len(request.pieces) else ())
    return write_output(types[place].get(message.answers, "function_call"), message.answers, message.text)


def _find_call_types(items: Sequence[bytes]) -> Mapping[str, str]:
    """Return the types of calls by the ids of these."""
    types: dict[str, str] = {}
    for item in map(decode_item, items):
        if is_call(item.type):
            types.setdefault(item.pairing_id, item.type)
    return types


def _write_output(message: Message) -> bytes:
    read_here = {"role", "tool_call_id", "content", "name", "outcome", NAMED_BY}
    members = splice.remove_members(message.raw, read_here)[1:-1].strip()
    kind, name, comma = b"", b"", b""
    if b'"type"' not in members:
        kind = b'"type":"function_call_output",'
    if members:
        comma = b","
    if splice.find_member(message.raw, NAMED_BY) is None and splice.find_member(message.raw, "call_id") is None:
        name = b'"call_id":%b,' % splice.write_json(message.answers)
    content = _as_input(message.content)
    outcome = splice.find_member(message.raw, "outcome")
    if outcome is not None:  # of a shell: the whole text becomes the output of one command
        fields = splice.write_json(message.text), message.raw[outcome.start : outcome.stop]
        content = b'[{"stdout":%b,"stderr":"","outcome":%b}]' % fields
    return b'{%b%b%b%b"output":%b}' % (kind, members, comma, name, content)


def _change_response(items: Sequence[bytes], message: Message) -> Iterator[bytes]:
    calls = {call.id: call for call in message.calls}
    parts = set(read_elements(message.content)) if message.has_parts else set()
    for raw in items:
        item = decode_item(raw)
        call = calls.get(item.pairing_id)
        if item.type == "reasoning":
            # Reasoning with an id stays: the API refuses the items that name it if it is missing.
            if item.id is not None or raw in parts:
                yield raw
        elif item.type in CALLS:
            if call is not None and call.arguments == (as_text(item.input) or as_text(item.arguments)):
                yield raw
            elif call is not None:
                yield splice.set_members(raw, {CALLS[item.type]: splice.write_json(call.arguments)})
        elif item.type not in ACTIONS or call is not None:
            yield raw


def _as_input(content: bytes) -> bytes:
    if content[:1] != b"[" or b'"text"' not in content:
        return content

    def name_as_input(part: bytes) -> bytes:
        kind = splice.find_member(part, "type")
        if kind is None or part[kind.start : kind.stop] != b'"text"':
            return part
        return splice.replace_bytes(part, kind.start, kind.stop, b'"input_text"')

    return splice.replace_elements(content, 0, name_as_input)


ENDED = frozenset({"response.completed", "response.incomplete", "response.failed"})


class ResponsesRounds(
    Rounds,
    items="output",
    finish="status",
    cut=frozenset({"incomplete", "failed", "cancelled", "in_progress", "queued"}),
    call="function_call",
    finishes=("completed", "completed"),
):
    """The rounds of Responses. The client gets reasoning together with the item after it.

    If that is a call of the proxy's tool, it gets neither: the API refuses reasoning without the item after it. No
    reasoning is bound to the history before it, so every round keeps its own.
    """

    def __init__(self, *, stream: bool) -> None:
        super().__init__(stream=stream)
        self._shown: list[dict[str, Any]] = []
        self._sequence_number = -1
        self._is_changed = False
        """Whether an event was changed or left out, so that later events need new numbers."""

    def _reset(self, *, is_last: bool) -> None:
        super()._reset(is_last=is_last)
        self._reasoning: list[tuple[bytes, dict[str, Any]]] = []

    def begin_round(self, *, is_last: bool) -> None:
        super().begin_round(is_last=is_last)
        self._is_changed = True

    def _find_round(self) -> Round:
        elements: list[bytes] = []
        calls: list[ToolCall] = []
        for _, item in sorted(self._items.items()):
            elements.append(splice.write_json(item))
            if is_call(as_text(item.get("type"))):
                calls.append(read_call(decode_item(elements[-1])))
        return Round(tuple(elements), tuple(calls))

    def _show(self, event: bytes) -> bytes:
        value = read_event(event)
        if value is None or not isinstance(value.get("type"), str):
            return event
        has_begun = value["type"] in ("response.created", "response.in_progress", "response.queued")
        if has_begun and not self._is_first:
            return b""
        if value["type"] in ENDED:
            return self._show_end(event, value)
        index = value.get("output_index")
        if has_begun or not isinstance(index, int):
            return self._number(event, value)
        return self._show_item(event, value, index)

    def _show_item(self, event: bytes, value: dict[str, Any], index: int) -> bytes:
        ready = b""
        if value["type"] == "response.output_item.added":
            item = self._items[index] = as_object(value.get("item"))
            if not self._is_own(item):
                ready = self._show_reasoning()
            elif self._reasoning:  # it led to a call of the proxy's tool
                self._is_changed = True
                self._reasoning = []
        elif value["type"] == "response.output_item.done":
            self._items[index] = as_object(value.get("item"))
        item = self._items.get(index, {})
        if self._is_own(item):
            self._is_changed = True
            return ready
        if self._reasoning or (item.get("type") == "reasoning" and index not in self._client_indexes):
            self._reasoning.append((event, value))
            return ready
        return ready + self._show_item_event(event, value)

    def _show_reasoning(self) -> bytes:
        reasoning, self._reasoning = self._reasoning, []
        return b"".join(starmap(self._show_item_event, reasoning))

    def _show_item_event(self, event: bytes, value: dict[str, Any]) -> bytes:
        index = value["output_index"]
        if index not in self._client_indexes:
            self._client_indexes[index] = self._next_index
            self._next_index += 1
        if value["type"] == "response.output_item.done":
            self._shown.append(as_object(value.get("item")))
        return self._number(event, {**value, "output_index": self._client_indexes[index]})

    def _show_end(self, event: bytes, value: dict[str, Any]) -> bytes:
        response = as_object(value.get("response"))
        self._finish = as_text(response.get("status")) or None
        self._round_usage = as_object(response.get("usage")) or None
        if self._waits:
            return b""
        ready = self._show_reasoning()
        if self._is_changed:
            response["output"] = self._shown
            response["usage"] = add_usage(self._usage, self._round_usage)
        return ready + self._number(event, value)

    def _number(self, event: bytes, value: dict[str, Any]) -> bytes:
        number = value.get("sequence_number")
        if self._is_changed and isinstance(number, int):
            self._sequence_number += 1
            value["sequence_number"] = self._sequence_number
        elif not self._is_changed:
            if isinstance(number, int):
                self._sequence_number = number
            if RECALL.name.encode() not in event:
                return event
        response = value.get("response", value)
        if isinstance(response, dict) and isinstance(response.get("tools"), list):
            response["tools"] = [tool for tool in response["tools"] if not _is_recall_tool(tool)]
        return write_event(value, named=has_name(event))

    def _choose_shown(self) -> list[bytes]:
        shown: list[bytes] = []
        follows_reasoning = False
        for element, item in zip(self._elements, self._items.values(), strict=True):
            if not self._is_own(item):
                shown.append(element)
            elif follows_reasoning:
                shown.pop()
            follows_reasoning = item.get("type") == "reasoning"
        return shown

    def _find_changes(self) -> dict[str, bytes]:
        """Return the list of tools, which the API repeats in its answer, without the proxy's."""
        tools = self._answer.get("tools")
        if not isinstance(tools, list):
            return {}
        elements = read_elements(find_raw(self._body, find_values(self._body), "tools"))
        shown = [element for element, tool in zip(elements, tools, strict=True) if not _is_recall_tool(tool)]
        if len(shown) == len(elements):
            return {}
        return {"tools": write_elements(shown)}


def _is_recall_tool(tool: object) -> bool:
    return as_object(tool).get("name") == RECALL.name


def _read_call(item: Mapping[str, Any]) -> dict[str, Any] | None:
    member = CALLS.get(str(item.get("type")))
    return None if member is None else make_call(item.get("call_id"), item.get("name"), item.get(member))


def _name_finish(response: Mapping[str, Any]) -> str:
    return {"incomplete": "length", "failed": "error"}.get(str(response.get("status")), "stop")


class ResponsesFormat(PiecedFormat):
    def _find_system(self, source: bytes, places: Places) -> bytes:
        system = super()._find_system(source, places)
        return system if system.startswith(b'"') else b""

    def _list_fields(self, source: bytes, places: Places) -> dict[str, Any]:
        # A tool may have a parameter of such a name: only the types of the edits themselves count.
        edits = find_raw(source, places, "context_management")
        compacts = "compaction" in find_types(edits, b'"compaction"')
        return {**super()._list_fields(source, places), "provider_compacts": compacts}

    def _read(self, source: bytes, places: Places, prefix: Prefix | None) -> PiecedRequest | None:
        request = super()._read(source, places, prefix)
        newest_blocks = () if request is None else request.list_own_bytes(len(request.messages) - 1)
        # Codex asks the provider for a compaction by the last item.
        if request is not None and newest_blocks and b'"compaction_trigger"' in newest_blocks[-1]:
            is_trigger = decode_item(newest_blocks[-1]).type == "compaction_trigger"
            return replace(request, provider_compacts=is_trigger or request.provider_compacts)
        return request

    def fits(self, body: Mapping[str, Any], /) -> bool:
        return "input" in body and "messages" not in body

    def why_relayed(self, source: bytes, headers: Headers = (), /) -> Reason:
        reason = super().why_relayed(source, headers)
        word = b'"item_reference"'  # with quotes, which are escaped in a text that mentions it
        if reason or word not in source:
            return reason
        try:
            types = find_types(find_raw(source, find_values(source), "input"), word)
        except UNREADABLE:
            return ""
        return "history-elsewhere" if "item_reference" in types else ""

    def _list_unwanted(self, source: bytes, request: Request, question: Try, /) -> set[str]:
        unwanted_keys: set[str] = set()
        head = question.messages[: request.head_size]
        if len(head) < request.head_size or any(map(is_different, head, request.head)):
            unwanted_keys.add("instructions")
        choice = splice.find_member(source, "tool_choice")
        if choice is not None and source[choice.start : choice.stop] not in (b'"auto"', b'"none"'):
            unwanted_keys.add("tool_choice")
        return unwanted_keys

    def read_event(self, event: Mapping[str, Any], /) -> Mapping[str, Any]:
        kind = str(event.get("type"))
        if kind == "response.output_text.delta":
            return make_chunk({"content": event.get("delta")})
        if kind == "response.output_item.done":
            item = as_object(event.get("item"))
            if item.get("type") == "compaction":
                return {"choices": [], "context_management": {"applied_edits": [{"type": "compaction"}]}}
            call = _read_call(item)
            return make_chunk({} if call is None else {"tool_calls": [call]})
        if kind in ENDED:
            response = as_object(event.get("response"))
            chunk = make_chunk({}, _name_finish(response))
            chunk |= {"model": response.get("model"), "usage": response.get("usage"), "error": response.get("error")}
            return chunk
        if kind.startswith("response."):
            return {"choices": []}
        return event

    def read_body(self, body: bytes, /) -> bytes:
        answer = read_object(body)
        if answer is None or answer.get("object") != "response" or not isinstance(answer.get("output"), list):
            return body
        content: list[Any] = []
        calls: list[dict[str, Any]] = []
        edits: list[Any] = []
        for item in map(as_object, answer["output"]):
            if item.get("type") == "compaction":
                edits.append({"type": "compaction"})
            if item.get("type") == "message" and isinstance(item.get("content"), list):
                content += item["content"]
            call = _read_call(item)
            if call is not None:
                calls.append(call)
        answer["context_management"] = {"applied_edits": edits}
        return write_completion(answer, content, calls, _name_finish(answer))

    def render_answer(self, text: str, model: str, timestamp: int, /, *, stream: bool) -> bytes:
        part = {"type": "output_text", "text": text, "annotations": []}
        item = {"id": "msg_compaction_proxy", "type": "message", "role": "assistant", "status": "completed"}
        usage = {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}
        response = {
            "id": "resp_compaction_proxy",
            "object": "response",
            "created_at": timestamp,
            "model": model,
            "tools": [],
            "tool_choice": "auto",
        }
        completed_response = {
            **response,
            "status": "completed",
            "output": [{**item, "content": [part]}],
            "usage": usage,
        }
        if not stream:
            return splice.write_json(completed_response)
        place = {"item_id": item["id"], "output_index": 0, "content_index": 0}
        events: list[dict[str, Any]] = [
            {"type": "response.created", "response": {**response, "status": "in_progress", "output": []}},
            {"type": "response.output_item.added", "output_index": 0, "item": {**item, "content": []}},
            {"type": "response.content_part.added", **place, "part": {**part, "text": ""}},
            {"type": "response.output_text.delta", **place, "delta": text},
            {"type": "response.output_text.done", **place, "text": text},
            {"type": "response.content_part.done", **place, "part": part},
            {"type": "response.output_item.done", "output_index": 0, "item": {**item, "content": [part]}},
            {"type": "response.completed", "response": completed_response},
        ]
        for number, event in enumerate(events):
            event["sequence_number"] = number
        return write_named_events(events)

    def continue_request(self, source: bytes, answer: Round, results: Sequence[str]) -> bytes:
        outputs: list[bytes] = []
        elements_without_ids: list[bytes] = []
        has_plain_reasoning = False
        for raw in answer.elements:
            item = json.loads(raw)
            call_type, number = str(item.get("type")), len(outputs)
            if is_call(call_type):
                outputs.append(write_output(call_type, answer.calls[number].id, results[number]))
            if call_type == "reasoning":
                has_plain_reasoning |= not item.get("encrypted_content")
            else:
                elements_without_ids.append(splice.remove_members(raw, {"id"}))
        elements: Sequence[bytes] = answer.elements
        is_stored = find_raw(source, find_values(source), "store") != b"false"
        if has_plain_reasoning and not is_stored:
            # The API knows neither the ids of an answer that it has not stored, nor reasoning in plain text.
            elements = elements_without_ids
        return self._extend_list(source, (*elements, *outputs))


RESPONSES_FORMAT = ResponsesFormat(
    name="responses",
    path=ApiPath.RESPONSES,
    count_path=ApiPath.INPUT_TOKENS,
    compact_path=ApiPath.RESPONSES_COMPACT,
    provider="openai",
    version_header=None,
    write_error=to_json,
    stream=StreamForm(
        outputs=r"response\.(?:\w+\.|completed|incomplete|cancelled)",
        last_event=re.compile(rb"response\.(?:completed|incomplete|failed)"),
        has_flat_errors=True,
        write_error=write_bare_error,
    ),
    takes_late_results=True,  # and has them in its cache
    takes_user_rows=False,
    marked_with=frozenset(),
    takes_cache_key=True,
    list_name="input",
    bounds=("max_output_tokens",),
    asks_for_more=frozenset(
        {
            *("text", "include", "background", "truncation", "context_management", "prompt", "service_tier"),
            "max_tool_calls",
        }
    ),
    tool_members=frozenset({"tools", "parallel_tool_calls", "tool_choice"}),
    keys_for_other_upstreams=frozenset(
        {
            *("model", "input", "instructions", "stream", "temperature", "top_p", "reasoning"),
            *("max_output_tokens", "tools", "parallel_tool_calls"),
        }
    ),
    split=read_items,
    write_list=write_items,
    system_name="instructions",
    text_as=USER_ITEM,
    # <https://platform.openai.com/docs/guides/conversation-state>
    history_members=("previous_response_id", "conversation"),
    rounds=ResponsesRounds,
    rounds_need={"background": (b"false",)},  # an answer made in the background is fetched later
    # `strict` is on by default in this API, and would make every parameter a required one:
    # <https://platform.openai.com/docs/guides/function-calling#strict-mode>.
    recall_tool=json.dumps({"type": "function", **to_builtins(RECALL), "strict": False}).encode(),
)
