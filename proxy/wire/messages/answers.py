"""Answers of Anthropic Messages: as chat answers for what reads them, and answers that the proxy writes itself."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from proxy.wire.http import Headers

_STOPS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}
ID = "msg_compaction_proxy"
JSON: Headers = (("content-type", "application/json"),)
EVENTS: Headers = (("content-type", "text/event-stream; charset=utf-8"), ("cache-control", "no-cache"))


def read_event(event: Mapping[str, Any]) -> Mapping[str, Any]:
    """The chunk of a chat answer that says what this event says; any other object as it is."""
    index = event.get("index")
    match event.get("type"):
        case "message_start":
            message = _object(event.get("message"))
            return {"model": message.get("model"), "usage": message.get("usage"), "choices": []}
        case "content_block_start":
            block = _object(event.get("content_block"))
            is_call = block.get("type") == "tool_use"
            opened = _open_call(block) if is_call else block
            return _chunk({"tool_calls" if is_call else "content": [{"index": index, **opened}]})
        case "content_block_delta":
            delta = _object(event.get("delta"))
            if delta.get("type") == "input_json_delta":
                part = {"arguments": delta.get("partial_json")}
                return _chunk({"tool_calls": [{"index": index, "function": part}]})
            told = {key: value for key, value in delta.items() if key != "type"}
            return _chunk({"content": [{"index": index, **told}]})
        case "message_delta":
            return {**_chunk({}, _object(event.get("delta")).get("stop_reason")), "usage": event.get("usage")}
    return event


def read_body(body: bytes) -> bytes:
    """The chat completion that says what this answer says; any other body as it is."""
    try:
        told = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return body
    if not isinstance(told, dict) or told.get("type") != "message" or not isinstance(told.get("content"), list):
        return body
    blocks = [_object(block) for block in told["content"]]
    calls = [
        {**_open_call(block), "function": {"name": block.get("name"), "arguments": json.dumps(block.get("input"))}}
        for block in blocks
        if block.get("type") == "tool_use"
    ]
    said = [block for block in blocks if block.get("type") != "tool_use"]
    message = {"role": "assistant", "content": said, **({"tool_calls": calls} if calls else {})}
    choice = {"index": 0, "message": message, "finish_reason": _finish(told.get("stop_reason"))}
    return json.dumps({"model": told.get("model"), "choices": [choice], "usage": told.get("usage")}).encode()


def _open_call(block: Mapping[str, Any]) -> dict[str, Any]:
    return {"id": block.get("id"), "type": "function", "function": {"name": block.get("name"), "arguments": ""}}


def _chunk(delta: dict[str, Any], stop: object = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": _finish(stop)}]}


def _finish(stop: object) -> str | None:
    return _STOPS.get(stop, stop) if isinstance(stop, str) else None


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def render_answer(text: str, model: str, created: int, *, stream: bool) -> tuple[Headers, bytes]:
    """An answer that says this, whole or as events, as it was asked for."""
    del created
    usage = {"input_tokens": 0, "output_tokens": 0}
    message = {"id": ID, "type": "message", "role": "assistant", "model": model, "stop_sequence": None, "usage": usage}
    if not stream:
        content = [{"type": "text", "text": text}]
        return JSON, _json({**message, "content": content, "stop_reason": "end_turn"})
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**message, "content": [], "stop_reason": None}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": usage},
        {"type": "message_stop"},
    ]
    return EVENTS, b"".join(b"event: %b\ndata: %b\n\n" % (each["type"].encode(), _json(each)) for each in events)


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
