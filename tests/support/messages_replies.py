"""Answers of an upstream of Anthropic Messages, block by block, whole or as events."""

from tests.support.messages_api import events_of
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
