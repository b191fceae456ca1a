"""What an upstream saw of one run: how long the requests were, how much of each it had seen before, what was wrong.

run.peak, run.rewrites, run.violations
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from upstream import Request

from agents.agent import Agent, Work
from agents.model import fits, is_chat, tokens_of
from agents.strict import violations

# A client may say its last message otherwise when it sends it again: aider's carries a reminder while it is the last.
OWN_CHURN = 1


@dataclass(frozen=True, slots=True)
class Seen:
    """One request of the conversation itself."""

    tokens: int
    lost: int  # messages of the request before it that are not where they were
    violations: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Run:
    work: Work
    seen: tuple[Seen, ...]
    refused: int  # requests of the conversation that were too long
    beside: int  # side requests: titles, summaries, commit messages
    log: tuple[dict[str, Any], ...] = ()  # what the proxy said meanwhile

    @property
    def peak(self) -> int:
        return max(request.tokens for request in self.seen)

    @property
    def total(self) -> int:
        return sum(request.tokens for request in self.seen)

    @property
    def rewrites(self) -> int:
        """How often an upstream's cache was of no use past some point."""
        return sum(request.lost > OWN_CHURN for request in self.seen)

    @property
    def blocks(self) -> list[str]:
        """Why each block was made."""
        return [line["reason"] for line in self.log if line["event"] == "compaction-ended"]

    @property
    def violations(self) -> list[str]:
        return [f"request {at}, {fault}" for at, request in enumerate(self.seen) for fault in request.violations]


def recorded(agent: Agent, work: Work, requests: Sequence[Request], window: int | None, log: str = "") -> Run:
    asked = [request for request in requests if request.arrived and is_chat(request)]
    main = [request for request in asked if agent.habits.next_step(request.json) is not None]
    fit = [request for request in main if fits(request, window)]
    said = tuple(json.loads(line) for line in log.splitlines() if line.startswith("{"))
    return Run(work, tuple(_seen(fit)), refused=len(main) - len(fit), beside=len(asked) - len(main), log=said)


def _seen(requests: Iterable[Request]) -> Iterator[Seen]:
    before: list[Any] = []
    for request in requests:
        body = request.json
        kept = sum(1 for _ in takewhile(_equal, zip(before, body["messages"], strict=False)))
        yield Seen(tokens_of(request), len(before) - kept, tuple(violations(body)))
        before = body["messages"]


def _equal(pair: tuple[Any, Any]) -> bool:
    return pair[0] == pair[1]
