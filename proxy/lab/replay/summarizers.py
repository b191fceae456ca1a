"""Summarizers for replay: a stand-in (extractive, deterministic, no model), or a real model behind a URL.

Either way the question and the judgement of the answer are those of production (`summary.question`), and its input is
charged like any other request. The stand-in answers at a summary's size, after a summary's time: the user's words under
"Goals and constraints", calls under "Done", error lines under "Errors". Every table made with it says so.
"""

import asyncio
import re
from collections.abc import Callable, Iterable, Sequence
from time import perf_counter
from typing import Protocol

from msgspec import Struct, field

from proxy.config.settings import Upstream
from proxy.decide.question import Question, list_tries
from proxy.history.messages import Message
from proxy.lab.replay.replay_history import ReplayHistory, RequestTurn
from proxy.lab.replay.replay_values import Tokens
from proxy.serve.request_context import RefusedOptions
from proxy.serve.summaries import SummaryCall, SummaryCost
from proxy.shorten.outcome import find_outcome
from proxy.shorten.pipeline import estimate_tokens
from proxy.shorten.placeholder import choose_argument
from proxy.shorten.summary import SummaryReply
from proxy.upstream.client import Call, Client
from proxy.wire.api_format import Try
from proxy.wire.formats import REQUEST_FORMATS
from proxy.wire.http_head import ApiPath, Headers
from proxy.wire.redaction import Redaction

LABEL = "stand-in (extractive, no model)"
SUMMARY_BYTES = 11_300
"""The median of 64 recorded summaries of coding agents (half have from 9,500 to 15,000)."""
_LINE_CHARACTERS = 320
_ROWS_COUNT = 60
_HEADINGS = ("Goal", "Progress", "Files", "Errors", "Next step")
_NEWEST_WORDS = 3
_PATHS = re.compile(r"(?<![\w/])[\w.~-]*/[\w./-]*\w\.\w{1,5}\b")
_HEADING = re.compile(r"^#{1,3} +(\S.{0,60})$", re.MULTILINE)
_HEADINGS_LIMIT = 12
_FIRST, _READ_A_SECOND, _WRITTEN_A_SECOND = 1.5, 8_000, 60


class Pace(Struct, frozen=True):
    first: float = _FIRST
    """Seconds to the first word."""
    read: int = _READ_A_SECOND
    """Uncached tokens a second."""
    written: int = _WRITTEN_A_SECOND

    def seconds(self, fresh_tokens: int, written_tokens: int) -> float:
        return self.first + fresh_tokens / self.read + written_tokens / self.written


def write_summary(messages: Sequence[Message], headings: Sequence[str] = (), most: int = SUMMARY_BYTES) -> str:
    """`most`: bytes."""
    sections = headings if any(map(_find_extract, headings)) else _HEADINGS
    lines: list[str] = []
    for number, heading in enumerate(sections):
        room = most // (len(sections) - number) - len(f"## {heading}\n\n".encode())
        extract = _find_extract(heading)
        rows = extract(messages) if extract else ()
        lines.append(f"## {heading}\n{_fit_rows(rows, room) or '-'}")
        most -= len(lines[-1].encode("utf-8", "replace")) + len("\n\n")
    return "\n\n".join(lines)


def find_headings(demand: str) -> list[str]:
    return list(dict.fromkeys(_HEADING.findall(demand)))[:_HEADINGS_LIMIT]


def _user_words(messages: Iterable[Message]) -> list[str]:
    texts = [_shorten(message.text) for message in messages if message.is_user]
    return texts[:1] + texts[1:][-_ROWS_COUNT:]


def _calls_made(messages: Sequence[Message]) -> list[str]:
    calls = [f"{call.name}: {choose_argument(call)}" for message in messages for call in message.calls]
    return list(dict.fromkeys(_shorten(label) for label in calls))[-_ROWS_COUNT:]


def _files_touched(messages: Iterable[Message]) -> list[str]:
    paths = (path for message in messages for call in message.calls for path in _PATHS.findall(call.arguments))
    return list(dict.fromkeys(paths))[-_ROWS_COUNT:]


def _failures(messages: Iterable[Message]) -> list[str]:
    outcomes = (find_outcome(message.text) for message in messages if message.is_bulk)
    failures = (outcome.error or outcome.render() for outcome in outcomes if outcome.has_failed)
    return list(dict.fromkeys(map(_shorten, failures)))[-_ROWS_COUNT:]


def _assistant_words(messages: Iterable[Message]) -> list[str]:
    texts = [message.text for message in messages if message.role == "assistant"]
    return [_shorten(text) for text in texts if text.strip()][-_ROWS_COUNT:]


def _newest_words(messages: Iterable[Message]) -> list[str]:
    return _assistant_words(messages)[-_NEWEST_WORDS:]


_EXTRACTS: Sequence[tuple[tuple[str, ...], Callable[[Sequence[Message]], list[str]]]] = (
    (("next", "active", "current", "last"), _newest_words),
    (("goal", "aim", "constraint", "request", "task"), _user_words),
    (("file",), _files_touched),
    (("error", "fail", "problem"), _failures),
    (("done", "progress", "state"), _calls_made),
    (("decision",), _assistant_words),
)
"""By words of a heading; the first that fits."""


def _find_extract(heading: str) -> Callable[[Sequence[Message]], list[str]] | None:
    heading_words = heading.lower()
    for words, extract in _EXTRACTS:
        if any(word in heading_words for word in words):
            return extract
    return None


def _fit_rows(rows: Iterable[str], room: int) -> str:
    lines: list[str] = []
    for row in reversed([*rows]):
        room -= len(row.encode("utf-8", "replace")) + len("- \n")
        if room < 0:
            break
        lines.insert(0, f"- {row}")
    return "\n".join(lines)


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LINE_CHARACTERS else line[: _LINE_CHARACTERS - 1] + "…"


class SummaryRequest(Struct, frozen=True):
    """Pieces read and tokens written; or the usage that its upstream reported."""

    pieces: tuple[bytes, ...] = ()
    written: int = 0
    usage: Tokens | None = None


class SummaryAnswer(Struct, frozen=True):
    """Empty text: no summary."""

    text: str
    calls: Sequence[SummaryRequest]
    seconds: float


class ReplaySummarizer(Protocol):
    def answer(
        self, question: Question, turn: RequestTurn, history: ReplayHistory, room: int | None
    ) -> SummaryAnswer: ...


class StandIn(Struct, frozen=True):
    pace: Pace = field(default_factory=Pace)

    def answer(self, question: Question, turn: RequestTurn, history: ReplayHistory, room: int | None) -> SummaryAnswer:
        put = next(list_tries(question, room, estimate_tokens), None)
        if put is None:
            return SummaryAnswer("", (), 0.0)
        max_tokens = question.summary.max_tokens
        text = write_summary(question.old, question.summary.headings, min(SUMMARY_BYTES, 4 * max_tokens))
        verdict = question.verdict(SummaryReply(text), estimate_tokens)
        written_tokens, fresh_tokens = (
            estimate_tokens(text.encode()),
            sum(estimate_tokens(message.raw) for message in _new(put)),
        )
        call = SummaryRequest(tuple(history.ask(turn.request, put, max_tokens)), written_tokens)
        return SummaryAnswer(verdict.text, (call,), self.pace.seconds(fresh_tokens, written_tokens))


class ModelSummarizer(Struct, frozen=True):
    """Asked by the code of production, up to three times."""

    url: str
    name: str = ""
    """Empty: the conversation's own."""
    key: str = ""
    refused_options: RefusedOptions = field(default_factory=RefusedOptions)

    def answer(self, question: Question, turn: RequestTurn, history: ReplayHistory, room: int | None) -> SummaryAnswer:
        return asyncio.run(self._answer(question, history.body(turn.place), room, history.path))

    async def _answer(
        self, question: Question, body: bytes, room: int | None, path: str = ApiPath.CHAT
    ) -> SummaryAnswer:
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
                refused_options=self.refused_options,
                model=self.name,
                room=room,
            )
            outcome = await call.run()
        return SummaryAnswer(outcome.verdict.text, _calls(outcome.cost), perf_counter() - began)

    @property
    def _headers(self) -> Headers:
        return (("authorization", f"Bearer {self.key}"),) if self.key else ()


def _new(put: Try) -> Sequence[Message]:
    """Messages that the upstream has not read yet."""
    return put.messages[-1:] if put.aligned else put.messages


def _calls(cost: SummaryCost) -> list[SummaryRequest]:
    """The usage of all tries is counted with the first."""
    usage = Tokens(cost.read - cost.cached, cost.cached, cost.written)
    return [SummaryRequest(usage=usage if number == 0 else Tokens()) for number in range(cost.tries)]
