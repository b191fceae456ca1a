"""Summaries written by a model: one call (up to three tries), and the calls that are under way in this worker.

A call started ahead of need goes on when the client leaves: it is for the next request. One that a request waits for
is cancelled when the last of those who wait has left; when only their time runs out it goes on, for the next request.
Across workers a claim in the store makes sure that one asks and the others read the result.
"""

import asyncio
import json
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from http import HTTPStatus
from secrets import token_hex
from time import perf_counter

from proxy import events
from proxy.errors import ProxyError, UpstreamTimeout
from proxy.history.identity import Identity
from proxy.history.messages import Request, read_message
from proxy.lifetime import BackgroundTasks
from proxy.lru import ByteBoundedCache
from proxy.models.names import plain_name
from proxy.path.context import UsageRefusals, WindowScope, make_window_scope
from proxy.shorten.memory import DAY_SECONDS, FAILED_SECONDS, MAX_FAILURES, SummaryCandidate
from proxy.shorten.pipeline import Count
from proxy.shorten.summary import Summary, SummaryReply, Verdict
from proxy.shorten.window import NOT_REPORTED, Usage
from proxy.store.contract import Store, StoreUnavailable
from proxy.summary.question import Question, Try, list_tries
from proxy.upstream.call import Call
from proxy.upstream.client import Client
from proxy.upstream.reply import Reply
from proxy.wire.answer_assembly import Answer, Assembly
from proxy.wire.formats import ANSWER_FORMATS, REQUEST_FORMATS
from proxy.wire.headers import find_encoding, find_header
from proxy.wire.redaction import Redaction
from proxy.wire.refusals import BODY_MAX_BYTES, classify
from proxy.wire.request_format import RequestFormat
from proxy.wire.usage import read_usage

MAX_TRIES = 3
BOUND_NAMES = ("max_tokens", "max_completion_tokens")
# These refuse `max_tokens`; most other servers know only that.
_REASONING_MODEL = re.compile(r"o\d|gpt-(?:[5-9]|\d\d)")
_OTHER_NAME = re.compile(
    rb"(?:unsupported|unknown|unrecognized|not supported|extra)[^}]{0,120}max_(?:completion_)?tokens", re.IGNORECASE
)
# After these faults another try would only cost more: seconds until that upstream is asked for summaries again.
REST_SECONDS: Mapping[str, float] = {"auth": 300.0, "quota": 60.0, "unreachable": 30.0, "timeout": 60.0}
FINAL_FAULTS = {*REST_SECONDS, "too-long"}
# The answer ran out of room, perhaps on reasoning: worth the same question with more room.
TRUNCATED_OUTCOMES = {"cut-off", "empty"}
_AUTH = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
_QUOTA = (HTTPStatus.PAYMENT_REQUIRED, HTTPStatus.TOO_MANY_REQUESTS)
# Headers by which the client describes its own request, which this is not.
_REQUEST_SPECIFIC = frozenset({"idempotency-key", "content-encoding", "content-type"})
# What another upstream may see. An allow-list, because credentials travel in headers of any name.
_ALLOWED_ELSEWHERE = frozenset({"accept", "user-agent", "anthropic-version"})


@dataclass(frozen=True, slots=True)
class SummaryCost:
    """Tokens of all tries together, as far as the upstream reported them."""

    tries: int = 0
    read: int = 0
    cached: int = 0
    written: int = 0

    def plus(self, reported: Usage) -> "SummaryCost":
        return SummaryCost(
            self.tries + 1,
            self.read + reported.prompt,
            self.cached + (reported.cached or 0),
            self.written + reported.written,
        )


@dataclass(frozen=True, slots=True)
class Refused:
    """A refusal, as far as it is about the bound of the answer."""

    longest_answer: int | None = None
    """The most tokens that the model can write."""
    wants_other_name: bool = False


@dataclass(frozen=True, slots=True)
class AnswerBound:
    """The most tokens of an answer, and the parameters that say so."""

    wanted: int
    longest: int | None
    names: tuple[str, ...]

    @property
    def tokens(self) -> int:
        return self.wanted if self.longest is None else min(self.wanted, self.longest)

    def widen(self, wanted: int) -> "AnswerBound":
        """The bound after an answer that had too little room, perhaps because the model has reasoned first.

        `wanted`: at most twice the first one, for which `list_tries` leaves room in the window.
        """
        return replace(self, wanted=wanted)

    def after(self, refusal: Refused | None) -> "AnswerBound | None":
        """The bound to try after this refusal; None where it is not about the bound."""
        if refusal is None:
            return None
        if refusal.longest_answer is not None and refusal.longest_answer < self.tokens:
            return replace(self, longest=refusal.longest_answer)
        if refusal.wants_other_name and len(self.names) == 1:
            return replace(self, names=tuple(name for name in BOUND_NAMES if name not in self.names))
        return None


@dataclass(frozen=True, slots=True)
class SummaryCall:
    """A question for a model, and everything needed to ask it."""

    question: Question
    request: Request
    call: Call
    client: Client
    count: Count
    redaction: Redaction
    model: str = ""
    """The model to ask; empty: the request's own."""
    is_other_upstream: bool = False
    """It goes to another upstream than the request: no credential of the client may reach it."""
    room: int | None = None
    longest_answer: int | None = None
    """Tokens that the model can write at all, if that is known."""
    usage_refusals: UsageRefusals | None = None
    """None: streams are not asked for usage."""

    @property
    def model_name(self) -> str:
        return self.model or self.request.model

    @property
    def _scope(self) -> WindowScope:
        return make_window_scope(self.client.settings, self.model_name, self.call)

    @property
    def _format(self) -> RequestFormat:
        return REQUEST_FORMATS[self.call.path]

    async def run(self) -> "SummaryOutcome":
        """Ask up to three times, each time with another body."""
        outcome, bound = SummaryOutcome(), self._first_bound()
        sent = set[bytes]()
        ways = list_tries(self.question, self.room, self.count)
        # In a thread: writing the body of a large history would hold up every other request.
        while (attempt := await asyncio.to_thread(next, ways, None)) is not None and len(sent) < MAX_TRIES:
            if attempt.again and outcome.verdict.why not in TRUNCATED_OUTCOMES:
                continue
            body = await asyncio.to_thread(self._write, attempt, bound)
            if body in sent:
                continue
            sent.add(body)
            outcome = await self._try(body, outcome.cost)
            if (other := bound.after(outcome.refusal)) is not None:
                bound = other  # the same question, bounded as this upstream wants it
                outcome = await self._try(await asyncio.to_thread(self._write, attempt, bound), outcome.cost)
            if outcome.verdict.text or outcome.verdict.why in FINAL_FAULTS:
                break
            if outcome.verdict.why in TRUNCATED_OUTCOMES:
                bound = bound.widen(2 * self.question.rules.max_tokens)
        return outcome

    def _first_bound(self) -> AnswerBound:
        """The bound of the first answer, under the name that the client uses, or else that of this kind of model."""
        names = self._format.find_bounds(self.request.source) or (choose_bound_name(self.model_name),)
        return AnswerBound(self.question.rules.max_tokens, self.longest_answer, names)

    def _write(self, attempt: Try, bound: AnswerBound) -> bytes:
        """The body that asks in this way."""
        clean, bounds = self._redact(attempt), dict.fromkeys(bound.names, bound.tokens)
        body = self._format.render_question(self.request, clean, bounds, self.model, foreign=self.is_other_upstream)
        return body if self.question.rules.stream else self._format.disable_streaming(body)

    def _redact(self, attempt: Try) -> Try:
        """A retold history is sent without its secrets; what the upstream has read before is sent as it was."""
        if attempt.aligned:
            return attempt
        messages = (replace(message, raw=self.redaction.of_json(message.raw)[0]) for message in attempt.messages)
        return replace(attempt, messages=tuple(messages))

    async def _try(self, body: bytes, cost: SummaryCost) -> "SummaryOutcome":
        asking = self._request_usage(body)
        try:
            whole = await fetch_whole_answer(self.client, self._call_with(asking or body), self.model_name)
            if whole.refused == "usage-option" and asking is not None and self.usage_refusals is not None:
                cost = cost.plus(NOT_REPORTED)
                whole = await fetch_whole_answer(self.client, self._call_with(body), self.model_name)
                if not whole.refused:
                    self.usage_refusals.add(self._scope)
        except ProxyError as fault:
            why = "timeout" if isinstance(fault, UpstreamTimeout) else "unreachable"
            return SummaryOutcome(Verdict(why=why), cost.plus(NOT_REPORTED))
        cost = cost.plus(read_usage(whole.answer.usage))
        if whole.refused or whole.answer.error is not None:
            return SummaryOutcome(Verdict(why=whole.refused or "refused"), cost, whole.refusal)
        return SummaryOutcome(self._judge(whole.answer), cost)

    def _request_usage(self, body: bytes) -> bytes | None:
        """The body of a stream with the request for its usage: without it, a streamed summary would seem free."""
        refusals = self.usage_refusals
        if not (self.request.stream and self.question.rules.stream) or refusals is None or self._scope in refusals:
            return None
        return self._format.request_usage(body)

    def _call_with(self, body: bytes) -> Call:
        """The call that asks. To another upstream go the headers of an allow-list, no query and no key of a team."""
        json_body = ("content-type", "application/json")
        if self.is_other_upstream:
            headers = tuple(pair for pair in self.call.headers if pair[0].lower() in _ALLOWED_ELSEWHERE)
            return replace(self.call, query="", headers=(*headers, json_body), body=body, credential=None, trace=None)
        headers = tuple(pair for pair in self.call.headers if pair[0].lower() not in _REQUEST_SPECIFIC)
        return replace(self.call, headers=(*headers, json_body), body=body)

    def _judge(self, answer: Answer) -> Verdict:
        verdict = self.question.verdict(_read_answer(answer), self.count)
        return replace(verdict, text=self.redaction.of_text(verdict.text)[0])


@dataclass(frozen=True, slots=True)
class SummaryOutcome:
    verdict: Verdict = field(default_factory=lambda: Verdict(why="no-room"))
    cost: SummaryCost = field(default_factory=SummaryCost)
    refusal: Refused | None = None
    """What the upstream said where it refused the last try."""


@dataclass(frozen=True, slots=True)
class WholeAnswer:
    """An answer read to its end, or why there is none."""

    answer: Answer
    refused: str = ""
    refusal: Refused | None = None


async def fetch_whole_answer(client: Client, call: Call, model: str) -> WholeAnswer:
    """Send a call, and read its answer to the end."""
    async with client.send(call, model) as reply:
        refused, refusal = ("", None) if reply.is_good else await classify_refusal(reply)
        kind = find_header(reply.headers, "content-type") or ""
        assembly = Assembly(kind, find_encoding(reply.headers), reader=ANSWER_FORMATS[call.path])
        async for chunk in reply.chunks():
            assembly.feed(chunk)
        return WholeAnswer(assembly.answer(ended=True), refused, refusal)


def choose_bound_name(model: str) -> str:
    """The parameter of Chat Completions that bounds the answers of this kind of model."""
    return "max_completion_tokens" if _REASONING_MODEL.match(plain_name(model)) is not None else "max_tokens"


async def classify_refusal(reply: Reply) -> tuple[str, Refused | None]:
    """The kind of this refusal, and what it says about the bound of the answer."""
    beginning = await reply.peek(lambda read: len(read) > BODY_MAX_BYTES)
    refusal = None if beginning is None else classify(reply.status, reply.headers, beginning)
    if refusal is not None and refusal.kind == "usage-option":
        return refusal.kind, None
    longest = refusal.answer_room if refusal is not None and refusal.kind == "output" else None
    wants_other_name = beginning is not None and _OTHER_NAME.search(beginning) is not None
    return _classify_status(reply.status), Refused(longest, wants_other_name=wants_other_name)


def _classify_status(status: int) -> str:
    if status in _AUTH:
        return "auth"
    if status in _QUOTA:
        return "quota"
    return "unreachable" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "refused"


def _read_answer(answer: Answer) -> SummaryReply:
    if not answer.choices:
        return SummaryReply("", "length" if not answer.whole else "")
    first = answer.choices[0]
    message = read_message({"role": "assistant", **json.loads(first.message)}, first.message)
    return SummaryReply(message.text, first.finish or ("" if answer.whole else "length"), calls=bool(message.calls))


# --- calls under way --------------------------------------------------------------------------------------------------

POLL_SECONDS = 0.2
CLAIM_MARGIN_SECONDS = 5.0
CALLS_AT_ONCE_MAX = 1_000
CLOSE_SECONDS = 2.0
"""How long a worker that leaves waits for calls that are about to end."""
RESTING_MAX_BYTES = 4 * 1024 * 1024
FOUND_CLAIMS_MAX_BYTES = 1024 * 1024

SummaryScope = tuple[str, str]
"""A tenant, and the upstream that makes its summaries."""


@dataclass(frozen=True, slots=True)
class SummaryOrder:
    """A summary call, the conversation that it is for, and how long it may take."""

    call: SummaryCall
    identity: Identity
    policy: str
    seconds: float
    failures: int = 0
    """How many calls before it failed in a row."""

    @property
    def key(self) -> str:
        return self.identity.summary_key(self.call.question.covers, self.call.question.label)

    @property
    def scope(self) -> SummaryScope:
        return self.identity.tenant, self.call.client.settings.name


@dataclass(slots=True)
class PendingSummary:
    """A summary call under way, and how many requests wait for it."""

    task: asyncio.Task[Summary | None]
    link: bytes
    """The chain link at its cut."""
    head: str
    """The digest of the head that it is written under."""
    waiting: int = 0
    is_for_later: bool = False
    """It goes on when no request waits for it any more."""


class Summarizer:
    """Shared by all requests of a worker."""

    def __init__(self, store: Store, emit: events.Listener) -> None:
        self._store = store
        self._emit = emit
        self._pending: dict[str, PendingSummary] = {}
        self._calls = BackgroundTasks(CALLS_AT_ONCE_MAX)
        self._resting = ByteBoundedCache[SummaryScope, float](RESTING_MAX_BYTES, owner_of=lambda scope: scope[0])
        self._found_claims = ByteBoundedCache[str, tuple[bytes, float]](
            FOUND_CLAIMS_MAX_BYTES, owner_of=lambda key: key.partition("/")[0]
        )
        """The claims of other workers, and when each was first found."""

    def is_resting(self, scope: SummaryScope) -> bool:
        """True shortly after a fault of that upstream: it is not asked for now."""
        return self._resting.get(scope, 0.0) > time.monotonic()

    def start(self, order: SummaryOrder) -> None:
        """Ask for later use, without waiting; not while another question about this history is under way."""
        links, head = set(order.identity.links), order.identity.head
        same_history = (pending for pending in self._pending.values() if pending.link in links and pending.head == head)
        if order.key not in self._pending and any(same_history):
            return
        pending = self._begin(order)
        if pending is not None:
            pending.is_for_later = True

    async def await_new(self, order: SummaryOrder, seconds: float) -> Summary | None:
        """Ask, and wait this long."""
        pending = self._begin(order)
        return None if pending is None else await self._await(pending, seconds)

    async def await_pending(
        self, identity: Identity, covers: int, seconds: float, call_seconds: float
    ) -> Summary | None:
        """Wait for one that is under way, here or in another worker. `call_seconds`: how long a call may take."""
        pending = self._pending.get(identity.summary_key(covers))
        if pending is not None:
            return await self._await(pending, seconds)
        return await self._await_other_worker(identity.summary_key(covers), covers, seconds, call_seconds)

    async def _await(self, pending: PendingSummary, seconds: float) -> Summary | None:
        pending.waiting += 1
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.shield(pending.task)
        except TimeoutError:
            pending.is_for_later = True
            return None
        finally:
            pending.waiting -= 1
            if not (pending.waiting or pending.is_for_later):
                pending.task.cancel()

    async def close(self) -> None:
        """Finish the calls that are about to end; cancel the others, so that another worker may make them."""
        await self._calls.close(CLOSE_SECONDS)

    def _begin(self, order: SummaryOrder) -> PendingSummary | None:
        """The call for this order, begun if it is not under way. None: no further one can be begun."""
        key = order.key
        if key not in self._pending:
            # A summary call may outlive the request that begins it, and the configuration with its connections.
            task = self._calls.start(partial(self._make, order), order.call.client.lease())
            if task is None:
                return None
            identity, covers = order.identity, order.call.question.covers
            self._pending[key] = PendingSummary(task, identity.links[covers], identity.head)
            task.add_done_callback(lambda _: self._pending.pop(key, None))
        return self._pending[key]

    async def _make(self, order: SummaryOrder) -> Summary | None:
        claim = SummaryCandidate.claim(token_hex(8))
        if not await self._claim(order, claim):
            return await self._await_other_worker(
                order.key, order.call.question.covers, order.seconds + CLAIM_MARGIN_SECONDS, order.seconds
            )
        kept, seconds = claim, 0.0
        try:
            outcome = await self._run(order)
            kept, seconds = _candidate_of(order, outcome.verdict) or (kept, seconds)
            text = outcome.verdict.text
            return Summary(order.call.question.covers, text) if text else None
        finally:
            with suppress(StoreUnavailable):
                await self._store.write_fact(order.key, kept.to_bytes(), seconds, over=claim.to_bytes())

    async def _run(self, order: SummaryOrder) -> SummaryOutcome:
        started, outcome = perf_counter(), SummaryOutcome(Verdict(why="timeout"))
        with suppress(TimeoutError):
            async with asyncio.timeout(order.seconds):
                outcome = await order.call.run()
        why, cost = outcome.verdict.why, outcome.cost
        if why in REST_SECONDS:
            self._rest(order.scope, REST_SECONDS[why])
        self._emit(
            events.SummaryEnded(
                conversation=order.identity.conversation,
                policy=order.policy,
                upstream=order.call.client.settings.name,
                model=order.call.model_name,
                outcome=why or "made",
                tries=cost.tries,
                tokens_read=cost.read,
                tokens_cached=cost.cached,
                tokens_written=cost.written,
                seconds=perf_counter() - started,
                request_id=order.call.call.request_id,
                trace=order.call.call.trace,
            )
        )
        return outcome

    def _rest(self, scope: SummaryScope, seconds: float) -> None:
        self._resting[scope] = time.monotonic() + seconds

    async def _claim(self, order: SummaryOrder, claim: SummaryCandidate) -> bool:
        """Claim the question for this worker; True where it may ask. Without a store, each worker asks for itself."""
        try:
            # The claim outlives the work, so that no other worker starts it again.
            return await self._store.claim_fact(order.key, claim.to_bytes(), order.seconds + CLAIM_MARGIN_SECONDS)
        except StoreUnavailable as fault:
            self._emit(events.StoreFailed(str(fault)))
            return True

    async def _await_other_worker(self, key: str, covers: int, seconds: float, call_seconds: float) -> Summary | None:
        """The summary that another worker is writing, or has written. A claim that outlived its call is removed."""
        with suppress(TimeoutError, StoreUnavailable):
            async with asyncio.timeout(seconds):
                while (value := await self._store.read_fact(key)) is not None:
                    found = SummaryCandidate.from_bytes(value)
                    if found is None or found.state != "making":
                        return Summary(covers, found.text) if found is not None and found.text else None
                    if self._has_outlived(key, value, call_seconds + CLAIM_MARGIN_SECONDS):
                        await self._store.write_fact(key, value, 0.0, over=value)
                        return None
                    await asyncio.sleep(POLL_SECONDS)
        return None

    def _has_outlived(self, key: str, claim: bytes, seconds: float) -> bool:
        """True where a claim is found for longer than it lasts: its worker died while its clock was ahead."""
        known, since = self._found_claims.get(key) or (b"", 0.0)
        if known != claim:
            self._found_claims[key] = claim, time.monotonic()
            return False
        return time.monotonic() - since > seconds


def _candidate_of(order: SummaryOrder, verdict: Verdict) -> tuple[SummaryCandidate, float] | None:
    """The candidate to store and its lifetime; None after a fault of the upstream (the question may be good)."""
    if verdict.text:
        return SummaryCandidate("ready", verdict.text), DAY_SECONDS
    if verdict.why in REST_SECONDS:
        return None
    failed = SummaryCandidate("failed", failures=order.failures + 1)
    return failed, FAILED_SECONDS if failed.failures < MAX_FAILURES else DAY_SECONDS
