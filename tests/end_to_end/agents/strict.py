"""What strict upstreams find wrong with a history, each by its own rules.

    violations(body) == []                                  a request that OpenAI does not refuse
    violations(body, ALTERNATING) == []                     ... nor the chat templates of Mistral and Qwen
    violations(body, ANTHROPIC) == []                       ... nor an adapter to Anthropic's messages

Every sentence says which message and what is wrong with it. The last two are stricter than many agents are: what they
find is a fault of the proxy only where the agent's own history had none.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

Messages = list[dict[str, Any]]
Rule = Callable[[Messages], Iterator[str]]

ROLES = ("system", "developer", "user", "assistant", "tool")
_ID = re.compile(r"[a-zA-Z0-9_-]+")


def violations(body: dict[str, Any], rules: Sequence[Rule] | None = None) -> list[str]:
    return [fault for rule in rules or OPENAI for fault in rule(body["messages"])]


def _of_the_whole(messages: Messages) -> Iterator[str]:
    roles = [message.get("role") for message in messages]
    if "user" not in roles:
        yield "there is no user message"
    if roles and roles[-1] == "assistant":
        yield "the history ends with the assistant"


def _of_each(messages: Messages) -> Iterator[str]:
    for at, message in enumerate(messages):
        role = message.get("role")
        if role not in ROLES:
            yield f"message {at}: no such role as {role!r}"
        if not message.get("content") and not message.get("tool_calls") and role != "tool":
            yield f"message {at}: the {role} says nothing"
        if role == "tool" and not isinstance(message.get("content"), (str, list)):
            yield f"message {at}: a result without content"


def _of_calls(messages: Messages) -> Iterator[str]:
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


def _of_arguments(at: int, calls: Messages) -> Iterator[str]:
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


def _of_turns(messages: Messages) -> Iterator[str]:
    """User and assistant take turns, beginning with the user; calls and results are within the assistant's turn."""
    last = "assistant"
    for at, message in enumerate(messages):
        role = message["role"]
        if role in ("user", "assistant") and not message.get("tool_calls"):
            if role == last:
                yield f"message {at}: the {role} speaks twice in a row"
            last = role
        elif role == "assistant" and last == "assistant" and messages[at - 1]["role"] != "tool":
            yield f"message {at}: calls before the user spoke"


def _of_places(messages: Messages) -> Iterator[str]:
    """A result is followed by the assistant; instructions are at the head, once."""
    for at, message in enumerate(messages):
        before = messages[at - 1]["role"] if at else None
        if message["role"] == "user" and before == "tool":
            yield f"message {at}: the user speaks directly after a result"
        if message["role"] in ("system", "developer") and at:
            yield f"message {at}: instructions that are not the first message"


def _of_blocks(messages: Messages) -> Iterator[str]:
    """No text is empty or blank, the user begins, and no id of a call is used twice."""
    body = [message for message in messages if message["role"] not in ("system", "developer")]
    if body and body[0]["role"] != "user":
        yield "the user does not begin"
    for at, message in enumerate(messages):
        if any(not text.strip() for text in _texts(message)) and message["role"] != "tool":
            yield f"message {at}: a blank text"
    ids = [call["id"] for message in messages for call in message.get("tool_calls") or ()]
    yield from (f"call {name}: not an id" for name in ids if not _ID.fullmatch(name))
    yield from (f"call {name}: an id that was used before" for at, name in enumerate(ids) if name in ids[:at])


def _texts(message: dict[str, Any]) -> Iterator[str]:
    """An empty content beside calls is how clients say that there is none."""
    content = message.get("content")
    if isinstance(content, str):
        yield from (content,) if content or not message.get("tool_calls") else ()
    for part in content if isinstance(content, list) else ():
        yield part.get("text", "-")


OPENAI: tuple[Rule, ...] = (_of_the_whole, _of_each, _of_calls)
ALTERNATING: tuple[Rule, ...] = (_of_turns, _of_places)
ANTHROPIC: tuple[Rule, ...] = (_of_blocks,)
DIALECTS = {"OpenAI": OPENAI, "alternating": ALTERNATING, "Anthropic": ANTHROPIC}
