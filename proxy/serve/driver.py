"""The driver of the proxy that serves: performs the actions of one request (`program.py`), and writes its body.

The gateway sends and delivers: `advance` drives the request to the next of these halts. The reply to `Send` is how an
answer begins: `read_opening` tells an answer from a refusal, which may have come with status 200.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from functools import cached_property, partial
from http import HTTPStatus
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from proxy.decide.actions import (
    Action,
    Actions,
    AnnounceLargeWork,
    Deliver,
    Delivered,
    Finished,
    Forwarding,
    Halt,
    Opening,
    Planned,
    SendAgain,
    Stage,
    follow,
)
from proxy.decide.conversation import Conversation, Decision
from proxy.decide.planning import Plan
from proxy.decide.program import bypass, compact, run, take_step
from proxy.decide.remedies import SMALLEST_OVERFLOW_TOKENS, strip_signed
from proxy.events import StoreFailed
from proxy.foundation.lifetime import UNMEASURED_BYTES, WORK, estimate_work, needs_thread, run_apart
from proxy.history.identity import Identity
from proxy.history.request import Request
from proxy.serve.performer import ActionPerformer
from proxy.serve.request_context import NOTHING, CompiledPolicy, RequestOptions
from proxy.serve.rounds import AnswerRounds, LocalAnswer, find_room
from proxy.serve.services import Services
from proxy.store.contract import StoreUnavailable
from proxy.upstream.client import Call, Client, Reply
from proxy.wire.api_format import ApiFormat
from proxy.wire.cache_placement import SMALLEST_CACHED_BYTES, ForwardedView
from proxy.wire.event_streams import StreamOpening
from proxy.wire.formats import REQUEST_FORMATS
from proxy.wire.http_head import find_header
from proxy.wire.json_body import Prefix
from proxy.wire.refusals import (
    BODY_MAX_BYTES,
    RECOVERABLE_KINDS,
    AddedOption,
    Refusal,
    begins_as_error,
    classify,
    may_begin_as_error,
)
from proxy.wire.token_counts import AnswerEnds, UsageView, read_usage, says_truncated


class OutgoingRequest(Struct, frozen=True):
    call: Call
    decision: Decision | None
    options: RequestOptions = field(default_factory=RequestOptions)
    driver: "RequestDriver | None" = None
    """The driver of its decisions, or None if nothing is to be decided."""
    start_driver: "Callable[[], Coroutine[Any, Any, OutgoingRequest]] | None" = None
    """Starts the driver of a small request, which needs one only if the upstream refuses it."""
    usage_view: UsageView | None = None
    recalls: AnswerRounds | None = None
    answer: LocalAnswer | None = None
    model: str = ""
    """The model that the body names; empty if it was not read."""
    keeps_originals: bool = True
    since: float = field(default_factory=time.time)
    """When its body had come."""
    placed: tuple[AddedOption, ...] = ()
    """The options that the proxy has added so that the provider's cache is found."""


def remove_reasoning(requests: ApiFormat, body: bytes) -> bytes:
    request = requests.parse(body, None)
    if request is None:
        return body
    return requests.render(request, strip_signed(request.messages))


class RequestDriver:
    def __init__(
        self,
        services: Services,
        outgoing: OutgoingRequest,
        request: Request,
        *,
        policy: CompiledPolicy,
        client: Client,
        prefix: Prefix | None = None,
        is_small: bool = False,
    ) -> None:
        """Drive a request. *is_small*: it certainly needs no decision, unless the upstream refuses it."""
        call = outgoing.call
        self._rounds: AnswerRounds | None = None
        self.policy = policy
        self._services = services
        self._call = call
        self.request = request
        self._outgoing = outgoing
        self._prefix = prefix
        self._format = REQUEST_FORMATS[call.path]
        self.performer = ActionPerformer(
            services,
            call,
            outgoing.options,
            request,
            policy=policy,
            client=client,
            prefix=prefix,
            arrived_at=outgoing.since,
        )
        if outgoing.options.mode == "bypass":
            self.is_small, self._life = True, bypass()
        else:
            self.is_small, self._life = is_small, run(is_small=is_small)
        self._stage = Stage.DECIDING
        self._forwarding = Forwarding()
        self._acceptance: asyncio.Task[Halt] | None = None
        """Longer work after the upstream has accepted the request: it continues if the client leaves."""

    @cached_property
    def _new_work(self) -> int:
        if self.is_small:
            return 0
        source = self.request.source
        return estimate_work(source if self._prefix is None else source[self._prefix.stop :])

    @property
    def identity(self) -> Identity | None:
        return self._forwarding.conversation.identity if isinstance(self._forwarding, Planned) else None

    async def start(self) -> OutgoingRequest:
        """Drive the request to its first `Send`, and return it as it is sent."""
        forwarding = (await self._go_on(None)).forwarding
        if not self.is_small:
            self.performer.report_oddities(forwarding)
        return await self._write(forwarding)

    async def advance(self, opening: Opening) -> OutgoingRequest | Deliver:
        """Go on after the beginning of an answer. Return the next request to send, or which answer to deliver."""
        if opening.refusal is not None and self.performer.may_doubt():
            opening = replace(opening, has_doubtful_options=True)
        work = WORK.get()
        if opening.refusal is None and work is not None:
            work.is_accepted = True
        plan, is_heavy = self._forwarding.decision.plan, False
        if opening.refusal is not None:
            is_heavy = not self.is_small and opening.refusal.kind != "other"
        elif plan is not None:
            is_heavy = plan.block is not None
        going_on = self._go_on(opening, is_heavy=is_heavy)
        if opening.refusal is None and plan is not None and (is_heavy or needs_thread(self._new_work)):
            self._acceptance = asyncio.create_task(going_on)
            await asyncio.wait([self._acceptance])
            if self._acceptance.exception() is not None:
                return Deliver(self._forwarding, opening)  # `finish` meets the fault, and it is counted once
            step = self._acceptance.result()
        else:
            step = await going_on
        while isinstance(step, SendAgain):
            refused_body = self.performer.sent_body
            outgoing = await self._write(step.forwarding)
            if outgoing.call.body != refused_body:
                self._stage = follow(self._stage, step)
                return outgoing
            step = await self._go_on(None)  # the remedy has changed nothing: try the next one
        if not isinstance(step, Deliver):
            raise TypeError("a request is sent before its answer only")
        return step

    async def finish(self, tail: AnswerEnds, *, is_whole: bool) -> None:
        acceptance, self._acceptance = self._acceptance, None
        try:
            if acceptance is not None:
                await acceptance
            elif self._stage is not Stage.DELIVERING:
                # The client left while an action was performed: its reply is None.
                step = await self._drive(self._life)
                if isinstance(step, Deliver):
                    self._stage, self._forwarding = follow(self._stage, step), step.forwarding
        finally:
            del acceptance  # its exception refers to this frame: the cycle would keep the whole request alive
        if self._stage is not Stage.DELIVERING:
            return
        usage = read_usage(tail.usage())
        forwarded_tokens = None
        if self._rounds is not None and self._rounds.number:
            forwarded_tokens = read_usage(self._find_first_usage()).prompt
        delivery = Delivered(time.time(), usage, is_whole, says_truncated(tail.end), forwarded_tokens)
        self._stage = follow(self._stage, await self._drive(self._life, delivery))

    async def compact(self, *, store: bool) -> Decision:
        step = await self._drive(compact(store=store), is_heavy=True)
        decision: Decision = step.value  # type: ignore[union-attr]
        return decision

    async def _go_on(self, result: Opening | None, *, is_heavy: bool = False) -> Halt:
        """Drive the request to its next halt."""
        step = await self._drive(self._life, result, is_heavy=is_heavy)
        if isinstance(step, Finished):
            raise TypeError("a request ends after its answer only")
        if not isinstance(step, SendAgain):  # `advance` still has to see whether the bytes of the retry differ
            self._stage = follow(self._stage, step)
        self._forwarding = step.forwarding
        return step

    async def _drive(self, life: Actions[Any], reply: object = None, *, is_heavy: bool = False) -> Halt | Finished:
        """Perform these actions up to the next halt or the end. If the store is down, the reply is None.

        The generator runs off the event loop if the new part of the history is large, or, with `is_heavy` and after
        `AnnounceLargeWork`, the whole of it.
        """
        step: Halt | Action[Any] | AnnounceLargeWork | Finished | None = None
        while True:
            if is_heavy or isinstance(step, AnnounceLargeWork):
                work = estimate_work(self.request.source)
            else:
                work = self._new_work
            if work > UNMEASURED_BYTES:
                step = await run_apart(work, partial(take_step, life, reply))
            else:
                # On the event loop, without yielding to it: this turn is noted before the next one is read.
                try:
                    step = life.send(reply)
                except StopIteration as stop:
                    step = Finished(stop.value)
            reply = None
            if isinstance(step, Action):
                try:
                    reply = await step.perform(self.performer)
                except StoreUnavailable as fault:
                    self._services.emit(StoreFailed(str(fault)))
            elif not isinstance(step, AnnounceLargeWork):
                return step

    async def _write(self, forwarding: Forwarding) -> OutgoingRequest:
        decision, asks_usage, body = forwarding.decision, False, self.request.source
        rewrite = decision.rewrite
        if decision.plan is not None:
            write = partial(_write_body, self._format, self.request, decision, rewrite)
            body, asks_usage = await run_apart(self._new_work, write)
        if decision.removes_reasoning:
            body = await run_apart(estimate_work(body), partial(remove_reasoning, self._format, body))
        placed: tuple[AddedOption, ...] = ()
        if forwarding.refused_option is not None:
            self.performer.dropped = self.performer.added
        elif len(self.request.source) >= SMALLEST_CACHED_BYTES and not forwarding.is_untouched_retry:
            view = None
            # If reasoning was removed, the numbers of messages and their blocks in the plan no longer hold.
            if rewrite is not None and not decision.removes_reasoning:
                view = ForwardedView(rewrite.view, rewrite.shared)
            if self.performer.placement != NOTHING:
                place = partial(self.performer.placement.place, self._format, self.request, body, view)
                # Only the outline is read, in far less time than a history that is new.
                body, placed = await run_apart(len(body) // 8, place)
        self.performer.sent_body = body
        self.performer.added = (*placed, "usage-option") if asks_usage else placed
        call = self._call if body is self.request.source else replace(self._call, body=body)
        self._rounds = None
        if forwarding.conversation is not None and rewrite is not None:
            self._rounds = self._start_recalls(forwarding.conversation, rewrite)
        extra_tokens = 0
        if self.policy.settings.usage == "client_view":
            extra_tokens = max(0, decision.tokens_before - decision.tokens_after)
        usage_view = None
        if asks_usage or extra_tokens:
            usage_view = UsageView(asks_usage, extra_tokens, self._find_first_usage)
        return replace(
            self._outgoing,
            call=call,
            decision=decision,
            model=self.request.model,
            usage_view=usage_view,
            recalls=self._rounds,
            driver=self,
            placed=placed,
        )

    def _find_first_usage(self) -> Mapping[str, Any] | None:
        """Return the usage of the first round. The sum over all rounds would not be the size of a request."""
        return None if self._rounds is None else self._rounds.rounds.first_usage

    def _start_recalls(self, conversation: Conversation, rewrite: Plan) -> AnswerRounds | None:
        recall_tool = conversation.rules.recall_tool
        if recall_tool == b"" or recall_tool not in (rewrite.tools or b""):
            return None
        usable_tokens = conversation.window.usable_tokens(self.request.max_output)
        room_bytes = find_room(usable_tokens, rewrite.tokens_after)
        return AnswerRounds(self.request.body, self._format, room_bytes=room_bytes, emit=self._services.emit)


def _write_body(requests: ApiFormat, request: Request, decision: Decision, rewrite: Plan | None) -> tuple[bytes, bool]:
    """Return the body, and whether it asks for the usage of its stream."""
    body = request.source
    if rewrite is not None:
        body = requests.render(request, rewrite.view, rewrite.tools)
    asking = requests.request_usage(body) if decision.asks_usage else None
    if asking is not None:
        body = asking
    if decision.max_answer_tokens is not None:
        body = requests.answer_within(body, decision.max_answer_tokens)
    return body, asking is not None


async def read_opening(reply: Reply, call: Call, heartbeat_seconds: float | None = None, *, number: int = 0) -> Opening:
    """Read as much of *reply* as tells whether the request was refused. The reply yields all of it again.

    The beginning of an accepted answer is held back for at most *heartbeat_seconds*. None means no bound: the client's
    stream has begun already.
    """
    status, headers, error = reply.status, reply.headers, None
    if not reply.is_good:
        error = await reply.peek(_is_larger_than_refusal)
    elif reply.is_event_stream:
        status, headers = HTTPStatus.BAD_REQUEST, ()
        # A token is at least a byte.
        if not isinstance(call.body, bytes) or len(call.body) >= SMALLEST_OVERFLOW_TOKENS:
            opening = StreamOpening(REQUEST_FORMATS[call.path].stream.outputs)
            # Without a bound, the client would get neither headers nor heartbeats while the model reads or waits.
            beginning = await reply.peek(opening.is_decided, heartbeat_seconds)
            if beginning is not None:
                error = opening.find_refusal(beginning)
    elif "json" in (find_header(headers, "content-type") or ""):
        # Some routers wrap an error in an answer of status 200, which is JSON even if a stream was asked for.
        beginning = await reply.peek(
            lambda read: not may_begin_as_error(read) or _is_larger_than_refusal(read), heartbeat_seconds
        )
        if beginning is not None and begins_as_error(beginning):
            error = beginning
    if reply.is_good and error is None:
        return Opening(number=number)
    refusal = None if error is None else classify(status, headers, error)
    if refusal is None:
        refusal = Refusal("invalid" if reply.status in (400, 422) else "other")
    elif refusal.kind not in RECOVERABLE_KINDS:
        refusal = Refusal("other")
    return Opening(refusal, number=number)


def _is_larger_than_refusal(beginning: bytes | bytearray) -> bool:
    return len(beginning) > BODY_MAX_BYTES
