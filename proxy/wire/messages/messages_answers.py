"""Answers of Messages: <https://platform.claude.com/docs/en/build-with-claude/streaming>."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from proxy.history import splice
from proxy.recall.tool import RECALL
from proxy.tools.tool_call import ToolCall
from proxy.wire.answer_assembly import add_members, join_texts
from proxy.wire.api_format import (
    AnswerFormat,
    Round,
    Rounds,
    add_usage,
    extend_request,
    make_call,
    make_chunk,
    write_completion,
)
from proxy.wire.event_streams import read_event, write_event, write_named_events
from proxy.wire.json_body import as_object, as_text, read_object, write_json


class MessagesRounds(Rounds):
    """The rounds of Messages. All thinking is sent back to the API unchanged.

    The client does not get the thinking of later rounds: it is signed for another history.
    """

    _LIST = "content"
    _FINISH = "stop_reason"
    _CUT = frozenset({"max_tokens", "model_context_window_exceeded", "refusal", "pause_turn"})
    _CALL = "tool_use"
    _FINISHES = "tool_use", "end_turn"

    def _find_round(self) -> Round | None:
        blocks: list[dict[str, Any]] = []
        calls: list[ToolCall] = []
        for index in sorted(self._items):
            block = join_texts(self._items[index])
            if "partial_json" in block:
                arguments = as_text(block.pop("partial_json"))
                block["input"] = read_object(arguments.encode("utf-8", "surrogatepass")) or {}
            if block.get("type") == "text" and not str(block.get("text")).strip():
                continue  # the API refuses an empty text
            blocks.append(block)
            if block.get("type") == "tool_use":
                calls.append(ToolCall(str(block.get("id")), str(block.get("name")), json.dumps(block.get("input"))))
        return Round((b'{"role":"assistant","content":%b}' % write_json(blocks),), tuple(calls))

    def _show(self, event: bytes) -> bytes:
        value = read_event(event) or {}
        kind = value.get("type")
        if kind == "message_delta":
            return self._show_end(event, value)
        if kind in ("content_block_start", "content_block_delta", "content_block_stop"):
            return self._show_block_event(event, value)
        if kind == "message_start":
            self._round_usage = as_object(as_object(value.get("message")).get("usage"))
        if (kind == "message_start" and not self._is_first) or (kind == "message_stop" and self._waits):
            return b""
        return event

    def _show_block_event(self, event: bytes, value: Mapping[str, Any]) -> bytes:
        index = value["index"] if isinstance(value.get("index"), int) else -1
        if value["type"] == "content_block_start":
            # Blocks of the provider's tools begin with their results: only the members of deltas are pieces.
            block = self._items[index] = dict(as_object(value.get("content_block")))
            self._client_indexes.pop(index, None)
            if self._is_shown(block):
                self._client_indexes[index] = self._next_index
                self._next_index += 1
                self._client_calls += block.get("type") == "tool_use"
        elif value["type"] == "content_block_delta":
            delta = dict(as_object(value.get("delta")))
            delta.pop("type", None)
            if "citation" in delta:
                delta["citations"] = [delta.pop("citation")]  # a delta brings one element of the list
            block = self._items.setdefault(index, {})
            if "signature" in delta:  # it comes whole, and replaces an empty one
                block["signature"] = delta.pop("signature")
            add_members(block, delta)
        client_index = self._client_indexes.get(index)
        if client_index is None:
            return b""
        if client_index == value["index"]:
            return event
        return write_event({**value, "index": client_index}, named=True)

    def _is_shown(self, block: dict[str, Any]) -> bool:
        return not self._is_own(block) and (
            self._is_first or block.get("type") not in ("thinking", "redacted_thinking")
        )

    def _show_end(self, event: bytes, value: dict[str, Any]) -> bytes:
        delta = as_object(value.get("delta"))
        # The counts at the end are of the whole answer, and replace those of the beginning:
        # <https://platform.claude.com/docs/en/build-with-claude/streaming>.
        end_usage = as_object(value.get("usage"))
        usage = (self._round_usage or {}) | {name: count for name, count in end_usage.items() if count is not None}
        self._round_usage = usage
        # Several of these events may come, and later ones hold only the usage.
        self._finish = as_text(delta.get("stop_reason")) or self._finish
        if self._waits:
            return b""
        client_reason = self._name_finish(self._finish)
        if self._is_first and client_reason == self._finish:
            return event
        delta = {**delta, "stop_reason": client_reason}
        return write_event({**value, "delta": delta, "usage": add_usage(self._usage, usage)}, named=True)

    def _choose_shown(self) -> list[bytes]:
        shown = []
        for element, block in zip(self._elements, self._items.values(), strict=True):
            if self._is_shown(block):
                shown.append(element)
                self._client_calls += block.get("type") == "tool_use"
        return shown

    def _find_changes(self, body: Mapping[str, Any], /) -> dict[str, bytes]:
        reason = self._name_finish(self._finish)
        return {} if reason == body.get("stop_reason") else {"stop_reason": write_json(reason)}


class MessagesAnswers(AnswerFormat):
    ROUNDS = MessagesRounds

    RECALL_TOOL = json.dumps(
        {"name": RECALL.name, "description": RECALL.description, "input_schema": RECALL.parameters}
    ).encode()

    def read_event(self, event: Mapping[str, Any]) -> Mapping[str, Any]:
        match event.get("type"):
            case "message_start":
                message = as_object(event.get("message"))
                return {"model": message.get("model"), "usage": message.get("usage"), "choices": []}
            case "content_block_start":
                block = as_object(event.get("content_block"))
                if block.get("type") == "tool_use":
                    call = make_call(block.get("id"), block.get("name"), "")
                    return make_chunk({"tool_calls": [{"index": event.get("index"), **call}]})
                return make_chunk({"content": [{"index": event.get("index"), **block}]})
            case "content_block_delta":
                index, delta = event.get("index"), dict(as_object(event.get("delta")))
                kind = delta.pop("type", None)
                grown: dict[str, Any] = {"content": [{"index": index, **delta}]}
                if kind == "input_json_delta":
                    function = {"arguments": delta.get("partial_json")}
                    grown = {"tool_calls": [{"index": index, "function": function}]}
                return make_chunk(grown)
            case "message_delta":
                stop_reason = as_object(event.get("delta")).get("stop_reason")
                chunk = make_chunk({}, _name_finish(stop_reason))
                return chunk | {name: event.get(name) for name in ("usage", "context_management")}
        return event

    def read_body(self, body: bytes) -> bytes:
        answer = read_object(body)
        if answer is None or answer.get("type") != "message" or not isinstance(answer.get("content"), list):
            return body
        content: list[dict[str, Any]] = []
        calls: list[dict[str, Any]] = []
        for block in map(as_object, answer["content"]):
            if block.get("type") == "tool_use":
                calls.append(make_call(block.get("id"), block.get("name"), json.dumps(block.get("input"))))
            else:
                content.append(block)
        return write_completion(answer, content, calls, _name_finish(answer.get("stop_reason")))

    def render_answer(self, text: str, model: str, _timestamp: int, /, *, stream: bool) -> bytes:
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
        return write_named_events(events)

    def continue_request(self, source: bytes, answer: Round, results: Sequence[str]) -> bytes:
        results_by_call: list[bytes] = []
        for call, text in zip(answer.calls, results, strict=True):
            fields = splice.quote(call.id), splice.quote(text)
            results_by_call.append(b'{"type":"tool_result","tool_use_id":%b,"content":%b}' % fields)
        blocks = b",".join(results_by_call)
        return extend_request(source, "messages", (*answer.elements, b'{"role":"user","content":[%b]}' % blocks))


def _name_finish(stop_reason: object) -> str | None:
    if not isinstance(stop_reason, str):
        return None
    finish_reasons = {
        "end_turn": "stop",
        "stop_sequence": "stop",
        "max_tokens": "length",
        "model_context_window_exceeded": "length",
        "tool_use": "tool_calls",
        "refusal": "content_filter",
    }
    return finish_reasons.get(stop_reason, stop_reason)
