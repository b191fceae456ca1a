"""Chat completions: the form that the core works on, and that the answers of all APIs are read as.

Messages and tools stay slices of the client's bytes, and a request is rendered by splicing: all that was not touched
leaves as it came, spacing included. If the fast parser refuses it (half surrogate pairs, `NaN`, repeated keys at the
top), the standard library reads it.

Requests: <https://platform.openai.com/docs/api-reference/chat/create>.
Answers: <https://platform.openai.com/docs/api-reference/chat-streaming>.
"""

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from itertools import chain, compress
from operator import is_not
from typing import Annotated, Any

import msgspec
from msgspec import Struct, to_builtins
from msgspec.structs import asdict, replace

from proxy.foundation.errors import to_json
from proxy.foundation.model_names import plain_name
from proxy.history import splice
from proxy.history.messages import HEAD, Message, read_message
from proxy.history.request import Request
from proxy.recall import RECALL
from proxy.wire.answer_assembly import Assembly
from proxy.wire.api_format import ApiFormat, Round, Rounds, add_usage, write_elements
from proxy.wire.cache_placement import Choice, ForwardedView, place_marks_in_chat
from proxy.wire.event_streams import StreamForm, read_event, write_bare_error, write_event
from proxy.wire.http_head import ApiPath
from proxy.wire.json_body import (
    NULL,
    UNREADABLE,
    Places,
    Prefix,
    as_object,
    as_text,
    build_reader,
    find_raw,
    find_values,
    read_elements,
    read_list,
    read_member,
)

_TEXT_MEMBERS = ("content", "reasoning_content", "reasoning")
SIGNED_MEMBER = "reasoning_details"
"""The member with signed reasoning. Later rounds are shown without it: it is signed for a history the client lacks."""


class _OpenCall(Struct):
    id: object = None
    client_index: int | None = None
    """None for a call of the proxy's own tool."""


class ChatRounds(
    Rounds,
    items="choices",
    finish="finish_reason",
    cut=frozenset({"length", "content_filter"}),
    call="function",
    finishes=("tool_calls", "stop"),
):
    def __init__(self, *, stream: bool) -> None:
        super().__init__(stream=stream)
        self._identity: dict[str, Any] = {}
        self._earlier_endings: dict[str, str] = {}
        """The last character of each text in the rounds before."""

    def _reset(self, *, is_last: bool) -> None:
        super()._reset(is_last=is_last)
        self._assembly = Assembly(CHAT_FORMAT, "text/event-stream")
        self._calls: dict[int, _OpenCall] = {}
        self._nameless: dict[int, list[dict[str, Any]]] = {}
        """The first pieces of calls whose name comes later, by index."""
        self._newest_index = -1
        self._calls_own = False
        self._endings: dict[str, str] = {}

    def feed(self, chunk: bytes) -> bytes:
        if self._stream:
            self._assembly.feed(chunk)
        return super().feed(chunk)

    def begin_round(self, *, is_last: bool) -> None:
        self._earlier_endings |= self._endings
        super().begin_round(is_last=is_last)

    @property
    def _message(self) -> bytes:
        """The message of the first choice."""
        if self._stream:
            return self._assembly.answer(ended=True).choices[0].message
        return find_raw(self._elements[0], find_values(self._elements[0]), "message")

    def _find_round(self) -> Round:
        # Some servers write no role or null, and an upstream refuses that.
        raw = splice.set_members(self._message, {"role": b'"assistant"'})
        return Round((raw,), read_message(json.loads(raw), raw).calls)

    def _has_own_call(self) -> bool:
        return self._calls_own

    def _show(self, event: bytes) -> bytes:
        chunk = read_event(event)
        if chunk is None or chunk.get("error"):
            return b"" if self._waits and b"[DONE]" in event else event
        if self._is_first and not self._identity:
            self._identity = {key: chunk[key] for key in ("id", "created") if key in chunk}
        choices = chunk.get("choices")
        choice = as_object(choices[0]) if isinstance(choices, list) and choices else {}
        finish, delta = choice.get("finish_reason"), choice.get("delta")
        if isinstance(delta, dict):
            self._change_delta(delta, is_end=bool(finish))
        if isinstance(finish, str):
            self._finish = finish
            choice["finish_reason"] = None if self._waits else self._name_finish(finish)
        usage = chunk.get("usage")
        if isinstance(usage, dict):
            self._round_usage = usage
            if self._waits:
                del chunk["usage"]
            elif self._usage:
                chunk["usage"] = add_usage(self._usage, usage)
        if self._is_first and chunk == read_event(event):
            return event
        if choice.get("delta") or choice.get("finish_reason") or isinstance(chunk.get("usage"), dict):
            return write_event(chunk | self._identity)
        return b""

    def _change_delta(self, delta: dict[str, Any], *, is_end: bool) -> None:
        """Leave out calls of the proxy's own tool, and part the texts of this round from those of earlier ones."""
        pieces = delta.get("tool_calls", [] if is_end and self._nameless else None)
        if isinstance(pieces, list):
            shown_pieces: list[dict[str, Any]] = []
            for piece in pieces:
                if isinstance(piece, dict):
                    shown_pieces += self._show_call(piece)
            if is_end:  # no name will come
                shown_pieces += chain.from_iterable(self._nameless.values())
            delta["tool_calls"] = shown_pieces
            if not shown_pieces and (pieces or not self._is_first):
                del delta["tool_calls"]
        if not self._is_first:
            delta.pop("role", None)
            delta.pop(SIGNED_MEMBER, None)
        for member in _TEXT_MEMBERS:
            text = delta.get(member)
            if isinstance(text, str) and text:
                if member not in self._endings:
                    delta[member] = _find_separator(self._earlier_endings.get(member, ""), text) + text
                self._endings[member] = text[-1:]

    def _show_call(self, piece: dict[str, Any]) -> list[dict[str, Any]]:
        function = as_object(piece.get("function") or piece.get("custom"))
        name, call_id, index = function.get("name"), piece.get("id"), piece.get("index")
        if not isinstance(index, int):
            index = self._newest_index + bool(name)
        call = self._calls.get(index)
        # A piece with other members belongs to no call of the proxy's own tool.
        if call is None and not name and piece.keys() <= {"index", "id", "type", "function"}:
            self._nameless.setdefault(index, []).append(piece)
            return []
        pieces = [*self._nameless.pop(index, ()), piece]
        if name and (call is None or (call_id and call_id != call.id)):  # some servers give all calls the same index
            call = _OpenCall(next(filter(None, (piece.get("id") for piece in pieces)), None))
            self._calls[index] = call
            if name == RECALL.name:
                self._calls_own = True
            else:
                call.client_index = self._client_calls
                self._client_calls += 1
        self._newest_index = index
        if call is None:
            return pieces
        if call.client_index is None:
            return []
        if self._calls_own or not self._is_first:
            for shown_piece in pieces:
                if "index" in shown_piece:
                    shown_piece["index"] = call.client_index
        return pieces

    def _read_body(self) -> None:
        super()._read_body()
        if not as_object(self._items.get(0, {}).get("message")):
            self._elements = []
            return
        self._finish = as_text(self._items[0].get("finish_reason")) or None
        self._calls_own = any(call.name == RECALL.name for call in self._find_round().calls)

    def _choose_shown(self) -> list[bytes]:
        message = self._message
        calls = _list_calls(message)
        shown = [raw for raw in calls if _name_function(raw) != RECALL.name]
        self._client_calls += len(shown)
        if len(shown) < len(calls):
            message = _set_calls(message, shown)
        return [message]

    def _join_bodies(self) -> bytes | None:
        if not self._elements:
            return None
        first, *other_choices = self._elements
        [message] = self._choose_shown()
        for earlier in reversed(self._shown_before):
            message = _prepend(message, earlier)
        if not self._is_first:
            message = splice.remove_members(message, {SIGNED_MEMBER})
        changes, finish = {}, str(self._items[0].get("finish_reason"))
        if message != find_raw(first, find_values(first), "message"):
            changes["message"] = message
        if self._name_finish(finish) != finish:
            changes["finish_reason"] = splice.write_json(self._name_finish(finish))
        if not changes and self._is_first:
            return None
        choices = write_elements((splice.set_members(first, changes), *other_choices))
        return splice.set_members(self._body, {"choices": choices, **self._sum_usage()})


def _list_calls(message: bytes) -> list[bytes]:
    calls = find_raw(message, find_values(message), "tool_calls")
    return read_elements(calls) if calls.startswith(b"[") else []


def _name_function(call: bytes) -> object:
    return as_object(as_object(json.loads(call)).get("function")).get("name")


def _set_calls(message: bytes, calls: Sequence[bytes]) -> bytes:
    if not calls:
        return splice.remove_members(message, {"tool_calls"})
    return splice.set_members(message, {"tool_calls": write_elements(calls)})


def _prepend(message: bytes, earlier: bytes) -> bytes:
    values, earlier_values, texts = json.loads(message), json.loads(earlier), {}
    for member in _TEXT_MEMBERS:
        before, text = earlier_values.get(member) or "", values.get(member) or ""
        if before and isinstance(before, str) and isinstance(text, str):
            if text:
                before += _find_separator(before, text)
            texts[member] = splice.write_json(before + text)
    earlier_calls = _list_calls(earlier)
    if earlier_calls:
        message = _set_calls(message, [*earlier_calls, *_list_calls(message)])
    return splice.set_members(message, texts)


def _find_separator(before: str, text: str) -> str:
    """Return the separator of the texts of two rounds: a new paragraph, unless there is white space already."""
    if not before or before[-1:].isspace() or text[:1].isspace():
        return ""
    return "\n\n"


class _Message(msgspec.Struct):
    role: str
    content: msgspec.Raw = NULL
    tool_call_id: Any = None
    name: Any = None
    tool_calls: Any = None
    function_call: Any = None


class _Outline(msgspec.Struct):
    messages: Annotated[list[_Message], msgspec.Meta(min_length=1)]
    model: Any = ""
    max_completion_tokens: Any = None
    max_tokens: Any = None


_decode_message = build_reader(_Message)
_outline_decoder = msgspec.json.Decoder(_Outline)


# These models refuse `max_tokens` (https://platform.openai.com/docs/guides/reasoning). Most other servers know only it.
_REASONING_MODEL = re.compile(r"o\d|gpt-(?:[5-9]|\d\d)")
_BOUNDS = ("max_completion_tokens", "max_tokens")
_TOOL_MEMBERS = frozenset({"tools", "functions", "parallel_tool_calls"})


class ChatFormat(ApiFormat):
    def read_outline(self, source: bytes) -> tuple[str, int | None] | None:
        """Read the outline by one call of the decoder: in a tenth of the time of `parse` at 1 KB, a third at 10 KB."""
        try:
            source.decode()
            outline = _outline_decoder.decode(source)
        except UNREADABLE:
            return super().read_outline(source)
        # A request with two lists of one name is not understood, and a name may be written with escapes.
        has_escapes = b"\\u00" in source
        if has_escapes or any(source.count(name) > 1 for name in (b'"messages"', b'"tools"')):
            return super().read_outline(source)
        max_output = None
        for bound in (outline.max_completion_tokens, outline.max_tokens):
            if type(bound) is int:
                max_output = max_output or bound
        return as_text(outline.model), max_output

    def _read(self, source: bytes, places: Places, prefix: Prefix | None) -> Request | None:
        start, stop = places.get("messages", (0, 0))
        if source[start : start + 1] != b"[":
            return None
        messages: list[Message] = []
        offsets: list[int] = []
        is_head, body_size = True, 0
        if prefix is not None:
            messages += prefix.request.messages[: prefix.count]
            offsets += prefix.request.offsets[: prefix.count]
            if moved_bytes := prefix.moved_bytes:
                offsets = [offset + moved_bytes for offset in offsets]
            is_head, body_size = False, messages[-1].stop
        elements, spans = read_list(source, start, stop, prefix)
        for raw, span in zip(elements, spans, strict=True):
            offsets.append(span[0])
            fields = _decode_message(raw)
            message = read_message(asdict(fields), raw, bytes(fields.content), body_size, body_size + 1)
            is_head = is_head and message.role in HEAD
            if is_head:
                message = replace(message, stop=0)
            else:
                body_size += 1
            messages.append(message)
        if not messages:
            return None
        stream_options = as_object(read_member(source, places, "stream_options"))
        return Request(
            source,
            tuple(messages),
            tuple(offsets),
            asks_usage=bool(stream_options.get("include_usage")),
            # Gateways pass this member on to Anthropic's API.
            has_thinking_budget=as_object(read_member(source, places, "thinking")).get("type") == "enabled",
            **self._list_fields(source, places),
        )

    def fits(self, _body: Mapping[str, Any], /) -> bool:
        return True

    def render(self, request: Request, view: Sequence[Message], tools: bytes | None = None, /) -> bytes:
        body = request.source
        if request.is_changed_by(view):
            body = _splice_messages(request, view)
        if tools is None or request.tools is None or tools == request.tools:
            return body
        start = request.tools_at
        if request.tools_at > request.offsets[0]:
            start += len(body) - len(request.source)
        return splice.replace_bytes(body, start, start + len(request.tools), tools)

    def find_bounds(self, source: bytes, model: str, /) -> tuple[str, ...]:
        """Return the bounds that the client sets, or else the one that this kind of model knows."""
        names = [
            member.key
            for member in splice.iterate_members(source)
            if member.key in self.bounds and source[member.start : member.stop] != b"null"
        ]
        is_reasoning = _REASONING_MODEL.match(plain_name(model)) is not None
        return tuple(names) or ("max_completion_tokens" if is_reasoning else "max_tokens",)

    def place_marks(
        self, source: bytes, request: Request, cache_marks: Choice, _view: ForwardedView | None = None, /
    ) -> bytes:
        if cache_marks != "on" or "claude" not in request.model:
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

    def read_event(self, event: Mapping[str, Any], /) -> Mapping[str, Any]:
        return event

    def read_body(self, body: bytes, /) -> bytes:
        return body

    def render_answer(self, text: str, model: str, timestamp: int, /, *, stream: bool) -> bytes:
        answer: dict[str, Any] = {"id": "chatcmpl-compaction-proxy", "created": timestamp, "model": model}
        message = {"role": "assistant", "content": text}
        if not stream:
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            usage = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
            return splice.write_json({**answer, "object": "chat.completion", "choices": [choice], "usage": usage})
        answer["object"] = "chat.completion.chunk"
        choices: list[dict[str, Any]] = [
            {"index": 0, "delta": message, "finish_reason": None},
            {"index": 0, "delta": {}, "finish_reason": "stop"},
        ]
        events = b""
        for choice in choices:
            events += write_event({**answer, "choices": [choice]})
        return events + b"data: [DONE]\n\n"

    def continue_request(self, source: bytes, answer: Round, results: Sequence[str]) -> bytes:
        tool_messages: list[bytes] = []
        for call, text in zip(answer.calls, results, strict=True):
            fields = splice.write_json(call.id), splice.write_json(text)
            tool_messages.append(b'{"role":"tool","tool_call_id":%b,"content":%b}' % fields)
        return self._extend_list(source, (*answer.elements, *tool_messages))


CHAT_FORMAT = ChatFormat(
    name="",
    path=ApiPath.CHAT,
    count_path=None,
    compact_path=None,
    provider="openai",
    version_header=None,
    write_error=to_json,
    stream=StreamForm(
        outputs=None,
        last_event=re.compile(rb"\[DONE\]"),
        has_flat_errors=False,
        write_error=write_bare_error,
    ),
    takes_late_results=False,
    takes_user_rows=False,
    marked_with=frozenset({"on"}),
    takes_cache_key=True,
    list_name="messages",
    bounds=_BOUNDS,
    asks_for_more=frozenset(
        {
            *("tool_choice", "function_call", "response_format", "n", "stop", "logprobs", "top_logprobs"),
            *("prediction", "modalities", "audio", "store", "web_search_options"),
        }
    ),
    tool_members=_TOOL_MEMBERS,
    keys_for_other_upstreams=frozenset(
        {
            *("model", "messages", "stream", "stream_options", "temperature", "top_p", "seed", "reasoning_effort"),
            *_BOUNDS,
            *_TOOL_MEMBERS,
        }
    ),
    # LiteLLM passes this member on to models that speak Responses: <https://docs.litellm.ai/docs/response_api>.
    history_members=("previous_response_id",),
    rounds=ChatRounds,
    rounds_need={"n": (b"1",)},  # several choices would each need separate rounds
    recall_tool=json.dumps({"type": "function", "function": to_builtins(RECALL)}).encode(),
)


def _splice_messages(request: Request, view: Sequence[Message]) -> bytes:
    """Write the request with the messages of a view. Untouched neighbours are one slice, with their spacing."""
    messages, offsets, count = request.messages, request.offsets, len(request.messages)
    source = memoryview(request.source)  # so that only the last `join` copies
    # The client's first separator, with its spacing.
    comma: bytes | memoryview = source[request.find_end(1) : offsets[1]] if count > 1 else b","
    pieces: list[bytes | memoryview] = [source[: offsets[0]]]
    start = stop = 0  # of the neighbours so far
    # The newest messages are nearly always the client's own: only the first of them is looked at here.
    differences = map(is_not, reversed(view), reversed(messages))
    own_at_end = next(compress(itertools.count(), differences), min(len(view), count))
    for number, message in enumerate(view[: len(view) - own_at_end + 1]):
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
        pieces.append(source[offsets[start] : request.find_end(count if own_at_end else stop)])
    pieces.append(source[request.find_end(count) :])
    return b"".join(pieces)
