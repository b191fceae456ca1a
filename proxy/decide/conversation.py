"""One request of a conversation: its context, its memory, the facts from both, and the duty to originals.

`Context` is known when a request arrives. `remember.recognize` adds the memory and returns a `Conversation`, which
decides nothing: it makes the values that `planning` reads.
"""

from collections.abc import Callable
from enum import Enum, auto
from functools import partial
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from proxy.decide import planning
from proxy.decide.memory import NO_CANDIDATE, Memory
from proxy.decide.planning import COUNT_ERROR_RATIO, Plan
from proxy.history.identity import Identity
from proxy.history.request import Request
from proxy.shorten.block import Block
from proxy.shorten.economics import (
    LAST_RESORT_SECONDS,
    UNCALIBRATED,
    UNKNOWN,
    Calibration,
    Prices,
    Window,
    make_model_keys,
)
from proxy.shorten.pipeline import Count
from proxy.shorten.reasons import Reason
from proxy.shorten.rules import Facts, Rules
from proxy.shorten.state import ConversationState, count_calibrated
from proxy.shorten.summary import Summary
from proxy.wire.http_head import Caller


class Originals(Enum):
    """How much the original of a shortened history is worth to a policy."""

    OFF = auto()
    BEST_EFFORT = auto()
    TO_FIT = auto()
    BEFORE_LOSS = auto()
    REQUIRED = auto()


class Writing(Enum):
    NOTHING = auto()
    CHECK = auto()
    """This one is handed over once the upstream has accepted its caller."""
    HAND_OVER = auto()
    WRITE = auto()
    WRITE_OR_REFUSE = auto()


_DUTIES = {
    # A new block of a known caller, of an unknown one, and a block that is applied again.
    Originals.OFF: (Writing.NOTHING, Writing.NOTHING, Writing.NOTHING),
    Originals.BEST_EFFORT: (Writing.WRITE, Writing.NOTHING, Writing.HAND_OVER),
    Originals.TO_FIT: (Writing.WRITE, Writing.CHECK, Writing.HAND_OVER),
    Originals.BEFORE_LOSS: (Writing.WRITE, Writing.CHECK, Writing.HAND_OVER),
    Originals.REQUIRED: (Writing.WRITE_OR_REFUSE, Writing.WRITE_OR_REFUSE, Writing.WRITE_OR_REFUSE),
}
"""A caller is unknown until an upstream has accepted one of its requests: made-up keys could fill a disk."""


def choose_originals(*, is_kept: bool, is_required: bool, without_originals: str) -> Originals:
    if not is_kept:
        return Originals.OFF
    if is_required:
        return Originals.REQUIRED
    rows = {"always": Originals.BEST_EFFORT, "to_fit": Originals.TO_FIT, "never": Originals.BEFORE_LOSS}
    return rows[without_originals]


def choose_writing(originals: Originals, *, is_new_block: bool, is_known_caller: bool) -> Writing:
    of_known_caller, of_unknown_caller, applied_again = _DUTIES[originals]
    if not is_new_block:
        return applied_again
    if is_known_caller:
        return of_known_caller
    return of_unknown_caller


def may_fold_unwritten(originals: Originals, *, is_new_block: bool, fits: bool) -> bool:
    if not is_new_block or originals in (Originals.OFF, Originals.BEST_EFFORT):
        return True
    return originals is Originals.TO_FIT and not fits


Mode = Literal["auto", "off", "force", "observe", "bypass"]
Outcome = Literal["none", "applied", "created", "observed", "off", "bypassed", "failed-open"]


class Decision(Struct, frozen=True):
    outcome: Outcome = "none"
    reason: Reason = ""
    policy: str = ""
    version: str = ""
    conversation: str = ""
    plan: Plan | None = None
    max_answer_tokens: int | None = None
    asks_usage: bool = False
    removes_reasoning: bool = False

    @property
    def rewrites(self) -> bool:
        return self.plan is not None and self.plan.action != "none" and self.outcome != "observed"

    @property
    def tokens_before(self) -> int:
        if self.plan is None:
            return 0
        return self.plan.tokens_before

    @property
    def tokens_after(self) -> int:
        if self.outcome == "observed":
            return self.tokens_before
        return self.tokens_would_be

    @property
    def tokens_unshortened(self) -> int:
        """As the request would have been without this proxy."""
        if self.plan is None or self.outcome == "observed":
            return self.tokens_before
        return self.plan.tokens_unshortened

    @property
    def refetches(self) -> int:
        """The results of this request that bring again what had been shortened."""
        if self.plan is None or self.outcome == "observed":
            return 0
        return self.plan.fetched_again.results

    @property
    def tokens_would_be(self) -> int:
        if self.plan is None:
            return 0
        return self.plan.tokens_after


class Context(Struct, frozen=True):
    request: Request
    rules: Rules
    count: Count
    now: float
    mode: Mode = "auto"
    focus: str = ""
    locate_originals: Callable[[Identity], str] = lambda _: ""
    """Empty if none are kept."""
    name_rewritten: Callable[[Identity], str] = lambda _: ""
    """The conversation's name if its client shortens its own results at every turn, else empty. Only reported."""
    name: str = ""
    request_id: str = ""
    upstream: str = ""
    upstream_name: str = ""
    caller: Caller = Caller()
    counter: str = ""
    prior: Calibration = UNCALIBRATED
    window: Window = UNKNOWN
    prices: Prices = field(default_factory=Prices)
    cache_seconds: float = LAST_RESORT_SECONDS
    """The upstream's cache is said to forget a prefix so long after its last use."""
    local_window: Window | None = None
    """An overflow taught it to this worker; used only before the store is asked."""
    fetches_much: bool = False
    """The team's agents fetch again much of what was shortened."""
    is_known: bool = True
    originals: Originals = Originals.OFF
    may_ask_usage: bool = False
    """The stream comes without usage unless the proxy asks for it."""
    provider_compacts: bool = False
    """The block in force is applied, and no other is made unless the upstream refuses the request."""
    recounts: bool = False
    wait_seconds: float = 8.0
    summary_seconds: float = 180.0

    def read_block(self, stored_bytes: bytes) -> Block | None:
        """Read a stored block: that of a long conversation has 100 kB, and comes back every turn."""
        return self.request.known.memo("block", stored_bytes, partial(Block.from_bytes, stored_bytes))

    def note_block(self, block: Block, conversation: str) -> bytes:
        """Return the block as it is stored, which the next request need not read."""
        block_bytes = block.to_bytes(conversation)
        self.request.known.memo("block", block_bytes, lambda: block)
        return block_bytes

    @property
    def pieces(self) -> list[bytes]:
        return [message.raw for message in self.request.messages] + [self.request.tools or b""]


class Conversation(Struct, frozen=True):
    context: Context
    rules: Rules
    window: Window
    memory: Memory
    identity: Identity | None = None
    """None: the history is below every threshold, and nothing is remembered of it."""
    rewritten: str = ""
    """Its name, if its client shortens its own results at every turn."""

    @classmethod
    def of(cls, context: Context) -> "Conversation":
        rules = context.rules
        if context.mode == "off" or context.caller.switch != "on":
            rules = replace(rules, new_blocks=False)
        return cls(context, rules, context.window, Memory(calibration=context.prior))

    def to_fit(self) -> "Conversation":
        """Return it with new blocks if the switch allows them for a request that would be refused without one."""
        context = self.context
        if context.caller.switch not in ("still-fit", "bypass") or context.mode in ("off", "observe"):
            return self
        rules = replace(self.rules, new_blocks=context.rules.new_blocks)
        return replace(self, rules=rules, context=replace(context, mode="auto"))

    @property
    def identified(self) -> Identity:
        if self.identity is None:
            raise ValueError("the conversation was not identified yet")
        return self.identity

    @property
    def observes(self) -> bool:
        """Return True if the client's own bytes are forwarded and a block is only tried out."""
        return self.context.mode == "observe"

    @property
    def is_observed(self) -> bool:
        """Return True if the block is only tried out, and stored apart from those in force."""
        return self.observes and (self.memory.observed or self.memory.block is None)

    @property
    def count(self) -> Count:
        return self.count_with(self.choose_calibration(self.memory.calibration))

    def count_with(self, calibration: Calibration) -> Count:
        return partial(count_calibrated, self.context.count, calibration)

    def choose_calibration(self, calibration: Calibration) -> Calibration:
        if self.rules.trusts_usage:
            return calibration
        return UNCALIBRATED

    def fits(self, size: int) -> bool:
        """True if the window is not known."""
        usable = self.gather_request_facts(self.window).usable_tokens
        return usable is None or size <= usable

    def serves(self, block: Block | None) -> bool:
        """Return True if a block may be used under this head."""
        return block is None or block.serves(self.identified.head)

    @property
    def is_known(self) -> bool:
        return self.context.is_known or self.memory.last is not None or self.memory.block_bytes is not None

    def may_store(self, plan: Plan) -> bool:
        """Return True if the caller is known, or a model has just written a summary for it."""
        is_summarized = plan.block is not None and plan.block.summary is not None
        return self.is_known or is_summarized

    def count_refused_views(self) -> int:
        """Return how many requests the upstream called invalid when shortened, and then accepted as they came."""
        last = self.memory.last
        if last is None or last.counter != self.identified.counter:
            return 0
        return last.refused_views

    @property
    def asked_covers(self) -> int:
        """Messages that the newest question for a summary was about; 0 if none was asked."""
        memory, covers = self.memory, [0]
        if memory.last is not None:
            covers.append(memory.last.asked_covers)
        if memory.candidate is not None:
            covers.append(memory.candidate.covers)
        if memory.block is not None and memory.block.summary is not None:
            covers.append(memory.block.summary.covers)
        return max(covers)

    def count_read_since_question(self) -> int | None:
        """Tokens that requests have read since a model was last asked for a summary; None if none was asked."""
        last, asked_covers = self.memory.last, self.asked_covers
        if not asked_covers:
            return None
        if last is None or last.asked_covers < asked_covers:
            return 0
        return last.read_since_question

    def count_unused_summaries(self) -> int:
        """Calls for a summary in a row that failed, or whose summary is in no block."""
        candidate, block = self.memory.candidate, self.memory.block
        if candidate is None:
            return 0
        if block is not None and block.summary is not None and block.summary.covers >= candidate.covers:
            return 0
        return candidate.failures + (candidate.state == "ready")

    def narrow(self, limit: Window | None) -> Window:
        """A learned limit overrules table and probe but not the operator."""
        window = self.context.window
        if limit is None or window.origin == "config":
            return window
        output = limit.output or window.output
        return replace(window, total=limit.total, input=limit.input, output=output, origin=limit.origin)

    @property
    def window_keys(self) -> tuple[str, str]:
        """The keys in the store of the learned and of the probed window."""
        return self._make_model_keys()[:2]

    @property
    def cache_key(self) -> str:
        return self._make_model_keys()[2]

    def _make_model_keys(self) -> tuple[str, str, str]:
        tenant = self.identified.tenant
        return make_model_keys(tenant, self.context.upstream, self.context.request.model, tenant)

    @property
    def cache_seconds(self) -> float:
        """The lifetime that the request asks for, or that of its model, bounded by what was seen of the upstream."""
        own_seconds = self.context.request.cache_seconds
        if own_seconds is not None:
            return own_seconds
        return self.memory.cache.bound(self.context.cache_seconds)

    def may_need_summary(self, size: int) -> bool:
        if self.observes:
            return False
        facts = self.gather_request_facts(self.narrow(self.context.local_window))
        return facts.force or planning.is_near_limit(COUNT_ERROR_RATIO * size, self.rules, facts)

    def gather_request_facts(self, window: Window) -> Facts:
        context, rules = self.context, self.rules
        usable = window.usable_tokens(context.request.max_output)
        base = window.tokens if rules.trigger_of == "window" else usable
        if usable is not None and not rules.trusts_usage:
            # The window is in the upstream's tokens; the estimate is not.
            usable = int(usable / self.memory.calibration.ratio)
        return Facts(
            usable_tokens=usable,
            nominal_tokens=window.usable_tokens(),
            trigger_base_tokens=base,
            prices=context.prices,
            cache_seconds=self.cache_seconds,
            fetches_much=context.fetches_much,
            force=context.mode == "force",
            focus=context.focus,
        )

    def gather_facts(self, *, can_summarize: bool) -> Facts:
        facts = self.gather_request_facts(self.window)
        candidate, last = self.memory.candidate or NO_CANDIDATE, self.memory.last
        if facts.force:
            # A client that asks for it is not answered with an older summary, or an older failure.
            candidate = NO_CANDIDATE
        anchor = idle_seconds = None
        if last is not None:
            idle_seconds = max(0.0, self.context.now - last.forwarded_at)
            if self.rules.trusts_usage and last.counter == self.identified.counter:
                anchor = last.anchor
        is_failing = candidate.state == "failed" and candidate.failures > 0
        summary, in_progress = None, 0
        if candidate.state == "ready":
            summary = Summary(candidate.covers, candidate.text)
        elif candidate.state == "making" and not self.observes:
            in_progress = candidate.covers
        return replace(
            facts,
            was_forwarded=last is not None,
            can_summarize=(can_summarize or facts.force) and not self.observes,
            summary_failed=self.rules.summary.enabled and not self.observes and (is_failing or not can_summarize),
            summary_in_progress_covers=in_progress,
            summary=summary,
            read_since_question=self.count_read_since_question(),
            unused_summaries=self.count_unused_summaries(),
            anchor=anchor,
            idle_seconds=idle_seconds,
        )

    def build_state(
        self, facts: Facts, calibration: Calibration | None = None, rules: Rules | None = None
    ) -> ConversationState:
        memory = self.memory
        if rules is None:
            rules = self.rules
            is_in_force = memory.block is not None and not memory.observed
            # While observing, a block in force stays, and no other follows it.
            if (self.observes and is_in_force) or self.context.provider_compacts:
                rules = replace(rules, new_blocks=False)
        return ConversationState.of(
            self.context.request,
            self.identified.links,
            memory.block,
            rules,
            count=self.context.count,
            calibration=calibration or self.choose_calibration(memory.calibration),
            facts=facts,
        )

    def describe_left_alone(self, *, is_large: bool) -> Decision:
        outcome: Outcome = "none" if self.rules.new_blocks else self._outcome_without_blocks
        if self.context.caller.switch != "on":
            return Decision(outcome, "switched-off")
        needs_window = is_large and self.rules.new_blocks and self.rules.trigger != 0
        return Decision(outcome, self._find_usual_reason(needs_window=needs_window))

    def _find_usual_reason(self, *, needs_window: bool) -> Reason:
        """Return why a history stays as it is if the plan does not say."""
        if self.context.provider_compacts:
            return "provider-compacts"
        if self.rewritten:
            return "client-rewrites"
        return "window-unknown" if needs_window and not self.window.is_known else ""

    @property
    def _outcome_without_blocks(self) -> Outcome:
        return "bypassed" if self.context.caller.switch == "bypass" else "off"

    def describe(self, plan: Plan) -> Decision:
        rules, reason = self.rules, plan.reason
        outcome: Outcome = "observed" if self.is_observed else plan.action
        if outcome == "none" and not rules.new_blocks:
            outcome = self._outcome_without_blocks
        if outcome in ("off", "bypassed") and self.context.caller.switch != "on":
            reason = "switched-off"
        elif self._ignores_focus(plan):
            reason = "focus-unused"
        elif not reason:
            reason = self._find_usual_reason(needs_window=True)
        return Decision(
            outcome,
            reason,
            rules.policy,
            rules.version,
            self.identified.conversation,
            plan,
            asks_usage=self._asks_usage(plan),
        )

    def _ignores_focus(self, plan: Plan) -> bool:
        block = plan.block or self.memory.block
        focus = self.context.focus if self.context.mode == "force" else ""
        return focus != "" and (block is None or block.focus != focus)

    def _asks_usage(self, plan: Plan) -> bool:
        if not self.context.may_ask_usage or self.observes or not self.rules.new_blocks:
            return False
        if plan.action != "none":
            return True
        return planning.is_near_limit(plan.tokens_after, self.rules, self.gather_request_facts(self.window))


def list_forwarded_pieces(plan: Plan) -> list[bytes]:
    return [message.raw for message in plan.view] + [plan.tools or b""]
