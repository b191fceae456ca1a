"""What a decision is based on (`Ground`), what was decided (`Decided`), and the call as it leaves (`Prepared`).

Values only; the compactor gathers and acts. A decision depends on the request, on what the store remembers, and on the
clock, and on nothing else: any worker would decide the same.
"""

import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field, replace
from typing import Protocol

from proxy.compaction.case import Case
from proxy.compaction.errand import Errand
from proxy.compaction.recall import OBSERVED, Memory
from proxy.compaction.summarizer import Order, Whose
from proxy.compaction.wish import Wish
from proxy.core.memory import MOST_FAILURES, Identity, SummaryCandidate
from proxy.core.overlay import Block
from proxy.core.plan import BREAKER, Ready
from proxy.core.question import Question
from proxy.core.rules import Facts, Rules
from proxy.core.scene import WINDOWED
from proxy.core.summary import Summary
from proxy.core.window import LearnedLimit
from proxy.store.originals import Kept
from proxy.upstream import Call
from proxy.windows import resolve_window
from proxy.wire.gauge import Gauge
from proxy.wire.headers import Headers

REASON = "x-compaction-reason"
HALTED = "switched-off"
PLAIN = Gauge()
# A block that needs the next one sooner than after this many requests was of no use.
LASTING = 5
NONE_YET = SummaryCandidate("failed")


@dataclass(frozen=True, slots=True)
class Ground:
    """A case, the identity of its history, and what is remembered of that."""

    case: Case
    identity: Identity
    memory: Memory

    @property
    def blocks(self) -> tuple[Block, ...]:
        return (self.memory.block,) if self.memory.block is not None else ()

    @property
    def whose(self) -> Whose:
        """The tenant, and the upstream that makes its summaries."""
        return self.identity.tenant, self.case.asked.settings.name

    @property
    def rules(self) -> Rules:
        """While observing, a block that really stands stays, and no other follows it."""
        stands = self.memory.block is not None and not self.memory.rehearsed
        return replace(self.case.rules, new_blocks=False) if self.case.observes and stands else self.case.rules

    def facts(self, *, may_ask: bool) -> Facts:
        """What `decide()` must know. `may_ask`: the upstream that makes summaries is not being left alone."""
        last, told = self.memory.last, self.memory.candidate or NONE_YET
        vain = last.useless_blocks if last is not None else 0
        facts = replace(
            self.case.facts(),
            seen=last is not None,
            may_ask=may_ask and not self.case.observes and told.failures < MOST_FAILURES and vain < BREAKER,
            vain=vain,
            making=told.covers if told.state == "making" and not self.case.observes else 0,
            summary=Summary(told.covers, told.text) if told.state == "ready" else None,
            failed=told.covers if told.state == "failed" else 0,
        )
        if last is None:
            return facts
        anchor = last.anchor if last.counter == self.identity.counter else None
        return replace(facts, anchor=anchor, idle=max(0.0, time.time() - last.forwarded_at))

    def order(self, question: Question) -> Order:
        """Whom to ask for a summary, and how."""
        case, told = self.case, self.case.policy.summary
        window = resolve_window(told.model, None, None) if told.model else case.window
        errand = Errand(
            question=question,
            request=case.request,
            call=case.call,
            client=case.asked,
            count=case.count(self.memory.calibration),
            redaction=case.redaction,
            model=told.model,
            foreign=case.asked is not case.client,
            room=window.usable_tokens(told.max_tokens),
        )
        in_vain = self.memory.candidate.failures if self.memory.candidate is not None else 0
        return Order(errand, self.identity, case.rules.policy, told.seconds, in_vain)


@dataclass(frozen=True, slots=True)
class Decided:
    """What the heart said of a case, and on what ground."""

    ground: Ground
    ready: Ready
    kept: Kept | None = None
    """Its history on its way to the originals."""

    @property
    def case(self) -> Case:
        return self.ground.case

    @property
    def identity(self) -> Identity:
        return self.ground.identity

    @property
    def memory(self) -> Memory:
        return self.ground.memory

    @property
    def rehearsed(self) -> bool:
        """Whether this is only observed: then it is noted apart from what is in force."""
        return self.case.observes and (self.memory.rehearsed or self.memory.block is None)

    @property
    def was_accepted(self) -> bool:
        """Did an upstream ever take something of this conversation?"""
        block, memory = self.ready.block, self.memory
        summarised = block is not None and block.summary is not None
        return memory.last is not None or memory.found is not None or summarised

    @property
    def notes(self) -> Headers:
        """What the client is told."""
        case, ready = self.case, self.ready
        action = OBSERVED if self.rehearsed else ready.action
        if action == "none" and not case.rules.new_blocks:
            action = "off"
        notes = [
            ("x-compaction", action),
            ("x-compaction-tokens-before", str(ready.before)),
            ("x-compaction-tokens-after", str(ready.after)),
            ("x-compaction-policy", case.rules.policy),
            ("x-compaction-policy-version", case.rules.version),
            ("x-compaction-conversation", self.identity.conversation),
        ]
        if action == "off" and case.call.caller.halted:
            notes.append((REASON, HALTED))
        elif ready.reason:
            notes.append((REASON, ready.reason))
        elif not case.window.is_known:
            notes.append((REASON, "window-unknown"))
        return tuple(notes)

    def helped(self, tokens: int) -> tuple[int, int]:
        """How many blocks in a row did not help, and how many requests ago the last one was made.

        One helps that brings the history half the way down to its target, by the upstream's own count, and that lasts.
        """
        case, last = self.case, self.memory.last
        vain, lasted = (last.useless_blocks, last.requests_since_block + 1) if last is not None else (0, LASTING)
        facts = case.facts()
        limits = case.rules.limits(facts.usable, facts.prices)
        if not limits or tokens <= limits[0][0] * case.rules.target:
            vain = 0
        if self.ready.action != "created" or self.ready.reason not in WINDOWED or not limits:
            return vain, lasted
        helps = tokens <= limits[0][0] * (1 + case.rules.target) / 2 and lasted >= LASTING
        return 0 if helps else vain + 1, 0

    def afterwards(self, candidate: SummaryCandidate | None) -> Ground:
        """The ground that the next request of this conversation will stand on."""
        memory = replace(self.memory, block=self.ready.block or self.memory.block, candidate=candidate)
        return replace(self.ground, memory=memory)


class Answered(Protocol):
    """An answer to hand on: an upstream's, or our own."""

    @property
    def status(self) -> int: ...
    @property
    def reason(self) -> str: ...
    @property
    def headers(self) -> Headers: ...
    @property
    def is_good(self) -> bool: ...
    def chunks(self) -> AsyncGenerator[bytes]: ...


@dataclass(frozen=True, slots=True)
class Prepared:
    """A call as it leaves, what the client is told, and what to note once the upstream has answered."""

    call: Call
    notes: Headers
    decided: Decided | None = None
    wish: Wish = field(default_factory=Wish)
    case: Case | None = None
    """None where the body was not understood."""
    lesson: LearnedLimit | None = None
    """What it teaches if the upstream takes it."""
    keeps: bool = True
    """Whether its originals may be kept."""
    gauge: Gauge = PLAIN
    """How the client is to see the figures of the answer."""
    answer: Answered | None = None
    """What to say to it ourselves: then nothing is sent."""

    @property
    def ready(self) -> Ready | None:
        return self.decided.ready if self.decided is not None else None
