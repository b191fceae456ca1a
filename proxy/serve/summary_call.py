"""One call of a model for a summary: up to three tries, each with another body."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from http import HTTPStatus

from msgspec import Struct, field
from msgspec.structs import replace

from proxy.decide.question import Question, list_tries
from proxy.foundation.errors import ProxyError, UpstreamTimeout
from proxy.foundation.model_names import plain_name
from proxy.foundation.threads import LARGE
from proxy.history.messages import Message, read_message
from proxy.history.request import Request
from proxy.serve.request_context import RefusedOptions, WindowScope, make_window_scope
from proxy.serve.retries import ask_again
from proxy.shorten.economics import NOT_REPORTED, Usage
from proxy.shorten.pipeline import Count
from proxy.shorten.summary import SummaryReply, Verdict
from proxy.upstream.client import Call, Client, Reply
from proxy.wire.answer_assembly import Answer, Assembly
from proxy.wire.api_format import RequestFormat, Try
from proxy.wire.formats import REQUEST_FORMATS
from proxy.wire.http_head import find_encoding, find_header
from proxy.wire.redaction import Redaction
from proxy.wire.refusals import BODY_MAX_BYTES, classify
from proxy.wire.token_counts import read_usage

MAX_TRIES = 3
BOUND_NAMES = frozenset({"max_tokens", "max_completion_tokens"})
# These models refuse `max_tokens` (https://platform.openai.com/docs/guides/reasoning). Most other servers know only it.
_REASONING_MODEL = re.compile(r"o\d|gpt-(?:[5-9]|\d\d)")
_OTHER_NAME = re.compile(
    rb"(?:unsupported|unknown|unrecognized|not supported|extra)[^}]{0,120}max_(?:completion_)?tokens", re.IGNORECASE
)
# Seconds until an upstream is asked again, for faults after which another try would only cost more.
REST_SECONDS: Mapping[str, float] = {"auth": 300.0, "quota": 60.0, "unreachable": 30.0, "timeout": 60.0}
# The answer ran out of room, perhaps on reasoning: ask once more, with more room.
TRUNCATED_OUTCOMES = {"cut-off", "empty"}


class SummaryCost(Struct, frozen=True):
    """Tokens of all tries, if the upstream reported them."""

    tries: int = 0
    read: int = 0
    cached: int = 0
    written: int = 0

    @classmethod
    def of_try(cls, usage: Usage) -> "SummaryCost":
        return cls(1, usage.prompt, usage.cached or 0, usage.written)

    def plus(self, other: "SummaryCost") -> "SummaryCost":
        return SummaryCost(
            self.tries + other.tries,
            self.read + other.read,
            self.cached + other.cached,
            self.written + other.written,
        )


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


async def reword(wording: Wording, outcome: "SummaryOutcome") -> Wording | None:
    """Return the wording that this upstream demands, or None if its answer demands no other."""
    failure = outcome.failure
    if failure is None:
        return None
    if failure.why == "usage-option" and wording.asks_usage:
        return replace(wording, asks_usage=False)
    if failure.longest_answer is not None and failure.longest_answer < wording.max_tokens:
        return replace(wording, bounds=dict.fromkeys(wording.bounds, failure.longest_answer))
    if failure.wants_other_name and len(wording.bounds) == 1:
        return replace(wording, bounds=dict.fromkeys(BOUND_NAMES - wording.bounds.keys(), wording.max_tokens))
    return None


class SummaryCall(Struct, frozen=True):
    question: Question
    request: Request
    call: Call
    client: Client
    count: Count
    redaction: Redaction
    refused_options: RefusedOptions
    place: Callable[[bytes, Sequence[Message]], bytes] = lambda body, _: body
    """Add marks or a key to a body with these messages, so that the provider's cache is found."""
    model: str = ""
    """Empty if it is the request's own."""
    is_other_upstream: bool = False
    """Whether another upstream is asked, which no credential of the client may reach."""
    room: int | None = None
    longest_answer: int | None = None

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
        outcome, cost = SummaryOutcome(), SummaryCost()
        max_tokens, longest_answer = self.question.rules.max_tokens, self.longest_answer
        # The answer is bounded by the parameters that the client uses, or else by that of this kind of model.
        names = self._format.find_bounds(self.request.source) or (choose_bound_name(self.model_name),)
        is_streamed = self.request.stream and self.question.rules.stream
        asks_usage = is_streamed and not self.refused_options.has(self._scope, "usage-option")
        wording = Wording(dict.fromkeys(names, _limit(max_tokens, longest_answer)), asks_usage)
        ways, tries = list_tries(self.question, self.room, self.count), 0
        # Bodies are written in a thread: a large one would hold up all other requests.
        while tries < MAX_TRIES and (attempt := await LARGE.run(next, ways, None)) is not None:
            if attempt.again and outcome.verdict.why not in TRUNCATED_OUTCOMES:
                continue
            tries += 1
            # Two retries: one for the usage option, and one for the bound.
            exchanges = await ask_again(partial(self._ask, attempt), wording, reword, retries=2)
            for _, outcome in exchanges:
                cost = cost.plus(outcome.cost)
            accepted_wording, outcome = exchanges[-1]
            if accepted_wording.max_tokens < wording.max_tokens:
                longest_answer = accepted_wording.max_tokens
            if accepted_wording.asks_usage != wording.asks_usage and outcome.failure is None:
                self.refused_options.add(self._scope, "usage-option")
            wording = accepted_wording
            why = outcome.verdict.why
            if not why or why in REST_SECONDS or why == "too-long":
                break
            if why in TRUNCATED_OUTCOMES:  # `list_tries` has left room for twice as many tokens
                wording = replace(wording, bounds=dict.fromkeys(wording.bounds, _limit(2 * max_tokens, longest_answer)))
        return replace(outcome, cost=cost)

    def _write(self, attempt: Try, wording: Wording) -> bytes:
        if not attempt.aligned:  # aligned messages are as the upstream has read them before
            (message,) = attempt.messages
            attempt = replace(attempt, messages=(replace(message, raw=self.redaction.of_json(message.raw)[0]),))
        body = self._format.render_question(
            self.request, attempt, wording.bounds, self.model, foreign=self.is_other_upstream
        )
        if attempt.aligned and not self.is_other_upstream:
            body = self.place(body, attempt.messages)
        if not self.question.rules.stream:
            body = self._format.disable_streaming(body)
        asking_body = self._format.request_usage(body) if wording.asks_usage else None
        return asking_body or body

    async def _ask(self, attempt: Try, wording: Wording) -> "SummaryOutcome":
        body = await LARGE.run(self._write, attempt, wording)
        try:
            answer, failure = await fetch_whole_answer(self.client, self._call_with(body), self.model_name)
        except ProxyError as fault:
            why = "timeout" if isinstance(fault, UpstreamTimeout) else "unreachable"
            return SummaryOutcome(Verdict(why=why), SummaryCost.of_try(NOT_REPORTED))
        cost = SummaryCost.of_try(read_usage(answer.usage))
        if failure is not None:
            return SummaryOutcome(Verdict(why=failure.why), cost, failure)
        if answer.error is not None:
            return SummaryOutcome(Verdict(why="refused"), cost)
        verdict = self.question.verdict(_read_answer(answer), self.count)
        return SummaryOutcome(replace(verdict, text=self.redaction.of_text(verdict.text)[0]), cost)

    def _call_with(self, body: bytes) -> Call:
        """Return the call that asks for the summary.

        Another upstream gets no query, no key of a team, and three headers only: others may hold a credential.
        """
        headers: list[tuple[str, str]] = []
        for name, value in self.call.headers:
            if self.is_other_upstream:
                may_go = name.lower() in ("accept", "user-agent", "anthropic-version")
            else:  # the excluded headers describe the client's own request
                may_go = name.lower() not in ("idempotency-key", "content-encoding", "content-type")
            if may_go:
                headers.append((name, value))
        call = replace(self.call, headers=(*headers, ("content-type", "application/json")), body=body)
        if self.is_other_upstream:
            return replace(call, query="", credential=None, trace=None)
        return call


class SummaryOutcome(Struct, frozen=True):
    verdict: Verdict = field(default_factory=lambda: Verdict(why="no-room"))
    cost: SummaryCost = field(default_factory=SummaryCost)
    failure: CallFailure | None = None


async def fetch_whole_answer(client: Client, call: Call, model: str) -> tuple[Answer, CallFailure | None]:
    async with client.send(call, model) as reply:
        failure = None
        if not reply.is_good:
            failure = await classify_failure(reply)
        kind = find_header(reply.headers, "content-type") or ""
        assembly = Assembly(kind, find_encoding(reply.headers), reader=REQUEST_FORMATS[call.path].answers)
        async for chunk in reply.chunks():
            assembly.feed(chunk)
        return assembly.answer(ended=True), failure


def _limit(max_tokens: int, longest_answer: int | None) -> int:
    return min(max_tokens, longest_answer or max_tokens)


def choose_bound_name(model: str) -> str:
    """Return the parameter of Chat Completions that bounds the answers of this model."""
    if _REASONING_MODEL.match(plain_name(model)) is not None:
        return "max_completion_tokens"
    return "max_tokens"


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
    message = read_message({"role": "assistant", **json.loads(first.message)}, first.message)
    return SummaryReply(message.text, first.finish or ("" if answer.whole else "length"), calls=bool(message.calls))
