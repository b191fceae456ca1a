"""One call of a model for a summary: up to three tries, each with another body."""

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from http import HTTPStatus

from proxy.errors import ProxyError, UpstreamTimeout
from proxy.history.messages import read_message
from proxy.history.request import Request
from proxy.lru import ByteBoundedCache
from proxy.models.names import plain_name
from proxy.path.request_context import WindowScope, make_window_scope
from proxy.shorten.economics import NOT_REPORTED, Usage
from proxy.shorten.pipeline import Count
from proxy.shorten.summary import SummaryReply, Verdict
from proxy.summary.question import Question, Try, list_tries
from proxy.upstream.client import Call, Client, Reply
from proxy.wire.answer_assembly import Answer, Assembly
from proxy.wire.api_format import RequestFormat
from proxy.wire.formats import ANSWER_FORMATS, REQUEST_FORMATS
from proxy.wire.http_head import find_encoding, find_header
from proxy.wire.redaction import Redaction
from proxy.wire.refusals import BODY_MAX_BYTES, classify
from proxy.wire.token_counts import read_usage

MAX_TRIES = 3
BOUND_NAMES = ("max_tokens", "max_completion_tokens")
# These refuse `max_tokens` (https://platform.openai.com/docs/guides/reasoning); most other servers know only that.
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
# The headers that another upstream may see. An allow-list, because credentials travel in headers of any name.
_ALLOWED_ELSEWHERE = frozenset({"accept", "user-agent", "anthropic-version"})


@dataclass(frozen=True, slots=True)
class SummaryCost:
    """Tokens of all tries together, as far as the upstream reported them."""

    tries: int = 0
    read: int = 0
    cached: int = 0
    written: int = 0

    def plus(self, usage: Usage) -> "SummaryCost":
        return SummaryCost(
            self.tries + 1,
            self.read + usage.prompt,
            self.cached + (usage.cached or 0),
            self.written + usage.written,
        )


@dataclass(frozen=True, slots=True)
class Refused:
    """The kind of a refusal, and its statement about the bound of the answer."""

    kind: str
    longest_answer: int | None = None
    wants_other_name: bool = False


@dataclass(frozen=True, slots=True)
class AnswerBound:
    wanted: int
    longest: int | None
    names: tuple[str, ...]

    @property
    def tokens(self) -> int:
        if self.longest is None:
            return self.wanted
        return min(self.wanted, self.longest)

    def widen(self, max_tokens: int) -> "AnswerBound":
        """At most twice the first one: `list_tries` leaves room for that in the window."""
        return replace(self, wanted=max_tokens)

    def after(self, refusal: Refused | None) -> "AnswerBound | None":
        """None if the refusal is not about the bound."""
        if refusal is None:
            return None
        if refusal.longest_answer is not None and refusal.longest_answer < self.tokens:
            return replace(self, longest=refusal.longest_answer)
        if refusal.wants_other_name and len(self.names) == 1:
            return replace(self, names=tuple(name for name in BOUND_NAMES if name not in self.names))
        return None


@dataclass(frozen=True, slots=True)
class SummaryCall:
    question: Question
    request: Request
    call: Call
    client: Client
    count: Count
    redaction: Redaction
    model: str = ""
    """Empty: the request's own."""
    is_other_upstream: bool = False
    """No credential of the client may reach it."""
    room: int | None = None
    longest_answer: int | None = None
    usage_refusals: ByteBoundedCache[WindowScope, bool] | None = None
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
        outcome, answer_bound = SummaryOutcome(), self._first_bound()
        sent_bodies = set[bytes]()
        ways = list_tries(self.question, self.room, self.count)
        # In a thread: writing the body of a large history would hold up every other request.
        while (attempt := await asyncio.to_thread(next, ways, None)) is not None and len(sent_bodies) < MAX_TRIES:
            if attempt.again and outcome.verdict.why not in TRUNCATED_OUTCOMES:
                continue
            body = await asyncio.to_thread(self._write, attempt, answer_bound)
            if body in sent_bodies:
                continue
            sent_bodies.add(body)
            outcome = await self._try(body, outcome.cost)
            if (next_bound := answer_bound.after(outcome.refusal)) is not None:
                answer_bound = next_bound  # the same question, bounded as this upstream wants it
                outcome = await self._try(await asyncio.to_thread(self._write, attempt, answer_bound), outcome.cost)
            if outcome.verdict.text or outcome.verdict.why in FINAL_FAULTS:
                break
            if outcome.verdict.why in TRUNCATED_OUTCOMES:
                answer_bound = answer_bound.widen(2 * self.question.rules.max_tokens)
        return outcome

    def _first_bound(self) -> AnswerBound:
        """Under the name that the client uses, or else that of this kind of model."""
        names = self._format.find_bounds(self.request.source) or (choose_bound_name(self.model_name),)
        return AnswerBound(self.question.rules.max_tokens, self.longest_answer, names)

    def _write(self, attempt: Try, answer_bound: AnswerBound) -> bytes:
        clean, bounds = self._redact(attempt), dict.fromkeys(answer_bound.names, answer_bound.tokens)
        body = self._format.render_question(self.request, clean, bounds, self.model, foreign=self.is_other_upstream)
        if self.question.rules.stream:
            return body
        return self._format.disable_streaming(body)

    def _redact(self, attempt: Try) -> Try:
        """Messages that the upstream has read before are sent as they were."""
        if attempt.aligned:
            return attempt
        messages = (replace(message, raw=self.redaction.of_json(message.raw)[0]) for message in attempt.messages)
        return replace(attempt, messages=tuple(messages))

    async def _try(self, body: bytes, cost: SummaryCost) -> "SummaryOutcome":
        asking = self._request_usage(body)
        try:
            answer, refusal = await fetch_whole_answer(self.client, self._call_with(asking or body), self.model_name)
            if refusal is not None and refusal.kind == "usage-option" and asking and self.usage_refusals is not None:
                cost = cost.plus(NOT_REPORTED)
                answer, refusal = await fetch_whole_answer(self.client, self._call_with(body), self.model_name)
                if refusal is None:
                    self.usage_refusals[self._scope] = True
        except ProxyError as fault:
            why = "unreachable"
            if isinstance(fault, UpstreamTimeout):
                why = "timeout"
            return SummaryOutcome(Verdict(why=why), cost.plus(NOT_REPORTED))
        cost = cost.plus(read_usage(answer.usage))
        if refusal is not None:
            return SummaryOutcome(Verdict(why=refusal.kind), cost, refusal)
        if answer.error is not None:
            return SummaryOutcome(Verdict(why="refused"), cost)
        return SummaryOutcome(self._judge(answer), cost)

    def _request_usage(self, body: bytes) -> bytes | None:
        """Without usage, a streamed summary would seem free."""
        refusals = self.usage_refusals
        if not (self.request.stream and self.question.rules.stream) or refusals is None or self._scope in refusals:
            return None
        return self._format.request_usage(body)

    def _call_with(self, body: bytes) -> Call:
        """To another upstream go the headers of an allow-list, no query and no key of a team."""
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


async def fetch_whole_answer(client: Client, call: Call, model: str) -> tuple[Answer, Refused | None]:
    async with client.send(call, model) as reply:
        refusal = None
        if not reply.is_good:
            refusal = await classify_refusal(reply)
        kind = find_header(reply.headers, "content-type") or ""
        assembly = Assembly(kind, find_encoding(reply.headers), reader=ANSWER_FORMATS[call.path])
        async for chunk in reply.chunks():
            assembly.feed(chunk)
        return assembly.answer(ended=True), refusal


def choose_bound_name(model: str) -> str:
    """The parameter of Chat Completions that bounds the answers of this kind of model."""
    if _REASONING_MODEL.match(plain_name(model)) is not None:
        return "max_completion_tokens"
    return "max_tokens"


async def classify_refusal(reply: Reply) -> Refused:
    beginning = await reply.peek(lambda read: len(read) > BODY_MAX_BYTES)
    kind, longest_answer, wants_other_name = _classify_status(reply.status), None, False
    if beginning is not None:
        refusal = classify(reply.status, reply.headers, beginning)
        if refusal is not None and refusal.kind == "usage-option":
            return Refused(refusal.kind)
        if refusal is not None and refusal.kind == "output":
            longest_answer = refusal.answer_room
        wants_other_name = _OTHER_NAME.search(beginning) is not None
    return Refused(kind, longest_answer, wants_other_name=wants_other_name)


def _classify_status(status: int) -> str:
    if status in _AUTH:
        return "auth"
    if status in _QUOTA:
        return "quota"
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return "unreachable"
    return "refused"


def _read_answer(answer: Answer) -> SummaryReply:
    if not answer.choices:
        return SummaryReply("", "length" if not answer.whole else "")
    first = answer.choices[0]
    message = read_message({"role": "assistant", **json.loads(first.message)}, first.message)
    return SummaryReply(message.text, first.finish or ("" if answer.whole else "length"), calls=bool(message.calls))
