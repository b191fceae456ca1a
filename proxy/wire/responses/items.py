"""Items of Responses: the items of a request as the chat messages that say the same, and back.

    reasoning, message, function_call (one response of the model)  ->  one message of the assistant
    function_call_output                                           ->  one message of a tool

Each chat message remembers the items that it came from (`Piece`), and an untouched one leaves in their bytes.
<https://platform.openai.com/docs/api-reference/responses/create>
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from proxy.history import splice
from proxy.history.messages import Message, ToolCall, read_message
from proxy.wire.lenient import as_text
from proxy.wire.pieces import Piece, PiecedRequest, TextFields, build_reader
from proxy.wire.responses.call_items import ACTIONS, CALLS, LOCAL_SHELL, OUTPUTS, SHELL_OUTPUT, is_call, write_output

_NULL = msgspec.Raw(b"null")
# What the model made beside its text, each by itself. All other items that are not known stay where they are.
_OF_ANSWERS = frozenset(
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
_OF_CLIENTS = ("_output", "_response")
"""How the types of items end that answer what the model asked for."""
_NAMED_BY = b"named_by"
"""A member of results here: their item names its call by this member and has no `call_id`."""
_TEXT_PART = b'{"type":"text","text":%b}'


class _Item(TextFields):
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
        """The id that pairs a call with its output. That of a local shell has its call's as its own `id`."""
        return self.call_id or as_text(self.id)


_decode_item = build_reader(_Item)


def as_user_item(text: bytes) -> bytes:
    """The item that the API reads from an input that is only a text."""
    return b'{"type":"message","role":"user","content":%b}' % text


def read_items(items: Sequence[bytes], first: int, known: Sequence[Piece | None]) -> Iterator[tuple[Message, Piece]]:
    """The chat messages that these items are. Items of the model that follow each other are one response."""
    calls = _CallIndex(known)
    answer_items: list[tuple[bytes, _Item]] = []
    for place, raw in enumerate(items, first):
        item = _decode_item(raw)
        if is_call(item.type) or item.type in _OF_ANSWERS or (item.type == "message" and item.role == "assistant"):
            answer_items.append((raw, item))
            calls.add(item)
            continue
        yield from _read_answer(answer_items, place, _find_needed(answer_items, item))
        answer_items = []
        yield _read_item(raw, item, calls), Piece(place, item.role, (raw,))
    yield from _read_answer(answer_items, first + len(items), len(answer_items))


def _read_answer(items: Sequence[tuple[bytes, _Item]], stop: int, needed: int) -> Iterator[tuple[Message, Piece]]:
    """The messages that these items of one response are, which end at this place.

    Those from the place `needed` on stay as they are, in a message of their own: an item behind them needs them.
    """
    parts = ((items[:needed], stop - len(items) + needed, False), (items[needed:], stop, True))
    for part, part_stop, is_fixed in parts:
        if part:
            piece = Piece(part_stop - 1, "assistant", tuple(raw for raw, _ in part))
            yield replace(_read_response(part), is_fixed=is_fixed), piece


def _find_needed(answer_items: Sequence[tuple[bytes, _Item]], item: _Item) -> int:
    """The place from which on items of a response stay because this one stays, which is not known.

    The API refuses an item without the reasoning of its response, and reasoning without the item behind it.
    """
    kinds = [answer_item.type for _, answer_item in answer_items]
    stop = len(kinds)
    if item.role or item.type in OUTPUTS:
        return stop
    if not item.type.endswith(_OF_CLIENTS) and "reasoning" in kinds:
        return kinds.index("reasoning")
    while stop and kinds[stop - 1] == "reasoning":
        stop -= 1
    return stop


class _CallIndex:
    """The ids of the calls so far, by all that outputs name them by.

    In the public schema the output of a local shell has only an `id`, and a call of one has an `id` and a `call_id`.
    Clients and servers do not agree on which of the two is meant.
    """

    def __init__(self, known: Sequence[Piece | None]) -> None:
        self._known = reversed(known)
        """What was read before, the newest first: hardly any output needs it."""
        self._pairing_ids: dict[str, str] = {}

    def add(self, item: _Item) -> None:
        """Add a call, the newest so far."""
        self._pairing_ids.update((name, item.pairing_id) for name in self._list_names(item))

    def find(self, name: str) -> str:
        """The pairing id of the newest call of this name; the name itself where there is none."""
        while name and name not in self._pairing_ids:
            piece = next(self._known, _NO_PIECE)
            if piece is _NO_PIECE:
                return name
            for raw in reversed(piece.blocks) if piece is not None else ():
                item = _decode_item(raw)
                for known_name in self._list_names(item):
                    self._pairing_ids.setdefault(known_name, item.pairing_id)
        return self._pairing_ids.get(name, name)

    @staticmethod
    def _list_names(item: _Item) -> Iterator[str]:
        if item.type == LOCAL_SHELL:
            yield as_text(item.id)
        if is_call(item.type):
            yield item.pairing_id


_NO_PIECE = Piece(-1, "", ())


def _read_item(raw: bytes, item: _Item, calls: _CallIndex) -> Message:
    if item.type in OUTPUTS:
        content, id_ = bytes(item.output), calls.find(item.pairing_id)
        # A `call_id` that names the call in another way leaves as it came.
        read_members = {"output", "call_id"} if item.call_id == id_ else {"output"}
        more = splice.remove_members(raw, frozenset(read_members))[1:-1].strip()
        if item.type == SHELL_OUTPUT:
            content, outcome = _read_shell_output(content)
            more += b',"outcome":' + outcome
        if not item.call_id and id_:
            more += b',"%b":"id"' % _NAMED_BY
        written = b'{"role":"tool","tool_call_id":%b,"content":%b,%b}' % (splice.quote(id_), content, more)
        return Message(written, "tool", content, answers=id_)
    if item.type == "message" and item.role:
        content = bytes(item.content)
        return Message(b'{"role":%b,"content":%b}' % (splice.quote(item.role), content), item.role, content)
    return _read_state(raw)


def _read_state(raw: bytes) -> Message:
    """An item that the conversation depends on, or that is not known, as an instruction: nothing folds one."""
    content = b"[" + raw + b"]"
    return Message(b'{"role":"developer","content":%b}' % content, "developer", content)


def _read_shell_output(output: bytes) -> tuple[bytes, bytes]:
    """The output of several commands as parts of text, and how the last command ended."""
    value = json.loads(output)
    commands = [command for command in value if isinstance(command, dict)] if isinstance(value, list) else []
    texts = [command.get(name) for command in commands for name in ("stdout", "stderr")]
    parts = b",".join(_TEXT_PART % splice.quote(text) for text in texts if isinstance(text, str) and text)
    ended = commands[-1].get("outcome") if commands else None
    return b"[" + parts + b"]", json.dumps(ended or {"type": "exit", "exit_code": 0}).encode()


def _read_response(items: Sequence[tuple[bytes, _Item]]) -> Message:
    parts: list[bytes] = []
    calls: list[ToolCall] = []
    for raw, item in items:
        if item.type in CALLS:
            kind = "custom" if item.type == "custom_tool_call" else "function"
            text = item.input if kind == "custom" else item.arguments
            calls.append(ToolCall(item.pairing_id, item.name, text, kind))  # type: ignore[arg-type]
        elif item.type in ACTIONS:
            action = bytes(item.operation if item.type == "apply_patch_call" else item.action)
            calls.append(ToolCall(item.pairing_id, item.type.removesuffix("_call"), action.decode()))
        elif item.type == "message":
            content = bytes(item.content)
            parts += [_TEXT_PART % content] if content[:1] == b'"' else _elements(content)
        else:
            parts.append(raw)
    content = b"[" + b",".join(parts) + b"]" if parts else b"null"
    written = b",".join(map(_write_call, calls))
    raw = b'{"role":"assistant","content":%b%b}' % (content, b',"tool_calls":[%b]' % written if calls else b"")
    return Message(raw, "assistant", content, tuple(calls))


def _elements(content: bytes) -> list[bytes]:
    return [content[start:stop] for start, stop in splice.iterate_elements(content)] if content[:1] == b"[" else []


def _write_call(call: ToolCall) -> bytes:
    inner = b'"name":%b,"%b":%b' % (
        splice.quote(call.name),
        b"input" if call.kind == "custom" else b"arguments",
        splice.quote(call.arguments),
    )
    return b'{"id":%b,"type":"%b","%b":{%b}}' % (splice.quote(call.id), call.kind.encode(), call.kind.encode(), inner)


def write_items(request: PiecedRequest, view: Sequence[Message]) -> Iterator[bytes]:
    """The items of this view; those of one message each in one piece."""
    head, body = view[: request.head_size], view[request.head_size :]

    def write(messages: Sequence[Message]) -> Iterator[bytes]:
        return (b",".join(_write_items(request, message)) for message in messages)

    def write_new(known: Sequence[bytes]) -> Iterator[bytes]:
        return write(body[len(known) :])

    return filter(None, (*write(head), *request.columns.of_view(body).extend(write_items, len(body), write_new)))


def _write_items(request: PiecedRequest, message: Message) -> Iterator[bytes]:
    """The items that say what this chat message says: the client's own where it is untouched."""
    piece, is_own = request.find_origin(message)
    if is_own:
        yield from piece.blocks if piece is not None else ()
        return
    if message.made == "repair":
        yield _write_missing_output(request, message)
        return
    # From the bytes: where they were changed (redacted, say), what was read of them before is not true any more.
    if piece is not None and message.role == "assistant":
        yield from _change_response(piece, read_message(json.loads(message.raw), message.raw))
    elif message.role in ("system", "developer") and message.content[:1] == b"[" and piece is not None:
        yield from piece.blocks
    else:
        yield from _write_new_items(message.raw)


def _write_new_items(raw: bytes) -> tuple[bytes, ...]:
    message = read_message(json.loads(raw), raw)
    return (_write_output(message),) if message.is_result else tuple(_write_message(message))


def _write_missing_output(request: PiecedRequest, message: Message) -> bytes:
    """The output that `history.grouping.repair` adds, right behind the message that calls."""
    place = request.head_size + message.start - 1
    piece = request.pieces[place] if 0 <= place < len(request.pieces) else None
    items = map(_decode_item, piece.blocks if piece is not None else ())
    kind = next(
        (item.type for item in items if is_call(item.type) and item.pairing_id == message.answers), "function_call"
    )
    return write_output(kind, message.answers, message.text)


def _write_output(message: Message) -> bytes:
    named_by = splice.find_member(message.raw, _NAMED_BY.decode())
    added = frozenset({"role", "tool_call_id", "content", "name", "outcome", _NAMED_BY.decode()})
    more = splice.remove_members(message.raw, added)[1:-1].strip()
    kind = b"" if b'"type"' in more else b'"type":"function_call_output",'
    content = _as_input(message.content)
    if place := splice.find_member(message.raw, "outcome"):  # a shell's: all is one command's output
        text, ended = splice.quote(message.text), message.raw[place.start : place.stop]
        content = b'[{"stdout":%b,"stderr":"","outcome":%b}]' % (text, ended)
    is_named = b'"call_id"' in more and splice.find_member(message.raw, "call_id") is not None
    name = b"" if named_by or is_named else b'"call_id":%b,' % splice.quote(message.answers)
    return b'{%b%b%b%b"output":%b}' % (kind, more, b"," if more else b"", name, content)


def _change_response(piece: Piece, message: Message) -> Iterator[bytes]:
    """The items of a response, those of calls as they are left in the message; reasoning that left is gone."""
    calls = {call.id: call for call in message.calls}
    for raw in piece.blocks:
        item = _decode_item(raw)
        # What has an id is looked for behind the items that name it: the API refuses one without the other.
        if item.type == "reasoning" and item.id is None and raw not in message.content:
            continue
        key, call = CALLS.get(item.type), calls.get(item.pairing_id)
        if key is None:
            if item.type not in ACTIONS or call is not None:
                yield raw
        elif call is not None:
            place = splice.find_member(raw, key)
            changed = place is not None and call.arguments != (item.input or item.arguments)
            text = splice.quote(call.arguments)
            yield splice.replace_bytes(raw, place.start, place.stop, text) if changed and place is not None else raw


def _write_message(message: Message) -> Iterator[bytes]:
    part = b"output_text" if message.role == "assistant" else b"input_text"
    content = message.content
    if content[:1] == b'"':
        content = b'[{"type":"%b","text":%b}]' % (part, content)
    else:
        content = _as_input(content) if part == b"input_text" else content
    if message.text.strip() or message.role != "assistant":
        yield b'{"type":"message","role":%b,"content":%b}' % (splice.quote(message.role), content)


def _as_input(content: bytes) -> bytes:
    """Parts that the core wrote as chat completions have them, as this API has them."""
    if content[:1] != b"[" or b'"text"' not in content:
        return content
    return splice.replace_elements(content, 0, _as_input_part)


def _as_input_part(part: bytes) -> bytes:
    place = splice.find_member(part, "type")
    if place is None or part[place.start : place.stop] != b'"text"':
        return part
    return splice.replace_bytes(part, place.start, place.stop, b'"input_text"')
