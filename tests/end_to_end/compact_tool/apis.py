"""The three APIs, each in the words that the tests of `Compact` are written in."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.support import messages_api, responses_api
from tests.support.completions import Call, Turn
from tests.support.messages import body
from tests.support.proxy_client import data_of
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


# --- chat completions -------------------------------------------------------------------------------------------------


def _reply_chat(text, *calls, prompt=100, first=900):
    del first
    turn = Turn(text or None, tuple(Call(name, json.dumps(given)) for name, given in calls)).using(prompt)

    def script(asked):
        if not asked.json.get("stream"):
            return answer(turn.completion())
        return stream(*turn.frames(usage=asked.json["stream_options"]["include_usage"]))

    return script


def _read_chat(data):
    if not data.startswith(b"data:"):
        whole = json.loads(data)
        (choice,) = whole["choices"]
        called = [
            (each["function"]["name"], json.loads(each["function"]["arguments"]))
            for each in choice["message"].get("tool_calls", ())
        ]
        return Said(
            choice["message"]["content"] or "", called, choice["finish_reason"], whole["usage"]["prompt_tokens"]
        )
    events = data_of(data)
    assert events.pop() == "[DONE]"
    text, made, finishes, prompt = "", {}, [], 0
    for event in events:
        prompt = (event.get("usage") or {}).get("prompt_tokens", prompt)
        for choice in event["choices"]:
            text += choice["delta"].get("content") or ""
            finishes += [choice["finish_reason"]] if choice["finish_reason"] else []
            for piece in choice["delta"].get("tool_calls", ()):
                made.setdefault(piece["index"], ["", ""])
                made[piece["index"]][0] += piece["function"].get("name") or ""
                made[piece["index"]][1] += piece["function"].get("arguments") or ""
    (finish,) = finishes
    return Said(text, [(name, json.loads(given)) for name, given in made.values()], finish, prompt)


def _request_chat(history, **more):
    options = {"stream_options": {"include_usage": True}} if more.get("stream") else {}
    return body(history, **{**options, **more})


# --- Messages ---------------------------------------------------------------------------------------------------------


def _reply_messages(text, *calls, prompt=100, first=900):
    given = text, prompt, make_calls(calls, first)

    def script(asked):
        streams = asked.json.get("stream")
        return stream(*messages_api.answer_events(*given)) if streams else answer(messages_api.answer_text(*given))

    return script


def _read_messages(data):
    if not data.startswith(b"event:"):
        whole = json.loads(data)
        blocks, finish, usage = whole["content"], whole["stop_reason"], whole["usage"]
    else:
        blocks, finish, usage = [], None, {}
        for event in data_of(data):
            match event["type"]:
                case "message_start":
                    usage = event["message"]["usage"]
                case "content_block_start":
                    assert event["index"] == len(blocks)
                    blocks.append({**event["content_block"], "json": ""})
                case "content_block_delta":
                    delta = event["delta"]
                    blocks[-1]["json"] += delta.get("partial_json", "")
                    if "text" in delta:
                        blocks[-1]["text"] += delta["text"]
                case "message_delta":
                    finish, usage = event["delta"]["stop_reason"], usage | event["usage"]
        blocks = [{**block, "input": json.loads(block["json"] or "{}")} for block in blocks]
    text = "|".join(block["text"] for block in blocks if block["type"] == "text")
    called = [(block["name"], block["input"]) for block in blocks if block["type"] == "tool_use"]
    return Said(text, called, finish, usage["input_tokens"] + usage["cache_read_input_tokens"])


# --- Responses --------------------------------------------------------------------------------------------------------


def _reply_responses(text, *calls, prompt=100, first=900):
    given = text, prompt, make_calls(calls, first)

    def script(asked):
        tools = asked.json.get("tools")
        if not asked.json.get("stream"):
            return answer({**responses_api.answer_whole(*given), "tools": tools})
        events = [json.loads(each.partition(b"data: ")[2]) for each in responses_api.answer_events(*given)]
        for event in events:
            if "response" in event:
                event["response"]["tools"] = tools
        return stream(*[responses_api.render(event, number) for number, event in enumerate(events)])

    return script


def _read_responses(data):
    whole = json.loads(data) if data.startswith(b"{") else data_of(data)[-1]["response"]
    if not data.startswith(b"{"):
        done = [event["item"] for event in data_of(data) if event["type"] == "response.output_item.done"]
        assert done == whole["output"]
    text = "|".join(part["text"] for item in whole["output"] if item["type"] == "message" for part in item["content"])
    called = [
        (item["name"], json.loads(item["arguments"])) for item in whole["output"] if item["type"] == "function_call"
    ]
    return Said(text, called, whole["status"], whole["usage"]["input_tokens"])


def _tool_of_chat(name):
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}


def _tool_of_messages(name):
    return {"name": name, "input_schema": {"type": "object", "properties": {}}}


def _tool_of_responses(name):
    return {"type": "function", "name": name, "parameters": {"type": "object", "properties": {}}}


APIS = {
    "chat": Api(
        "/chat/completions", _request_chat, _tool_of_chat, _reply_chat, dict, _read_chat, lambda _: []
    ),
    "messages": Api(
        "/messages",
        messages_api.request,
        _tool_of_messages,
        _reply_messages,
        messages_api.as_chat,
        _read_messages,
        messages_api.find_faults,
    ),
    "responses": Api(
        "/responses",
        responses_api.request,
        _tool_of_responses,
        _reply_responses,
        responses_api.as_chat,
        _read_responses,
        responses_api.find_faults,
    ),
}  # fmt: skip
