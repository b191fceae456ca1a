"""Simulation of a conversation under one policy, turn by turn, in the conversation's own time.

It drives the same generator as the running proxy (`decide.program`), with a store in memory, a token count of a quarter
of the bytes, and summaries that are ready after the time that writing them takes. Only the world is left out: no
socket, and an upstream that accepts everything.
`through.py` sends the same turns to a running proxy.
"""

from collections.abc import Awaitable, Sequence
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from proxy.config.policies import Policy
from proxy.decide.actions import (
    Action,
    Actions,
    AnnounceLargeWork,
    Deliver,
    Delivered,
    Finished,
    Halt,
    Interpreter,
    Opening,
    Send,
    T,
)
from proxy.decide.conversation import DAY_SECONDS, Asked, Conversation, FoundValues, SummaryCandidate, Writing
from proxy.decide.program import run, take_step
from proxy.decide.question import Question
from proxy.events import Event
from proxy.history.identity import Identity
from proxy.history.messages import Message, find_last_assistant
from proxy.history.request import Request
from proxy.lab.replay.replay_history import ReplayHistory, RequestTurn
from proxy.lab.replay.summarizers import ReplaySummarizer, SummaryRequest
from proxy.shorten.economics import Prices, Window
from proxy.shorten.pipeline import estimate_tokens
from proxy.shorten.rules import Rules
from proxy.shorten.summary import Summary, SummaryRules
from proxy.wire.chat_api import CHAT_FORMAT
from proxy.wire.formats import REQUEST_FORMATS
from proxy.wire.refusals import RefusedOption


class Sent(Struct, frozen=True):
    view: tuple[Message, ...]
    tools: bytes | None
    reason: str = ""
    before: tuple[SummaryRequest, ...] = ()
    """Calls for summaries that this request waited for."""
    after: tuple[SummaryRequest, ...] = ()
    """Calls for later requests."""
    failed: bool = False
    read_again: int = 0
    """Results of this request that bring again what an earlier one had brought, as recorded."""
    refetched: int = 0
    """Those of them that the policy had shortened when they were asked for."""


class Trial(Struct, frozen=True):
    """One policy with its window, prices and summarizer."""

    name: str
    rules: Rules
    window: int
    prices: Prices | None = None
    """None: the model's own, as in production."""
    price_model: str = ""
    """Empty for rules that read no prices."""
    summarizer: ReplaySummarizer | None = None
    times: bool = True
    """It knows how long a conversation has been idle."""


class Value(Struct, frozen=True):
    key: str
    value: bytes
    expires_at: float = float("inf")


class SimulatedStore(Struct):
    """In the conversation's own time."""

    now: float = 0.0
    values: dict[str, Value] = field(default_factory=dict)

    def find(self, keys: Sequence[str]) -> Value | None:
        values = (self.values.get(key) for key in keys)
        return next((value for value in values if value is not None and value.expires_at > self.now), None)

    def look_up(self, blocks: Sequence[str], facts: Sequence[Sequence[str]]) -> FoundValues:
        return tuple(map(self.find, (blocks, *facts)))

    def put(self, key: str, block: bytes, replaces: bytes | None) -> bytes:
        """Keep another block than the one that this replaces."""
        stored_value = self.values.get(key)
        if stored_value is None or stored_value.value == replaces:
            self.values[key] = Value(key, block)
        return self.values[key].value

    def note(self, key: str, value: bytes, seconds: float) -> None:
        self.values[key] = Value(key, value, self.now + seconds)


class SimulatedSummary(Struct, frozen=True):
    key: str
    covers: int
    ready_at: float
    text: str
    failures: int


def build_rules(policy: Policy, name: str) -> Rules:
    """Offer the recall tool in the form of chat completions."""
    rules = policy.rules(name)
    return replace(rules, recall_tool=CHAT_FORMAT.recall_tool) if policy.recall == "on" else rules


class Simulation:
    def __init__(self, trial: Trial, history: ReplayHistory, prices: Prices) -> None:
        rules = trial.rules
        if rules.recall_tool:
            trial = replace(trial, rules=replace(rules, recall_tool=REQUEST_FORMATS[history.path].recall_tool))
        self._trial = trial
        self._history = history
        self._prices = trial.prices or prices
        self._store = SimulatedStore()
        self._pending: SimulatedSummary | None = None
        self._earlier: Request | None = None

    def forward(self, turn: RequestTurn) -> Sent:
        """Drive one request from its first byte to its last note."""
        turn = replace(turn, request=self._continue(turn.request))
        self._store.now = turn.seconds
        self._finish_summary(turn.seconds)
        asked = self.ask(turn)
        interpreter = TurnInterpreter(self, turn, asked)
        life = run()
        step = drive(life, interpreter)
        before, interpreter.calls = tuple(interpreter.calls), []
        if isinstance(step, Send):
            step = drive(life, interpreter, Opening())
        if not isinstance(step, Deliver):
            raise TypeError("a request ends only after its answer")
        plan = step.forwarding.decision.plan
        drive(life, interpreter, Delivered(asked.now))
        after = tuple(interpreter.calls)
        if not interpreter.waited:
            before, after = (), (*before, *after)
        if plan is None:
            return Sent(turn.request.messages, turn.request.tools, "", before, after)
        return Sent(
            plan.view,
            plan.tools,
            plan.reason,
            before,
            after,
            read_again=_count_read_again(turn.request),
            refetched=plan.refetch_cost.refetches,
        )

    def _continue(self, request: Request) -> Request:
        """Keep the values that were computed for its first messages, as the running proxy does."""
        next_request = replace(request)
        earlier = self._earlier
        if earlier is not None:
            next_request.known.follow(earlier.known, _count_shared(earlier.body, request.body))
        self._earlier = next_request
        return next_request

    def ask(self, turn: RequestTurn) -> Asked:
        trial = self._trial
        return Asked(
            request=turn.request,
            # No model to ask is not a call that failed: then old messages are folded without a model.
            rules=trial.rules if self.can_summarize else replace(trial.rules, summary=SummaryRules(enabled=False)),
            count=estimate_tokens,
            now=turn.seconds if trial.times else 0.0,
            # One tenant with a public key, so that every replay is the same.
            tenant="replay",
            secret=b"k" * 64,
            prices=self._prices,
            window=Window(total=trial.window, origin="config"),
        )

    @property
    def can_summarize(self) -> bool:
        return self._trial.summarizer is not None

    @property
    def store(self) -> SimulatedStore:
        return self._store

    def start_summary(
        self, question: Question, identity: Identity, failures: int, turn: RequestTurn
    ) -> Sequence[SummaryRequest] | None:
        """Ask for one summary at a time, as in production. Return None if another one is being written."""
        summarizer = self._trial.summarizer
        if summarizer is None or self._pending is not None:
            return None
        room = Window(total=self._trial.window).usable_tokens(question.summary.max_tokens)
        answer = summarizer.answer(question, turn, self._history, room)
        key = identity.summary_key(question.covers, question.focus)
        self._pending = SimulatedSummary(key, question.covers, turn.seconds + answer.seconds, answer.text, failures)
        self._store.note(key, SummaryCandidate.claim("simulated").to_bytes(), DAY_SECONDS)
        return answer.calls

    def await_summary(self, now: float, wait_seconds: float) -> Summary | None:
        pending = self._pending
        if pending is None or pending.ready_at > now + wait_seconds:
            return None
        self._finish_summary(pending.ready_at)
        return Summary(pending.covers, pending.text) if pending.text else None

    def _finish_summary(self, now: float) -> None:
        pending = self._pending
        if pending is None or pending.ready_at > now:
            return
        self._pending = None
        candidate = SummaryCandidate.of_answer(pending.text, pending.failures)
        self._store.note(pending.key, candidate.to_bytes(), DAY_SECONDS)


def _count_read_again(request: Request) -> int:
    new_results = request.known.results[(find_last_assistant(request.body) or 0) + 1 :]
    return sum(result.earlier >= 0 for result in new_results)


def _count_shared(earlier: Sequence[Message], later: Sequence[Message]) -> int:
    """Count the leading messages that two histories share."""
    for place, (message, later_message) in enumerate(zip(earlier, later, strict=False)):
        if message is not later_message and message != later_message:
            return place
    return min(len(earlier), len(later))


class UnheardInterpreter(Interpreter):
    """The base of interpreters without a world: nobody hears what it is told, and nothing is kept."""

    asked: Asked

    async def gather(self) -> Asked:
        return self.asked

    async def keep_originals(self, _writing: Writing, _conversation: Conversation) -> bool:
        return True

    async def note(self, event: Event) -> None: ...

    async def note_accepted(self, refused_option: RefusedOption | None) -> None: ...

    async def probe_window(self) -> None: ...

    async def share_probed_window(self, conversation: Conversation) -> None: ...

    async def recount(self) -> int:
        return 0


class TurnInterpreter(UnheardInterpreter):
    """Performs the actions of one request in the time of its conversation."""

    def __init__(self, simulation: Simulation, turn: RequestTurn, asked: Asked) -> None:
        self.asked = asked
        self.calls: list[SummaryRequest] = []
        self.waited = False
        self._simulation = simulation
        self._turn = turn

    async def count_tokens(self, pieces: Sequence[bytes]) -> list[int]:
        return [estimate_tokens(piece) for piece in pieces]

    async def look_up(self, blocks: Sequence[str], facts: Sequence[Sequence[str]]) -> FoundValues | None:
        return self._simulation.store.look_up(blocks, facts)

    async def store_block(self, key: str, block: bytes, replaces: bytes | None, _: Identity) -> bytes | None:
        return self._simulation.store.put(key, block, replaces)

    async def store_fact(self, key: str, value: bytes, seconds: float) -> None:
        self._simulation.store.note(key, value, seconds)

    async def can_summarize(self, _conversation: Conversation) -> bool:
        return self._simulation.can_summarize

    async def start_summary(self, question: Question, conversation: Conversation) -> bool:
        candidate = conversation.candidate
        failures = candidate.failures if candidate is not None else 0
        calls = self._simulation.start_summary(question, conversation.identity, failures, self._turn)
        self.calls += calls or ()
        return calls is not None

    async def await_summary(
        self, question: Question | None, _covers: int, seconds: float, conversation: Conversation
    ) -> Summary | None:
        self.waited = True
        if question is not None:
            await self.start_summary(question, conversation)
        return self._simulation.await_summary(self._turn.seconds, seconds)


def drive(actions: Actions[Any], interpreter: Interpreter, reply: object = None) -> Halt | Finished:
    """Perform the actions up to the next halt, or the end, with an *interpreter* that waits for nothing."""
    while True:
        step = take_step(actions, reply)
        reply = None
        if isinstance(step, Action):
            reply = _complete(step.perform(interpreter))
        elif not isinstance(step, AnnounceLargeWork):
            return step


def _complete(act: Awaitable[T]) -> T:
    """Return the result of a coroutine that never waits."""
    try:
        next(act.__await__())
    except StopIteration as stop:
        result: T = stop.value
        return result
    raise RuntimeError("this was to be done at once, and it waits")
