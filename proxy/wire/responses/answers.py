"""Answers of OpenAI Responses: as chat answers for what reads them, and answers that the proxy writes itself."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from proxy.wire.http import Headers

ID = "resp_compaction_proxy"
JSON: Headers = (("content-type", "application/json"),)
EVENTS: Headers = (("content-type", "text/event-stream; charset=utf-8"), ("cache-control", "no-cache"))
_ENDED = frozenset({"response.completed", "response.incomplete", "response.failed"})
_CALLS = {"function_call": "arguments", "custom_tool_call": "input"}


def read_event(event: Mapping[str, Any]) -> Mapping[str, Any]:
    """The chunk of a chat answer that says what this event says; any other object as it is."""
    kind = str(event.get("type"))
    if kind == "response.output_text.delta":
        return _chunk({"content": event.get("delta")})
    if kind == "response.output_item.done":
        call = _read_call(_object(event.get("item")))
        return _chunk({"tool_calls": [call]} if call else {})
    if kind in _ENDED:
        response = _object(event.get("response"))
        about = {"model": response.get("model"), "usage": response.get("usage"), "error": response.get("error")}
        return {**_chunk({}, _finish(response)), **about}
    return {"choices": []} if kind.startswith("response.") else event


def read_body(body: bytes) -> bytes:
    """The chat completion that says what this answer says; any other body as it is."""
    try:
        told = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return body
    if not isinstance(told, dict) or told.get("object") != "response" or not isinstance(told.get("output"), list):
        return body
    items = [_object(item) for item in told["output"]]
    listed = [item.get("content") for item in items if item.get("type") == "message"]
    said = [part for content in listed if isinstance(content, list) for part in content]
    calls = [call for call in map(_read_call, items) if call]
    message = {"role": "assistant", "content": said, **({"tool_calls": calls} if calls else {})}
    choice = {"index": 0, "message": message, "finish_reason": _finish(told)}
    return json.dumps({"model": told.get("model"), "choices": [choice], "usage": told.get("usage")}).encode()


def _read_call(item: Mapping[str, Any]) -> dict[str, Any] | None:
    key = _CALLS.get(str(item.get("type")))
    if key is None:
        return None
    called = {"name": item.get("name"), "arguments": item.get(key)}
    return {"id": item.get("call_id"), "type": "function", "function": called}


def _chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def _finish(response: Mapping[str, Any]) -> str:
    return {"incomplete": "length", "failed": "error"}.get(str(response.get("status")), "stop")


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def render_answer(text: str, model: str, created: int, *, stream: bool) -> tuple[Headers, bytes]:
    """An answer that says this, whole or as events, as it was asked for."""
    part = {"type": "output_text", "text": text, "annotations": []}
    item = {"id": "msg_compaction_proxy", "type": "message", "role": "assistant", "status": "completed"}
    usage = {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}
    about = {"id": ID, "object": "response", "created_at": created, "model": model, "tools": [], "tool_choice": "auto"}
    done = {**about, "status": "completed", "output": [{**item, "content": [part]}], "usage": usage}
    if not stream:
        return JSON, _json(done)
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
    return EVENTS, b"".join(b"event: %b\ndata: %b\n\n" % (each["type"].encode(), _json(each)) for each in numbered)


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
