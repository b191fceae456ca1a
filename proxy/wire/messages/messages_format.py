"""Requests of Messages: <https://platform.claude.com/docs/en/api/messages>.

A thread is a history that the provider holds, so that a client sends only new messages. It cannot be shortened here.
Clients that send the whole history when it is lost are told that it is:
<https://platform.claude.com/docs/en/build-with-claude/message-threads>.
"""

import json
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import takewhile
from typing import Any, Literal

from msgspec import Struct

from proxy.history import splice
from proxy.history.messages import HEAD, Message, is_different
from proxy.history.request import Request
from proxy.wire.api_format import RequestFormat, Try
from proxy.wire.cache_placement import BlockPlace, place_marks
from proxy.wire.http_head import Headers, find_header
from proxy.wire.json_body import UNREADABLE, Places, Prefix, as_object, as_text, find_raw, find_values, read_members
from proxy.wire.messages.content_blocks import find_fold_ends, split_messages, write_list
from proxy.wire.messages.messages_answers import MessagesAnswers
from proxy.wire.pieces import PiecedRequest, find_types, read_request, replace_list

ThreadUse = Literal["create", "continue", ""]


class ThreadClient(Struct, frozen=True):
    """A client that sends its whole history when it is told that its thread cannot be used."""

    header: str
    word: str
    refused_uses: tuple[ThreadUse, ...]
    """The uses of a thread that are refused. Other requests hold the whole history."""
    status: int
    error_type: str
    error_code: str


THREAD_CLIENTS = (
    # Anthropic's libraries. At `thread_unsupported_request`, only their tool runners would continue.
    ThreadClient(
        header="x-stainless-helper",
        word="message-thread",
        refused_uses=("continue",),
        status=404,
        error_type="not_found_error",
        error_code="thread_not_found",
    ),
    # Claude Code. After this error it uses no more threads in its session.
    ThreadClient(
        header="user-agent",
        word="claude-cli/",
        refused_uses=("create", "continue"),
        status=400,
        error_type="invalid_request_error",
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


def remove_thread(source: bytes) -> bytes:
    """Remove the thread from a shortened request: the provider would hold messages that the client has not sent."""
    return splice.remove_members(source, {"thread"}) if find_thread_use(source) else source


def render_thread_refusal(client: ThreadClient, request_id: str) -> bytes:
    error = {
        "type": client.error_type,
        "message": "The compaction proxy needs the whole history of this conversation: send it without a thread.",
        "details": {"error_code": client.error_code},
    }
    return json.dumps({"type": "error", "error": error, "request_id": request_id}).encode()


_LEAST_BUDGET_TOKENS = 1_024
"""The API refuses a smaller budget: <https://platform.claude.com/docs/en/build-with-claude/extended-thinking>."""


class MessagesFormat(RequestFormat):
    NAME = "messages"
    LIST = "messages"
    BOUNDS = ("max_tokens",)
    ASKS_FOR_MORE = frozenset(
        {"stop_sequences", "output_format", "context_management", "compaction", "container", "thread"}
    )
    TOOLS = frozenset({"tools", "tool_choice", "thinking"})
    KEYS_FOR_OTHER_UPSTREAMS = frozenset(
        {"model", "messages", "system", "max_tokens", "tools", "stream", "temperature"}
    )
    answers = MessagesAnswers()

    def _read(self, source: bytes, places: Places, prefix: Prefix | None) -> PiecedRequest | None:
        members = read_members(source, places)
        fields = self._list_fields(members, source, places)
        thinking = members.get("thinking", {})
        fields["has_thinking_budget"] = thinking.get("type") == "enabled"
        if _find_budget(thinking, fields["max_output"]):
            fields["least_thinking"] = _LEAST_BUDGET_TOKENS
        fields["user"], fields["session"] = _read_account(members.get("metadata", {}))
        fields["provider_compacts"] = _asks_for_compaction(source, places)
        system = find_raw(source, places, "system")
        return read_request(source, places, self.LIST, split_messages, fields, system=system, prefix=prefix)

    def render(self, request: Request, view: Sequence[Message], tools: bytes | None = None, /) -> bytes:
        return remove_thread(replace_list(request, view, tools, write_list))

    def render_question(
        self, request: Request, question: Try, bounds: Mapping[str, int], model: str = "", *, foreign: bool = False
    ) -> bytes:
        members = read_members(request.source, find_values(request.source))
        budget = members.get("thinking", {}).get("budget_tokens")
        if question.aligned and not foreign and request.has_thinking_budget and isinstance(budget, int):
            # The API counts thinking as a part of `max_tokens`.
            bounds = {"max_tokens": bounds["max_tokens"] + budget}
        return super().render_question(request, question, bounds, model, foreign=foreign)

    def _list_unwanted(self, source: bytes, _request: Request, question: Try, /) -> AbstractSet[str]:
        unwanted_keys: set[str] = set()
        if b'"mcp_toolset"' not in (question.tools or b""):
            unwanted_keys.add("mcp_servers")  # the API refuses a toolset without its server
        if read_members(source, find_values(source)).get("tool_choice", {}).get("type") in ("any", "tool"):
            unwanted_keys.add("tool_choice")
        return unwanted_keys

    def answer_within(self, source: bytes, max_tokens: int) -> bytes:
        return super().answer_within(_bound_thinking(source, max_tokens), max_tokens)

    def find_fold_ends(self, request: Request, view: Sequence[Message], prefix_size: int, /) -> Sequence[BlockPlace]:
        assert isinstance(request, PiecedRequest)  # noqa: S101 - `_read` made it
        return find_fold_ends(request, view, prefix_size)

    def place_marks(
        self, source: bytes, request: Request, fold_ends: Sequence[BlockPlace], /, *, always: bool
    ) -> bytes:
        # Without results it is no agent's request, and may be the only one of its conversation.
        fills = always or any(message.is_result for message in request.body)
        return place_marks(source, request.source, fold_ends, fills=fills)

    def place_key(self, source: bytes, _request: Request, /) -> bytes:
        return source

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
        system = splice.quote("\n\n".join(message.text for message in head))
        return splice.replace_bytes(source, opening, opening, b'"system":%b,' % system)


MESSAGES_FORMAT = MessagesFormat()


def _read_account(metadata: Mapping[str, Any]) -> tuple[str, str]:
    """Return the user without the session, so that a resumed history is recognized, and the session.

    Claude Code sends both in one JSON text: {"device_id": "...", "account_uuid": "...", "session_id": "..."}.
    """
    user = as_text(metadata.get("user_id"))
    try:
        account = json.loads(user)
    except (ValueError, RecursionError):
        return user, ""
    if not isinstance(account, dict):
        return user, ""
    return json.dumps({**account, "session_id": ""}, sort_keys=True), as_text(account.get("session_id"))


def _asks_for_compaction(source: bytes, places: Places) -> bool:
    """Return True if the provider is to compact now (`compaction`) or once the history is long (`compact_20260112`).

    <https://platform.claude.com/docs/en/build-with-claude/compaction>
    """
    if find_raw(source, places, "compaction") not in (b"", b"null"):
        return True
    management = find_raw(source, places, "context_management")
    if management[:1] != b"{":
        return False
    edits = find_raw(management, find_values(management), "edits")
    return any(kind.startswith("compact_") for kind in find_types(edits, b'"compact_'))


def _find_budget(thinking: Mapping[str, Any], max_tokens: object) -> int | None:
    """Return the thinking budget, or None if it is no part of `max_tokens`."""
    if thinking.get("type") != "enabled":
        return None
    budget = thinking.get("budget_tokens")
    if type(budget) is int and type(max_tokens) is int and budget < max_tokens:
        return budget
    return None


def _bound_thinking(source: bytes, max_tokens: int) -> bytes:
    """Lower the budget of thinking: the API refuses one that is not below the bound."""
    places = find_values(source)
    members = read_members(source, places)
    budget = _find_budget(members.get("thinking", {}), members.get("max_tokens"))
    if budget is None or not _LEAST_BUDGET_TOKENS < max_tokens <= budget:
        return source
    member = splice.find_member(source, "budget_tokens", places["thinking"][0])
    assert member is not None  # noqa: S101 - it was read above
    bounded_tokens = max(_LEAST_BUDGET_TOKENS, max_tokens * budget // members["max_tokens"])
    return splice.replace_bytes(source, member.start, member.stop, b"%d" % bounded_tokens)
