"""What an upstream that takes OpenAI's rules at their word would refuse in a request, written from the rules alone.

    breaches(after) <= breaches(before)     nothing that was right has come out wrong

Nothing here knows how the proxy works. Breaches are counted by kind, because some recorded histories bring theirs.
"""

import json
from collections import Counter

ROLES = ("system", "developer", "user", "assistant", "tool", "function")


def breaches(messages: list) -> Counter:
    return Counter([*_of_the_whole(messages), *_of_each(messages), *_of_pairs(messages)])


def _of_the_whole(messages):
    body = [message for message in messages if message["role"] not in ("system", "developer")]
    if not any(message["role"] == "user" for message in messages):
        yield "nobody asks anything"
    if body and body[0]["role"] != "user":
        yield "it does not begin with a user"
    if body and body[-1]["role"] == "assistant":
        yield "it ends with an answer"


def _of_each(messages):
    for message in messages:
        content, calls = message.get("content"), message.get("tool_calls")
        if message["role"] not in ROLES:
            yield "no such role"
        if content is not None and not isinstance(content, str | list):
            yield "content of another kind"
        if calls is not None and not calls:
            yield "an empty list of calls"
        if message["role"] == "assistant" and not content and not calls and not message.get("function_call"):
            yield "an answer that says nothing"
        if message["role"] != "assistant" and (content is None or content == []):
            yield "a message without content"
        yield from ("arguments are no JSON" for call in calls or () if not _is_json(call["function"]["arguments"]))


def _of_pairs(messages):
    """A call is answered once, directly after the message that made it; nothing else is answered."""
    waiting = []
    for message in messages:
        if message["role"] == "tool":
            if message.get("tool_call_id") in waiting:
                waiting.remove(message["tool_call_id"])
            else:
                yield "a result without its call"
            continue
        yield from ("a call without its result" for _ in waiting)
        waiting = [call["id"] for call in message.get("tool_calls") or ()]
    yield from ("a call without its result" for _ in waiting)


def _is_json(text):
    try:
        json.loads(text)
    except (TypeError, ValueError):
        return False
    return True
