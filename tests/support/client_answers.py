"""What a client of each API puts together of an answer, whether it came whole or as events: the whole answer."""

import json
from typing import Any

from tests.support.proxy_client import data_of


def read_completion(data: bytes) -> dict[str, Any]:
    if not data.startswith(b"data:"):
        return json.loads(data)
    events = data_of(data)
    assert events.pop() == "[DONE]"
    assert len({event["id"] for event in events}) == 1
    text, calls, finish_reasons, usage = "", {}, [], None
    for event in events:
        usage = event.get("usage") or usage
        for choice in event["choices"]:
            text += choice["delta"].get("content") or ""
            if choice["finish_reason"]:
                finish_reasons.append(choice["finish_reason"])
            for piece in choice["delta"].get("tool_calls", ()):
                call = calls.setdefault(piece["index"], {"id": "", "function": {"name": "", "arguments": ""}})
                call["id"] += piece.get("id") or ""
                for name in call["function"]:
                    call["function"][name] += piece["function"].get(name) or ""
    (finish_reason,) = finish_reasons
    message = {"content": text, "tool_calls": list(calls.values())}
    return {"choices": [{"message": message, "finish_reason": finish_reason}], "usage": usage}


PIECES = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "signature_delta": ("signature", "signature"),
    "input_json_delta": ("json", "partial_json"),
}
"""Where the text of a delta of Messages goes in its block, and where it stands in the delta."""


def read_message(data: bytes) -> dict[str, Any]:
    if not data.startswith(b"event:"):
        return json.loads(data)
    message = {}
    for event in data_of(data):
        match event["type"]:
            case "message_start":
                assert not message
                message = event["message"]
            case "content_block_start":
                assert event["index"] == len(message["content"])
                message["content"].append(event["content_block"])
            case "content_block_delta":
                assert event["index"] == len(message["content"]) - 1
                block = message["content"][-1]
                name, source = PIECES[event["delta"]["type"]]
                block[name] = block.get(name, "") + event["delta"][source]
            case "message_delta":
                message |= {**event["delta"], "usage": message["usage"] | event["usage"]}
    for block in message["content"]:
        if "json" in block:
            block["input"] = json.loads(block.pop("json") or "{}")
    return message


def read_response(data: bytes) -> dict[str, Any]:
    if not data.startswith(b"event:"):
        return json.loads(data)
    events = data_of(data)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    types = [event["type"] for event in events]
    assert (types.count("response.created"), types.count("response.completed")) == (1, 1)
    added = [event["output_index"] for event in events if event["type"] == "response.output_item.added"]
    assert added == list(range(len(added)))
    response = events[-1]["response"]
    assert [event["item"] for event in events if event["type"] == "response.output_item.done"] == response["output"]
    return response
