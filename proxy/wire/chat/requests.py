"""OpenAI chat completions: bytes to values and back.

Only the outline of a request is parsed; each message and the tools stay slices of the client's bytes, and a request
is rendered by splicing, so that whatever was not touched leaves as it came, spacing included. What the fast parser
refuses (half surrogate pairs, `NaN`, repeated keys at the top) is read once more with the standard library; what that
refuses too is not understood (`None`) and the caller relays it as it is.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any

import msgspec

from proxy.history import splice
from proxy.history.messages import HEAD, Message, ToolCall, read_message
from proxy.history.request import Request
from proxy.summary.question import Try
from proxy.wire import marks
from proxy.wire.outline import Prefix, find_first_element, find_values, list_named, locate, read_elements

# --- requests ---------------------------------------------------------------------------------------------------------

NAME = ""
"""Of the API, as requests have it."""
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
_USAGE_ASKED = b'{"include_usage":true}'
_ANTHROPIC_MODEL = "claude"
_PREVIOUS = b'"previous_response_id"'
"""LiteLLM passes it on to models that speak Responses."""
# What another upstream than the request's own gets beside the question. Some gateways read keys from the body, and
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


_message = msgspec.json.Decoder(_Message)
FIRST_MESSAGE = list_named("messages")


def parse(source: bytes, prefix: Prefix | None = None) -> Request | None:
    """The request in these bytes, or None when they cannot be understood. What is known of a prefix is not read."""
    try:
        found = None if prefix is None else _parse_behind(source, prefix)
        if found is not None:
            return found
        source.decode()
        return _build_request(source, find_values(source))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def find_first_message(source: bytes) -> int:
    """The probable place of the first message, -1 for none."""
    return find_first_element(source, FIRST_MESSAGE)


def why_relayed(source: bytes) -> str:
    """Why the history cannot be shortened here: a gateway keeps it elsewhere; else nothing."""
    if _PREVIOUS not in source:
        return ""
    try:
        place = find_values(source).get("previous_response_id")
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return ""
    return "" if place is None or source[slice(*place)] == b"null" else "history-elsewhere"


def render(request: Request, view: Sequence[Message], tools: bytes | None = None, shared: int = 0) -> bytes:
    """The request with `view` for its messages; `tools` replaces the tools it came with."""
    del shared
    body = _splice(request, view)
    if tools is None or request.tools is None or tools == request.tools:
        return body
    shift = len(body) - len(request.source) if request.tools_at > request.offsets[0] else 0
    at = request.tools_at + shift
    return splice.replace_bytes(body, at, at + len(request.tools), tools)


def _splice(request: Request, view: Sequence[Message]) -> bytes:
    """The body with this view; untouched neighbours keep the spacing between them."""
    source, count = request.source, len(request.messages)
    if not request.is_changed_by(view):
        return source
    comma = source[request.find_end(1) : request.offsets[1]] if count > 1 else b","
    if _is_evenly_spaced(request, comma):
        pieces = [message.raw for message in view]
    else:
        pieces = [*_cut_stretches(request, view)]
    return b"".join((source[: request.offsets[0]], comma.join(pieces), source[request.find_end(count) :]))


def _is_evenly_spaced(request: Request, comma: bytes) -> bool:
    """True where the same bytes are between all of the client's messages."""
    source, offsets, head, body = request.source, request.offsets, request.head_size, request.body

    def is_even(number: int) -> bool:
        return not number or source[request.find_end(number) : offsets[number]] == comma

    def look(known: Sequence[bool]) -> Iterator[bool]:
        so_far = known[-1] if known else all(map(is_even, range(head)))
        for number in range(head + len(known), head + len(body)):
            so_far = so_far and is_even(number)
            yield so_far

    return all(request.columns.even_spacing(len(body), look)[-1:])


def _cut_stretches(request: Request, view: Sequence[Message]) -> Iterator[bytes]:
    """Stretches of untouched neighbours in one piece, with the spacing between them, and each other message."""
    source, messages, offsets = request.source, request.messages, request.offsets
    count, head, number = len(messages), request.head_size, 0
    while number < len(view):
        first = head + view[number].start if view[number].stop else number
        length, most = 0, min(len(view) - number, count - first)
        while length < most and view[number + length] is messages[first + length]:
            length += 1
        yield source[offsets[first] : request.find_end(first + length)] if length else view[number].raw
        number += max(length, 1)


def _build_request(
    source: bytes, places: dict[str, tuple[int, int]], before: tuple[Message, ...] = ()
) -> Request | None:
    """The request with these values; `before`: known messages that its own follow."""
    start, stop = places.get("messages", (0, 0))
    if source[start : start + 1] != b"[":
        return None
    messages, offsets = _read_history(source, start, stop, before)
    if not (before or messages):
        return None
    tools = places.get("tools")
    return Request(
        source,
        messages,
        offsets,
        model=_read_value(source, places, "model", str, ""),
        tools=None if tools is None else source[slice(*tools)],
        tools_at=0 if tools is None else tools[0],
        forced_tool=_find_forced_tool(source, places),
        user=_read_value(source, places, "safety_identifier", str, "") or _read_value(source, places, "user", str, ""),
        session=_read_value(source, places, "prompt_cache_key", str, ""),
        max_output=_read_value(source, places, "max_completion_tokens", int, None)
        or _read_value(source, places, "max_tokens", int, None),
        stream=_read_value(source, places, "stream", bool, False),  # noqa: FBT003 - the default, by place
        asks_usage=bool(_read_value(source, places, "stream_options", dict, {}).get("include_usage")),
        # Gateways pass this member on to Anthropic's API.
        has_thinking_budget=_read_value(source, places, "thinking", dict, {}).get("type") == "enabled",
    )


def _find_forced_tool(source: bytes, places: dict[str, tuple[int, int]]) -> str:
    """The tool that `tool_choice`, or `function_call` of old, names."""
    choice = _read_value(source, places, "tool_choice", dict, None) or _read_value(
        source, places, "function_call", dict, None
    )
    if choice is None:
        return ""
    named = choice.get(choice.get("type"), choice)
    name = named.get("name") if isinstance(named, dict) else None
    return name if isinstance(name, str) else ""


def _read_value(source: bytes, places: dict[str, tuple[int, int]], key: str, kind: type, default: Any) -> Any:  # noqa: ANN401 - JSON
    if key not in places:
        return default
    value = json.loads(source[slice(*places[key])])
    return value if type(value) is kind else default


def _read_history(
    source: bytes, start: int, stop: int, before: tuple[Message, ...]
) -> tuple[tuple[Message, ...], tuple[int, ...]]:
    """The messages and where each begins; those of the head stand for nothing of the body."""
    messages, body = [], before[-1].stop if before else -1
    elements = read_elements(source[start:stop])
    for raw in elements:
        found = _read_message(raw)
        leads = body < 0 and found[1] in ("system", "developer")
        body = body if leads else max(body, 0)
        messages.append(Message(*found, *((0, 0) if leads else (body, body + 1))))
        body += not leads
    return tuple(messages), tuple(at for at, _ in locate(source, start + 1, elements))


def _read_message(raw: bytes) -> tuple[bytes, str, bytes, tuple[ToolCall, ...], str]:
    """The fields of a message, by the fast parser where it has the usual shape."""
    try:
        found = _message.decode(raw)
    except msgspec.MsgspecError:
        message = read_message(json.loads(raw), raw)
        return raw, message.role, message.content, message.calls, message.answers
    role = found.role
    answers = found.tool_call_id if role == "tool" else found.name if role == "function" else None
    calls = _convert_calls(found) if role == "assistant" else ()
    return raw, role, bytes(found.content), calls, answers or ""


def _convert_calls(found: _Message) -> tuple[ToolCall, ...]:
    calls = [_convert_call(each) for each in found.tool_calls or ()]
    if found.function_call is not None:
        calls.append(ToolCall("", found.function_call.name, found.function_call.arguments, "legacy"))
    return tuple(calls)


def _convert_call(found: _Call) -> ToolCall:
    if found.custom is not None:
        return ToolCall(found.id, found.custom.name, found.custom.input, "custom")
    function = found.function or _Function()
    return ToolCall(found.id, function.name, function.arguments)


def _parse_behind(source: bytes, prefix: Prefix) -> Request | None:
    """The request that begins with this prefix; None where it does not after all."""
    known, count, start = prefix.request, prefix.count, prefix.start
    rest = prefix.remove_from(source)
    places = find_values(rest)
    if not prefix.is_followed(source, rest, places.get("messages")):
        return None
    found = _build_request(rest, places, known.messages[:count])
    if found is None:
        return None
    cut, moved = len(source) - len(rest), start - known.offsets[0]
    before = known.offsets[:count] if not moved else tuple(at + moved for at in known.offsets[:count])
    request = replace(
        found,
        source=source,
        messages=known.messages[:count] + found.messages,
        offsets=before + tuple(at + cut for at in found.offsets),
        tools_at=found.tools_at + cut if found.tools_at > start else found.tools_at,
    )
    request.columns.follow(known.columns, count - known.head_size)
    return request


def add_marks(source: bytes, model: str) -> bytes:
    """The same request with cache marks, for a gateway that passes them on; only of models that need them."""
    if _ANTHROPIC_MODEL not in model or marks.KEY in source:
        return source
    start, stop = find_values(source)["messages"]
    leading = (json.loads(raw).get("role") in HEAD for raw in read_elements(source[start:stop]))
    head = sum(1 for _ in takewhile(bool, leading))
    return splice.replace_bytes(source, start, stop, marks.mark_messages(source[start:stop], head, marks.MARKS_MAX))


def answer_within(source: bytes, most: int) -> bytes:
    """The same request for an answer of at most `most` tokens; every other byte stays as it is."""
    return bound_answer(source, _OUTPUT, most)


def bound_answer(source: bytes, names: Sequence[str], most: int) -> bytes:
    """The same, with the names of the members that bound an answer: the last of them where the request has none."""
    asked = [each for each in splice.iterate_members(source) if each.key in names]
    if asked:
        over = [each for each in asked if _is_over(json.loads(source[each.start : each.stop]), most)]
        return splice.replace_spans(source, ((each.start, each.stop, b"%d" % most) for each in over))
    opening = source.index(b"{") + 1
    return splice.replace_bytes(source, opening, opening, b'"%b":%d,' % (names[-1].encode(), most))


def _is_over(bound: object, most: int) -> bool:
    return bound is None or (isinstance(bound, int | float) and bound > most)


def disable_streaming(source: bytes) -> bytes:
    """The same request without streaming: its answer comes as one body."""
    return splice.remove_members(source, frozenset({"stream", "stream_options"}))


def find_bounds(source: bytes) -> tuple[str, ...]:
    """The parameters by which a request bounds its answer."""
    given = (each for each in splice.iterate_members(source) if source[each.start : each.stop] != b"null")
    return tuple(each.key for each in given if each.key in _OUTPUT)


def request_usage(source: bytes) -> bytes | None:
    """A request for a stream that ends with its usage; None where it asks for that already."""
    place = find_values(source).get("stream_options") if b'"stream_options"' in source else None
    if place is None:
        opening = source.index(b"{") + 1
        return source[:opening] + b'"stream_options":' + _USAGE_ASKED + b"," + source[opening:]
    options = json.loads(source[slice(*place)])
    if options is None:
        options = {}
    if not isinstance(options, dict) or options.get("include_usage"):
        return None
    return splice.replace_bytes(source, *place, json.dumps({**options, "include_usage": True}).encode())


def render_question(
    request: Request, put: Try, bounds: Mapping[str, int], model: str = "", *, foreign: bool = False
) -> bytes:
    """The client's own request with other messages, asking for a text and nothing else.

    `bounds`: the most tokens of the answer, by the names of the parameters. `foreign`: it goes to another upstream, so
    only what the question needs goes along.
    """
    source = render(request, put.messages, put.tools)
    if foreign:
        source = splice.remove_members(
            source, {member.key for member in splice.iterate_members(source)} - _KEYS_FOR_OTHER_UPSTREAMS
        )
    source = splice.remove_members(source, _ASKS_FOR_MORE if put.aligned else _ASKS_FOR_MORE | _TOOLS)
    source = splice.remove_members(source, frozenset(_OUTPUT) - bounds.keys())
    return splice.set_members(source, write_bounds(bounds, model))


def write_bounds(bounds: Mapping[str, int], model: str) -> dict[str, bytes]:
    """The members of a request that bound its answer, and its model where another one is asked."""
    return {name: b"%d" % most for name, most in bounds.items()} | ({"model": splice.quote(model)} if model else {})
