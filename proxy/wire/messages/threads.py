"""Threads of Messages: conversations that the provider holds, so that a client sends only what is new.

    {"thread": {"type": "create"}, "messages": [all]}    ->  200, "id": "msg_1"
    {"thread": {"type": "continue", "previous_message_id": "msg_1"}, "messages": [new ones]}

What the provider holds cannot be shortened here. But a thread may be lost at any time, and its client then sends the
whole history again: <https://platform.claude.com/docs/en/build-with-claude/message-threads>. So clients that are known
to do so are told that it is lost.
"""

import json
from dataclasses import dataclass
from typing import Literal

import msgspec

from proxy.history import splice
from proxy.wire.headers import Headers, find_header
from proxy.wire.outline import find_values
from proxy.wire.piece_reader import find_raw

ThreadUse = Literal["create", "continue", ""]
_MEMBER = "thread"
_NAMED = b'"thread"'


@dataclass(frozen=True, slots=True)
class Client:
    """A client that sends its whole history when it is told that its thread cannot be used."""

    header: str
    word: str
    """Found in the value of the header."""
    example: str
    refused: tuple[ThreadUse, ...]
    """The uses of a thread that are refused. What else it sends holds the whole history."""
    status: int
    error_type: str
    error_code: str


CLIENTS = (
    # Anthropic's libraries, for threads and tool runners. By default a thread of theirs raises an exception at
    # `thread_unsupported_request`, and only a tool runner goes on. At `thread_not_found` all of them go on.
    Client(
        header="x-stainless-helper",
        word="message-thread",
        example="message-thread, BetaToolRunner",
        refused=("continue",),
        status=404,
        error_type="not_found_error",
        error_code="thread_not_found",
    ),
    # Sends this turn again without a thread, and no more threads in its session.
    Client(
        header="user-agent",
        word="claude-cli/",
        example="claude-cli/2.1.332 (external, cli)",
        refused=("create", "continue"),
        status=400,
        error_type="invalid_request_error",
        error_code="thread_unsupported_request",
    ),
)


def find_client(headers: Headers) -> Client | None:
    """The client that sent this request, if it is known to send its whole history again."""
    return next((client for client in CLIENTS if client.word in (find_header(headers, client.header) or "")), None)


def find_thread_use(source: bytes) -> ThreadUse:
    """What this request wants of a thread; empty if it uses none, or cannot be understood."""
    if _NAMED not in source:
        return ""
    try:
        thread = json.loads(find_raw(source, find_values(source), _MEMBER) or b"null")
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return ""
    kind = thread.get("type") if isinstance(thread, dict) else None
    if kind == "create":
        return "create"
    return "continue" if thread is not None else ""


def remove_thread(source: bytes) -> bytes:
    """The same request, not to be held as a thread: the provider would hold what the client has not sent.

    A request with a thread may also have one cache mark less.
    """
    return splice.remove_members(source, frozenset({_MEMBER})) if find_thread_use(source) else source


def render_refusal(client: Client, request_id: str) -> bytes:
    """The answer at which this client sends its whole history."""
    error = {
        "type": client.error_type,
        "message": "The compaction proxy needs the whole history of this conversation: send it without a thread.",
        "details": {"error_code": client.error_code},
    }
    return json.dumps({"type": "error", "error": error, "request_id": request_id}).encode()
