"""A question on its way to a model and back: what is sent, and what came of it.

One errand is up to three tries, each with another body. An answer is heard whole before it counts; a refusal is
classified by what it means for the next try, and for the next errand.
"""

import asyncio
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any

from proxy.core.messages import Request, understood
from proxy.core.pipeline import Count
from proxy.core.question import Question, Try, tries
from proxy.core.verdict import Said, Verdict
from proxy.errors import ProxyError, UpstreamTimeout
from proxy.upstream import Call, Client
from proxy.wire import chat
from proxy.wire import headers as wire_headers
from proxy.wire.answers import Answer, Assembly
from proxy.wire.redaction import Redaction

MOST_TRIES = 3
# After these faults another try would only cost more: seconds until anything is asked of that upstream again.
RESTS: Mapping[str, float] = {"auth": 300.0, "quota": 60.0, "unreachable": 30.0, "timeout": 60.0}
FINAL = {*RESTS, "too-long"}
# The answer ran out of room, perhaps on thoughts: worth the same question with more of it.
SHORT_OF_ROOM = {"cut-off", "empty"}
_AUTH = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
_QUOTA = (HTTPStatus.PAYMENT_REQUIRED, HTTPStatus.TOO_MANY_REQUESTS)
# Headers by which the client describes its own request, which this is not.
_NOT_OURS = frozenset({"idempotency-key", "content-encoding", "content-type"})
# A list of what may be told, because credentials travel in headers of any name.
_TOLD_TO_OTHERS = frozenset({"accept", "user-agent"})


@dataclass(frozen=True, slots=True)
class Spent:
    """What the tries cost, as far as the upstream told."""

    tries: int = 0
    read: int = 0
    cached: int = 0
    written: int = 0

    def plus(self, usage: Mapping[str, Any] | None) -> "Spent":
        told = usage or {}
        details = told.get("prompt_tokens_details")
        cached = details.get("cached_tokens") if isinstance(details, Mapping) else 0
        return Spent(
            self.tries + 1,
            self.read + _number(told.get("prompt_tokens")),
            self.cached + _number(cached),
            self.written + _number(told.get("completion_tokens")),
        )


@dataclass(frozen=True, slots=True)
class Errand:
    """A question, and everything needed to ask it."""

    question: Question
    request: Request
    call: Call
    client: Client
    count: Count
    redaction: Redaction
    model: str = ""
    """The model to ask; empty: the request's own."""
    foreign: bool = False
    """It goes to another upstream than the request: no credential of the client's goes there."""
    room: int | None = None

    @property
    def asked_model(self) -> str:
        return self.model or self.request.model

    async def run(self) -> "Outcome":
        outcome = Outcome()
        sent = set[bytes]()
        ways = tries(self.question, self.room, self.count)
        while (way := await asyncio.to_thread(self._next, ways)) is not None:
            put, body = way
            if body in sent or (put.again and outcome.verdict.why not in SHORT_OF_ROOM):
                continue
            if len(sent) == MOST_TRIES:
                break
            sent.add(body)
            outcome = await self._tried(body, outcome.spent)
            if outcome.verdict.text or outcome.verdict.why in FINAL:
                break
        return outcome

    def _next(self, ways: Iterator[Try]) -> tuple[Try, bytes] | None:
        """The next way to put it, and the body to send. Called in a thread: a history may be large."""
        put = next(ways, None)
        return (
            None
            if put is None
            else (put, chat.question(self.request, self._clean(put), self.model, foreign=self.foreign))
        )

    def _clean(self, put: Try) -> Try:
        """A retold history goes without its secrets; what the upstream has read before goes as it was."""
        if put.aligned:
            return put
        messages = (replace(message, raw=self.redaction.of_json(message.raw)[0]) for message in put.messages)
        return replace(put, messages=tuple(messages))

    async def _tried(self, body: bytes, spent: Spent) -> "Outcome":
        try:
            answer, refused = await heard(self.client, self._call_with(body), self.asked_model)
        except ProxyError as fault:
            why = "timeout" if isinstance(fault, UpstreamTimeout) else "unreachable"
            return Outcome(Verdict(why=why), spent.plus(None))
        spent = spent.plus(answer.usage)
        if refused or answer.error is not None:
            return Outcome(Verdict(why=refused or "refused"), spent)
        return Outcome(self._judged(answer), spent)

    def _call_with(self, body: bytes) -> Call:
        """The call that asks. To another upstream go the headers of an allow-list, no query and no key of a team."""
        json_body = ("content-type", "application/json")
        if self.foreign:
            headers = tuple(pair for pair in self.call.headers if pair[0].lower() in _TOLD_TO_OTHERS)
            return replace(self.call, query="", headers=(*headers, json_body), body=body, credential=None)
        headers = tuple(pair for pair in self.call.headers if pair[0].lower() not in _NOT_OURS)
        return replace(self.call, headers=(*headers, json_body), body=body)

    def _judged(self, answer: Answer) -> Verdict:
        verdict = self.question.verdict(_said(answer), self.count)
        return replace(verdict, text=self.redaction.of_text(verdict.text)[0])


@dataclass(frozen=True, slots=True)
class Outcome:
    verdict: Verdict = field(default_factory=lambda: Verdict(why="no-room"))
    spent: Spent = field(default_factory=Spent)


async def heard(client: Client, call: Call, model: str) -> tuple[Answer, str]:
    """The whole answer, or why there is none."""
    async with client.send(call, model) as reply:
        refused = "" if reply.is_good else _refusal(reply.status)
        kind = wire_headers.find(reply.headers, "content-type") or ""
        assembly = Assembly(kind, wire_headers.find(reply.headers, "content-encoding") or "")
        async for chunk in reply.chunks():
            assembly.feed(chunk)
        return assembly.answer(ended=True), refused


def _refusal(status: int) -> str:
    if status in _AUTH:
        return "auth"
    if status in _QUOTA:
        return "quota"
    return "unreachable" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "refused"


def _said(answer: Answer) -> Said:
    if not answer.choices:
        return Said("", "length" if not answer.whole else "")
    first = answer.choices[0]
    message = understood({"role": "assistant", **json.loads(first.message)}, first.message)
    return Said(message.text, first.finish or ("" if answer.whole else "length"), calls=bool(message.calls))


def _number(value: Any) -> int:  # noqa: ANN401 (any JSON a server sends)
    return value if isinstance(value, int) else 0
