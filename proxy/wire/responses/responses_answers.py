"""Answers of Responses: <https://platform.openai.com/docs/api-reference/responses-streaming>."""

import json
from collections.abc import Mapping, Sequence
from itertools import starmap
from typing import Any

from msgspec import to_builtins

from proxy.recall.tool import RECALL
from proxy.wire.api_format import (
    AnswerFormat,
    Round,
    Rounds,
    add_usage,
    extend_request,
    make_call,
    make_chunk,
    write_completion,
    write_elements,
)
from proxy.wire.event_streams import has_name, read_event, write_event, write_named_events
from proxy.wire.json_body import as_object, as_text, find_raw, find_values, read_elements, read_object, write_json
from proxy.wire.responses.items import CALLS, decode_item, is_call, read_call, write_output

_BEGUN = frozenset({"response.created", "response.in_progress", "response.queued"})
ENDED = frozenset({"response.completed", "response.incomplete", "response.failed"})


class ResponsesRounds(Rounds):
    """The rounds of Responses. The client gets reasoning together with the item after it.

    If that is a call of the proxy's tool, it gets neither: the API refuses reasoning without the item after it.
    """

    _LIST = "output"
    _FINISH = "status"
    _CUT = frozenset({"incomplete", "failed", "cancelled", "in_progress", "queued"})
    _CALL = "function_call"

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

    def _find_round(self) -> Round | None:
        elements = [write_json(item) for _, item in sorted(self._items.items())]
        calls = [read_call(item) for item in map(decode_item, elements) if is_call(item.type)]
        return Round(tuple(elements), tuple(calls))

    def _show(self, event: bytes) -> bytes:
        value = read_event(event)
        if value is None or not isinstance(value.get("type"), str):
            return event
        if value["type"] in _BEGUN and not self._is_first:
            return b""
        if value["type"] in ENDED:
            return self._show_end(event, value)
        index = value.get("output_index")
        if value["type"] in _BEGUN or not isinstance(index, int):
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

    def _find_changes(self, body: Mapping[str, Any], /) -> dict[str, bytes]:
        """Return the list of tools, which the API repeats in its answer, without the proxy's."""
        tools = body.get("tools")
        if not isinstance(tools, list):
            return {}
        elements = read_elements(find_raw(self._body, find_values(self._body), "tools"))
        shown = [element for element, tool in zip(elements, tools, strict=True) if not _is_recall_tool(tool)]
        if len(shown) == len(elements):
            return {}
        return {"tools": write_elements(shown)}


def _is_recall_tool(tool: object) -> bool:
    return as_object(tool).get("name") == RECALL.name


class ResponsesAnswers(AnswerFormat):
    """Answers of Responses. The API binds no reasoning to the history before it, so every round keeps its own."""

    ROUNDS = ResponsesRounds

    # `strict` is on by default in this API, and would make every parameter a required one:
    # <https://platform.openai.com/docs/guides/function-calling#strict-mode>.
    RECALL_TOOL = json.dumps({"type": "function", **to_builtins(RECALL), "strict": False}).encode()

    def read_event(self, event: Mapping[str, Any]) -> Mapping[str, Any]:
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

    def read_body(self, body: bytes) -> bytes:
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
            return write_json(completed_response)
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
        items = [json.loads(raw) for raw in answer.elements]
        outputs: list[bytes] = []
        for item in items:
            call_type, number = str(item.get("type")), len(outputs)
            if is_call(call_type):
                outputs.append(write_output(call_type, answer.calls[number].id, results[number]))
        elements = answer.elements
        if find_raw(source, find_values(source), "store") == b"false":
            elements = _make_sendable(elements, items)
        return extend_request(source, "input", (*elements, *outputs))

    def allows_rounds(self, source: bytes, /) -> bool:
        """Return False for an answer made in the background: it is fetched later, and no round can follow."""
        return find_raw(source, find_values(source), "background") in (b"", b"false", b"null")


def _make_sendable(elements: tuple[bytes, ...], items: Sequence[dict[str, Any]]) -> tuple[bytes, ...]:
    """Return the items of an answer that was not stored: the API knows neither its ids nor reasoning in plain text."""
    must_change = False
    sendable: list[bytes] = []
    for item in items:
        if item.get("type") != "reasoning":
            item.pop("id", None)
            sendable.append(write_json(item))
        elif not item.get("encrypted_content"):
            must_change = True
    if must_change:
        return tuple(sendable)
    return elements


def _read_call(item: Mapping[str, Any]) -> dict[str, Any] | None:
    member = CALLS.get(str(item.get("type")))
    return None if member is None else make_call(item.get("call_id"), item.get("name"), item.get(member))


def _name_finish(response: Mapping[str, Any]) -> str:
    return {"incomplete": "length", "failed": "error"}.get(str(response.get("status")), "stop")
