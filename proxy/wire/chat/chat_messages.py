"""Messages of chat completions: the bytes of a request to a `Request`."""

import json
from dataclasses import replace
from typing import Any

import msgspec

from proxy.history.messages import Message, Request, ToolCall, read_message
from proxy.wire.known_prefix import Prefix
from proxy.wire.outline import Places, find_values, locate, read_elements

_NULL = msgspec.Raw(b"null")


class _Function(msgspec.Struct):
    name: str = ""
    arguments: str = ""
    input: str = ""


class _Call(msgspec.Struct):
    id: str = ""
    function: _Function | None = None
    custom: _Function | None = None


class _Message(msgspec.Struct):
    role: str
    content: msgspec.Raw = _NULL
    tool_call_id: str | None = None
    name: str | None = None
    tool_calls: list[_Call] | None = None
    function_call: _Function | None = None


_message_decoder = msgspec.json.Decoder(_Message)


def build_request(source: bytes, places: Places, earlier: tuple[Message, ...] = ()) -> Request | None:
    """The request with these values; `earlier`: known messages that its own follow."""
    start, stop = places.get("messages", (0, 0))
    if source[start : start + 1] != b"[":
        return None
    messages, offsets = _read_history(source, start, stop, earlier)
    if not earlier and not messages:
        return None
    tools, tools_at = None, 0
    if "tools" in places:
        tools, tools_at = source[slice(*places["tools"])], places["tools"][0]
    user = _read_value(source, places, "safety_identifier", str) or _read_value(source, places, "user", str)
    max_output = _read_value(source, places, "max_completion_tokens", int)
    if not max_output:
        max_output = _read_value(source, places, "max_tokens", int)
    stream_options = _read_value(source, places, "stream_options", dict) or {}
    # Gateways pass this member on to Anthropic's API.
    thinking = _read_value(source, places, "thinking", dict) or {}
    return Request(
        source,
        messages,
        offsets,
        model=_read_value(source, places, "model", str) or "",
        tools=tools,
        tools_at=tools_at,
        forced_tool=_find_forced_tool(source, places),
        user=user or "",
        session=_read_value(source, places, "prompt_cache_key", str) or "",
        max_output=max_output,
        stream=bool(_read_value(source, places, "stream", bool)),
        asks_usage=bool(stream_options.get("include_usage")),
        has_thinking_budget=thinking.get("type") == "enabled",
    )


def _find_forced_tool(source: bytes, places: Places) -> str:
    """The tool that `tool_choice`, or the older `function_call`, names."""
    choice = _read_value(source, places, "tool_choice", dict) or _read_value(source, places, "function_call", dict)
    if choice is None:
        return ""
    tool = choice.get(choice.get("type"), choice)
    if isinstance(tool, dict) and isinstance(tool.get("name"), str):
        return str(tool["name"])
    return ""


def _read_value(source: bytes, places: Places, key: str, kind: type) -> Any:  # noqa: ANN401 - JSON
    """The value of this member if it is of this type, else None."""
    if key not in places:
        return None
    value = json.loads(source[slice(*places[key])])
    if type(value) is not kind:
        return None
    return value


def _read_history(
    source: bytes, start: int, stop: int, earlier: tuple[Message, ...]
) -> tuple[tuple[Message, ...], tuple[int, ...]]:
    """The messages and where each begins. Messages of the head have no place in the body."""
    messages: list[Message] = []
    is_head, body_size = True, 0
    if earlier:
        is_head, body_size = False, earlier[-1].stop
    elements = read_elements(source[start:stop])
    for raw in elements:
        fields = _read_message(raw)
        is_head = is_head and fields[1] in ("system", "developer")
        if is_head:
            messages.append(Message(*fields, 0, 0))
        else:
            messages.append(Message(*fields, body_size, body_size + 1))
            body_size += 1
    return tuple(messages), tuple(start for start, _ in locate(source, start + 1, elements))


def _read_message(raw: bytes) -> tuple[bytes, str, bytes, tuple[ToolCall, ...], str]:
    """The fields of a message, by the fast parser if it has the usual shape."""
    try:
        fields = _message_decoder.decode(raw)
    except msgspec.MsgspecError:
        message = read_message(json.loads(raw), raw)
        return raw, message.role, message.content, message.calls, message.answers
    answers: str | None = None
    calls: tuple[ToolCall, ...] = ()
    if fields.role == "tool":
        answers = fields.tool_call_id
    elif fields.role == "function":
        answers = fields.name
    elif fields.role == "assistant":
        calls = _convert_calls(fields)
    return raw, fields.role, bytes(fields.content), calls, answers or ""


def _convert_calls(fields: _Message) -> tuple[ToolCall, ...]:
    calls: list[ToolCall] = []
    for call in fields.tool_calls or ():
        if call.custom is not None:
            calls.append(ToolCall(call.id, call.custom.name, call.custom.input, "custom"))
        else:
            function = call.function or _Function()
            calls.append(ToolCall(call.id, function.name, function.arguments))
    if fields.function_call is not None:
        calls.append(ToolCall("", fields.function_call.name, fields.function_call.arguments, "legacy"))
    return tuple(calls)


def read_after_prefix(source: bytes, prefix: Prefix) -> Request | None:
    """The request that begins with this prefix; None if it does not after all."""
    earlier, count = prefix.request, prefix.count
    rest = prefix.remove_from(source)
    places = find_values(rest)
    if not prefix.is_followed(source, rest, places.get("messages")):
        return None
    new = build_request(rest, places, earlier.messages[:count])
    if new is None:
        return None
    removed_bytes, moved_bytes = len(source) - len(rest), prefix.start - earlier.offsets[0]
    offsets = earlier.offsets[:count]
    if moved_bytes:
        offsets = tuple(offset + moved_bytes for offset in offsets)
    tools_at = new.tools_at
    if tools_at > prefix.start:
        tools_at += removed_bytes
    request = replace(
        new,
        source=source,
        messages=earlier.messages[:count] + new.messages,
        offsets=offsets + tuple(offset + removed_bytes for offset in new.offsets),
        tools_at=tools_at,
    )
    request.columns.follow(earlier.columns, count - earlier.head_size)
    return request
