"""Words of our own in the form of a chat completion: for the few questions that this proxy answers itself."""

import json
from typing import Any

from proxy.wire.headers import Headers

ID = "chatcmpl-compaction-proxy"
JSON: Headers = (("content-type", "application/json"),)
EVENTS: Headers = (("content-type", "text/event-stream; charset=utf-8"), ("cache-control", "no-cache"))
_FREE = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}


def render_completion(text: str, model: str, created: int, *, stream: bool) -> tuple[Headers, bytes]:
    """An answer that says this, whole or as events, as it was asked for."""
    about = {"id": ID, "created": created, "model": model}
    if not stream:
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return JSON, _json({**about, "object": "chat.completion", "choices": [choice], "usage": _FREE})
    about["object"] = "chat.completion.chunk"
    deltas: list[tuple[dict[str, str], str | None]] = [({"role": "assistant", "content": text}, None), ({}, "stop")]
    choices = ([{"index": 0, "delta": delta, "finish_reason": finish}] for delta, finish in deltas)
    events = [b"data: " + _json({**about, "choices": each}) + b"\n\n" for each in choices]
    return EVENTS, b"".join([*events, b"data: [DONE]\n\n"])


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
