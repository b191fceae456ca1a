"""OpenAI chat completions: bytes to values and back.

Only the outline of a request is parsed; each message and the tools stay slices of the client's bytes, and a request
is rendered by splicing, so that whatever was not touched leaves as it came, spacing included. What the fast parser
refuses (half surrogate pairs, `NaN`, repeated keys at the top) is read once more with the standard library; what that
refuses too is not understood (`None`) and the caller relays it as it is.
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from proxy.core.model import splice
from proxy.core.model.messages import Message, Request, ToolCall, read_message
from proxy.core.summaries.question import Try

_NULL = msgspec.Raw(b"null")
_OUTPUT = ("max_completion_tokens", "max_tokens")
# What would make a model answer with anything but one text.
_ASKS_FOR_MORE = frozenset(
    {
        "tool_choice",
        "function_call",
        "response_format",
        "n",
        "stop",
        "logprobs",
        "top_logprobs",
        "prediction",
        "modalities",
        "audio",
        "store",
        "web_search_options",
    }
)
_TOOLS = frozenset({"tools", "functions", "parallel_tool_calls"})
# What another upstream than the request's own is told beside the question. Some gateways read keys from the body, and
# `user`, `metadata` and their like name the client's account.
_KEYS_FOR_OTHER_UPSTREAMS = frozenset(
    {
        "model",
        "messages",
        *_OUTPUT,
        *_TOOLS,
        "stream",
        "stream_options",
        "temperature",
        "top_p",
        "seed",
        "reasoning_effort",
    }
)


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


_outline = msgspec.json.Decoder(dict[str, msgspec.Raw])
_array = msgspec.json.Decoder(list[msgspec.Raw])
_message = msgspec.json.Decoder(_Message)
_KEY = re.compile(rb'[ \t\n\r]*+"((?:[^"\\]++|\\.)*+)"[ \t\n\r]*+:[ \t\n\r]*+', re.DOTALL)
_BETWEEN = re.compile(rb"[ \t\n\r,]*+")
_COMMA = re.compile(rb"[ \t\n\r]*+[,}]")


def parse(source: bytes) -> Request | None:
    """The request in these bytes, or None when they cannot be understood."""
    try:
        source.decode()
        return _request(source, _find_values(source))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def render(request: Request, view: Sequence[Message], tools: bytes | None = None) -> bytes:
    """The request with `view` for its messages; `tools` replaces the tools it came with."""
    body = _splice(request, view)
    if tools is None or request.tools is None or tools == request.tools:
        return body
    shift = len(body) - len(request.source) if request.tools_at > request.offsets[0] else 0
    at = request.tools_at + shift
    return splice.replace_bytes(body, at, at + len(request.tools), tools)


def _splice(request: Request, view: Sequence[Message]) -> bytes:
    """Stretches of untouched neighbours go over in one piece, with the spacing between them."""
    source, messages, offsets = request.source, request.messages, request.offsets
    if len(view) == len(messages) and all(map(_is_same, view, messages)):
        return source
    ends = [at + len(message.raw) for at, message in zip(offsets, messages, strict=True)]
    comma = source[ends[0] : offsets[1]] if len(offsets) > 1 else b","
    placed = {id(message): place for place, message in enumerate(messages)}
    pieces, before = [source[: offsets[0]]], None
    for number, message in enumerate(view):
        place = placed.get(id(message))
        joined = place is not None and before is not None and place == before + 1
        gap = source[ends[place - 1] : offsets[place]] if joined and place else comma
        pieces += [gap if number else b"", message.raw]
        before = place
    return b"".join([*pieces, source[ends[-1] :]])


def _is_same(one: Message, other: Message) -> bool:
    return one is other or one.raw == other.raw


def _find_values(source: bytes) -> dict[str, tuple[int, int]]:
    """Start and end of each top-level value, by key."""
    try:
        places = _walk(source, _outline.decode(source))
    except msgspec.MsgspecError:
        places = None
    return _scan(source) if places is None else places


def _walk(source: bytes, outline: dict[str, msgspec.Raw]) -> dict[str, tuple[int, int]] | None:
    """One step per key, the values already known; None when a key stands there twice and hides a value."""
    at, places = source.index(b"{") + 1, {}
    for key, value in outline.items():
        found = _KEY.match(source, at)
        raw = bytes(value)
        if found is None or _decode_key(found[1]) != key or not source.startswith(raw, found.end()):
            return None
        places[key] = found.end(), found.end() + len(raw)
        at = _skip(_COMMA, source, found.end() + len(raw))
    return places if source[at - 1 : at] == b"}" else None


def _decode_key(key: bytes) -> str:
    return str(json.loads(b'"' + key + b'"')) if b"\\" in key else key.decode()


def _scan(source: bytes) -> dict[str, tuple[int, int]]:
    """Find the top-level values by reading every byte; `messages` or `tools` given twice are rejected."""
    if not isinstance(json.loads(source), dict):
        raise ValueError("a request is an object")  # noqa: TRY004 - for the caller it is one of many things JSON can be
    places: dict[str, tuple[int, int]] = {}
    for each in splice.members(source):
        if each.key in places and each.key in ("messages", "tools"):
            raise ValueError(f"{each.key} stands there twice")
        places[each.key] = each.start, each.stop
    return places


def _request(source: bytes, places: dict[str, tuple[int, int]]) -> Request | None:
    start, stop = places.get("messages", (0, 0))
    if source[start : start + 1] != b"[":
        return None
    messages, offsets = _history(source, start, stop)
    if not messages:
        return None
    tools = places.get("tools")
    return Request(
        source,
        messages,
        offsets,
        model=_value(source, places, "model", str, ""),
        tools=None if tools is None else source[slice(*tools)],
        tools_at=0 if tools is None else tools[0],
        user=_value(source, places, "safety_identifier", str, "") or _value(source, places, "user", str, ""),
        max_output=_value(source, places, "max_completion_tokens", int, None)
        or _value(source, places, "max_tokens", int, None),
        stream=_value(source, places, "stream", bool, False),  # noqa: FBT003 - the default, by place
    )


def _value(source: bytes, places: dict[str, tuple[int, int]], key: str, kind: type, default: Any) -> Any:  # noqa: ANN401 - JSON
    if key not in places:
        return default
    value = json.loads(source[slice(*places[key])])
    return value if type(value) is kind else default


def _history(source: bytes, start: int, stop: int) -> tuple[tuple[Message, ...], tuple[int, ...]]:
    """The messages and where each begins; those of the head stand for nothing of the body."""
    messages, offsets, at, body = [], [], start + 1, -1
    for raw in _elements(source[start:stop]):
        at = _skip(_BETWEEN, source, at)
        offsets.append(at)
        at += len(raw)
        found = _read_message(raw)
        leads = body < 0 and found[1] in ("system", "developer")
        body = body if leads else max(body, 0)
        messages.append(Message(*found, *((0, 0) if leads else (body, body + 1))))
        body += not leads
    return tuple(messages), tuple(offsets)


def _skip(pattern: re.Pattern[bytes], source: bytes, at: int) -> int:
    found = pattern.match(source, at)
    return at if found is None else found.end()


def _elements(raw: bytes) -> Iterator[bytes]:
    try:
        return map(bytes, _array.decode(raw))
    except msgspec.MsgspecError:
        return (raw[start:stop] for start, stop in splice.elements(raw))


def _read_message(raw: bytes) -> tuple[bytes, str, bytes, tuple[ToolCall, ...], str]:
    """The fields of a message, by the fast parser where it has the usual shape."""
    try:
        found = _message.decode(raw)
    except msgspec.MsgspecError:
        message = read_message(json.loads(raw), raw)
        return raw, message.role, message.content, message.calls, message.answers
    role = found.role
    answers = found.tool_call_id if role == "tool" else found.name if role == "function" else None
    calls = _calls(found) if role == "assistant" else ()
    return raw, role, bytes(found.content), calls, answers or ""


def _calls(found: _Message) -> tuple[ToolCall, ...]:
    calls = [_call(each) for each in found.tool_calls or ()]
    if found.function_call is not None:
        calls.append(ToolCall("", found.function_call.name, found.function_call.arguments, "legacy"))
    return tuple(calls)


def _call(found: _Call) -> ToolCall:
    if found.custom is not None:
        return ToolCall(found.id, found.custom.name, found.custom.input, "custom")
    function = found.function or _Function()
    return ToolCall(found.id, function.name, function.arguments)


def answer_within(source: bytes, most: int) -> bytes:
    """The same request for an answer of at most `most` tokens; every other byte stays as it is."""
    asked = [each for each in splice.members(source) if each.key in _OUTPUT]
    if asked:
        over = [each for each in asked if _is_over(json.loads(source[each.start : each.stop]), most)]
        return splice.replace_spans(source, ((each.start, each.stop, b"%d" % most) for each in over))
    opening = source.index(b"{") + 1
    return splice.replace_bytes(source, opening, opening, b'"max_tokens":%d,' % most)


def _is_over(bound: object, most: int) -> bool:
    return bound is None or (isinstance(bound, int | float) and bound > most)


def disable_streaming(source: bytes) -> bytes:
    """The same request without streaming: its answer comes as one body."""
    return splice.without(source, frozenset({"stream", "stream_options"}))


def question(request: Request, put: Try, model: str = "", *, foreign: bool = False) -> bytes:
    """The client's own request with other messages, asking for a text and nothing else.

    Where it bounds the answer the bound is this one's; where it does not, neither does this. `foreign`: it goes to
    another upstream, so only what the question needs goes along.
    """
    source = render(request, put.messages, put.tools)
    if foreign:
        source = splice.without(source, {member.key for member in splice.members(source)} - _KEYS_FOR_OTHER_UPSTREAMS)
    source = splice.without(source, _ASKS_FOR_MORE if put.aligned else _ASKS_FOR_MORE | _TOOLS)
    wanted = dict.fromkeys(_OUTPUT, b"%d" % put.answer) | ({"model": json.dumps(model).encode()} if model else {})
    asked = [each for each in splice.members(source) if each.key in wanted]
    given = [each for each in asked if source[each.start : each.stop] != b"null"]
    return splice.replace_spans(source, ((each.start, each.stop, wanted[each.key]) for each in given))
