"""What an upstream saw of one run: how long the requests were, how much of each it had seen before, what was wrong.

run.peak, run.rewrites, run.violations("openai")
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from operator import eq
from typing import Any

from proxy.lab.replay.replay_history import encode
from proxy.lab.replay.validity import BY_DIALECT, shape_of
from tests.end_to_end.agents.agent import Agent, Work
from tests.end_to_end.agents.model import APIS, body_of, fits, is_chat, room_wanted, step_of, tokens_of
from tests.end_to_end.agents.task import SOLVED, WORD
from tests.support.scripted_upstream import Request

# A client may say its last message otherwise when it sends it again: aider's carries a reminder while it is the last.
OWN_CHURN = 1
CLEARING = ("clear_results", "clear_observations")


@dataclass(frozen=True, slots=True)
class RequestSizes:
    tokens: int
    answer: int  # the tokens of answer it asks for
    lost: int  # messages of the request before it that are not where they were
    violations: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Run:
    work: Work
    seen: tuple[RequestSizes, ...]
    beside: tuple[int, ...]  # the tokens of each side request: titles, summaries, commit messages
    refused: int  # requests of the conversation that were too long
    beside_refused: int  # side requests that were: one long message, which cannot be shortened
    log: tuple[dict[str, Any], ...] = ()  # the proxy's log of the run

    @property
    def done(self) -> bool:
        """The number is in its place, and the last answer has the word."""
        last_words = [line.strip() for line in self.work.output.splitlines()[-20:]]
        return (self.work.repository / "answer.py").read_text() == SOLVED and WORD in last_words

    @property
    def peak(self) -> int:
        return max(request.tokens for request in self.seen)

    @property
    def total(self) -> int:
        """Everything the upstream read: what is asked beside the task is paid for as well."""
        return sum(self.beside) + sum(request.tokens for request in self.seen)

    @property
    def answer(self) -> int:
        return max(request.answer for request in self.seen)

    @property
    def rewrites(self) -> int:
        """How often an upstream's cache was of no use past some point."""
        return sum(request.lost > OWN_CHURN for request in self.seen)

    @property
    def blocks(self) -> list[str]:
        """Why each block was made."""
        return [line["reason"] for line in self._compaction_events]

    @property
    def has_cleared_results(self) -> bool:
        """True where a block has cleared old results as such, or what was known for output."""
        steps = (step for line in self._compaction_events for step in line["steps"] if step["step"] in CLEARING)
        return any(step["messages"] for step in steps)

    @property
    def _compaction_events(self) -> list[dict[str, Any]]:
        return [line for line in self.log if line["event"] == "compaction-ended"]

    def violations(self, dialect: str) -> list[str]:
        return [f"request {at}, {fault}" for at, each in enumerate(self.seen) for fault in each.violations[dialect]]


def record_run(agent: Agent, work: Work, requests: Sequence[Request], window: int | None, log: str = "") -> Run:
    asked = [request for request in requests if request.arrived and is_chat(request)]
    main, beside = _partition(asked, lambda request: step_of(body_of(request), agent.habits) is not None)
    fit, refused = _partition(main, lambda request: fits(request, window))
    received, unheard = _partition(beside, lambda request: fits(request, window))
    text = tuple(json.loads(line) for line in log.splitlines() if line.startswith("{"))
    return Run(work, tuple(_measure_requests(fit)), tuple(map(tokens_of, received)), len(refused), len(unheard), text)


def _partition(requests: Iterable[Request], belongs: Callable[[Request], bool]) -> tuple[list[Request], list[Request]]:
    parts: tuple[list[Request], list[Request]] = [], []
    for request in requests:
        parts[not belongs(request)].append(request)
    return parts


def _measure_requests(requests: Iterable[Request]) -> Iterator[RequestSizes]:
    before: list[Any] = []
    for request in requests:
        body = body_of(request)
        messages = [without_marks(message) for message in body["messages"]]
        shapes = [shape_of(encode(message)) for message in body["messages"]]
        kept = sum(takewhile(bool, map(eq, before, messages)))
        yield RequestSizes(
            tokens_of(request),
            room_wanted(request),
            len(before) - kept,
            {name: (*find_faults_of_its_api(request), *judge(shapes)) for name, judge in BY_DIALECT.items()},
        )
        before = messages


def without_marks(value: Any) -> Any:
    """The message as the upstream's cache takes it: a mark says where to look, and is no part of what is kept."""
    if isinstance(value, list):
        return [without_marks(each) for each in value]
    if isinstance(value, dict):
        return {name: without_marks(each) for name, each in value.items() if name != "cache_control"}
    return value


def find_faults_of_its_api(request: Request) -> list[str]:
    return APIS[request.path].find_faults(request.body)
