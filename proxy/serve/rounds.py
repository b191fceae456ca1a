"""Answers of the proxy itself, and answers in rounds.

It answers `/compact` as the last message, and the compaction endpoint. In the rounds of an answer the model recalls
earlier messages: the client sees one answer, and the store remembers nothing of these calls.
"""

import json
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import aclosing
from functools import partial
from http import HTTPStatus
from time import perf_counter
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from proxy import events
from proxy.decide.actions import Opening
from proxy.decide.conversation import Decision
from proxy.decide.planning import Plan
from proxy.events import RequestFinished
from proxy.foundation.errors import BadRequest, ProxyError, UpstreamBroke
from proxy.foundation.lifetime import run_apart
from proxy.history.messages import Message
from proxy.history.request import Request
from proxy.history.splice import remove_members
from proxy.recall import PENDING, RECALL, EarlierMessages
from proxy.upstream.client import Call, Reply
from proxy.wire.answer_assembly import ANSWER_MAX_BYTES
from proxy.wire.api_format import ApiFormat, Round
from proxy.wire.event_streams import OPENING_MAX_BYTES, StreamOpening, StreamWatch, read_error
from proxy.wire.formats import REQUEST_FORMATS, find_api
from proxy.wire.http_head import ApiPath, Headers, find_encoding, remove_headers
from proxy.wire.json_body import as_object, find_raw, find_values

JSON: Headers = (("content-type", "application/json"),)


class LocalAnswer(Struct, frozen=True):
    headers: Headers
    content: bytes
    status: int = HTTPStatus.OK

    @property
    def reason(self) -> str:
        return HTTPStatus(self.status).phrase

    async def chunks(self) -> AsyncGenerator[bytes]:
        yield self.content


def without_command(request: Request, requests: ApiFormat) -> Request:
    history = requests.parse(requests.render(request, request.messages[:-1]))
    if history is None:
        raise BadRequest("there is nothing before /compact that could be compacted")
    return history


def describe_compaction(decision: Decision, request: Request, focus: str, answers: ApiFormat) -> LocalAnswer:
    block = _plan(decision).block
    text = report_compaction(decision, focus)
    if block is not None and block.summary is not None:
        text += f"\n\n{block.summary.text}"
    answer = answers.render_answer(text, request.model, int(time.time()), stream=request.stream)
    headers = JSON
    if request.stream:
        headers = ("content-type", "text/event-stream; charset=utf-8"), ("cache-control", "no-cache")
    return LocalAnswer(headers, answer)


def report_compaction(decision: Decision, focus: str) -> str:
    plan = _plan(decision)
    if decision.reason == "originals-unwritable":
        return "Nothing was compacted: the originals could not be saved."
    text = f"Nothing to compact: of {plan.tokens_before:,} tokens nothing more can go."
    if plan.reason == "no-summary":
        text = "Nothing was compacted."
    if plan.action != "none":
        saved = [(report.step, report.saved) for report in plan.reports if report.saved]
        # Both figures are of the client's history, and the steps found it behind the block of an earlier compaction.
        saved_before = plan.tokens_before - plan.tokens_after - sum(tokens for _, tokens in saved)
        if saved_before > 0:
            saved.insert(0, ("shortened before", saved_before))
        steps = ", ".join(f"{name} {-tokens:+,}" for name, tokens in saved)
        text = f"Compacted: {plan.tokens_before:,} -> {plan.tokens_after:,} tokens{f' ({steps})' if steps else ''}."
    if plan.reason == "no-summary":
        text += "\nNo summary was written: the model could not be asked, or gave no usable answer. Try again later."
    if decision.reason == "focus-unused":
        text += f"\nThe focus ({focus}) was not used: it needs a summary, and none was made."
    return text


def read_compact_request(body: bytes) -> tuple[Request, ApiPath, str]:
    """Return the request, the path of its API, and the focus, a member that no API has."""
    try:
        value = json.loads(body.decode())  # json.loads would read bytes as UTF-16, too
    except (ValueError, RecursionError):
        raise BadRequest("the body cannot be read as JSON: send {model, messages, tools?, focus?}") from None
    path = find_api(as_object(value))
    request = REQUEST_FORMATS[path].parse(remove_members(body, {"focus"})) if isinstance(value, dict) else None
    if request is None:
        raise BadRequest(
            "the body needs `messages` (or `input` of the Responses API), a list of at least one message: "
            "{model, messages, tools?, focus?}"
        )
    focus = value.get("focus", "")
    if not isinstance(focus, str):
        raise BadRequest("`focus` is a text: what should be remembered above all")
    return request, path, focus


def render_compacted(decision: Decision, request: Request, requests: ApiFormat) -> LocalAnswer:
    """Return an answer with the compacted messages, as this API names their list, and a report."""
    plan = _plan(decision)
    block = plan.block
    report: dict[str, Any] = {
        "action": plan.action,
        "reason": plan.reason or None,
        "policy": decision.policy,
        "tokens_before": plan.tokens_before,
        "tokens_after": plan.tokens_after,
        "steps": [{"step": step.step, "messages": step.messages, "saved": step.saved} for step in plan.reports],
        "summary": block.summary.text if block is not None and block.summary is not None else None,
    }
    rendered = requests.render(request, plan.view, plan.tools)
    messages = find_raw(rendered, find_values(rendered), requests.list_name)
    # A model may write half a surrogate pair.
    report_json = json.dumps(report, ensure_ascii=False).encode("utf-8", "replace")
    content = b'{"%b": %b, "report": %b}' % (requests.list_name.encode(), messages, report_json)
    return LocalAnswer(JSON, content)


def _plan(decision: Decision) -> Plan:
    if decision.plan is None:
        raise ValueError("compaction that was asked for always has a plan")
    return decision.plan


ROUNDS_MAX = 8
"""After the first one; in the last of them the tool is not offered."""
RECALLS_MAX = 64
"""Calls of the tool in one request: each may search the whole history."""


def find_room(usable_tokens: int | None, taken_tokens: int) -> int:
    """Return the bytes that may be recalled: half of the free part of the window, because an answer has to follow."""
    if usable_tokens is None:
        return 64 * 1024
    free_tokens = max(0, usable_tokens - taken_tokens)
    return min(256 * 1024, free_tokens // 2 * 3)  # at three bytes a token


T = TypeVar("T")
AskUpstream = Callable[[Call], Awaitable[tuple[Reply, Opening]]]
FailOpen = Callable[[Coroutine[Any, Any, Any], Any], Awaitable[Any]]
"""Return the result of the first value, or the second value if that fails (`Gateway._fail_open`)."""


class AnswerRounds:
    def __init__(self, body: Sequence[Message], answers: ApiFormat, *, room_bytes: int, emit: events.Listener) -> None:
        self._originals = EarlierMessages(body)
        self._answers = answers
        self._room_bytes = room_bytes
        self._emit = emit
        self.rounds = answers.rounds(stream=False)
        self.number = 0
        """The number of rounds after the first one."""
        self._answered_calls = self._returned_bytes = 0
        self._recalls_left = RECALLS_MAX

    async def join(
        self,
        call: Call,
        reply: Reply,
        watch: StreamWatch | None,
        *,
        record: RequestFinished,
        ask: AskUpstream,
        fail_open: FailOpen,
    ) -> tuple[Reply | LocalAnswer, AsyncGenerator[bytes] | None]:
        """Ask for further rounds while the model recalls something.

        Return the answer, and for a stream the chunks of all rounds as they come. Without a stream the chunks are None:
        the answer is complete and has its own.
        """
        self._call, self._record, self._ask, self._fail_open = call, record, ask, fail_open
        self.rounds = self._answers.rounds(stream=watch is not None)
        if watch is not None:
            return reply, self._stream(reply, watch)
        if find_encoding(reply.headers):
            return reply, None
        answer = await self._gather(reply)
        # Those of the last round: until then the upstream was awaited.
        record.headers_seconds = perf_counter() - record.received_at
        return answer, None

    async def _stream(self, reply: Reply, watch: StreamWatch) -> AsyncGenerator[bytes]:
        is_read = True
        following: Reply | None = reply
        while following is not None:
            async with aclosing(following.chunks()) as chunks:
                async for chunk in chunks:
                    piece: bytes | None = chunk
                    if is_read:
                        piece = await self._try(partial(self.rounds.feed, chunk))
                    if piece is None:  # after a fault the rest is passed on unread: nothing of an answer may be lost
                        is_read, piece = False, self.rounds.held
                    if piece:
                        yield piece
            following = await self._open_next_stream(watch) if is_read else None
        if is_read and (rest := self.rounds.close()):
            yield rest

    async def _open_next_stream(self, watch: StreamWatch) -> Reply | None:
        """Open the stream of the next round. Return None if the model recalls nothing. Raise if it is refused."""
        try:
            following = await self._ask_next()
        except ProxyError as fault:
            raise UpstreamBroke(fault.message) from None
        if following is None:
            return None
        reply, opening = following
        if opening.refusal is not None:
            beginning = await reply.peek(lambda read: len(read) > OPENING_MAX_BYTES) or b""
            error = read_error(StreamOpening(self._answers.stream.outputs).find_refusal(beginning) or beginning)
            watch.error = error if error["message"] else None
            raise UpstreamBroke(f"the upstream refused to go on with its answer: status {reply.status}")
        if not reply.is_event_stream:
            raise UpstreamBroke("the upstream went on with a stream by an answer that is none")
        return reply

    async def _gather(self, reply: Reply) -> Reply | LocalAnswer:
        following: tuple[Reply, Opening] | None = reply, Opening()
        while following is not None:
            reply, opening = following
            body = None
            if opening.refusal is None:
                body = await reply.peek(_is_larger_than_answer)
            if body is None or _is_larger_than_answer(body):
                return reply
            if await self._try(partial(self.rounds.feed, body)) is None:
                return reply
            following = await self._ask_next()
        body_of_all = await self._try(self.rounds.close)
        if body_of_all is None:
            return reply
        return LocalAnswer(remove_headers(reply.headers, "content-length"), body_of_all)

    async def _ask_next(self) -> tuple[Reply, Opening] | None:
        """Ask for the next round. Return None if the model recalls nothing."""
        answer, body = await self._try(self.rounds.end_round), self._call.body
        if answer is None or not isinstance(body, bytes):
            return None
        work = len(answer.calls) * sum(len(message.raw) for message in self._originals.body)
        call = await self._fail_open(run_apart(work, partial(self._go_on, answer, body)), None)
        if call is None:
            return None
        record = self._record
        if self._answered_calls:
            self._emit(
                events.RecallAnswered(
                    record.request_id, record.conversation, self.number, self._answered_calls, self._returned_bytes
                )
            )
        reply, opening = await self._ask(call)
        if opening.refusal is not None and opening.refusal.kind in ("input", "tpm-hard"):
            # Perhaps the recalled messages have made it too long: ask once more without them.
            self._room_bytes = 0
            shorter_call = await self._try(partial(self._continue, answer, body))
            if shorter_call is not None:
                reply.close()
                return await self._ask(shorter_call)
        return reply, opening

    async def _try(self, act: Callable[[], T]) -> T | None:
        """Do work without I/O. Return None if it fails."""

        async def run() -> T:
            return act()

        result: T | None = await self._fail_open(run(), None)
        return result

    def _go_on(self, answer: Round, body: bytes) -> Call:
        self.number += 1
        self.rounds.begin_round(is_last=self._is_last)
        return self._continue(answer, body)

    @property
    def _is_last(self) -> bool:
        return self.number >= ROUNDS_MAX

    def _continue(self, answer: Round, body: bytes) -> Call:
        self._answered_calls = self._returned_bytes = 0
        # A tool of the client gets a note that its result is still to come.
        results = [self._recall(call.arguments) if call.name == RECALL.name else PENDING for call in answer.calls]
        body = self._answers.continue_request(body, answer, results)
        if self._is_last:
            body = self._answers.withdraw_recall_tool(body)
        self._call = replace(self._call, body=body)
        return self._call

    def _recall(self, arguments: str) -> str:
        text = self._originals.answer(arguments, self._room_bytes if self._recalls_left > 0 else 0)
        self._recalls_left -= 1
        size = len(text.encode("utf-8", "surrogatepass"))
        self._room_bytes -= size
        self._answered_calls, self._returned_bytes = self._answered_calls + 1, self._returned_bytes + size
        return text


def _is_larger_than_answer(body: bytes | bytearray) -> bool:
    return len(body) > ANSWER_MAX_BYTES
