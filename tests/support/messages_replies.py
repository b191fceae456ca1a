"""Answers of an upstream of Anthropic Messages, block by block, whole or as events."""

import json

from tests.support.scripted_upstream import answer, stream


def text(words):
    return {"type": "text", "text": words}


def thinking_block(words):
    return {"type": "thinking", "thinking": words, "signature": f"signed {words}"}


def tool_use_block(name, number, **arguments):
    return {"type": "tool_use", "id": f"toolu_{number}", "name": name, "input": arguments}


def blocks_reply(*blocks, stop=None, fresh=10, cached=90, written=5):
    """An answer of these blocks, whole or as events, as it is asked for."""
    used = any(block["type"] == "tool_use" for block in blocks)
    usage = {"input_tokens": fresh, "cache_read_input_tokens": cached, "output_tokens": written}
    about = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude", "stop_sequence": None}
    whole = {
        **about,
        "content": list(blocks),
        "stop_reason": stop or ("tool_use" if used else "end_turn"),
        "usage": usage,
    }
    return lambda asked: stream(*events_of(whole)) if asked.json.get("stream") else answer(whole)


def events_of(whole):
    start = {**whole, "content": [], "stop_reason": None, "usage": {**whole["usage"], "output_tokens": 1}}
    events = [{"type": "message_start", "message": start}, {"type": "ping"}]
    for index, block in enumerate(whole["content"]):
        deltas = []
        match block["type"]:
            case "text":
                opened, deltas = text(""), [{"type": "text_delta", "text": word} for word in block["text"].split("|")]
            case "thinking":
                opened = {"type": "thinking", "thinking": "", "signature": ""}
                deltas = [{"type": "thinking_delta", "thinking": block["thinking"]}]
                deltas += [{"type": "signature_delta", "signature": block["signature"]}]
            case _:
                opened, found = {**block, "input": {}}, json.dumps(block["input"])
                deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in (found[:4], found[4:])]
        events.append({"type": "content_block_start", "index": index, "content_block": opened})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    ended = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    events.append(
        {"type": "message_delta", "delta": ended, "usage": {"output_tokens": whole["usage"]["output_tokens"]}}
    )
    events.append({"type": "message_stop"})
    return [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events]
