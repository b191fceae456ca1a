"""Chat requests as agents send them, made to a size: a system prompt, tools, a task, calls and their results."""

import json
import random
from collections.abc import Iterator
from typing import Any

WORDS = ("the", "test", "of", "a", "parser", "fails", "when", "import", "path", "file", "line", "error", "value")
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"{name} something in the workspace and tell what came out",
            "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
        },
    }
    for name in ("Read", "Edit", "Bash")
]


def chat(size: int, *, stream: bool = False) -> bytes:
    """A request of very nearly this many bytes, the same one each time."""
    dice = random.Random(size)
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You are a coding agent. Work in small steps."},
        {"role": "user", "content": "Make the failing test pass."},
    ]
    request = {"model": "bench-1", "stream": stream, "tools": TOOLS, "messages": messages}
    missing = size - len(_bytes(request))
    while missing > 4000:
        turn = _turn(dice, len(messages), dice.randrange(500, 3000))
        messages.extend(turn)
        missing -= len(_bytes(turn))
    messages.append({"role": "user", "content": _words(dice, max(missing - 40, 1))})
    return _bytes(request)


def growing(size: int, turns: int, seed: int) -> Iterator[bytes]:
    """The requests of a history of this size that goes on: each is the one before, one more call and its result."""
    dice = random.Random(seed)
    request = json.loads(chat(size))
    messages = request["messages"]
    messages[1]["content"] += f" Try {seed}."  # a history that was never sent before
    for _ in range(turns):
        messages.extend(_turn(dice, len(messages), 500))
        yield _bytes(request)


def _turn(dice: random.Random, number: int, size: int) -> list[dict[str, Any]]:
    path = json.dumps({"path": f"src/module_{number}.py"})
    call = {"id": f"call_{number}", "type": "function", "function": {"name": "Read", "arguments": path}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"call_{number}", "content": _words(dice, size)},
    ]


def _words(dice: random.Random, size: int) -> str:
    return " ".join(dice.choices(WORDS, k=size // 3))[:size]


def _bytes(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
