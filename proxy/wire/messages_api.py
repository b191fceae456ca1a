"""Anthropic Messages: content blocks as the chat messages that say the same, and chat messages as its list of messages.

1. Blocks that came in one message and are kept leave in one message, results first.
2. Consecutive words of the user leave in one message, unless the client had parted them.
3. System messages within the conversation come before an answer, or last: the API refuses them before a user's message.
4. A message of which nothing was touched leaves in the client's bytes.

Requests: <https://platform.claude.com/docs/en/api/messages>.
Answers: <https://platform.claude.com/docs/en/build-with-claude/streaming>.

A thread is a history that the provider holds, so that a client sends only new messages. It cannot be shortened here.
Clients that send the whole history when it is lost are told that it is:
<https://platform.claude.com/docs/en/build-with-claude/message-threads>.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import takewhile
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from proxy.foundation.errors import ProxyError
from proxy.history import splice
from proxy.history.messages import HEAD, Message, as_name, is_different, read_message
from proxy.history.request import Request
from proxy.recall import RECALL
from proxy.shorten.block import Reason
from proxy.tools.tool_call import ToolCall
from proxy.wire.answer_assembly import add_members, join_texts
from proxy.wire.api_format import (
    Round,
    Rounds,
    Try,
    add_usage,
    make_call,
    make_chunk,
    write_completion,
)
from proxy.wire.cache_placement import BlockPlace, Choice, ForwardedView, place_marks
from proxy.wire.event_streams import ErrorObject, StreamForm, read_event, write_event, write_named_events
from proxy.wire.http_head import ApiPath, Headers, find_header
from proxy.wire.json_body import (
    NULL,
    UNREADABLE,
    Places,
    as_object,
    as_text,
    build_reader,
    find_other_members,
    find_raw,
    find_values,
    locate,
    read_elements,
    read_member,
    read_object,
)
from proxy.wire.known_requests import (
    Piece,
    PiecedFormat,
    PiecedRequest,
    build_answer,
    build_message,
    build_result,
    find_types,
    write_call,
)


class _MessageFields(msgspec.Struct):
    role: str
    content: msgspec.Raw = NULL


class ContentBlock(msgspec.Struct):
    """The members that blocks may have. Those of type `Any` are texts in most blocks, and other values in some."""

    type: str = ""
    id: Any = ""
    name: Any = ""
    input: msgspec.Raw = NULL
    tool_use_id: Any = ""
    content: msgspec.Raw = NULL
    caller: msgspec.Raw = NULL


decode_message = build_reader(_MessageFields)
decode_block = build_reader(ContentBlock)
TEXT_BLOCK = b'{"type":"text","text":%b}'


def split_messages(
    containers: Sequence[bytes], offsets: Sequence[int], _known_blocks: Iterator[bytes], /
) -> Iterator[tuple[Message, Piece]]:
    """Read the newest messages of the client's list."""
    for number, container in enumerate(containers, len(offsets) - len(containers)):
        fields = decode_message(container)
        role, content = as_name(fields.role), bytes(fields.content)
        content_at = splice.locate_value(container, content)
        if content[:1] != b"[":
            span, written_as = (content_at, content_at + len(content)), TEXT_BLOCK
            if content_at < 0:  # it has none
                span, written_as = (0, 0), TEXT_BLOCK % b"null%b"
            yield build_message(role, content), Piece(number, role, (span,), written_as)
            continue
        raw_blocks = read_elements(content)
        spans = locate(container, content_at + 1, raw_blocks)
        if role == "assistant":
            yield _read_assistant(raw_blocks), Piece(number, role, tuple(spans))
            continue
        other_blocks: list[bytes] = []
        other_spans: list[tuple[int, int]] = []
        for raw, span in zip(raw_blocks, spans, strict=True):
            block = decode_block(raw)
            if block.type != "tool_result":
                other_blocks.append(raw)
                other_spans.append(span)
                continue
            result, call_id = bytes(block.content), as_name(block.tool_use_id)
            members = find_other_members(raw, {"type", "tool_use_id", "content"})
            yield build_result(call_id, result, members), Piece(number, role, (span,))
        if other_blocks or not raw_blocks:
            content = b"[" + b",".join(other_blocks) + b"]"
            yield build_message(role, content), Piece(number, role, tuple(other_spans))


def _read_assistant(raw_blocks: Sequence[bytes]) -> Message:
    content_blocks: list[bytes] = []
    calls: list[ToolCall] = []
    written_calls: list[bytes] = []
    is_compacted = False
    for raw in raw_blocks:
        block = decode_block(raw)
        is_compacted |= block.type == "compaction"
        if block.type == "tool_use":
            call = ToolCall(as_name(block.id), as_name(block.name), bytes(block.input).decode())
            calls.append(call)
            caller = bytes(block.caller)
            written_calls.append(write_call(call, b',"caller":' + caller if caller != b"null" else b""))
        else:
            content_blocks.append(raw)
    answer = build_answer(content_blocks, calls, written_calls)
    if is_compacted:
        # The API reads a history from its last compaction on:
        # <https://platform.claude.com/docs/en/build-with-claude/compaction>.
        return replace(answer, is_fixed=True)
    return answer


def _change_answer(own_blocks: Sequence[bytes], message: Message) -> Sequence[bytes]:
    """Return the blocks of an answer that was changed: its new words, and the calls that are left.

    Members of a block that the chat message does not hold (a cache mark, unknown keys) stay.
    """
    calls = {call.id: call for call in message.calls}
    words = list(_iterate_blocks(replace(message, calls=())))
    different_words = set(words)
    are_own = different_words.issubset(own_blocks)
    blocks: list[bytes] = []
    if not are_own:
        blocks += words
    for own_block in own_blocks:
        block = decode_block(own_block)
        if block.type == "tool_use":
            call = calls.get(as_text(block.id))
            if call is not None and bytes(block.input).decode() == call.arguments:
                blocks.append(own_block)
            elif call is not None:
                blocks.append(splice.set_members(own_block, {"input": _write_input(call)}))
        elif are_own and own_block in different_words:
            blocks.append(own_block)
    return blocks


def _iterate_blocks(message: Message) -> Iterator[bytes]:
    """Write a message as blocks, without empty texts, which the API refuses."""
    if message.is_result:
        members = find_other_members(message.raw, {"role", "tool_call_id", "content", "name"})
        result = splice.write_json(message.answers), message.content, members
        yield b'{"type":"tool_result","tool_use_id":%b,"content":%b%b}' % result
        return
    content = message.content
    value = json.loads(content)
    if isinstance(value, str) and value.strip():
        yield TEXT_BLOCK % content
    elif isinstance(value, list):
        for part in read_elements(content):
            if decode_block(part).type != "text" or as_text(json.loads(part).get("text")).strip():
                yield part
    for call in message.calls:
        fields = splice.write_json(call.id), splice.write_json(call.name), _write_input(call)
        yield b'{"type":"tool_use","id":%b,"name":%b,"input":%b}' % fields


def _write_input(call: ToolCall) -> bytes:
    if isinstance(call.value, dict):
        return call.arguments.encode("utf-8", "surrogatepass")
    return b"{}"


class WrittenBlocks(Struct, frozen=True, gc=False):
    """The blocks as which one chat message is forwarded."""

    role: str
    container: int | None
    """The client's message that they came in, by its number; None if the proxy wrote them."""
    own: Piece | None
    """The client's blocks, if they are unchanged."""
    blocks: Sequence[bytes]
    """The blocks, if they are not the client's."""
    count: int
    is_result: bool
    is_shortened: bool
    """The proxy shortened them, and not only by a step that changes messages as they arrive."""


def _find_fold_ends(request: PiecedRequest, view: ForwardedView) -> list[BlockPlace]:
    """Return the places for marks of the shortened part: most important first, none if nothing is shortened.

    The first is the end of the messages that the upstream has read before, of which the view has `known_count`. Then
    comes the end of the shortened part, and places before it in the distance over which the API looks back.
    """
    parts = request.write(view.messages, partial(_write_blocks, request))
    places: list[BlockPlace] = []
    changed_end = shortened_end = 0
    for number, message_parts in enumerate(_group_parts(parts)):
        start = len(places)
        for part in message_parts:
            places += [(number, len(places) - start + block_number) for block_number in range(part.count)]
            if part.own is None:
                changed_end = len(places)
            if part.is_shortened:
                shortened_end = len(places)
    prefix_blocks = 0
    if view.known_count > request.head_size:
        prefix_blocks = sum(part.count for part in parts[: view.known_count])
    end = shortened_end or changed_end
    if not end:
        return []
    # From a mark, the API looks back over twenty blocks (`cache_placement`).
    ends = dict.fromkeys((prefix_blocks, *range(end, 0, -20)))
    return [places[block_end - 1] for block_end in ends if block_end]


def write_list(request: PiecedRequest, view: Sequence[Message]) -> Iterator[bytes]:
    """Write the view as the messages of the API."""
    for parts in _group_parts(request.write(view, partial(_write_blocks, request))):
        container = parts[0].container
        is_untouched = all(part.own is not None and part.container == container for part in parts)
        count = sum(part.count for part in parts)
        if container is not None and is_untouched and count == request.block_counts[container]:
            yield request.find_element(container)
            continue
        blocks: list[bytes] = []
        for part in parts:
            blocks += part.blocks if part.own is None else request.list_blocks(part.own)
        yield b'{"role":%b,"content":[%b]}' % (splice.write_json(parts[0].role), b",".join(blocks))


def _write_blocks(request: PiecedRequest, message: Message) -> WrittenBlocks:
    piece, is_unchanged = request.find_origin(message)
    role, container = "user" if message.is_result else message.role, None
    if piece is not None:
        role, container = piece.role, piece.container
    if is_unchanged:
        count = 0 if piece is None else len(piece.spans)  # the system prompt is not in the list
        return WrittenBlocks(role, container, piece, (), count, message.is_result, is_shortened=False)
    # Of a changed message, only the bytes are up to date.
    changed_message = read_message(json.loads(message.raw), message.raw)
    if piece is not None and message.role == "assistant" and piece.spans:
        blocks = _change_answer(request.list_blocks(piece), changed_message)
    else:
        blocks = list(_iterate_blocks(changed_message))
    # These steps change messages as they arrive, which are still to be shortened.
    is_shortened = message.made not in {"", "strip_reasoning", "clip_output", "dedup_arrivals"}
    return WrittenBlocks(role, container, None, blocks, len(blocks), message.is_result, is_shortened)


def _group_parts(parts: Iterable[WrittenBlocks]) -> list[list[WrittenBlocks]]:
    """Group the parts by the messages in which they are forwarded, in the order of these."""
    groups: list[list[WrittenBlocks]] = []
    system_groups: list[list[WrittenBlocks]] = []
    """System messages that wait for the next answer, before which they leave."""
    last_part: WrittenBlocks | None = None
    for part in parts:
        if not part.count:
            continue
        role_groups = system_groups if part.role == "system" else groups
        if last_part is not None and _belong_together(last_part, part):
            role_groups[-1].append(part)
        else:
            if part.role == "assistant":
                groups += system_groups
                system_groups.clear()
            role_groups.append([part])
        last_part = part
    return groups + system_groups


def _belong_together(part: WrittenBlocks, next_part: WrittenBlocks) -> bool:
    """Return True if both parts are forwarded in one message."""
    if next_part.role != part.role:
        return False
    if part.container is None or next_part.container is None:
        return next_part.role == "user"
    if next_part.container == part.container or (part.is_result and next_part.is_result):
        return True
    return next_part.role == "user" and next_part.container != part.container + 1


def _read_delta(event: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members that a block grows by."""
    delta = dict(as_object(event.get("delta")))
    delta.pop("type", None)
    if "citation" in delta:
        delta["citations"] = [delta.pop("citation")]  # a delta brings one element of the list
    return delta


class MessagesRounds(
    Rounds,
    items="content",
    finish="stop_reason",
    cut=frozenset({"max_tokens", "model_context_window_exceeded", "refusal", "pause_turn"}),
    call="tool_use",
    finishes=("tool_use", "end_turn"),
):
    """The rounds of Messages. All thinking is sent back to the API unchanged.

    The client does not get the thinking of later rounds: it is signed for another history.
    """

    def _find_round(self) -> Round:
        blocks: list[dict[str, Any]] = []
        calls: list[ToolCall] = []
        for index in sorted(self._items):
            block = join_texts(self._items[index])
            if "partial_json" in block:
                arguments = as_text(block.pop("partial_json"))
                block["input"] = read_object(arguments.encode("utf-8", "surrogatepass")) or {}
            if block.get("type") == "text" and not str(block.get("text")).strip():
                continue  # the API refuses an empty text
            blocks.append(block)
            if block.get("type") == "tool_use":
                calls.append(ToolCall(str(block.get("id")), str(block.get("name")), json.dumps(block.get("input"))))
        return Round((b'{"role":"assistant","content":%b}' % splice.write_json(blocks),), tuple(calls))

    def _show(self, event: bytes) -> bytes:
        value = read_event(event) or {}
        kind = value.get("type")
        if kind == "message_delta":
            return self._show_end(event, value)
        if kind in ("content_block_start", "content_block_delta", "content_block_stop"):
            return self._show_block_event(event, value)
        if kind == "message_start":
            self._round_usage = as_object(as_object(value.get("message")).get("usage"))
        if (kind == "message_start" and not self._is_first) or (kind == "message_stop" and self._waits):
            return b""
        return event

    def _show_block_event(self, event: bytes, value: Mapping[str, Any]) -> bytes:
        index = value["index"] if isinstance(value.get("index"), int) else -1
        if value["type"] == "content_block_start":
            # Blocks of the provider's tools begin with their results: only the members of deltas are pieces.
            block = self._items[index] = dict(as_object(value.get("content_block")))
            self._client_indexes.pop(index, None)
            if self._is_shown(block):
                self._client_indexes[index] = self._next_index
                self._next_index += 1
                self._client_calls += block.get("type") == "tool_use"
        elif value["type"] == "content_block_delta":
            delta = _read_delta(value)
            block = self._items.setdefault(index, {})
            add_members(block, delta)
        client_index = self._client_indexes.get(index)
        if client_index is None:
            return b""
        if client_index == value.get("index", client_index):
            return event
        return write_event({**value, "index": client_index}, named=True)

    def _is_shown(self, block: dict[str, Any]) -> bool:
        return not self._is_own(block) and (
            self._is_first or block.get("type") not in ("thinking", "redacted_thinking")
        )

    def _show_end(self, event: bytes, value: dict[str, Any]) -> bytes:
        delta = as_object(value.get("delta"))
        # The counts at the end are of the whole answer, and replace those of the beginning:
        # <https://platform.claude.com/docs/en/build-with-claude/streaming>.
        end_usage = as_object(value.get("usage"))
        usage = (self._round_usage or {}) | {name: count for name, count in end_usage.items() if count is not None}
        self._round_usage = usage
        # Several of these events may come, and later ones hold only the usage.
        self._finish = as_text(delta.get("stop_reason")) or self._finish
        if self._waits:
            return b""
        client_reason = self._name_finish(self._finish)
        if self._is_first and client_reason == self._finish:
            return event
        delta = {**delta, "stop_reason": client_reason}
        return write_event({**value, "delta": delta, "usage": add_usage(self._usage, usage)}, named=True)

    def _choose_shown(self) -> list[bytes]:
        shown = []
        for element, block in zip(self._elements, self._items.values(), strict=True):
            if self._is_shown(block):
                shown.append(element)
                self._client_calls += block.get("type") == "tool_use"
        return shown


def _split_calls(blocks: Iterable[object]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the blocks of an answer without the calls of the client's tools, and these calls as chat has them."""
    content: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    for block in map(as_object, blocks):
        arguments = as_text(block.pop("partial_json", ""))
        if block.get("type") == "tool_use":
            arguments = arguments or json.dumps(block.get("input"))
            calls.append(make_call(block.get("id"), block.get("name"), arguments))
            continue
        whole_input = read_object(arguments.encode("utf-8", "surrogatepass"))
        if whole_input is not None:
            block["input"] = whole_input
        elif arguments:  # the stream broke off within its input
            block["partial_json"] = arguments
        content.append(block)
    return content, calls


def _name_finish(stop_reason: object) -> str | None:
    if not isinstance(stop_reason, str):
        return None
    finish_reasons = {
        "end_turn": "stop",
        "stop_sequence": "stop",
        "max_tokens": "length",
        "model_context_window_exceeded": "length",
        "tool_use": "tool_calls",
        "refusal": "content_filter",
    }
    return finish_reasons.get(stop_reason, stop_reason)


ThreadUse = Literal["create", "continue", ""]


class ThreadClient(Struct, frozen=True):
    """A client that sends its whole history when it is told that its thread cannot be used."""

    header: str
    word: str
    refused_uses: tuple[ThreadUse, ...]
    """The uses of a thread that are refused. Other requests hold the whole history."""
    status: int
    error_code: str


THREAD_CLIENTS = (
    # Anthropic's libraries. At `thread_unsupported_request`, only their tool runners would continue.
    ThreadClient(
        header="x-stainless-helper",
        word="message-thread",
        refused_uses=("continue",),
        status=404,
        error_code="thread_not_found",
    ),
    # Claude Code. After this error it uses no more threads in its session.
    ThreadClient(
        header="user-agent",
        word="claude-cli/",
        refused_uses=("create", "continue"),
        status=400,
        error_code="thread_unsupported_request",
    ),
)


def find_thread_client(headers: Headers) -> ThreadClient | None:
    """Return the client that sent these headers, or None if it may not send its whole history."""
    for client in THREAD_CLIENTS:
        if client.word in (find_header(headers, client.header) or ""):
            return client
    return None


def find_thread_use(source: bytes) -> ThreadUse:
    """Return how a request uses a thread; empty if it uses none or cannot be understood."""
    if b'"thread"' not in source:
        return ""
    try:
        thread = json.loads(find_raw(source, find_values(source), "thread") or b"null")
    except UNREADABLE:
        return ""
    if as_object(thread).get("type") == "create":
        return "create"
    return "continue" if thread is not None else ""


_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
"""Clients know these types only: https://docs.anthropic.com/en/api/errors"""


def _write_error(fault: ProxyError, request_id: str) -> bytes:
    kind = _ERROR_TYPES.get(fault.status, "invalid_request_error" if fault.is_refusal else "api_error")
    error = {"type": kind, "message": fault.message, "code": fault.code}
    return json.dumps({"type": "error", "error": error, "request_id": request_id}).encode()


def _write_error_event(error: ErrorObject) -> bytes:
    """Write an error with a name and a type that clients know, because they ignore others.

    <https://platform.claude.com/docs/en/build-with-claude/streaming#error-events>
    """
    kind = error.get("type")
    if not isinstance(kind, str) or not kind.endswith("_error") or kind == "proxy_error":
        kind = "api_error"
    event = {"type": "error", "error": {"type": kind, "message": error.get("message")}}
    return b"event: error\ndata: %b\n\n" % json.dumps(event).encode()


_LEAST_BUDGET_TOKENS = 1_024
"""The API refuses a smaller budget: <https://platform.claude.com/docs/en/build-with-claude/extended-thinking>."""


class MessagesFormat(PiecedFormat):
    def _list_fields(self, source: bytes, places: Places) -> dict[str, Any]:
        fields = super()._list_fields(source, places)
        thinking = as_object(read_member(source, places, "thinking"))
        fields["has_thinking_budget"] = thinking.get("type") == "enabled"
        if _find_budget(thinking, fields["max_output"]):
            fields["least_thinking"] = _LEAST_BUDGET_TOKENS
        fields["user"] = user = as_text(as_object(read_member(source, places, "metadata")).get("user_id"))
        try:
            account = json.loads(user)
        except (ValueError, RecursionError):
            account = None
        fields["session"] = as_text(as_object(account).get("session_id"))
        # Claude Code sends {"device_id": "...", "account_uuid": "...", "session_id": "..."} as one text. The user is
        # the text without the session, so that a resumed history is recognized.
        if isinstance(account, dict):
            fields["user"] = json.dumps({**account, "session_id": ""}, sort_keys=True)
        # The provider is to compact now (`compaction`), or once the history is long (`compact_20260112`):
        # <https://platform.claude.com/docs/en/build-with-claude/compaction>.
        fields["provider_compacts"] = find_raw(source, places, "compaction") not in (b"", b"null")
        management = find_raw(source, places, "context_management")
        if management.startswith(b"{"):
            edits = find_raw(management, find_values(management), "edits")
            fields["provider_compacts"] |= any(kind.startswith("compact_") for kind in find_types(edits, b'"compact_'))
        return fields

    def fits(self, body: Mapping[str, Any], /) -> bool:
        if "system" in body:
            return True
        messages = body.get("messages")
        for message in messages if isinstance(messages, list) else ():
            content = as_object(message).get("content")
            for block in content if isinstance(content, list) else ():
                if as_object(block).get("type") in ("tool_use", "tool_result", "thinking"):
                    return True
        return False

    def why_relayed(self, source: bytes, headers: Headers = (), /) -> Reason:
        use = find_thread_use(source)
        if not use or (use == "create" and find_thread_client(headers) is not None):
            return ""  # it holds the whole history
        return "history-elsewhere"

    def ask_for_history(self, source: bytes, headers: Headers, request_id: str, /) -> tuple[int, bytes] | None:
        use = find_thread_use(source)
        client = find_thread_client(headers) if use else None
        if client is None or use not in client.refused_uses:
            return None
        error = {
            "type": _ERROR_TYPES[client.status],
            "message": "The compaction proxy needs the whole history of this conversation: send it without a thread.",
            "details": {"error_code": client.error_code},
        }
        return client.status, json.dumps({"type": "error", "error": error, "request_id": request_id}).encode()

    def render(self, request: Request, view: Sequence[Message], tools: bytes | None = None, /) -> bytes:
        body = super().render(request, view, tools)
        # With a thread, the provider would hold messages that the client has not sent.
        return splice.remove_members(body, {"thread"}) if find_thread_use(body) else body

    def render_question(
        self, request: Request, question: Try, bounds: Mapping[str, int], model: str = "", *, foreign: bool = False
    ) -> bytes:
        thinking = as_object(read_member(request.source, find_values(request.source), "thinking"))
        budget = thinking.get("budget_tokens")
        if question.aligned and not foreign and request.has_thinking_budget and isinstance(budget, int):
            # The API counts thinking as a part of `max_tokens`.
            bounds = {"max_tokens": bounds["max_tokens"] + budget}
        return super().render_question(request, question, bounds, model, foreign=foreign)

    def _list_unwanted(self, source: bytes, _request: Request, question: Try, /) -> set[str]:
        unwanted_keys: set[str] = set()
        if b'"mcp_toolset"' not in (question.tools or b""):
            unwanted_keys.add("mcp_servers")  # the API refuses a toolset without its server
        if as_object(read_member(source, find_values(source), "tool_choice")).get("type") in ("any", "tool"):
            unwanted_keys.add("tool_choice")
        return unwanted_keys

    def answer_within(self, source: bytes, max_tokens: int) -> bytes:
        places = find_values(source)
        own_bound = read_member(source, places, "max_tokens")
        budget = _find_budget(as_object(read_member(source, places, "thinking")), own_bound)
        if budget is not None and _LEAST_BUDGET_TOKENS < max_tokens <= budget:
            # The API refuses a budget of thinking that is not below the bound.
            member = splice.find_member(source, "budget_tokens", places["thinking"][0])
            assert member is not None  # noqa: S101 - it was read above
            bounded_tokens = max(_LEAST_BUDGET_TOKENS, max_tokens * budget // own_bound)
            source = splice.replace_bytes(source, member.start, member.stop, b"%d" % bounded_tokens)
        return super().answer_within(source, max_tokens)

    def place_marks(
        self, source: bytes, request: Request, cache_marks: Choice, view: ForwardedView | None = None, /
    ) -> bytes:
        assert isinstance(request, PiecedRequest)  # noqa: S101 - `_read` made it
        has_results = any(message.is_result for message in request.body)
        fold_ends = _find_fold_ends(request, view) if view is not None else []
        return place_marks(source, request.source, fold_ends, cache_marks, has_results=has_results)

    def _replace_history(self, request: Request, question: Try) -> bytes:
        """Replace the history by the question.

        If the question has another system prompt than the client, that is replaced as well. Later system messages stay
        in the list.
        """
        head = list(takewhile(lambda message: message.role in HEAD, question.messages))
        if len(head) == len(request.head) and not any(map(is_different, head, request.head)):
            return self.render(request, question.messages, question.tools)
        without_system = self.parse(splice.remove_members(request.source, {"system"}))
        assert without_system is not None  # noqa: S101 - with its system prompt, it could be parsed
        source = self.render(without_system, question.messages[len(head) :], question.tools)
        if not head:
            return source
        opening = source.index(b"{") + 1
        system = splice.write_json("\n\n".join(message.text for message in head))
        return splice.replace_bytes(source, opening, opening, b'"system":%b,' % system)

    def read_event(self, event: Mapping[str, Any], /) -> Mapping[str, Any]:
        match event.get("type"):
            case "message_start":
                message = as_object(event.get("message"))
                return {"model": message.get("model"), "usage": message.get("usage"), "choices": []}
            case "content_block_start":
                return make_chunk({"content": [{"index": event.get("index"), **as_object(event.get("content_block"))}]})
            case "content_block_delta":
                return make_chunk({"content": [{"index": event.get("index"), **_read_delta(event)}]})
            case "message_delta":
                stop_reason = as_object(event.get("delta")).get("stop_reason")
                chunk = make_chunk({}, _name_finish(stop_reason))
                return chunk | {name: event.get(name) for name in ("usage", "context_management")}
        return event

    def finish_message(self, message: dict[str, Any], /) -> dict[str, Any]:
        if not isinstance(message.get("content"), list):
            return message
        content, calls = _split_calls(message["content"])
        return {**message, "content": content} | ({"tool_calls": calls} if calls else {})

    def read_body(self, body: bytes, /) -> bytes:
        answer = read_object(body)
        if answer is None or answer.get("type") != "message" or not isinstance(answer.get("content"), list):
            return body
        content, calls = _split_calls(answer["content"])
        return write_completion(answer, content, calls, _name_finish(answer.get("stop_reason")))

    def render_answer(self, text: str, model: str, _timestamp: int, /, *, stream: bool) -> bytes:
        usage = {"input_tokens": 0, "output_tokens": 0}
        message = {
            "id": "msg_compaction_proxy",
            "type": "message",
            "role": "assistant",
            "model": model,
            "stop_sequence": None,
            "usage": usage,
        }
        if not stream:
            content = [{"type": "text", "text": text}]
            return splice.write_json({**message, "content": content, "stop_reason": "end_turn"})
        events: list[dict[str, Any]] = [
            {"type": "message_start", "message": {**message, "content": [], "stop_reason": None}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": usage},
            {"type": "message_stop"},
        ]
        return write_named_events(events)

    def continue_request(self, source: bytes, answer: Round, results: Sequence[str]) -> bytes:
        results_by_call: list[bytes] = []
        for call, text in zip(answer.calls, results, strict=True):
            fields = splice.write_json(call.id), splice.write_json(text)
            results_by_call.append(b'{"type":"tool_result","tool_use_id":%b,"content":%b}' % fields)
        blocks = b",".join(results_by_call)
        return self._extend_list(source, (*answer.elements, b'{"role":"user","content":[%b]}' % blocks))


MESSAGES_FORMAT = MessagesFormat(
    name="messages",
    path=ApiPath.MESSAGES,
    count_path=ApiPath.COUNT_TOKENS,
    compact_path=None,
    provider="anthropic",
    version_header="anthropic-version",
    write_error=_write_error,
    stream=StreamForm(
        outputs="content_block_|message_(?:delta|stop)",
        last_event=re.compile(rb"message_stop"),
        has_flat_errors=False,
        write_error=_write_error_event,
    ),
    takes_late_results=False,
    takes_user_rows=True,
    marked_with=frozenset({"auto", "on"}),
    takes_cache_key=False,
    list_name="messages",
    bounds=("max_tokens",),
    asks_for_more=frozenset(
        {"stop_sequences", "output_format", "context_management", "compaction", "container", "thread"}
    ),
    tool_members=frozenset({"tools", "tool_choice", "thinking"}),
    keys_for_other_upstreams=frozenset({"model", "messages", "system", "max_tokens", "tools", "stream", "temperature"}),
    split=split_messages,
    write_list=write_list,
    system_name="system",
    text_as=b"",
    history_members=(),
    rounds=MessagesRounds,
    rounds_need={},
    recall_tool=json.dumps(
        {"name": RECALL.name, "description": RECALL.description, "input_schema": RECALL.parameters}
    ).encode(),
)


def _find_budget(thinking: Mapping[str, Any], max_tokens: object) -> int | None:
    """Return the thinking budget, or None if it is no part of `max_tokens`."""
    if thinking.get("type") != "enabled":
        return None
    budget = thinking.get("budget_tokens")
    if type(budget) is int and type(max_tokens) is int and budget < max_tokens:
        return budget
    return None
