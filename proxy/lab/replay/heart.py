"""A conversation through the heart, turn by turn, as the proxy would do it: stored blocks are put back in place,
summaries are asked for ahead of need, and are there after the time that writing them takes.

This is what `compaction/` does, without its world: no socket, no store, one conversation, and the conversation's own
clock. Left out is what only a live upstream teaches: anchors on its usage, refusals, blocks that turn out not to help.
`through.py` sends the same turns to a running proxy, where all of that is at work.
"""

from dataclasses import dataclass, replace

from proxy.core.economics import Prices
from proxy.core.messages import Message
from proxy.core.overlay import Block
from proxy.core.plan import NeedSummary, Ready, ahead, decide, nears, without_a_model
from proxy.core.question import Question
from proxy.core.rules import Facts, Rules
from proxy.core.scene import Scene
from proxy.core.summary import Summary
from proxy.core.window import Window
from proxy.lab.replay.history import History, Turn
from proxy.lab.replay.summaries import Asked, Summarizer

PATIENCE = 8.0
"""Seconds a request that may not fit waits for its summary; what policies wait unless they say otherwise."""


@dataclass(frozen=True, slots=True)
class Sent:
    """What became of one request."""

    view: tuple[Message, ...]
    tools: bytes | None
    reason: str = ""
    before: tuple[Asked, ...] = ()
    """Calls for summaries that this request waited for."""
    after: tuple[Asked, ...] = ()
    """Those that were made for later ones."""
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Trial:
    """One policy to be tried: its rules, the window and prices it is told, and who writes its summaries."""

    name: str
    rules: Rules
    window: int
    prices: Prices | None = None
    """None: the model's own, as in production."""
    summarizer: Summarizer | None = None
    patience: float = PATIENCE
    times: bool = True
    """Whether it is told how long a conversation has been idle."""

    @property
    def room(self) -> int | None:
        return Window(total=self.window).usable_tokens()


@dataclass(frozen=True, slots=True)
class _Flight:
    """A question under way: when its answer will be there, and what it will be."""

    covers: int
    lands: float
    text: str


class Heart:
    """One conversation under one policy."""

    def __init__(self, trial: Trial, history: History, prices: Prices) -> None:
        self._trial = trial
        self._history = history
        self._prices = trial.prices or prices
        self._blocks = dict[bytes, Block]()
        self._flight: _Flight | None = None
        self._summary: Summary | None = None
        self._failed = 0
        self._last: float | None = None

    def forward(self, turn: Turn) -> Sent:
        self._land(turn.seconds)
        facts = self._facts(turn)
        plan = decide(self._scene(turn, facts))
        before: tuple[Asked, ...] = ()
        after: tuple[Asked, ...] = ()
        if isinstance(plan, NeedSummary):
            plan, before, after = self._resolved(plan, turn, facts)
        if plan.block is not None and plan.link not in self._blocks:
            self._blocks[plan.link] = plan.block
        after += self._ahead(turn, plan, facts)
        self._last = turn.seconds
        return Sent(plan.view, plan.tools, plan.reason, before, after)

    def _scene(self, turn: Turn, facts: Facts) -> Scene:
        standing = next((self._blocks[link] for link in reversed(turn.links) if link in self._blocks), None)
        blocks = () if standing is None else (standing,)
        return Scene.of(turn.request, turn.links, blocks, self._trial.rules, facts=facts)

    def _facts(self, turn: Turn) -> Facts:
        trial, flight = self._trial, self._flight
        return Facts(
            usable=trial.room,
            prices=self._prices,
            idle=turn.seconds - self._last if trial.times and self._last is not None else None,
            seen=turn.number > 0,
            summary=self._summary,
            making=flight.covers if flight is not None else 0,
            may_ask=trial.summarizer is not None,
            failed=self._failed,
        )

    def _resolved(
        self, need: NeedSummary, turn: Turn, facts: Facts
    ) -> tuple[Ready, tuple[Asked, ...], tuple[Asked, ...]]:
        """As `Compactor` does it: while the view fits nobody waits, else as long as the patience lasts."""
        calls = () if need.question is None else self._begin(need.question, turn)
        if not need.urgent:
            return need.standing, (), calls
        if self._flight is None or self._flight.lands > turn.seconds + self._trial.patience:
            return need.mechanical, calls, ()
        self._land(self._flight.lands)
        facts = replace(facts, summary=self._summary, may_ask=False, making=0, failed=self._failed)
        return without_a_model(decide(self._scene(turn, facts))), calls, ()

    def _ahead(self, turn: Turn, plan: Ready, facts: Facts) -> tuple[Asked, ...]:
        """What the next requests will need is asked for now."""
        if self._flight is not None or not nears(plan.after, self._trial.rules, facts):
            return ()
        question = ahead(self._scene(turn, replace(facts, summary=self._summary, failed=self._failed)))
        return () if question is None else self._begin(question, turn)

    def _begin(self, question: Question, turn: Turn) -> tuple[Asked, ...]:
        summarizer = self._trial.summarizer
        if summarizer is None or self._flight is not None:
            return ()
        room = Window(total=self._trial.window).usable_tokens(question.rules.max_tokens)
        answer = summarizer.answer(question, turn, self._history, room)
        self._flight = _Flight(question.covers, turn.seconds + answer.seconds, answer.text)
        return tuple(answer.calls)

    def _land(self, now: float) -> None:
        flight = self._flight
        if flight is None or flight.lands > now:
            return
        self._flight = None
        if flight.text:
            self._summary = Summary(flight.covers, flight.text)
        self._failed = 0 if flight.text else flight.covers
