"""A language for conversations: `chat(user("hi"), call("Read", out=big), assistant("done"))` is a request's bytes."""

import json
from itertools import count

from proxy.history.observations import mark_observations
from proxy.history.request import Known, Request
from proxy.wire.chat_api import CHAT_FORMAT

TENANT, KEY = "team-a", b"k" * 32


def system(text, **more):
    return [{"role": "system", "content": text, **more}]


def user(content, **more):
    return [{"role": "user", "content": content, **more}]


def assistant(content, **more):
    return [{"role": "assistant", "content": content, **more}]


def call(name, *, out="ok", preamble=None, **arguments):
    return calls((name, arguments, out), preamble=preamble)


def calls(*made, preamble=None):
    """Several calls in one message, each (name, arguments, result); ids are given when the chat is put together."""
    asked = {"role": "assistant", "content": preamble, "tool_calls": []}
    results = []
    for name, arguments, out in made:
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        asked["tool_calls"].append({"type": "function", "function": {"name": name, "arguments": text}})
        results.append({"role": "tool", "content": out})
    return [asked, *results]


def tool(name, **properties):
    schema = {"type": "object", "properties": {key: {"type": kind} for key, kind in properties.items()}}
    return {"type": "function", "function": {"name": name, "parameters": schema}}


def history(*pieces):
    """The messages, every call with an id of its own that its result carries."""
    numbers, messages = count(1), []
    for piece in pieces:
        waiting = []
        for message in piece:
            made = json.loads(json.dumps(message))
            for each in _answerable(made):
                each.setdefault("id", f"call_{next(numbers)}")
                waiting.append(each["id"])
            if made["role"] == "tool" and "tool_call_id" not in made:
                made["tool_call_id"] = waiting.pop(0)
            messages.append(made)
    return messages


def _answerable(message):
    """The calls of a message that are calls at all."""
    return [each for each in message.get("tool_calls") or () if isinstance(each, dict)]


def body(messages, **more):
    return json.dumps({"model": "gpt-4o", **more, "messages": messages}, ensure_ascii=False).encode()


def chat(*pieces, **more):
    return body(history(*pieces), **more)


def mark_output(body_, *patterns_and_pins, **more):
    return mark_observations(Known(body_), *patterns_and_pins, **more).messages


def request(*pieces, **more) -> Request:
    return parse_request(chat(*pieces, **more))


def parse_request(source: bytes) -> Request:
    found = CHAT_FORMAT.parse(source)
    assert found is not None
    return found
