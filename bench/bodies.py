"""Requests as agents send them, made to a size, for each API: a system prompt, tools, a task, calls and results."""

import json
import random
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

CHAT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"

RESULT_BYTES = (110, 450, 1_800, 7_000)
"""Sizes of new results, each as often: near the tenth, half, three quarters and 93 % of 23,533 recorded results."""
CALL_BYTES = 200
TURN_BYTES = sum(RESULT_BYTES) // len(RESULT_BYTES) + CALL_BYTES
"""Bytes of a call and its result, on average."""
STREAMED = {"stream": True, "stream_options": {"include_usage": True}}
"""What agents ask for with each request, behind their messages: a stream, and its usage."""
NEXT_MARK = "@"
"""Where the next messages come, while a body is written."""
NAME_PARTS = ("load", "berth", "ledger", "charge", "tide", "route", "quay", "crane", "settle", "audit", "queue", "sync")
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


@cache  # the words of 10 MB take most of a second to choose
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


def growing(size: int, turns: int, seed: int, path: str = CHAT, *, streams: bool = False) -> Iterator[bytes]:
    """The requests of a history of this size that goes on: each is the one before, one more call and its result."""
    dice = random.Random(seed)
    request = json.loads(chat(size))
    if streams:
        request = {name: request[name] for name in ("model", "messages", "tools")} | STREAMED
    messages = request["messages"]
    messages[1]["content"] += f" Try {seed}."  # a history that was never sent before
    count, body = len(messages), WRITTEN[path](request)
    body["input" if path == RESPONSES else "messages"].append(NEXT_MARK)
    history, end = _bytes(body).rsplit(b"," + _bytes(NEXT_MARK), 1)
    for number in range(count, count + 2 * turns, 2):
        history += b"," + _bytes(ELEMENTS[path](_turn(dice, number, dice.choice(RESULT_BYTES))))[1:-1]
        yield history + end


def interleave_turns(size: int, conversations: int, turn: int) -> Iterator[bytes]:
    """One request of each of so many conversations: the one before, one more call and its result."""
    for seed in range(conversations):
        *_, body = growing(size, turn + 1, seed)
        yield body


def _in_messages(request: dict[str, Any]) -> dict[str, Any]:
    system, *messages = request["messages"]
    tools = [
        {"name": name, "description": name, "input_schema": {"type": "object"}} for name in ("Read", "Edit", "Bash")
    ]
    fixed = {"model": "bench-2", "max_tokens": 1000, "system": system["content"], "tools": tools}
    return {**fixed, "messages": _write_messages(messages)}


def _write_messages(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for message in messages:
        if message["role"] == "tool":
            part = {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": message["content"]}
            found.append({"role": "user", "content": [part]})
        elif "tool_calls" in message:
            (call,) = message["tool_calls"]
            arguments = json.loads(call["function"]["arguments"])
            part = {"type": "tool_use", "id": call["id"], "name": call["function"]["name"], "input": arguments}
            found.append({"role": "assistant", "content": [part]})
        elif found and found[-1]["role"] == "user":
            found[-1]["content"].append({"type": "text", "text": message["content"]})
        else:
            found.append({"role": "user", "content": message["content"]})
    return found


def _in_responses(request: dict[str, Any]) -> dict[str, Any]:
    system, *messages = request["messages"]
    tools = [{"type": "function", **tool["function"]} for tool in request["tools"]]
    return {"model": "bench-1", "instructions": system["content"], "tools": tools, "input": _write_items(messages)}


def _write_items(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for message in messages:
        if message["role"] == "tool":
            call = message["tool_call_id"]
            found.append({"type": "function_call_output", "call_id": call, "output": message["content"]})
        elif "tool_calls" in message:
            (call,) = message["tool_calls"]
            found.append({"type": "function_call", "call_id": call["id"], **call["function"]})
        else:
            found.append({"role": "user", "content": message["content"]})
    return found


WRITTEN: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    CHAT: lambda request: request,
    MESSAGES: _in_messages,
    RESPONSES: _in_responses,
}
"""A chat request as each API has it, by path."""
ELEMENTS: dict[str, Callable[[list[dict[str, Any]]], list[dict[str, Any]]]] = {
    CHAT: list,
    MESSAGES: _write_messages,
    RESPONSES: _write_items,
}
"""Chat messages without the system's as each API has them, by path."""


def _turn(dice: random.Random, number: int, size: int) -> list[dict[str, Any]]:
    path = json.dumps({"path": f"src/module_{number}.py"})
    call = {"id": f"call_{number}", "type": "function", "function": {"name": "Read", "arguments": path}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"call_{number}", "content": _list_names(dice, size)},
    ]


def _list_names(dice: random.Random, size: int) -> str:
    """Hits of a search: each line has a path, a line number and names that stand nowhere else."""
    lines = []
    remaining = size
    while remaining > 0:
        folder, module, function = (f"{dice.choice(NAME_PARTS)}_{dice.randrange(10_000)}" for _ in range(3))
        line = f"src/{folder}/{module}.py:{dice.randrange(900)}:    def {function}(self, item):"
        lines.append(line[:remaining])
        remaining -= len(line) + 1
    return "\n".join(lines)


def _words(dice: random.Random, size: int) -> str:
    return " ".join(dice.choices(WORDS, k=size // 3))[:size]


def _bytes(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
