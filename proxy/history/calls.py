"""Change the calls in an assistant message, and the tools that a request offers."""

import json
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from proxy.history import splice
from proxy.history.messages import Message, make_literal
from proxy.tools.tool_call import ToolCall


def change_arguments(message: Message, change: Callable[[ToolCall], str], made: str) -> Message:
    """Replace the arguments of each call in a message by those that *change* returns."""
    changes: list[tuple[int, int, bytes]] = []
    for call, (start, stop) in zip(message.calls, _find_argument_spans(message.raw), strict=False):
        text = change(call)
        if text != call.arguments and stop:
            changes.append((start, stop, splice.quote(text)))
    raw = splice.replace_spans(message.raw, sorted(changes))
    if raw == message.raw:
        return message
    return make_literal(raw, message.start, message.stop, made)


def remove_calls(message: Message, removed: Collection[int], made: str) -> Message | None:
    """Remove calls by their numbers, or return None if nothing would be left.

    A legacy `function_call` is numbered after the others.
    """
    raw = message.raw
    calls = splice.find_member(raw, "tool_calls")
    count = 0
    empty_members: set[str] = set()
    if calls is not None:
        spans = list(splice.iterate_elements(raw, calls.start))
        count = len(spans)
        remaining = []
        for number, (start, stop) in enumerate(spans):
            if number not in removed:
                remaining.append(raw[start:stop])
        if spans and not remaining:
            empty_members.add("tool_calls")
        elif len(remaining) < count:
            raw = splice.replace_bytes(raw, calls.start, calls.stop, b"[" + b", ".join(remaining) + b"]")
    if count in removed:
        empty_members.add("function_call")
    shorter = make_literal(splice.remove_members(raw, frozenset(empty_members)), message.start, message.stop, made)
    if shorter.calls or shorter.text.strip():
        return shorter
    return None


def list_argument_texts(call: ToolCall) -> Iterator[str]:
    """Yield the texts in the arguments, or the arguments as one text if they are not JSON."""
    value = call.value
    if value is None:
        yield call.arguments
    else:
        yield from iterate_strings(value)


def iterate_strings(value: object) -> Iterator[str]:
    """Yield every text in a JSON value, without the names of members."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for member in value.values():
            yield from iterate_strings(member)
    elif isinstance(value, list):
        for element in value:
            yield from iterate_strings(element)


def _find_argument_spans(raw: bytes) -> list[tuple[int, int]]:
    """Return the spans of arguments in the order of `Message.calls`; (0, 0) for a call without them."""
    spans = []
    calls = splice.find_member(raw, "tool_calls")
    if calls is not None and raw[calls.start : calls.start + 1] == b"[":
        for start, _ in splice.iterate_elements(raw, calls.start):
            spans.append(_find_arguments(raw, start))
    legacy = splice.find_member(raw, "function_call")
    if legacy is not None and raw[legacy.start : legacy.start + 1] == b"{":
        spans.append(_find_span(raw, legacy.start, "arguments"))
    return spans


def _find_arguments(raw: bytes, start: int) -> tuple[int, int]:
    if raw[start : start + 1] != b"{":
        return 0, 0
    for kind, key in (("custom", "input"), ("function", "arguments")):
        inner = splice.find_member(raw, kind, start)
        if inner is not None and raw[inner.start : inner.start + 1] == b"{":
            return _find_span(raw, inner.start, key)
    return 0, 0


def _find_span(raw: bytes, start: int, key: str) -> tuple[int, int]:
    member = splice.find_member(raw, key, start)
    if member is None:
        return 0, 0
    return member.start, member.stop


def list_tool_names(tools: bytes | None) -> list[str]:
    if tools is None:
        return []
    return [_find_tool_name(definition) for definition in json.loads(tools) or ()]


def find_pruned_tools(tools: bytes | None, remaining_tools: bytes | None) -> tuple[str, ...]:
    if tools == remaining_tools:
        return ()
    remaining_names = set(list_tool_names(remaining_tools))
    return tuple(name for name in list_tool_names(tools) if name not in remaining_names)


def remove_pruned_tools(tools: bytes | None, pruned: Iterable[str]) -> bytes | None:
    """Remove tools by their names; the others keep their bytes. A list that would be empty stays."""
    pruned_names = frozenset(pruned)
    if tools is None or not pruned_names:
        return tools
    spans = list(splice.iterate_elements(tools))
    remaining = []
    for (start, stop), name in zip(spans, list_tool_names(tools), strict=True):
        if name not in pruned_names:
            remaining.append(tools[start:stop])
    if not remaining or len(remaining) == len(spans):
        return tools
    return b"[" + b",".join(remaining) + b"]"


def _find_tool_name(definition: Any) -> str:  # noqa: ANN401 - JSON
    if not isinstance(definition, dict):
        return ""
    inner = definition.get(definition.get("type"), definition)
    if not isinstance(inner, dict):
        return ""
    name = inner.get("name")
    return name if isinstance(name, str) else ""
