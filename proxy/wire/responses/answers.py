"""Answers of OpenAI Responses: as chat answers for what reads them, written by the proxy, and in several rounds."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from proxy.history.messages import ToolCall
from proxy.recall.own_tools import COMPACT, RECALL, OwnTool
from proxy.wire.lenient import as_object, read_object, write_json
from proxy.wire.outline import find_values
from proxy.wire.responses.calls import CALLS, is_call, write_output
from proxy.wire.rounds import Round, Rounds, add_usage, extend_request
from proxy.wire.sse import has_name, write_event
from proxy.wire.sse import read_event as read_data

ID = "resp_compaction_proxy"
_BEGUN = frozenset({"response.created", "response.in_progress", "response.queued"})
_ENDED = frozenset({"response.completed", "response.incomplete", "response.failed"})

# --- read as chat answers ---------------------------------------------------------------------------------------------


def read_event(event: Mapping[str, Any]) -> Mapping[str, Any]:
    """The chunk of a chat answer that says what this event says; any other object as it is."""
    kind = str(event.get("type"))
    if kind == "response.output_text.delta":
        return _chunk({"content": event.get("delta")})
    if kind == "response.output_item.done":
        call = _read_call(as_object(event.get("item")))
        return _chunk({"tool_calls": [call]} if call else {})
    if kind in _ENDED:
        response = as_object(event.get("response"))
        about = {"model": response.get("model"), "usage": response.get("usage"), "error": response.get("error")}
        return {**_chunk({}, _finish(response)), **about}
    return {"choices": []} if kind.startswith("response.") else event


def read_body(body: bytes) -> bytes:
    """The chat completion that says what this answer says; any other body as it is."""
    answer = read_object(body)
    if answer is None or answer.get("object") != "response" or not isinstance(answer.get("output"), list):
        return body
    items = [as_object(item) for item in answer["output"]]
    listed = [item.get("content") for item in items if item.get("type") == "message"]
    parts = [part for content in listed if isinstance(content, list) for part in content]
    calls = [call for call in map(_read_call, items) if call]
    message = {"role": "assistant", "content": parts, **({"tool_calls": calls} if calls else {})}
    choice = {"index": 0, "message": message, "finish_reason": _finish(answer)}
    return json.dumps({"model": answer.get("model"), "choices": [choice], "usage": answer.get("usage")}).encode()


def _read_call(item: Mapping[str, Any]) -> dict[str, Any] | None:
    key = CALLS.get(str(item.get("type")))
    if key is None:
        return None
    function = {"name": item.get("name"), "arguments": item.get(key)}
    return {"id": item.get("call_id"), "type": "function", "function": function}


def _chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def _finish(response: Mapping[str, Any]) -> str:
    return {"incomplete": "length", "failed": "error"}.get(str(response.get("status")), "stop")


# --- written by the proxy ---------------------------------------------------------------------------------------------


def render_answer(text: str, model: str, created: int, *, stream: bool) -> bytes:
    """An answer that says this, whole or as events, as it was asked for."""
    part = {"type": "output_text", "text": text, "annotations": []}
    item = {"id": "msg_compaction_proxy", "type": "message", "role": "assistant", "status": "completed"}
    usage = {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}
    about = {"id": ID, "object": "response", "created_at": created, "model": model, "tools": [], "tool_choice": "auto"}
    done = {**about, "status": "completed", "output": [{**item, "content": [part]}], "usage": usage}
    if not stream:
        return write_json(done)
    where = {"item_id": item["id"], "output_index": 0, "content_index": 0}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": {**about, "status": "in_progress", "output": []}},
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "content": []}},
        {"type": "response.content_part.added", **where, "part": {**part, "text": ""}},
        {"type": "response.output_text.delta", **where, "delta": text},
        {"type": "response.output_text.done", **where, "text": text},
        {"type": "response.content_part.done", **where, "part": part},
        {"type": "response.output_item.done", "output_index": 0, "item": {**item, "content": [part]}},
        {"type": "response.completed", "response": done},
    ]
    numbered = ({**event, "sequence_number": number} for number, event in enumerate(events))
    return b"".join(write_event(event, named=True) for event in numbered)


# --- several rounds ---------------------------------------------------------------------------------------------------


def define_tool(tool: OwnTool) -> bytes:
    """The definition of a tool as this API has it."""
    about = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    # `strict` is on by default in this API, and would make every parameter a required one.
    return json.dumps({"type": "function", **about, "strict": False}).encode()


RECALL_TOOL = define_tool(RECALL)
COMPACT_TOOL = define_tool(COMPACT)

Item = dict[str, Any]


def allows_rounds(source: bytes) -> bool:
    """Whether the answer comes with this request: the client fetches one made in the background by itself."""
    places = find_values(source)
    return "background" not in places or source[slice(*places["background"])] in (b"false", b"null")


def start_rounds(own: Collection[str], *, stream: bool) -> "ResponsesRounds":
    """The rounds of a request that asks for a stream, or not. `own`: the names of the proxy's own tools in it."""
    return ResponsesRounds(own, stream=stream)


def continue_request(source: bytes, answer: Round, results: Sequence[str]) -> bytes:
    """The request for the next round."""
    places = find_values(source)
    is_stored = "store" not in places or source[slice(*places["store"])] != b"false"
    kinds = (kind for kind in (json.loads(raw).get("type") for raw in answer.elements) if is_call(str(kind)))
    answered = (
        write_output(kind, call.id, text) for kind, call, text in zip(kinds, answer.calls, results, strict=True)
    )
    new = (*_make_sendable(answer.elements, is_stored=is_stored), *answered)
    return extend_request(source, "input", new)


def remove_reasoning(answer: Round) -> Round:
    """The answer itself: this API binds no reasoning to the history before it."""
    return answer


def _make_sendable(elements: Sequence[bytes], *, is_stored: bool) -> Sequence[bytes]:
    """The items as they can be sent back: reasoning that is kept nowhere is unknown to the API, and so are its ids."""
    items = [json.loads(raw) for raw in elements]
    if is_stored or all(item.get("type") != "reasoning" or item.get("encrypted_content") for item in items):
        return elements
    sendable = (item for item in items if item.get("type") != "reasoning")
    return [write_json({key: value for key, value in item.items() if key != "id"}) for item in sendable]


class ResponsesRounds(Rounds):
    """The rounds of one request.

    Reasoning belongs to the item behind it, and the API refuses one without the other. So reasoning is shown once the
    item behind it is known, and reasoning that led to a call of the proxy's own tools is not shown at all.
    """

    def __init__(self, own: Collection[str], *, stream: bool) -> None:
        super().__init__(own, stream=stream)
        self._shown: list[Item] = []
        """The items that the client has got, or of whole bodies will get, of all rounds."""
        self._next_index = 0
        self._sequence = -1
        """The number of the last event that was shown."""
        self._is_changed = False
        """An event was left out: those that follow have other numbers."""

    def _reset(self, *, is_last: bool) -> None:
        super()._reset(is_last=is_last)
        self._items: dict[int, Item] = {}
        """By the upstream's index: as they began, and then as they are."""
        self._places: dict[int, int] = {}
        """The client's index of each."""
        self._thoughts: list[tuple[bytes, dict[str, Any]]] = []
        """Events of reasoning whose next item is not known yet."""
        self._status: str | None = None

    def begin_round(self, *, is_last: bool) -> None:
        super().begin_round(is_last=is_last)
        self._is_changed = True

    def _find_round(self) -> Round | None:
        if not self._waits:
            return None
        items = [item for _, item in sorted(self._items.items())]
        calls = tuple(
            ToolCall(
                str(item.get("call_id") or item.get("id")),
                str(item.get("name") or item["type"]),
                str(item.get(CALLS.get(item["type"], "")) or ""),
                "custom" if item["type"] == "custom_tool_call" else "function",
            )
            for item in items
            if is_call(str(item.get("type")))
        )
        return Round(tuple(map(write_json, items)), calls)

    @property
    def _waits(self) -> bool:
        """True where this answer ends for a call of the proxy's own tools: the end for the client is still to come."""
        return not self._is_last and self._status == "completed" and any(map(self._is_own, self._items.values()))

    # --- a stream ----------------------------------------------------------------------------------------------------

    def _show(self, event: bytes) -> bytes:
        value = read_data(event)
        kind = None if value is None else value.get("type")
        if value is None or not isinstance(kind, str):
            return event
        if kind in _BEGUN:
            return self._number(event, value) if self._is_first else b""
        if kind in _ENDED:
            return self._show_end(event, value)
        index = value.get("output_index")
        return self._show_item(event, value, index) if isinstance(index, int) else self._number(event, value)

    def _show_item(self, event: bytes, value: dict[str, Any], index: int) -> bytes:
        """An event about an item, with what was held back before it."""
        kind, ready = value["type"], b""
        if kind == "response.output_item.added":
            ready = self._open_item(index, as_object(value.get("item")))
        elif kind == "response.output_item.done":
            self._items[index] = as_object(value.get("item"))
        item = self._items.get(index, {})
        if self._is_own(item):
            self._is_changed = True
            return ready
        if self._thoughts or (item.get("type") == "reasoning" and index not in self._places):
            self._thoughts.append((event, value))
            return ready
        return ready + self._show_item_event(event, value)

    def _open_item(self, index: int, item: Item) -> bytes:
        """The reasoning before this item, if the client gets it."""
        self._items[index] = item
        thoughts, self._thoughts = self._thoughts, []
        if self._is_own(item):
            self._is_changed |= bool(thoughts)
            return b""
        return b"".join([self._show_item_event(*thought) for thought in thoughts])

    def _show_item_event(self, event: bytes, value: dict[str, Any]) -> bytes:
        index = value["output_index"]
        if index not in self._places:
            self._places[index] = self._next_index
            self._next_index += 1
        if value["type"] == "response.output_item.done":
            self._shown.append(as_object(value.get("item")))
        return self._number(event, {**value, "output_index": self._places[index]})

    def _show_end(self, event: bytes, value: dict[str, Any]) -> bytes:
        response = as_object(value.get("response"))
        self._status, self._round_usage = str(response.get("status")), as_object(response.get("usage")) or None
        if self._waits:
            return b""
        thoughts, self._thoughts = self._thoughts, []
        ready = b"".join([self._show_item_event(*thought) for thought in thoughts])
        if self._is_changed:
            response["output"] = self._shown
            response["usage"] = add_usage(self._usage, self._round_usage)
        return ready + self._number(event, value)

    def _number(self, event: bytes, value: dict[str, Any]) -> bytes:
        """The event with its number in the order of what the client gets, and without the tool among its tools."""
        number = value.get("sequence_number")
        if not self._is_changed:
            self._sequence = number if isinstance(number, int) else self._sequence
            if not self._names_own(event):
                return event
        elif isinstance(number, int):
            self._sequence += 1
            value["sequence_number"] = self._sequence
        return write_event(self._without_tools(value), named=has_name(event))

    # --- a body ------------------------------------------------------------------------------------------------------

    def _read_body(self) -> None:
        whole = read_object(self._body) or {}
        output = whole.get("output")
        self._items = dict(enumerate(map(as_object, output if isinstance(output, list) else ())))
        self._round_usage, self._status = as_object(whole.get("usage")) or None, str(whole.get("status"))

    def _keep_shown(self) -> None:
        self._shown += self._leave_out_own(self._items.values())

    def _join_bodies(self) -> bytes | None:
        if self._is_first and not self._names_own(self._body):
            return None
        whole = read_object(self._body)
        if whole is None or whole.get("object") != "response":
            return None
        output = [*self._shown, *self._leave_out_own(self._items.values())]
        usage = add_usage(self._usage, self._round_usage)
        return write_json(self._without_tools({**whole, "output": output, "usage": usage}))

    def _is_own(self, item: Mapping[str, Any]) -> bool:
        """Whether this is a call of one of the proxy's own tools."""
        return item.get("type") == "function_call" and item.get("name") in self._own

    def _leave_out_own(self, items: Iterable[Item]) -> list[Item]:
        """The items without calls of the proxy's own tools, and without the reasoning that led to them."""
        shown: list[Item] = []
        for item in items:
            if not self._is_own(item):
                shown.append(item)
            elif shown and shown[-1].get("type") == "reasoning":
                shown.pop()
        return shown

    def _without_tools(self, value: dict[str, Any]) -> dict[str, Any]:
        """The event or answer without the proxy's own tools in the list of tools, which this API repeats."""
        about = value.get("response", value)
        if isinstance(about, dict) and isinstance(about.get("tools"), list):
            about["tools"] = [
                tool for tool in about["tools"] if not (isinstance(tool, dict) and tool.get("name") in self._own)
            ]
        return value
