"""The three APIs, each in the words that the tests of `Compact` are written in."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.support import messages_api, responses_api
from tests.support.client_answers import read_completion, read_message, read_response
from tests.support.completions import Call, Turn
from tests.support.messages import body, tool
from tests.support.scripted_upstream import answer, stream


@dataclass(frozen=True, slots=True)
class Said:
    """What a client puts together of one answer."""

    text: str
    calls: list[tuple[str, dict[str, Any]]]
    finish: str | None
    prompt_tokens: int


@dataclass(frozen=True, slots=True)
class Api:
    """One API: how a history is sent, what an upstream answers, and what comes of both."""

    path: str
    request: Callable[..., bytes]
    tool: Callable[[str], dict[str, Any]]
    reply: Callable[..., Any]
    """An answer of a text and calls, whole or as events, as it is asked for."""
    as_chat: Callable[[dict[str, Any]], dict[str, Any]]
    read: Callable[[bytes], Said]
    find_faults: Callable[[bytes], list[str]]


def make_calls(calls, first):
    """Calls as chat completions have them. No two of one conversation have the same id."""
    return [
        {"id": f"call_{first + place}", "type": "function", "function": {"name": name, "arguments": json.dumps(given)}}
        for place, (name, given) in enumerate(calls)
    ]


def _reply_chat(text, *calls, prompt=100, first=900):
    del first
    turn = Turn(text or None, tuple(Call(name, json.dumps(given)) for name, given in calls)).using(prompt)

    def script(asked):
        if not asked.json.get("stream"):
            return answer(turn.completion())
        return stream(*turn.frames(usage=asked.json["stream_options"]["include_usage"]))

    return script


def _read_chat(data):
    completion = read_completion(data)
    (choice,) = completion["choices"]
    functions = [call["function"] for call in choice["message"].get("tool_calls", ())]
    calls = [(function["name"], json.loads(function["arguments"])) for function in functions]
    tokens = (completion["usage"] or {}).get("prompt_tokens", 0)
    return Said(choice["message"]["content"] or "", calls, choice["finish_reason"], tokens)


def _request_chat(history, **more):
    options = {"stream_options": {"include_usage": True}} if more.get("stream") else {}
    return body(history, **{**options, **more})


def _reply_messages(text, *calls, prompt=100, first=900):
    whole = messages_api.answer_text(text, prompt, make_calls(calls, first))
    return lambda asked: stream(*messages_api.events_of(whole)) if asked.json.get("stream") else answer(whole)


def _read_messages(data):
    message = read_message(data)
    blocks, usage = message["content"], message["usage"]
    text = "|".join(block["text"] for block in blocks if block["type"] == "text")
    calls = [(block["name"], block["input"]) for block in blocks if block["type"] == "tool_use"]
    return Said(text, calls, message["stop_reason"], usage["input_tokens"] + usage["cache_read_input_tokens"])


def _reply_responses(text, *calls, prompt=100, first=900):
    """An answer repeats the tools of its request."""
    whole = responses_api.answer_whole(text, prompt, make_calls(calls, first))

    def script(asked):
        own = {**whole, "tools": asked.json.get("tools")}
        return stream(*responses_api.events_of(own)) if asked.json.get("stream") else answer(own)

    return script


def _read_responses(data):
    response = read_response(data)
    items, tokens = response["output"], response["usage"]["input_tokens"]
    text = "|".join(part["text"] for item in items if item["type"] == "message" for part in item["content"])
    calls = [(item["name"], json.loads(item["arguments"])) for item in items if item["type"] == "function_call"]
    return Said(text, calls, response["status"], tokens)


PARAMETERS = {"type": "object", "properties": {}}
APIS = {
    "chat": Api("/chat/completions", _request_chat, tool, _reply_chat, dict, _read_chat, lambda _: []),
    "messages": Api(
        "/messages",
        messages_api.request,
        lambda name: {"name": name, "input_schema": PARAMETERS},
        _reply_messages,
        messages_api.as_chat,
        _read_messages,
        messages_api.find_faults,
    ),
    "responses": Api(
        "/responses",
        responses_api.request,
        lambda name: {"type": "function", "name": name, "parameters": PARAMETERS},
        _reply_responses,
        responses_api.as_chat,
        _read_responses,
        responses_api.find_faults,
    ),
}
