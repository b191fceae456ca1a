"""Conversations that were read from samples, told as a person reads them: for tests of session formats."""

import json
from pathlib import Path

from proxy.lab.sessions import read_conversations

SAMPLES = Path(__file__).parent / "samples"
CART = "def total(items):\n    return sum(item.price for item in items)\n"
PICTURE = "data:image/png;base64,iVBORw0KGgo="
NINE = 1795165200.0  # 2026-11-20, 09:00:00
KNOWN = {"role", "content", "tool_calls", "tool_call_id", "reasoning_content"}


def conversations(name):
    return list(read_conversations(SAMPLES / name))


def one(name):
    (found,) = conversations(name)
    return found


def format_lines(conversation):
    """A conversation as one reads it: a line a message."""
    return [_line(message) for message in conversation.messages]


def _line(message):
    content = message.get("content")
    if isinstance(content, list):
        content = " + ".join(part.get("text") or part["image_url"]["url"] for part in content)
    content = (content or "").replace(CART, "<cart>")
    thought = f"({message['reasoning_content']}) " if "reasoning_content" in message else ""
    made = "".join(f" {each['id']}={_call(each['function'])}" for each in message.get("tool_calls", ()))
    answers = f" {message['tool_call_id']}" if message["role"] == "tool" else ""
    others = "".join(f" with {name}" for name in sorted(message.keys() - KNOWN))
    return f"{message['role']}{answers}: {thought}{content}{made}{others}"


def _call(function):
    values = json.loads(function["arguments"]).values() if function["arguments"].startswith("{") else ["..."]
    return f"{function['name']}({', '.join(values)})"


def lines(path, *rows):
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows), encoding="utf-8")
    return path
