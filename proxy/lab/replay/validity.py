"""Rules of upstreams: breaches that a strict one would refuse, written from its documents alone.

Nothing here knows how the proxy works. Breaches are counted by kind, because some recorded histories bring theirs.
Three dialects: OpenAI's chat completions; chat templates that want user and assistant to alternate; and translations to
Anthropic's Messages.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from msgspec import Struct

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
HEAD = ("system", "developer")
_ID = re.compile(r"[a-zA-Z0-9_-]+")
_FOLLOWS = {"": ("user",), "user": ("assistant",), "assistant": ("user",), "calls": ("tool",)}
"""Who may speak next, if speakers alternate."""


class Shape(Struct, frozen=True):
    role: str
    calls: tuple[str, ...] = ()
    answers: str = ""
    openai: tuple[str, ...] = ()
    """Breaches of the message by itself."""
    anthropic: tuple[str, ...] = ()


def find_breaches(messages: Iterable[Mapping[str, Any]]) -> Counter[str]:
    """Check messages (JSON values) by OpenAI's rules."""
    return check_openai([_shape(message) for message in messages])


@lru_cache(maxsize=50_000)
def shape_of(raw: bytes) -> Shape:
    return _shape(json.loads(raw))


def check_openai(shapes: Sequence[Shape]) -> Counter[str]:
    faults = (fault for shape in shapes for fault in shape.openai)
    ends = [shape for shape in shapes if shape.role not in HEAD][-1:]
    last = ["it ends with an answer"] if ends and ends[0].role == "assistant" else []
    return Counter([*_check_beginning(shapes), *last, *faults, *_check_pairs(shapes)])


def check_alternation(shapes: Sequence[Shape]) -> Counter[str]:
    breaches: list[str] = []
    before = ""
    for number, shape in enumerate(shapes):
        role = "tool" if shape.role == "function" else shape.role
        if role in HEAD:
            breaches += ["an instruction in the midst"] if number and shapes[number - 1].role not in HEAD else []
            continue
        if role not in _FOLLOWS.get(before, ("tool", "assistant")):
            breaches.append(f"{role} after {before}" if before else "it does not begin with a user")
        before = "calls" if shape.calls else role
    return Counter(breaches)


def check_anthropic(shapes: Sequence[Shape]) -> Counter[str]:
    ids = Counter(call for shape in shapes for call in shape.calls)
    twice = ("a call's id stands there twice" for times in ids.values() for _ in range(times - 1))
    faults = (fault for shape in shapes for fault in shape.anthropic)
    return Counter([*_check_beginning(shapes), *faults, *twice, *_check_pairs(shapes)])


BY_DIALECT: Mapping[str, Callable[[Sequence[Shape]], Counter[str]]] = {
    "openai": check_openai,
    "alternating": check_alternation,
    "anthropic": check_anthropic,
}


def _check_beginning(shapes: Sequence[Shape]) -> Iterator[str]:
    body = [shape for shape in shapes if shape.role not in HEAD]
    if not any(member.role == "user" for member in body):
        yield "nobody asks anything"
    if body and body[0].role != "user":
        yield "it does not begin with a user"


def _check_pairs(shapes: Sequence[Shape]) -> Iterator[str]:
    """A call is answered once, directly after the message that made it; nothing else is answered."""
    waiting: list[str] = []
    for shape in shapes:
        if shape.role == "tool":
            if shape.answers in waiting:
                waiting.remove(shape.answers)
            else:
                yield "a result without its call"
            continue
        yield from ("a call without its result" for _ in waiting)
        waiting = list(shape.calls)
    yield from ("a call without its result" for _ in waiting)


def _shape(message: Mapping[str, Any]) -> Shape:
    calls = message.get("tool_calls") or ()
    ids = tuple(str(call.get("id", "")) for call in calls)
    return Shape(
        role=str(message.get("role")),
        calls=ids,
        answers=str(message.get("tool_call_id", "")),
        openai=tuple(_check_message(message)),
        anthropic=tuple(_check_translation(message, ids)),
    )


def _check_message(message: Mapping[str, Any]) -> Iterator[str]:
    role, content, calls = message.get("role"), message.get("content"), message.get("tool_calls")
    if role not in ROLES:
        yield "no such role"
    if content is not None and not isinstance(content, str | list):
        yield "content of another kind"
    if calls is not None and not calls:
        yield "an empty list of calls"
    if role == "assistant" and not content and not calls and not message.get("function_call"):
        yield "an answer that says nothing"
    if role != "assistant" and (content is None or content == []):
        yield "a message without content"
    yield from ("arguments are no JSON" for call in calls or () if not _is_json(_arguments(call)))


def _check_translation(message: Mapping[str, Any], ids: Iterable[str]) -> Iterator[str]:
    content = message.get("content")
    texts = []
    if isinstance(content, str):
        texts = [content]
    elif isinstance(content, list):
        texts = [part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str)]
    if message.get("role") == "user" and not all(map(str.strip, texts)):
        yield "a text that says nothing"
    yield from ("a call's id has other letters" for item in ids if not _ID.fullmatch(item))
    for call in message.get("tool_calls") or ():
        arguments = _arguments(call)
        if not (_is_json(arguments) and isinstance(json.loads(arguments), dict)):
            yield "arguments are no JSON object"


def _arguments(call: Mapping[str, Any]) -> str:
    """Arguments of a custom tool are free text, and pass for an empty object."""
    arguments = "{}" if isinstance(call.get("custom"), dict) else (call.get("function") or {}).get("arguments")
    return arguments if isinstance(arguments, str) else ""


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
