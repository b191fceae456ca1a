"""Calls of a model for a summary: up to three tries each, with another body after a refusal or an answer cut short.

A try that only names a parameter the upstream does not know, or a longer answer than it gives, is mended and repeated.

A call started ahead of need is for the next request. One that requests wait for is cancelled when the last client has
left, and continues for the next request if only the time runs out. By a claim in the store one worker asks, and the
others read the result.
"""

import asyncio
import json
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from secrets import token_hex
from time import perf_counter

from msgspec import Struct
from msgspec.structs import replace

from proxy import events
from proxy.decide.conversation import DAY_SECONDS, SummaryCandidate
from proxy.decide.question import Question, list_tries
from proxy.foundation.errors import Overloaded, ProxyError, UpstreamTimeout
from proxy.foundation.lifetime import LARGE, BackgroundTasks
from proxy.foundation.lru import ByteBoundedCache
from proxy.history.identity import Identity
from proxy.history.messages import read_message
from proxy.history.request import Count, Request
from proxy.serve.request_context import NOTHING, Placement, RefusedOptions, WindowScope, make_window_scope
from proxy.shorten.economics import NOT_REPORTED, UNKNOWN, Usage, Window, price_answer, price_prompt
from proxy.shorten.summary import Summary, SummaryReply, Verdict
from proxy.store.contract import Store, StoreUnavailable
from proxy.upstream.client import Call, Client, Reply
from proxy.wire.answer_assembly import Answer, Assembly
from proxy.wire.api_format import ApiFormat, Try
from proxy.wire.cache_placement import ForwardedView
from proxy.wire.formats import REQUEST_FORMATS
from proxy.wire.http_head import find_encoding, find_header
from proxy.wire.redaction import Redaction
from proxy.wire.refusals import BODY_MAX_BYTES, classify
from proxy.wire.token_counts import read_usage

_OTHER_NAME = re.compile(
    rb"(?:unsupported|unknown|unrecognized|not supported|extra)[^}]{0,120}max_(?:completion_)?tokens", re.IGNORECASE
)
# Seconds until an upstream is asked again for a tenant, for faults after which another try would only cost more.
REST_SECONDS: Mapping[str, float] = {"auth": 300.0, "quota": 60.0, "unreachable": 30.0, "timeout": 60.0}


class SummaryCost(Struct, frozen=True):
    """Tokens of all requests of a call, if the upstream reported them."""

    tries: int = 0
    read: int = 0
    cached: int = 0
    written: int = 0

    @classmethod
    def of(cls, usages: Sequence[Usage]) -> "SummaryCost":
        read = sum(usage.prompt for usage in usages)
        cached = sum(usage.cached or 0 for usage in usages)
        return cls(len(usages), read, cached, sum(usage.written for usage in usages))


class SummaryOutcome(Struct, frozen=True):
    verdict: Verdict
    cost: SummaryCost = SummaryCost()


class CallFailure(Struct, frozen=True):
    """The fault of a call for a summary, and the changes that another try needs."""

    why: str
    longest_answer: int | None = None
    wants_other_name: bool = False


class Wording(Struct, frozen=True):
    """The parameters of a question that a refusal may change."""

    bounds: dict[str, int]
    """The bounds of the answer in tokens, by the name of their parameter."""
    asks_usage: bool
    """Whether usage is requested: without it a streamed summary would seem free."""

    @property
    def max_tokens(self) -> int:
        return max(self.bounds.values())


def reword(wording: Wording, failure: CallFailure | None, bounds: Sequence[str]) -> Wording | None:
    """Return the wording that this upstream demands, or None if it demands no other. `bounds`: those of the API."""
    if failure is None:
        return None
    if failure.why == "usage-option" and wording.asks_usage:
        return replace(wording, asks_usage=False)
    if failure.longest_answer is not None and failure.longest_answer < wording.max_tokens:
        return replace(wording, bounds=dict.fromkeys(wording.bounds, failure.longest_answer))
    other_names = [name for name in bounds if name not in wording.bounds]
    if failure.wants_other_name and other_names:
        return replace(wording, bounds=dict.fromkeys(other_names, wording.max_tokens))
    return None


class SummaryCall(Struct, frozen=True):
    question: Question
    request: Request
    call: Call
    client: Client
    count: Count
    redaction: Redaction
    refused_options: RefusedOptions
    placement: Placement = NOTHING
    """Adds marks or a key to a question, so that it finds the history before it in the provider's cache."""
    model: str = ""
    """`summary.model`; empty if it is the request's own."""
    is_other_upstream: bool = False
    """Whether another upstream is asked, which no credential of the client may reach."""
    room: int | None = None
    longest_answer: int | None = None

    @property
    def model_name(self) -> str:
        return self.model or self.request.model

    @property
    def _scope(self) -> WindowScope:
        return make_window_scope(self.client.upstream, self.model_name, self.call)

    @property
    def _format(self) -> ApiFormat:
        return REQUEST_FORMATS[self.call.path]

    async def run(self) -> SummaryOutcome:
        verdict, usages = Verdict(why="no-room"), list[Usage]()
        max_tokens, longest_answer = self.question.summary.max_tokens, self.longest_answer
        names = self._format.find_bounds(self.request.source, self.model_name)
        is_streamed = self.request.stream and self.question.summary.stream
        asks_usage = is_streamed and not self.refused_options.has(self._scope, "usage-option")
        wording = Wording(dict.fromkeys(names, _limit(max_tokens, longest_answer)), asks_usage)
        ways, tries, tries_max = list_tries(self.question, self.room, self.count), 0, 3
        # The answer ran out of room, perhaps on reasoning: ask once more, with more room.
        truncated_outcomes = ("cut-off", "empty")
        # Bodies are written in a thread: a large one would hold up all other requests.
        while tries < tries_max and (attempt := await LARGE.run(next, ways, None)) is not None:
            if attempt.again and verdict.why not in truncated_outcomes:
                continue
            tries += 1
            first_wording = wording
            for _ in range(3):  # one retry for the usage option, and one for the bound
                verdict, usage, failure = await self._ask(attempt, wording)
                usages.append(usage)
                next_wording = reword(wording, failure, self._format.bounds)
                if next_wording is None:
                    break
                wording = next_wording
            if wording.max_tokens < first_wording.max_tokens:
                longest_answer = wording.max_tokens
            if wording.asks_usage != asks_usage and failure is None:
                self.refused_options.add(self._scope, "usage-option")
            if not verdict.why or verdict.why in REST_SECONDS or verdict.why == "too-long":
                break
            if verdict.why in truncated_outcomes:  # `list_tries` has left room for twice as many tokens
                wording = replace(wording, bounds=dict.fromkeys(wording.bounds, _limit(2 * max_tokens, longest_answer)))
        return SummaryOutcome(verdict, SummaryCost.of(usages))

    def _write(self, attempt: Try, wording: Wording) -> bytes:
        if not attempt.aligned:  # aligned messages are as the upstream has read them before
            (message,) = attempt.messages
            attempt = replace(attempt, messages=(replace(message, raw=self.redaction.of_json(message.raw)[0]),))
        body = self._format.render_question(
            self.request, attempt, wording.bounds, self.model, foreign=self.is_other_upstream
        )
        if attempt.aligned and not self.is_other_upstream:
            body, _ = self.placement.place(self._format, self.request, body, ForwardedView(attempt.messages))
        if not self.question.summary.stream:
            body = self._format.disable_streaming(body)
        asking_body = self._format.request_usage(body) if wording.asks_usage else None
        return asking_body or body

    async def _ask(self, attempt: Try, wording: Wording) -> tuple[Verdict, Usage, CallFailure | None]:
        body = await LARGE.run(self._write, attempt, wording)
        try:
            answer, failure = await fetch_whole_answer(self.client, self._call_with(body), self.model_name)
        except ProxyError as fault:
            why = "timeout" if isinstance(fault, UpstreamTimeout) else "unreachable"
            return Verdict(why=why), NOT_REPORTED, None
        if failure is not None:
            verdict = Verdict(why=failure.why)
        elif answer.error is not None:
            verdict = Verdict(why="refused")
        else:
            verdict = self.question.verdict(_read_answer(answer), self.count)
            verdict = replace(verdict, text=self.redaction.of_text(verdict.text)[0])
        return verdict, read_usage(answer.usage), failure

    def _call_with(self, body: bytes) -> Call:
        """Return the call that asks for the summary.

        Another upstream gets no query, no key of a team, and three headers only: others may hold a credential.
        """
        headers: list[tuple[str, str]] = []
        for name, value in self.call.headers:
            if self.is_other_upstream:
                may_go = name.lower() in ("accept", "user-agent", self._format.version_header)
            else:  # the excluded headers describe the client's own request
                may_go = name.lower() not in ("idempotency-key", "content-encoding", "content-type")
            if may_go:
                headers.append((name, value))
        call = replace(self.call, headers=(*headers, ("content-type", "application/json")), body=body)
        if self.is_other_upstream:
            return replace(call, query="", credential=None, trace=None)
        return call


async def fetch_whole_answer(client: Client, call: Call, model: str) -> tuple[Answer, CallFailure | None]:
    async with client.send(call, model) as reply:
        failure = None
        if not reply.is_good:
            failure = await classify_failure(reply)
        kind = find_header(reply.headers, "content-type") or ""
        assembly = Assembly(REQUEST_FORMATS[call.path], kind, find_encoding(reply.headers))
        async for chunk in reply.chunks():
            assembly.feed(chunk)
        return assembly.answer(ended=True), failure


def _limit(max_tokens: int, longest_answer: int | None) -> int:
    return min(max_tokens, longest_answer or max_tokens)


async def classify_failure(reply: Reply) -> CallFailure:
    beginning = await reply.peek(lambda read: len(read) > BODY_MAX_BYTES)
    why, longest_answer, wants_other_name = "refused", None, False
    if reply.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        why = "auth"
    elif reply.status in (HTTPStatus.PAYMENT_REQUIRED, HTTPStatus.TOO_MANY_REQUESTS):
        why = "quota"
    elif reply.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        why = "unreachable"
    if beginning is not None:
        refusal = classify(reply.status, reply.headers, beginning)
        if refusal is not None and refusal.kind == "usage-option":
            return CallFailure(refusal.kind)
        if refusal is not None and refusal.kind == "output":
            longest_answer = refusal.answer_room
        wants_other_name = _OTHER_NAME.search(beginning) is not None
    return CallFailure(why, longest_answer, wants_other_name=wants_other_name)


def _read_answer(answer: Answer) -> SummaryReply:
    if not answer.choices:
        return SummaryReply("", "length" if not answer.whole else "")
    first = answer.choices[0]
    message = read_message({**json.loads(first.message), "role": "assistant"}, first.message)
    return SummaryReply(message.text, first.finish or ("" if answer.whole else "length"), calls=bool(message.calls))


CLAIM_MARGIN_SECONDS = 5.0

SummaryScope = tuple[str, str]
"""A tenant, and the upstream that makes its summaries."""


class SummaryOrder(Struct, frozen=True):
    call: SummaryCall
    store: Store
    identity: Identity
    policy: str
    failures: int = 0
    window: Window = UNKNOWN
    """The window of the model that is asked, with its prices."""

    @property
    def key(self) -> str:
        return self.identity.summary_key(self.call.question.covers, self.call.question.focus)

    @property
    def scope(self) -> SummaryScope:
        return self.identity.tenant, self.call.client.upstream.name


class PendingSummary(Struct):
    task: asyncio.Task[Summary | None]
    link: bytes
    head: str
    waiting: int = 0
    is_for_later: bool = False
    """The call continues if no request waits for it."""


class Summarizer:
    def __init__(self, emit: events.Listener) -> None:
        self._emit = emit
        self._pending: dict[str, PendingSummary] = {}
        self._calls = BackgroundTasks(limit=1_000)
        self._resting = ByteBoundedCache[SummaryScope, float](1024 * 1024, owner_of=lambda scope: scope[0])
        self._found_claims = ByteBoundedCache[str, tuple[bytes, float]](
            1024 * 1024, owner_of=lambda key: key.partition("/")[0]
        )
        """The claims of other workers, and when each was first found."""

    def is_resting(self, scope: SummaryScope) -> bool:
        """Return whether no summary is asked for yet, because the last call failed."""
        return (self._resting.get(scope) or 0.0) > time.monotonic()

    def start(self, order: SummaryOrder) -> bool:
        """Ask for a summary that is used later. Return False if another question about this history is under way."""
        links = set(order.identity.links)
        if order.key not in self._pending:
            for other in self._pending.values():
                if other.link in links and other.head == order.identity.head:
                    return False
        pending = self._begin(order)
        if pending is None:
            return False
        pending.is_for_later = True
        return True

    async def await_new(self, order: SummaryOrder, seconds: float) -> Summary | None:
        pending = self._begin(order)
        if pending is None:
            return None
        return await self._await(pending, seconds)

    async def await_pending(
        self, store: Store, identity: Identity, covers: int, seconds: float, call_seconds: float
    ) -> Summary | None:
        """Wait for a summary under way, perhaps in another worker, where its call may take *call_seconds*."""
        pending = self._pending.get(identity.summary_key(covers))
        if pending is not None:
            return await self._await(pending, seconds)
        return await self._await_other_worker(store, identity.summary_key(covers), covers, seconds, call_seconds)

    async def _await(self, pending: PendingSummary, seconds: float) -> Summary | None:
        pending.waiting += 1
        try:
            await asyncio.wait([pending.task], timeout=seconds)
            if not pending.task.done():
                pending.is_for_later = True
                return None
            if pending.task.cancelled():  # by `forget`, because conversations are deleted
                return None
            return pending.task.result()
        finally:
            pending.waiting -= 1
            if not (pending.waiting or pending.is_for_later):
                pending.task.cancel()

    def forget(self) -> None:
        """Cancel the calls under way: their summaries would be stored after their conversations were deleted."""
        for pending in self._pending.values():
            pending.task.cancel()

    async def close(self) -> None:
        """Cancel the calls that do not end soon: another worker may make them."""
        await self._calls.close(seconds=2.0)  # for calls that are about to end

    def _begin(self, order: SummaryOrder) -> PendingSummary | None:
        """Return the call for this order, started now if it is not under way. None if there are too many calls."""
        key = order.key
        if key not in self._pending:
            # The lease keeps the connections: a call may outlive its request and the configuration.
            task = self._calls.start(partial(self._make, order), order.call.client.lease())
            if task is None:
                return None
            identity, covers = order.identity, order.call.question.covers
            self._pending[key] = PendingSummary(task, identity.links[covers], identity.head)
            task.add_done_callback(lambda _: self._pending.pop(key, None))
        return self._pending[key]

    async def _make(self, order: SummaryOrder) -> Summary | None:
        claim, call_seconds = SummaryCandidate.claim(token_hex(8)), order.call.question.summary.seconds
        try:
            # The claim outlives the call. Otherwise, another worker would start it again.
            seconds = call_seconds + CLAIM_MARGIN_SECONDS
            may_ask = await order.store.claim_fact(order.key, claim.to_bytes(), seconds)
        except StoreUnavailable as fault:  # without a store, each worker asks
            self._emit(events.StoreFailed(str(fault)))
            may_ask = True
        if not may_ask:
            covers = order.call.question.covers
            return await self._await_other_worker(order.store, order.key, covers, seconds, call_seconds)
        candidate, seconds = claim, 0.0
        try:
            verdict = (await self._run(order)).verdict
            text = verdict.text
            # A fault of the upstream says nothing about the question, so it is not stored as a failure.
            if verdict.why not in REST_SECONDS:
                candidate = SummaryCandidate.of_answer(text, order.failures, order.identity.conversation)
                seconds = DAY_SECONDS
            if not text:
                return None
            return Summary(order.call.question.covers, text)
        finally:
            with suppress(StoreUnavailable):
                await order.store.write_fact(order.key, candidate.to_bytes(), seconds, over=claim.to_bytes())

    async def _run(self, order: SummaryOrder) -> SummaryOutcome:
        started_at, outcome = perf_counter(), SummaryOutcome(Verdict(why="timeout"))
        # Overloaded: too many histories wait for a thread, so this summary would come too late as well.
        with suppress(TimeoutError, Overloaded):
            async with asyncio.timeout(order.call.question.summary.seconds):
                outcome = await order.call.run()
        why, cost = outcome.verdict.why, outcome.cost
        read_dollars = price_prompt(order.window, cost.read, cost.cached) or 0.0
        written_dollars = price_answer(order.window, cost.read, cost.written) or 0.0
        if why in REST_SECONDS:
            self._resting[order.scope] = time.monotonic() + REST_SECONDS[why]
        self._emit(
            events.SummaryEnded(
                conversation=order.identity.conversation,
                policy=order.policy,
                upstream=order.call.client.upstream.name,
                model=order.call.model_name,
                outcome=why or "made",
                tries=cost.tries,
                tokens_read=cost.read,
                tokens_cached=cost.cached,
                tokens_written=cost.written,
                seconds=perf_counter() - started_at,
                dollars=read_dollars + written_dollars,
                request_id=order.call.call.request_id,
                trace=order.call.call.trace,
                team=order.call.call.caller.team,
                key=order.call.call.caller.key_id,
            )
        )
        return outcome

    async def _await_other_worker(
        self, store: Store, key: str, covers: int, seconds: float, call_seconds: float
    ) -> Summary | None:
        """Read the store until the call of another worker has ended. A claim that has outlived its call is removed."""
        with suppress(TimeoutError, StoreUnavailable):
            async with asyncio.timeout(seconds):
                while (value := await store.read_fact(key)) is not None:
                    candidate = SummaryCandidate.from_bytes(value)
                    if candidate is None or candidate.state != "making":
                        if candidate is not None and candidate.text:
                            return Summary(covers, candidate.text)
                        return None
                    if self._has_outlived(key, value, call_seconds + CLAIM_MARGIN_SECONDS):
                        await store.write_fact(key, value, 0.0, over=value)
                        return None
                    await asyncio.sleep(0.2)
        return None

    def _has_outlived(self, key: str, claim: bytes, seconds: float) -> bool:
        """Return whether a claim is older than a call may take: its worker died while its clock was ahead."""
        known_claim, since = self._found_claims.get(key) or (b"", 0.0)
        if known_claim != claim:
            self._found_claims[key] = claim, time.monotonic()
            return False
        return time.monotonic() - since > seconds
