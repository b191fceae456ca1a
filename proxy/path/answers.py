"""Answers on their way to the client that are more than an upstream's reply.

`/compact` as the last message and the compaction endpoint are answered by the proxy itself. In the rounds of one answer
the model calls the proxy's own tools and is answered, and the client sees one answer.
"""

import json
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from time import perf_counter
from typing import Any, ClassVar, Protocol, TypeVar

from proxy import events
from proxy.errors import BadRequest, ProxyError, UpstreamBroke
from proxy.events import RequestFinished
from proxy.history.request import Request
from proxy.path.actions import Refusal
from proxy.path.conversation import FOCUS_UNUSED, ORIGINALS_UNWRITABLE, Decision
from proxy.path.planning import NO_SUMMARY, Plan
from proxy.path.remedies import INVALID_STATUSES
from proxy.path.services import run_apart
from proxy.recall.answering import OwnToolRounds
from proxy.upstream.client import Call, Reply
from proxy.wire.answer_assembly import ANSWER_MAX_BYTES
from proxy.wire.api_format import AnswerFormat, RequestFormat
from proxy.wire.chat.chat_format import CHAT_FORMAT
from proxy.wire.event_streams import OPENING_MAX_BYTES, StreamOpening, StreamWatch, read_error
from proxy.wire.http_head import Headers, find_encoding, is_event_stream, remove_headers

UNCHANGED = "none"
JSON: Headers = (("content-type", "application/json"),)
EVENTS: Headers = (("content-type", "text/event-stream; charset=utf-8"), ("cache-control", "no-cache"))


@dataclass(frozen=True, slots=True)
class LocalAnswer:
    headers: Headers
    content: bytes
    status: int = HTTPStatus.OK
    is_good: ClassVar[bool] = True

    @property
    def reason(self) -> str:
        return HTTPStatus(self.status).phrase

    async def chunks(self) -> AsyncGenerator[bytes]:
        yield self.content


def without_command(request: Request, requests: RequestFormat) -> Request:
    history = requests.parse(requests.render(request, request.messages[:-1]))
    if history is None:
        raise BadRequest("there is nothing before /compact that could be compacted")
    return history


def describe_compaction(decision: Decision, request: Request, focus: str, answers: AnswerFormat) -> LocalAnswer:
    block = _plan(decision).block
    text = report_compaction(decision, focus)
    if block is not None and block.summary is not None:
        text += f"\n\n{block.summary.text}"
    answer = answers.render_answer(text, request.model, int(time.time()), stream=request.stream)
    return LocalAnswer(EVENTS if request.stream else JSON, answer)


def report_compaction(decision: Decision, focus: str) -> str:
    plan = _plan(decision)
    if decision.reason == ORIGINALS_UNWRITABLE:
        return "Nothing was compacted: the originals could not be saved."
    text = f"Nothing to compact: of {plan.tokens_before:,} tokens nothing more can go."
    if plan.reason == NO_SUMMARY:
        text = "Nothing was compacted."
    if plan.action != UNCHANGED:
        steps = ", ".join(f"{report.step} -{report.saved:,}" for report in plan.reports if report.saved > 0)
        text = f"Compacted: {plan.tokens_before:,} -> {plan.tokens_after:,} tokens{f' ({steps})' if steps else ''}."
    if plan.reason == NO_SUMMARY:
        text += "\nNo summary was written: the model could not be asked, or gave no usable answer. Try again later."
    if decision.reason == FOCUS_UNUSED:
        text += f"\nThe focus ({focus}) was not used: it needs a summary, and none was made."
    return text


def read_compact_request(body: bytes) -> tuple[Request, str]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        raise BadRequest("the body is not JSON: send {model, messages, tools?, focus?}") from None
    request = CHAT_FORMAT.parse(body)
    if request is None or not isinstance(value, dict):
        raise BadRequest(
            "the body needs `messages`, a list of at least one chat message: {model, messages, tools?, focus?}"
        )
    focus = value.get("focus", "")
    if not isinstance(focus, str):
        raise BadRequest("`focus` is a text: what should be remembered above all")
    return request, focus


def render_compacted(decision: Decision) -> LocalAnswer:
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
    messages = b", ".join(message.raw for message in plan.view)
    report_json = json.dumps(report, ensure_ascii=False).encode(
        "utf-8", "replace"
    )  # a model may write half a surrogate pair
    content = b'{"messages": [' + messages + b'], "report": ' + report_json + b"}"
    return LocalAnswer(JSON, content)


def _plan(decision: Decision) -> Plan:
    if decision.plan is None:
        raise ValueError("compaction that was asked for always has a plan")
    return decision.plan


TOO_LONG_KINDS = ("input", "tpm-hard")

T = TypeVar("T")


class FailOpen(Protocol):
    async def __call__(self, act: Coroutine[Any, Any, T], otherwise: T, /) -> T: ...


@dataclass(frozen=True, slots=True)
class StreamOfRounds:
    reply: Reply
    read: Callable[[], AsyncGenerator[bytes]]

    @property
    def status(self) -> int:
        return self.reply.status

    @property
    def reason(self) -> str:
        return self.reply.reason

    @property
    def headers(self) -> Headers:
        return self.reply.headers

    def chunks(self) -> AsyncGenerator[bytes]:
        return self.read()


class AnswerRounds:
    def __init__(
        self,
        own_tools: OwnToolRounds,
        record: RequestFinished,
        *,
        upstream: str,
        send: Callable[[Call], Awaitable[Reply]],
        read_refusal: Callable[[Reply, Call], Awaitable[Refusal | None]],
        fail_open: FailOpen,
        note_decision: Callable[[Decision], None],
        emit: events.Listener,
    ) -> None:
        self._own_tools = own_tools
        self._record = record
        self._upstream = upstream
        self._send = send
        self._read_refusal = read_refusal
        self._fail_open = fail_open
        self._note_decision = note_decision
        self._emit = emit

    async def join(self, reply: Reply, watch: StreamWatch | None) -> Reply | LocalAnswer | StreamOfRounds:
        if watch is not None:
            return StreamOfRounds(reply, partial(self._stream, reply, watch))
        if find_encoding(reply.headers):
            return reply
        answer = await self._gather(reply)
        self._record.headers_at = perf_counter()  # of the last round: the time before is no overhead of the proxy
        return answer

    async def _stream(self, reply: Reply, watch: StreamWatch) -> AsyncGenerator[bytes]:
        rounds, is_read = self._own_tools.rounds, True
        following: Reply | None = reply
        while following is not None:
            async with aclosing(following.chunks()) as chunks:
                async for chunk in chunks:
                    piece = await self._fail_open(_run(partial(rounds.feed, chunk)), None) if is_read else chunk
                    if piece is None:  # from the fault on as it comes: nothing may be lost of an answer
                        is_read, piece = False, rounds.held
                    if piece:
                        yield piece
            try:
                following = await self._ask_next() if is_read else None
            except ProxyError as fault:
                raise UpstreamBroke(fault.message) from None
            if following is not None and not following.is_good:
                beginning = await following.peek(_is_larger_than_opening) or b""
                error = read_error(StreamOpening().find_refusal(beginning) or beginning)
                watch.error = error if error["message"] else None
                raise UpstreamBroke(f"the upstream refused to go on with its answer: status {following.status}")
            if following is not None and not is_event_stream(following.headers):
                raise UpstreamBroke("the upstream went on with a stream by an answer that is none")
        if is_read and (rest := rounds.close()):
            yield rest

    async def _gather(self, reply: Reply) -> Reply | LocalAnswer:
        following: Reply | None = reply
        while following is not None:
            reply = following
            body = None
            if reply.is_good:
                body = await reply.peek(_is_larger_than_answer)
            if body is None or _is_larger_than_answer(body):
                return reply
            if await self._fail_open(_run(partial(self._own_tools.rounds.feed, body)), None) is None:
                return reply
            following = await self._ask_next()
        body_of_all = await self._fail_open(_run(self._own_tools.rounds.close), None)
        if body_of_all is None:
            return reply
        return LocalAnswer(remove_headers(reply.headers, "content-length"), body_of_all)

    async def _ask_next(self) -> Reply | None:
        """None: the model calls none of the proxy's own tools any more."""
        answer = await self._fail_open(_run(self._own_tools.rounds.end_round), None)
        if answer is None:
            return None
        await self._fail_open(self._own_tools.compact_if_called(answer), None)
        go_on = run_apart(self._own_tools.estimate_work(answer), partial(self._own_tools.go_on, answer))
        call = await self._fail_open(go_on, None)
        if call is None:
            return None
        if self._own_tools.answered_calls:
            facts = self._own_tools.number, self._own_tools.answered_calls, self._own_tools.returned_bytes
            self._emit(events.RecallAnswered(self._record.request_id, self._record.conversation, *facts))
        reply = await self._send(call)
        await reply.decompress(ANSWER_MAX_BYTES)
        refusal = await self._read_refusal(reply, call)
        if not reply.is_good and _may_help_round(self._own_tools, refusal, reply.status):
            reply = await self._ask_again(reply)
        if reply.is_good and self._own_tools.compacted is not None:
            await self._fail_open(self._own_tools.accept(), None)
            if self._own_tools.accepted is not None:
                self._note_decision(self._own_tools.accepted.decision)
        return reply

    async def _ask_again(self, refused_reply: Reply) -> Reply:
        """Send a refused round once more, without recalled messages, and with its history as it was."""
        was_compacted = self._own_tools.compacted is not None
        await self._fail_open(self._own_tools.reject(refused_reply.status), None)
        again = await self._fail_open(_run(self._own_tools.go_on_without_results), None)
        if again is None:
            return refused_reply
        refused_reply.close()
        reply = await self._send(again)
        await reply.decompress(ANSWER_MAX_BYTES)
        await self._read_refusal(reply, again)
        if was_compacted:
            self._emit(events.ViewRefused(self._record.request_id, self._upstream, reply.is_good))
        return reply


async def _run(act: Callable[[], T]) -> T:
    """Do work without I/O, for a caller that needs an awaitable (`fail_open`)."""
    return act()


def _is_larger_than_answer(body: bytes | bytearray) -> bool:
    return len(body) > ANSWER_MAX_BYTES


def _is_larger_than_opening(beginning: bytes | bytearray) -> bool:
    return len(beginning) > OPENING_MAX_BYTES


def _may_help_round(own_tools: OwnToolRounds, refusal: Refusal | None, status: int) -> bool:
    if refusal is not None and refusal.kind in TOO_LONG_KINDS:
        return True
    return own_tools.compacted is not None and (refusal is not None or status in INVALID_STATUSES)
