"""What a strict upstream finds wrong with a history: OpenAI's rules, and those that Anthropic's adapter adds.

    violations(body) == []                                  a request that nobody refuses

Every sentence says which message and what is wrong with it.
"""

import json
from collections.abc import Iterator
from typing import Any

ROLES = ("system", "developer", "user", "assistant", "tool")


def violations(body: dict[str, Any]) -> list[str]:
    messages = body["messages"]
    return [*_of_the_whole(messages), *_of_each(messages), *_of_calls(messages)]


def _of_the_whole(messages: list[dict[str, Any]]) -> Iterator[str]:
    roles = [message.get("role") for message in messages]
    if "user" not in roles:
        yield "there is no user message"
    if roles and roles[-1] == "assistant":
        yield "the history ends with the assistant"


def _of_each(messages: list[dict[str, Any]]) -> Iterator[str]:
    for at, message in enumerate(messages):
        role = message.get("role")
        if role not in ROLES:
            yield f"message {at}: no such role as {role!r}"
        if not message.get("content") and not message.get("tool_calls") and role != "tool":
            yield f"message {at}: the {role} says nothing"
        if role == "tool" and not isinstance(message.get("content"), (str, list)):
            yield f"message {at}: a result without content"


def _of_calls(messages: list[dict[str, Any]]) -> Iterator[str]:
    """Each call is answered once, directly after the message that made it, and nothing else is."""
    awaited: list[str] = []
    for at, message in enumerate(messages):
        if message.get("role") == "tool":
            if message.get("tool_call_id") not in awaited:
                yield f"message {at}: a result that answers no call of the message before it"
            else:
                awaited.remove(message["tool_call_id"])
            continue
        yield from (f"message {at}: call {name} before it was not answered" for name in awaited)
        calls = message.get("tool_calls") or []
        awaited = [call["id"] for call in calls]
        yield from _of_arguments(at, calls)
    yield from (f"call {name} at the end was not answered" for name in awaited)


def _of_arguments(at: int, calls: list[dict[str, Any]]) -> Iterator[str]:
    if len({call["id"] for call in calls}) < len(calls):
        yield f"message {at}: two calls with one id"
    for call in calls:
        if not _is_object(call["function"]["arguments"]):
            yield f"message {at}: arguments of {call['function']['name']} are no JSON object"


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False
