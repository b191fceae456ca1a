"""Requests of chat completions.

Messages and tools stay slices of the client's bytes, and a request is rendered by splicing: all that was not touched
leaves as it came, spacing included. If the fast parser refuses it (half surrogate pairs, `NaN`, repeated keys at the
top), the standard library reads it.
<https://platform.openai.com/docs/api-reference/chat/create>
"""

import json
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from proxy.history import splice
from proxy.history.messages import Message, read_message
from proxy.history.request import Request
from proxy.shorten.reasons import Reason
from proxy.wire.api_format import RequestFormat
from proxy.wire.cache_placement import BlockPlace, place_marks_in_chat
from proxy.wire.chat.chat_answers import ChatAnswers
from proxy.wire.json_body import NULL, Places, Prefix, find_values, has_member, read_list, read_members


class _Message(msgspec.Struct):
    role: str
    content: msgspec.Raw = NULL
    tool_call_id: Any = None
    name: Any = None
    tool_calls: Any = None
    function_call: Any = None


_message_decoder = msgspec.json.Decoder(_Message)


class ChatFormat(RequestFormat):
    NAME = ""
    LIST = "messages"
    BOUNDS = ("max_completion_tokens", "max_tokens")
    ASKS_FOR_MORE = frozenset(
        {
            *("tool_choice", "function_call", "response_format", "n", "stop", "logprobs", "top_logprobs"),
            *("prediction", "modalities", "audio", "store", "web_search_options"),
        }
    )
    TOOLS = frozenset({"tools", "functions", "parallel_tool_calls"})
    KEYS_FOR_OTHER_UPSTREAMS = frozenset(
        {
            *("model", "messages", "stream", "stream_options", "temperature", "top_p", "seed", "reasoning_effort"),
            *BOUNDS,
            *TOOLS,
        }
    )
    answers = ChatAnswers()

    def _read(self, source: bytes, places: Places, prefix: Prefix | None) -> Request | None:
        start, stop = places.get("messages", (0, 0))
        if source[start : start + 1] != b"[":
            return None
        messages, offsets = _read_history(source, start, stop, prefix)
        if not messages:
            return None
        members = read_members(source, places)
        return Request(
            source,
            messages,
            offsets,
            asks_usage=bool(members.get("stream_options", {}).get("include_usage")),
            # Gateways pass this member on to Anthropic's API.
            has_thinking_budget=members.get("thinking", {}).get("type") == "enabled",
            **self._list_fields(members, source, places),
        )

    def why_relayed(self, source: bytes, /) -> Reason:
        # LiteLLM passes this member on to models that speak Responses:
        # <https://docs.litellm.ai/docs/response_api>.
        return "history-elsewhere" if has_member(source, "previous_response_id") else ""

    def render(self, request: Request, view: Sequence[Message], tools: bytes | None = None, /) -> bytes:
        body = _splice_messages(request, view)
        if tools is None or request.tools is None or tools == request.tools:
            return body
        start = request.tools_at
        if request.tools_at > request.offsets[0]:
            start += len(body) - len(request.source)
        return splice.replace_bytes(body, start, start + len(request.tools), tools)

    def find_bounds(self, source: bytes, /) -> tuple[str, ...]:
        return tuple(
            member.key
            for member in splice.iterate_members(source)
            if member.key in self.BOUNDS and source[member.start : member.stop] != b"null"
        )

    def place_marks(
        self, source: bytes, request: Request, _fold_ends: Sequence[BlockPlace], /, *, always: bool
    ) -> bytes:
        if not always or "claude" not in request.model:
            return source
        return place_marks_in_chat(source)

    def request_usage(self, source: bytes, /) -> bytes | None:
        place = find_values(source).get("stream_options") if b'"stream_options"' in source else None
        if place is None:
            opening = source.index(b"{") + 1
            return splice.replace_bytes(source, opening, opening, b'"stream_options":{"include_usage":true},')
        options = json.loads(source[slice(*place)])
        if options is None:
            options = {}
        if not isinstance(options, dict) or options.get("include_usage"):
            return None
        return splice.replace_bytes(source, *place, json.dumps({**options, "include_usage": True}).encode())


CHAT_FORMAT = ChatFormat()


def _splice_messages(request: Request, view: Sequence[Message]) -> bytes:
    """Write the request with the messages of a view. Untouched neighbours are one slice, with their spacing."""
    if not request.is_changed_by(view):
        return request.source
    messages, offsets, count = request.messages, request.offsets, len(request.messages)
    source = memoryview(request.source)  # so that only the last `join` copies
    # The client's first separator, with its spacing.
    comma: bytes | memoryview = source[request.find_end(1) : offsets[1]] if count > 1 else b","
    pieces: list[bytes | memoryview] = [source[: offsets[0]]]
    start = stop = 0  # of the neighbours so far
    for number, message in enumerate(view):
        if start < stop < count and message is messages[stop]:
            stop += 1
            continue
        if start < stop:
            pieces.append(source[offsets[start] : offsets[stop - 1] + len(messages[stop - 1].raw)])
        if number:
            pieces.append(comma)
        start = request.head_size + message.start if message.stop else number
        stop = start
        if start < count and message is messages[start]:
            stop += 1
        else:
            pieces.append(message.raw)
    if start < stop:
        pieces.append(source[offsets[start] : request.find_end(stop)])
    pieces.append(source[request.find_end(count) :])
    return b"".join(pieces)


def _read_history(
    source: bytes, start: int, stop: int, prefix: Prefix | None
) -> tuple[tuple[Message, ...], tuple[int, ...]]:
    """Return the messages and their offsets. Messages of the head are not numbered (`start`, `stop`)."""
    messages: list[Message] = []
    offsets: list[int] = []
    is_head, body_size = True, 0
    if prefix is not None:
        messages += prefix.request.messages[: prefix.count]
        moved_bytes = prefix.moved_bytes
        offsets += [offset + moved_bytes for offset in prefix.request.offsets[: prefix.count]]
        is_head, body_size = False, messages[-1].stop
    elements, spans = read_list(source, start, stop, prefix)
    for raw, span in zip(elements, spans, strict=True):
        offsets.append(span[0])
        try:
            fields = _message_decoder.decode(raw)
            message = read_message(msgspec.structs.asdict(fields), raw, bytes(fields.content))
        except msgspec.MsgspecError:
            message = read_message(json.loads(raw), raw)
        is_head = is_head and message.role in ("system", "developer")
        if is_head:
            messages.append(message)
        else:
            messages.append(replace(message, start=body_size, stop=body_size + 1))
            body_size += 1
    return tuple(messages), tuple(offsets)
