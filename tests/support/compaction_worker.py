"""One worker without a world: it drives the orchestration that serves, on a store in memory.

The upstream accepts whatever it is sent and reports no usage. What the store would know besides blocks (the last
request, a summary on its way) is stated by the test as `Facts`.
"""

import json
from dataclasses import dataclass, field
from typing import Any

from proxy.decide import planning
from proxy.decide.actions import Delivered, Forwarding, Opening, SendAgain
from proxy.decide.conversation import Asked, LastRequest, SummaryCandidate
from proxy.decide.planning import Plan
from proxy.decide.program import run
from proxy.decide.remedies import plan_untouched
from proxy.decide.remember import find_summary, load_memory
from proxy.history.grouping import count_flaws
from proxy.history.identity import Identity
from proxy.history.request import Count, Request
from proxy.lab.replay.simulation import UnheardInterpreter, drive
from proxy.shorten.economics import Window
from proxy.shorten.pipeline import estimate_tokens
from proxy.shorten.rules import Anchor, Facts, Rules
from proxy.shorten.summary import Summary
from proxy.store.contract import Found
from proxy.store.memory_store import MemoryStore
from proxy.wire.cache_placement import ForwardedView
from proxy.wire.chat_api import CHAT_FORMAT
from proxy.wire.known_requests import KnownRequests
from tests.support.agent import turns  # noqa: F401 (tests of workers import it from here)
from tests.support.messages import KEY, TENANT, body, call, history, parse_request, user

NOW = 1_000_000.0
ENOUGH_READ_TOKENS = 10**12
"""Read since the last question for a summary: so much that another one is worth its price."""
BIG = "\n".join(f"{number} line_{number} told" for number in range(130))


def work(steps, task="Mend the tests.", out=BIG):
    """An agent that reads file after file; each step weighs about 600 tokens."""
    return history(user(task), *[call("Read", path=f"{step}.py", out=f"{step}\n{out}") for step in range(steps)])


@dataclass
class Worker:
    """Two that are given the same store are two workers of one proxy, or one before and after a restart.

    `model` is what a model says whenever it is asked for a summary; without one nothing is asked.
    """

    rules: Rules = field(default_factory=Rules)
    facts: Facts = field(default_factory=Facts)
    tenant: str = TENANT
    conversation: str = ""
    store: MemoryStore = field(default_factory=MemoryStore)
    count: Count = estimate_tokens
    model: str = ""
    accounts: dict = field(default_factory=dict)
    """Summaries that the model wrote, by the chain link at their end."""
    wire: Any = CHAT_FORMAT
    """The API that its clients speak; histories are given as chat completions have them."""
    write: Any = body
    known: KnownRequests | None = None
    """What this worker remembers of the requests it has read; without it, each is read from its first byte."""

    marks: bool = False
    """It places cache marks."""

    def send(self, messages, **more):
        """A request that the upstream accepts."""
        sent = self.decides(messages, **more)
        sent.driver.accept()
        sent.driver.complete()
        return sent

    def considers(self, messages):
        """What is planned before any model is asked."""
        return planning.make_plan(self._state(messages))

    def asks(self, messages):
        """What is asked ahead of need."""
        return planning.plan_next_summary(self._state(messages))

    def decides(self, messages, **more):
        """What would be sent."""
        driver = Driver(self, self._read(self.write(messages, **more)))
        plan, request = driver.prepare().plan, driver.request
        if plan is None:
            plan = plan_untouched(request, sum(map(self.count, driver.asked.pieces)))
        left = self.wire.render(request, plan.view, plan.tools)
        if self.marks:
            left = self.wire.place_marks(left, request, "auto", ForwardedView(plan.view, plan.shared))
        return Sending(request.source, plan, left, driver)

    def _read(self, source):
        if self.known is None:
            return self.wire.parse(source)
        prefix = self.known.find_prefix(hash(self.tenant), source, self.wire)
        request = self.wire.parse(source, prefix)
        self.known.add(hash(self.tenant), request, prefix)
        return request

    def _state(self, messages):
        driver = Driver(self, self._read(self.write(messages)))
        conversation = drive(load_memory(driver.asked, driver.asked.find_rules()), driver).value
        conversation = drive(find_summary(conversation), driver).value
        return conversation.build_state(conversation.gather_facts(can_summarize=self.facts.can_summarize))


@dataclass
class Driver(UnheardInterpreter):
    """Drives one request, and performs its actions."""

    worker: Worker
    request: Request
    asked: Asked = None
    forwarding: Forwarding = None

    def __post_init__(self):
        worker, facts = self.worker, self.worker.facts
        self.asked = Asked(
            request=self.request,
            rules=worker.rules,
            count=worker.count,
            now=NOW,
            mode="force" if facts.force else "auto",
            focus=facts.focus,
            refetches_much=facts.refetches_much,
            tenant=worker.tenant,
            secret=KEY,
            name=worker.conversation,
            window=window_of(facts.usable_tokens),
            prices=facts.prices,
            cache_seconds=facts.cache_seconds,
        )

    def prepare(self):
        """The decision on the request."""
        self.life = run()
        return self._advance(None).decision

    def answer(self, opening):
        """What is tried once more after this beginning of an answer, or None: it is delivered."""
        step = drive(self.life, self, opening)
        self.forwarding = step.forwarding
        return step.forwarding.decision if isinstance(step, SendAgain) else None

    def accept(self):
        assert self.answer(Opening()) is None

    def complete(self, now=NOW, **more):
        drive(self.life, self, Delivered(now, **more))

    def _advance(self, result):
        self.forwarding = drive(self.life, self, result).forwarding
        return self.forwarding

    async def count_tokens(self, pieces):
        return [self.worker.count(piece) for piece in pieces]

    async def store_block(self, key, block, replaces, _identity):
        return await self.worker.store.put_block(key, block, over=replaces)

    async def store_fact(self, key, value, seconds): ...

    async def can_summarize(self, _conversation):
        return self.worker.facts.can_summarize

    async def start_summary(self, question, conversation):
        if self.worker.model:
            self._write(question, conversation)
        return bool(self.worker.model)

    async def await_summary(self, question, _covers, _seconds, conversation):
        if question is None or not self.worker.model:
            return None
        return self._write(question, conversation)

    def _write(self, question, conversation):
        """The model's answer: there at once, for this request or the next."""
        summary = Summary(question.covers, self.worker.model)
        self.worker.accounts[conversation.identity.links[question.covers]] = summary
        return summary

    async def look_up(self, blocks, facts):
        # The identity is not set yet while it is being looked up: it follows from the request alone.
        asked = self.asked
        identity = Identity.of(self.request, self.worker.tenant, KEY, asked.name, asked.counter)
        if not blocks:
            _, summary = await self.worker.store.find_first((), *facts)
            return (None, summary or self._candidate(identity))
        block, *_ = await self.worker.store.find_first(blocks)
        return (block, self._last(identity) if facts else None, None, None)

    def _last(self, identity):
        facts = self.worker.facts
        if not facts.was_forwarded:
            return None
        anchor = facts.anchor or Anchor(identity.links[-1], 0, b"")
        idle = facts.idle_seconds or 0.0
        read_tokens = facts.read_since_question
        if read_tokens is None:
            read_tokens = ENOUGH_READ_TOKENS
        last = LastRequest(
            *(anchor, NOW - idle, identity.counter, self.asked.prior),
            asked_covers=len(identity.links),
            read_since_question=read_tokens,
        )
        return Found(identity.anchor_key(identity.links[-1]), last.to_bytes())

    def _candidate(self, identity):
        facts, accounts = self.worker.facts, self.worker.accounts
        found = next((accounts[link] for link in reversed(identity.links) if link in accounts), facts.summary)
        candidate = None
        if found is not None:
            candidate = SummaryCandidate("ready", found.text, covers=found.covers)
        elif facts.summary_in_progress_covers:
            candidate = SummaryCandidate("making", covers=facts.summary_in_progress_covers)
        elif facts.unused_summaries:
            candidate = SummaryCandidate("failed", failures=facts.unused_summaries, covers=1)
        if candidate is None:
            return None
        return Found(identity.summary_key(candidate.covers), candidate.to_bytes())


def window_of(usable):
    """A configured window of which just so much can be used."""
    if usable is None:
        return Window()
    sizes = range(usable, 2 * usable + 2)
    windows = (Window(input=size, origin="config") for size in sizes[int(usable * 0.05) :])
    return next(window for window in windows if window.usable_tokens() == usable)


@dataclass
class Sending:
    """One request as it came and as it left."""

    came: bytes
    plan: Plan
    left: bytes
    driver: Driver = None

    @property
    def messages(self):
        return json.loads(self.left)["messages"]

    @property
    def head(self):
        return parse_request(self.came).head

    @property
    def body(self):
        """As the client sent it."""
        return parse_request(self.came).body

    @property
    def raws(self):
        return [message.raw for message in self.plan.view]

    @property
    def flaws(self):
        return count_flaws(parse_request(self.left).body)
