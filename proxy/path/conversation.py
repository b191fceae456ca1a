"""One request of a conversation: its context, its memory, and the facts that follow from both.

`Context` is known when a request arrives. `recognition.recognize` adds the memory and returns a `Conversation`,
which decides nothing: it answers questions ("does this fit?") and makes the values that `planning` reads.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from proxy.history.identity import Identity
from proxy.history.request import Request
from proxy.path import planning
from proxy.path.originals_rule import Originals
from proxy.path.planning import COUNT_ERROR_RATIO, USELESS_BLOCKS_MAX, Plan
from proxy.shorten.block import MAX_FAILURES, NO_CANDIDATE, Block, Memory, ReadBlock
from proxy.shorten.economics import UNCALIBRATED, UNKNOWN, Calibration, Prices, Window, make_window_keys
from proxy.shorten.marked_history import count_calibrated
from proxy.shorten.pipeline import Count
from proxy.shorten.rules import Facts, Rules
from proxy.shorten.state import ConversationState
from proxy.shorten.summary import Summary

SWITCHED_OFF = "switched-off"
WINDOW_UNKNOWN = "window-unknown"
FOCUS_UNUSED = "focus-unused"
ORIGINALS_UNWRITABLE = "originals-unwritable"

Mode = Literal["auto", "off", "force", "observe"]
Outcome = Literal["none", "applied", "created", "observed", "off", "bypassed", "failed-open"]


@dataclass(frozen=True, slots=True)
class Decision:
    """The plan for a history, and the report to the client."""

    outcome: Outcome
    reason: str = ""
    policy: str = ""
    version: str = ""
    conversation: str = ""
    plan: Plan | None = None
    """None: the history is below every threshold, and no block stands for it."""
    max_answer_tokens: int | None = None
    """A bound on the answer, if only the answer would have been too long."""
    asks_usage: bool = False
    """Ask for the usage of a stream in the client's place (`stream_options`)."""
    removes_reasoning: bool = False
    """Remove all signed reasoning from the forwarded history."""

    @property
    def rewrites(self) -> bool:
        """Return True if other messages are forwarded than the client sent."""
        return self.plan is not None and self.plan.action != "none" and self.outcome != "observed"

    @property
    def makes_block(self) -> bool:
        return self.plan is not None and self.plan.block is not None

    @property
    def tokens_before(self) -> int:
        if self.plan is None:
            return 0
        return self.plan.tokens_before

    @property
    def tokens_after(self) -> int:
        """Tokens of the forwarded history."""
        if self.outcome == "observed":
            return self.tokens_before
        return self.tokens_would_be

    @property
    def tokens_would_be(self) -> int:
        """Tokens of the forwarded history if the policy did not only observe."""
        if self.plan is None:
            return 0
        return self.plan.tokens_after


LEFT_ALONE = Decision("none")


@dataclass(frozen=True, slots=True)
class Context:
    """One request, and everything it is judged by except the memory of its conversation."""

    request: Request
    rules: Rules
    count: Count
    """Tokens of one piece, by our tokenizer."""
    now: float
    """Seconds since the epoch (in the lab: since the conversation began)."""
    mode: Mode = "auto"
    focus: str = ""
    """What the client wants a summary to keep above all."""
    insists: bool = False
    """The client asked to compact by name: a model is asked, however short the history is."""
    answer_has_begun: bool = False
    """The model asked to compact in its answer to this request."""
    locate_originals: Callable[[Identity], str] = lambda _: ""
    """Return the path of a conversation's originals; empty if none are kept."""
    name: str = ""
    """The client's own name for the conversation."""
    upstream: str = ""
    counter: str = ""
    """Whose token counts these are: upstream and family of models."""
    prior: Calibration = UNCALIBRATED
    window: Window = UNKNOWN
    """As configured, probed, or in the bundled table."""
    prices: Prices = field(default_factory=Prices)
    """The model's own, relative to its plain input price."""
    local_window: Window | None = None
    """The limit that an overflow taught this worker, for the one decision that is made before the store is asked."""
    is_halted: bool = False
    """An operator has switched compaction off for this caller."""
    is_known: bool = True
    """An upstream has accepted a request of this caller before. Nothing is stored of unknown callers."""
    originals: Originals = Originals.OFF
    may_ask_usage: bool = False
    """The stream comes without usage unless the proxy asks for it, and it may."""
    recounts: bool = False
    """Ask the upstream for the size of a shortened history if no answer reports it."""
    wait_seconds: float = 8.0
    """How long a request that may not fit waits for its summary."""
    summary_seconds: float = 180.0
    read_block: ReadBlock = Block.from_bytes

    @property
    def pieces(self) -> list[bytes]:
        """The pieces of the request that are counted: its messages and tools."""
        return [message.raw for message in self.request.messages] + [self.request.tools or b""]


@dataclass(frozen=True, slots=True)
class Conversation:
    """A request, and the memory of its conversation."""

    context: Context
    rules: Rules
    window: Window
    memory: Memory
    identity: Identity | None = None
    """None: the history is below every threshold, and nothing is remembered of it."""

    @classmethod
    def of(cls, context: Context) -> "Conversation":
        """Return the conversation before anything is looked up."""
        rules = context.rules
        if context.mode == "off" or context.is_halted:
            rules = replace(rules, new_blocks=False)
        return cls(context, rules, context.window, Memory(calibration=context.prior))

    @property
    def identified(self) -> Identity:
        """The identity of a conversation that was looked up."""
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
        """Tokens as the policy counts them: calibrated by the upstream's reports, or by the estimate alone."""
        return self.count_with(self.choose_calibration(self.memory.calibration))

    def count_with(self, calibration: Calibration) -> Count:
        """Return the count of this upstream's tokens."""
        return partial(count_calibrated, self.context.count, calibration)

    def choose_calibration(self, calibration: Calibration) -> Calibration:
        """Return the calibration that the policy counts by: the learned one, or none."""
        if self.rules.trusts_usage:
            return calibration
        return UNCALIBRATED

    def fits(self, size: int) -> bool:
        """Return True if a history of this many tokens fits the window, or if the window is not known."""
        usable = self.gather_request_facts(self.window).usable_tokens
        return usable is None or size <= usable

    def serves(self, block: Block | None) -> bool:
        """Return True if a block may be used under this head: a summary may repeat its own head."""
        return block is None or block.serves(self.identified.head)

    @property
    def is_known(self) -> bool:
        """Return True if an upstream has ever accepted a request of this caller or this conversation."""
        return self.context.is_known or self.memory.last is not None or self.memory.block_bytes is not None

    def may_store(self, plan: Plan) -> bool:
        """Return True if the caller is known, or a model has just written a summary for it."""
        is_summarized = plan.block is not None and plan.block.summary is not None
        return self.is_known or is_summarized

    def count_refused_views(self) -> int:
        """Return how many shortened histories the upstream called invalid, and accepted as they came."""
        last = self.memory.last
        if last is None or last.counter != self.identified.counter:
            return 0
        return last.refused_views

    def narrow(self, limit: Window | None) -> Window:
        """Return the window with a learned limit, which overrules table and probe but not the operator."""
        window = self.context.window
        if limit is None or window.origin == "config":
            return window
        output = limit.output or window.output
        return replace(window, total=limit.total, input=limit.input, output=output, origin=limit.origin)

    def window_keys(self, tenant: str) -> tuple[str, str]:
        """Return the keys of the window in the store: per tenant, because limits may depend on the credential."""
        return make_window_keys(tenant, self.context.upstream, self.context.request.model, tenant)

    def is_near_limit(self, size: int) -> bool:
        """Return True if a history of this size is so near its limit that a summary may be needed soon."""
        return planning.is_near_limit(size, self.rules, self.gather_request_facts(self.window))

    def may_need_summary(self, size: int) -> bool:
        """Return True if a summary may be due by any count; if not, summaries are not looked up."""
        if self.observes:
            return False
        facts = self.gather_request_facts(self.narrow(self.context.local_window))
        return facts.force or planning.is_near_limit(COUNT_ERROR_RATIO * size, self.rules, facts)

    def gather_request_facts(self, window: Window) -> Facts:
        """Return the facts that follow from the request alone."""
        context, rules = self.context, self.rules
        usable = window.usable_tokens(context.request.max_output)
        base = usable
        if rules.trigger_of == "window":
            base = window.tokens
        if usable is not None and not rules.trusts_usage:
            # What fits is known in the upstream's tokens; the estimate is in others.
            usable = int(usable / self.memory.calibration.ratio)
        is_forced = context.mode == "force"
        return Facts(
            usable_tokens=usable,
            nominal_tokens=window.usable_tokens(),
            trigger_base_tokens=base,
            prices=context.prices,
            force=is_forced,
            focus=context.focus,
            insists=is_forced and (context.insists or context.focus != ""),
            answer_has_begun=context.answer_has_begun,
        )

    def gather_facts(self, *, can_summarize: bool) -> Facts:
        """Return the facts that `planning.decide` needs besides the history itself."""
        facts = self.gather_request_facts(self.window)
        candidate, last = self.memory.candidate or NO_CANDIDATE, self.memory.last
        useless_blocks = 0
        anchor = idle_seconds = None
        if last is not None:
            useless_blocks = last.useless_blocks
            idle_seconds = max(0.0, self.context.now - last.forwarded_at)
            if self.rules.trusts_usage and last.counter == self.identified.counter:
                anchor = last.anchor
        is_failing = candidate.state == "failed" and candidate.failures > 0
        may_ask = can_summarize and candidate.failures < MAX_FAILURES and useless_blocks < USELESS_BLOCKS_MAX
        if facts.insists:
            # A client that asks by name is not answered with an older summary, or an older failure.
            candidate, may_ask = NO_CANDIDATE, True
        summary, in_progress, failed_covers = None, 0, 0
        if candidate.state == "ready":
            summary = Summary(candidate.covers, candidate.text)
        elif candidate.state == "making" and not self.observes:
            in_progress = candidate.covers
        elif candidate.state == "failed":
            failed_covers = candidate.covers
        return replace(
            facts,
            was_forwarded=last is not None,
            can_summarize=may_ask and not self.observes,
            summary_failed=self.rules.summary.enabled and not self.observes and (is_failing or not can_summarize),
            useless_blocks=useless_blocks,
            summary_in_progress_covers=in_progress,
            summary=summary,
            failed_summary_covers=failed_covers,
            anchor=anchor,
            idle_seconds=idle_seconds,
        )

    def build_state(
        self, facts: Facts, calibration: Calibration | None = None, rules: Rules | None = None
    ) -> ConversationState:
        """Return the history with its block, as `planning` reads it."""
        memory = self.memory
        if rules is None:
            rules = self.rules
            is_in_force = memory.block is not None and not memory.observed
            if self.observes and is_in_force:  # while observing, a block in force stays, and no other follows it
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
        """Return the decision on a history that is below every threshold."""
        outcome: Outcome = "none" if self.rules.new_blocks else "off"
        is_blind = self.rules.new_blocks and self.rules.trigger != 0 and not self.window.is_known
        reason = ""
        if self.context.is_halted:
            reason = SWITCHED_OFF
        elif is_blind and is_large:
            reason = WINDOW_UNKNOWN
        return Decision(outcome, reason)

    def describe(self, plan: Plan) -> Decision:
        """Return the decision as it is reported to the client."""
        rules, reason = self.rules, plan.reason
        outcome: Outcome = "observed" if self.is_observed else plan.action
        if outcome == "none" and not rules.new_blocks:
            outcome = "off"
        if outcome == "off" and self.context.is_halted:
            reason = SWITCHED_OFF
        elif self._ignores_focus(plan):
            reason = FOCUS_UNUSED
        elif not reason and not self.window.is_known:
            reason = WINDOW_UNKNOWN
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
        """Return True if the client named a focus, and no summary of the view was asked for with it."""
        block = plan.block or self.memory.block
        focus = ""
        if self.context.mode == "force":
            focus = self.context.focus
        return focus != "" and (block is None or block.focus != focus)

    def _asks_usage(self, plan: Plan) -> bool:
        """Return True if a stream without usage is asked for it, because the next requests need it."""
        if not self.context.may_ask_usage or self.observes or not self.rules.new_blocks:
            return False
        return plan.action != "none" or self.is_near_limit(plan.tokens_after)


def list_forwarded_pieces(plan: Plan) -> list[bytes]:
    """Return the pieces of a forwarded history that are counted: its messages and its tools."""
    return [message.raw for message in plan.view] + [plan.tools or b""]
