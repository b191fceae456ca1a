"""Summarizers for replay: the stand-in, or a real model behind a URL.

Either way the question is that of production (`summary.question`): the conversation as last forwarded with one more
instruction, or the old part retold if that does not fit. The answer is judged as in production, and its input is
charged like any other request.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Protocol

from proxy.config import Upstream
from proxy.history.messages import Message
from proxy.lab.replay import standin
from proxy.lab.replay.replay_history import ReplayHistory, RequestTurn
from proxy.lab.replay.replay_values import Tokens
from proxy.shorten.pipeline import estimate_tokens
from proxy.shorten.summary import SummaryReply
from proxy.summary.call import SummaryCall, SummaryCost
from proxy.summary.question import Question, Try, list_tries
from proxy.upstream.call import Call
from proxy.upstream.client import Client
from proxy.wire.formats import REQUEST_FORMATS
from proxy.wire.headers import Headers
from proxy.wire.paths import CHAT_PATH
from proxy.wire.redaction import Redaction


@dataclass(frozen=True, slots=True)
class SummaryRequest:
    """One call for a summary: what it read, as pieces of a request, and wrote; or what its upstream said of both."""

    pieces: tuple[bytes, ...] = ()
    written: int = 0
    usage: Tokens | None = None


@dataclass(frozen=True, slots=True)
class SummaryAnswer:
    """The summary (none: empty), the calls it took, and how long."""

    text: str
    calls: Sequence[SummaryRequest]
    seconds: float


class ReplaySummarizer(Protocol):
    def answer(
        self, question: Question, turn: RequestTurn, history: ReplayHistory, room: int | None
    ) -> SummaryAnswer: ...


@dataclass(frozen=True, slots=True)
class StandIn:
    """Answers every question at once, in simulated time."""

    pace: standin.Pace = field(default_factory=standin.Pace)

    def answer(self, question: Question, turn: RequestTurn, history: ReplayHistory, room: int | None) -> SummaryAnswer:
        put = next(list_tries(question, room, estimate_tokens), None)
        if put is None:
            return SummaryAnswer("", (), 0.0)
        rules = question.rules
        text = standin.write_summary(question.old, rules.headings, min(standin.SUMMARY_BYTES, 4 * rules.max_tokens))
        verdict = question.verdict(SummaryReply(text), estimate_tokens)
        written, fresh = estimate_tokens(text.encode()), sum(estimate_tokens(message.raw) for message in _new(put))
        asked = SummaryRequest(tuple(history.ask(turn.request, put, rules.max_tokens)), written)
        return SummaryAnswer(verdict.text, (asked,), self.pace.seconds(fresh, written))


@dataclass(frozen=True, slots=True)
class ModelSummarizer:
    """A real one: asked by the same code as in production, up to three times."""

    url: str
    name: str = ""
    """Another one than the conversation's own."""
    key: str = ""

    def answer(self, question: Question, turn: RequestTurn, history: ReplayHistory, room: int | None) -> SummaryAnswer:
        return asyncio.run(self._answer(question, history.body(turn.place), room, history.path))

    async def _answer(self, question: Question, body: bytes, room: int | None, path: str = CHAT_PATH) -> SummaryAnswer:
        request, began = REQUEST_FORMATS[path].parse(body), perf_counter()
        if request is None:
            raise ValueError("a history that was read cannot be read again")
        async with Client(Upstream(base_url=self.url), lambda _: None) as client:
            call = SummaryCall(
                question=question,
                request=request,
                call=Call("POST", path, "", self._headers, body),
                client=client,
                count=estimate_tokens,
                redaction=Redaction(),
                model=self.name,
                room=room,
            )
            outcome = await call.run()
        return SummaryAnswer(outcome.verdict.text, _calls(outcome.cost), perf_counter() - began)

    @property
    def _headers(self) -> Headers:
        return (("authorization", f"Bearer {self.key}"),) if self.key else ()


def _new(put: Try) -> Sequence[Message]:
    """Messages the upstream has not read yet: for a question appended to the conversation, the question."""
    return put.messages[-1:] if put.aligned else put.messages


def _calls(spent: SummaryCost) -> list[SummaryRequest]:
    """Calls of one summary; the usage of all tries is counted with the first."""
    usage = Tokens(spent.read - spent.cached, spent.cached, spent.written)
    return [SummaryRequest(usage=usage if number == 0 else Tokens()) for number in range(spent.tries)]
