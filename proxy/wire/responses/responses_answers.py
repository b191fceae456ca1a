"""Answers of Responses.

<https://platform.openai.com/docs/api-reference/responses-streaming>
"""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from proxy.recall.tool import OwnTool
from proxy.wire.answer_format import AnswerFormat
from proxy.wire.lenient import as_object, read_object, write_json
from proxy.wire.outline import find_values
from proxy.wire.responses.call_items import CALLS, is_call, write_output
from proxy.wire.responses.responses_rounds import ENDED, ResponsesRounds
from proxy.wire.rounds import Round, Rounds, extend_request
from proxy.wire.sse import write_event


class ResponsesAnswers(AnswerFormat):
    """Answers of Responses, which binds no reasoning to the history before it."""

    @staticmethod
    def define_tool(tool: OwnTool) -> bytes:
        definition = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
        # `strict` is on by default in this API, and would make every parameter a required one.
        return json.dumps({"type": "function", **definition, "strict": False}).encode()

    def read_event(self, event: Mapping[str, Any]) -> Mapping[str, Any]:
        kind = str(event.get("type"))
        if kind == "response.output_text.delta":
            return _make_chunk({"content": event.get("delta")})
        if kind == "response.output_item.done":
            call = _read_call(as_object(event.get("item")))
            if call is None:
                return _make_chunk({})
            return _make_chunk({"tool_calls": [call]})
        if kind in ENDED:
            response = as_object(event.get("response"))
            chunk = _make_chunk({}, _name_finish(response))
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
        for item in map(as_object, answer["output"]):
            if item.get("type") == "message" and isinstance(item.get("content"), list):
                content += item["content"]
            call = _read_call(item)
            if call is not None:
                calls.append(call)
        message: dict[str, Any] = {"role": "assistant", "content": content}
        if calls:
            message["tool_calls"] = calls
        choice = {"index": 0, "message": message, "finish_reason": _name_finish(answer)}
        return json.dumps({"model": answer.get("model"), "choices": [choice], "usage": answer.get("usage")}).encode()

    def render_answer(self, text: str, model: str, created: int, /, *, stream: bool) -> bytes:
        part = {"type": "output_text", "text": text, "annotations": []}
        item = {"id": "msg_compaction_proxy", "type": "message", "role": "assistant", "status": "completed"}
        usage = {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}
        response = {
            "id": "resp_compaction_proxy",
            "object": "response",
            "created_at": created,
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
        return b"".join(write_event(event, named=True) for event in events)

    def start_rounds(self, own_tools: Collection[str], *, stream: bool) -> Rounds:
        return ResponsesRounds(own_tools, stream=stream)

    def continue_request(self, source: bytes, answer: Round, results: Sequence[str]) -> bytes:
        places = find_values(source)
        is_stored = "store" not in places or source[slice(*places["store"])] != b"false"
        items = [json.loads(raw) for raw in answer.elements]
        call_types = [str(item.get("type")) for item in items if is_call(str(item.get("type")))]
        outputs = [
            write_output(call_type, call.id, text)
            for call_type, call, text in zip(call_types, answer.calls, results, strict=True)
        ]
        elements = answer.elements
        if not is_stored:
            elements = _make_sendable(elements, items)
        return extend_request(source, "input", (*elements, *outputs))

    def allows_rounds(self, source: bytes, /) -> bool:
        """False if the answer is made in the background: the client fetches it later, and no round can follow."""
        places = find_values(source)
        return "background" not in places or source[slice(*places["background"])] in (b"false", b"null")


RESPONSES_ANSWERS = ResponsesAnswers()


def _make_sendable(elements: tuple[bytes, ...], items: Sequence[dict[str, Any]]) -> tuple[bytes, ...]:
    """The items of an answer that is not stored: the API does not know their ids, nor reasoning in plain text."""
    reasoning = [item for item in items if item.get("type") == "reasoning"]
    if all(item.get("encrypted_content") for item in reasoning):
        return elements
    sendable = [item for item in items if item not in reasoning]
    for item in sendable:
        item.pop("id", None)
    return tuple(map(write_json, sendable))


def _read_call(item: Mapping[str, Any]) -> dict[str, Any] | None:
    member = CALLS.get(str(item.get("type")))
    if member is None:
        return None
    function = {"name": item.get("name"), "arguments": item.get(member)}
    return {"id": item.get("call_id"), "type": "function", "function": function}


def _make_chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def _name_finish(response: Mapping[str, Any]) -> str:
    return {"incomplete": "length", "failed": "error"}.get(str(response.get("status")), "stop")
