"""Answers of Messages.

<https://platform.claude.com/docs/en/build-with-claude/streaming>
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from proxy.history import splice
from proxy.recall.tool import OwnTool
from proxy.wire.answer_format import AnswerFormat
from proxy.wire.lenient import as_object, read_object, write_json
from proxy.wire.messages.messages_rounds import THINKING, MessagesRounds
from proxy.wire.rounds import Round, Rounds, extend_request
from proxy.wire.sse import write_event

_FINISH_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}


class MessagesAnswers(AnswerFormat):
    """Answers of Messages."""

    @staticmethod
    def define_tool(tool: OwnTool) -> bytes:
        definition = {"name": tool.name, "description": tool.description, "input_schema": tool.parameters}
        return json.dumps(definition).encode()

    def read_event(self, event: Mapping[str, Any]) -> Mapping[str, Any]:
        match event.get("type"):
            case "message_start":
                message = as_object(event.get("message"))
                return {"model": message.get("model"), "usage": message.get("usage"), "choices": []}
            case "content_block_start":
                return _read_block_start(event)
            case "content_block_delta":
                return _read_block_delta(event)
            case "message_delta":
                stop_reason = as_object(event.get("delta")).get("stop_reason")
                return {**_make_chunk({}, stop_reason), "usage": event.get("usage")}
        return event

    def read_body(self, body: bytes) -> bytes:
        answer = read_object(body)
        if answer is None or answer.get("type") != "message" or not isinstance(answer.get("content"), list):
            return body
        content: list[dict[str, Any]] = []
        calls: list[dict[str, Any]] = []
        for block in map(as_object, answer["content"]):
            if block.get("type") == "tool_use":
                calls.append(_make_call(block, json.dumps(block.get("input"))))
            else:
                content.append(block)
        message: dict[str, Any] = {"role": "assistant", "content": content}
        if calls:
            message["tool_calls"] = calls
        choice = {"index": 0, "message": message, "finish_reason": _name_finish(answer.get("stop_reason"))}
        return json.dumps({"model": answer.get("model"), "choices": [choice], "usage": answer.get("usage")}).encode()

    def render_answer(self, text: str, model: str, _created: int, /, *, stream: bool) -> bytes:
        usage = {"input_tokens": 0, "output_tokens": 0}
        message = {
            "id": "msg_compaction_proxy",
            "type": "message",
            "role": "assistant",
            "model": model,
            "stop_sequence": None,
            "usage": usage,
        }
        if not stream:
            content = [{"type": "text", "text": text}]
            return write_json({**message, "content": content, "stop_reason": "end_turn"})
        events: list[dict[str, Any]] = [
            {"type": "message_start", "message": {**message, "content": [], "stop_reason": None}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": usage},
            {"type": "message_stop"},
        ]
        return b"".join(write_event(event, named=True) for event in events)

    def start_rounds(self, own_tools: Collection[str], *, stream: bool) -> Rounds:
        return MessagesRounds(own_tools, stream=stream)

    def continue_request(self, source: bytes, answer: Round, results: Sequence[str]) -> bytes:
        blocks = b",".join(
            b'{"type":"tool_result","tool_use_id":%b,"content":%b}' % (splice.quote(call.id), splice.quote(text))
            for call, text in zip(answer.calls, results, strict=True)
        )
        return extend_request(source, "messages", (*answer.elements, b'{"role":"user","content":[%b]}' % blocks))

    def remove_reasoning(self, answer: Round) -> Round:
        messages = [json.loads(raw) for raw in answer.elements]
        for message in messages:
            message["content"] = [block for block in message["content"] if block.get("type") not in THINKING]
        return replace(answer, elements=tuple(map(write_json, messages)))


MESSAGES_ANSWERS = MessagesAnswers()


def _read_block_start(event: Mapping[str, Any]) -> dict[str, Any]:
    block = as_object(event.get("content_block"))
    if block.get("type") == "tool_use":
        return _make_chunk({"tool_calls": [{"index": event.get("index"), **_make_call(block, "")}]})
    return _make_chunk({"content": [{"index": event.get("index"), **block}]})


def _read_block_delta(event: Mapping[str, Any]) -> dict[str, Any]:
    delta = dict(as_object(event.get("delta")))
    if delta.pop("type", None) == "input_json_delta":
        function = {"arguments": delta.get("partial_json")}
        return _make_chunk({"tool_calls": [{"index": event.get("index"), "function": function}]})
    return _make_chunk({"content": [{"index": event.get("index"), **delta}]})


def _make_call(block: Mapping[str, Any], arguments: str) -> dict[str, Any]:
    function = {"name": block.get("name"), "arguments": arguments}
    return {"id": block.get("id"), "type": "function", "function": function}


def _make_chunk(delta: dict[str, Any], stop_reason: object = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": _name_finish(stop_reason)}]}


def _name_finish(stop_reason: object) -> str | None:
    if not isinstance(stop_reason, str):
        return None
    return _FINISH_REASONS.get(stop_reason, stop_reason)
