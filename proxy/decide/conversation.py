"""One request and its conversation, as values, and the table that says when an original is written.

LastRequest        the request before this one: its place in the chain, the upstream's count, how ours relates to it
SummaryCandidate   a summary that a model writes, has written, or could not write
Asked              the request, its policy and caller: known when it arrives
Conversation       `Asked`, whose history it is, and what the store remembers of it: made by `remember.load_memory`
Facts              the numbers that decide, from both: `gather_facts`
"""

import json
from collections.abc import Callable, Sequence
from enum import Enum, auto
from functools import cached_property, partial
from typing import Literal, Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from proxy.decide import planning
from proxy.decide.planning import Plan
from proxy.decide.question import Question
from proxy.history.identity import OBSERVED, Identity
from proxy.history.request import Count, Request
from proxy.shorten.block import Block, Reason, StoredValue
from proxy.shorten.economics import (
    LAST_RESORT_SECONDS,
    NOTHING_SEEN,
    UNCALIBRATED,
    UNKNOWN,
    CacheMemory,
    Calibration,
    Prices,
    StoredWindow,
    Window,
    make_model_keys,
)
from proxy.shorten.rules import Anchor, Facts, Rules
from proxy.shorten.state import ConversationState, count_calibrated
from proxy.shorten.summary import Summary
from proxy.wire.http_head import Caller
from proxy.wire.refusals import LEAST_ANSWER_TOKENS

DAY_SECONDS = 24 * 3600.0
FACT_SECONDS = 7 * DAY_SECONDS


class Stored(Protocol):
    @property
    def key(self) -> str: ...
    @property
    def value(self) -> bytes: ...


FoundValues = Sequence[Stored | None]
"""A block, and a fact of each list of keys; None for each that is not stored."""


class LastRequest(StoredValue, frozen=True, array_like=True, tag=6):
    anchor: Anchor
    forwarded_at: float
    counter: str
    calibration: Calibration
    refused_views: int = 0
    """The number of requests that the upstream accepted only as the client had sent them."""
    asked_covers: int = 0
    """Messages that the last question for a summary was about; 0 if none was asked."""
    read_since_question: int = 0
    """Tokens that requests have read since that question."""

    @classmethod
    def from_bytes(cls, data: bytes) -> "LastRequest | None":
        return super().from_bytes(data) or _read_last_request_of_0_3(data)


def _read_last_request_of_0_3(data: bytes) -> LastRequest | None:
    try:
        version, link, tokens, view_id, forwarded_at, counter, ratio, observations, *numbers = json.loads(data)
        if version != 4:  # noqa: PLR2004 (its format)
            return None
        anchor = Anchor(bytes.fromhex(link), int(tokens), bytes.fromhex(view_id))
        calibration = Calibration(float(ratio), int(observations))
        return LastRequest(anchor, float(forwarded_at), str(counter), calibration, *map(int, numbers[2:3]))
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None


class SummaryCandidate(StoredValue, frozen=True, array_like=True, tag=1):
    """A summary of `body[:covers]`, stored under the chain link of its last message."""

    state: Literal["making", "ready", "failed"]
    text: str = ""
    """The summary if it is ready, or the owner of the claim while it is being made."""
    failures: int = 0
    """Calls in a row, up to this one, that failed or whose summary was not used."""
    covers: int = 0
    """The messages that it covers. They follow from its key (`read_candidate`): the stored number is ignored."""
    conversation: str = ""
    """The name of its conversation, by which it is found if that conversation is deleted."""

    @classmethod
    def claim(cls, owner: str) -> "SummaryCandidate":
        """Return a claim. *owner* is unique, so that the end of an expired claim does not undo the next one."""
        return cls("making", owner)

    @classmethod
    def of_answer(cls, text: str, earlier_failures: int, conversation: str = "") -> "SummaryCandidate":
        """Return the result of a call; *text* is empty if the call failed."""
        if text:
            return cls("ready", text, earlier_failures, conversation=conversation)
        return cls("failed", failures=earlier_failures + 1)


def read_candidate(stored: Stored | None, keys: Sequence[str]) -> SummaryCandidate | None:
    """Read a stored summary. How much it covers follows from the place of its key in *keys*, the longest first."""
    if stored is None:
        return None
    candidate = SummaryCandidate.from_bytes(stored.value)
    if candidate is None:
        return None
    return replace(candidate, covers=len(keys) - 1 - keys.index(stored.key))


class Originals(Enum):
    """Whether a shortened history may be forwarded if its original could not be written (`without_originals`)."""

    OFF = auto()
    """No originals are kept."""
    BEST_EFFORT = auto()
    """It may."""
    TO_FIT = auto()
    """Only if the history would not fit otherwise, or an earlier request has made the block."""
    BEFORE_LOSS = auto()
    """Only if an earlier request has made the block."""
    REQUIRED = auto()
    """It may not: the request is refused."""


class Writing(Enum):
    NOTHING = auto()
    CHECK = auto()
    """Check that the disk is writable. The original is written once the upstream has accepted the request."""
    HAND_OVER = auto()
    WRITE = auto()
    WRITE_OR_REFUSE = auto()


_DUTIES = {
    # Columns: a new block of a known caller, a new block of an unknown caller, a block that is applied again.
    Originals.OFF: (Writing.NOTHING, Writing.NOTHING, Writing.NOTHING),
    Originals.BEST_EFFORT: (Writing.WRITE, Writing.NOTHING, Writing.HAND_OVER),
    Originals.TO_FIT: (Writing.WRITE, Writing.CHECK, Writing.HAND_OVER),
    Originals.BEFORE_LOSS: (Writing.WRITE, Writing.CHECK, Writing.HAND_OVER),
    Originals.REQUIRED: (Writing.WRITE_OR_REFUSE, Writing.WRITE_OR_REFUSE, Writing.WRITE_OR_REFUSE),
}
"""A caller of no team is unknown until an upstream has accepted one of its requests: made-up keys could fill a disk."""


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
    tokens_before: int = 0
    tokens_after: int = 0
    tokens_would_be: int = 0
    """The tokens after shortening, even if that is only observed."""
    tokens_unshortened: int = 0
    """The tokens of the request as it would have been without this proxy."""
    refetches: int = 0
    """The number of new results in this request, after the model's last answer, that repeat a shortened one."""

    @property
    def rewrite(self) -> Plan | None:
        """The plan if its view is forwarded, and not the client's own history."""
        if self.plan is None or self.plan.action == "none" or self.outcome == "observed":
            return None
        return self.plan


class Asked(Struct, frozen=True):
    """One request as it arrives, with its policy and caller."""

    request: Request
    rules: Rules
    count: Count
    now: float
    mode: Mode = "auto"
    focus: str = ""
    locate_originals: Callable[[Identity], str] = lambda _: ""
    """Return the path of the originals; empty if none are kept."""
    name_rewritten: Callable[[Identity], str] = lambda _: ""
    """Return the conversation's name if its client shortens its own results at every turn, else "". Only reported."""
    tenant: str = ""
    secret: bytes = b""
    """The key of the hashes by which conversations are recognized."""
    name: str = ""
    """The client's name of the conversation: `x-conversation-id`."""
    request_id: str = ""
    base_url: str = ""
    """The URL of the upstream."""
    upstream: str = ""
    caller: Caller = Caller()
    counter: str = ""
    prior: Calibration = UNCALIBRATED
    window: Window = UNKNOWN
    prices: Prices = field(default_factory=Prices)
    cache_seconds: float = LAST_RESORT_SECONDS
    """The assumed lifetime of a prefix in the upstream's cache, counted from its last use."""
    refetches_much: bool = False
    """Whether the agents of this team, or with this key of no team, fetch many shortened results again."""
    is_known_caller: bool = True
    """Whether an upstream has accepted this caller in this worker, or it belongs to a team."""
    originals: Originals = Originals.OFF
    may_ask_usage: bool = False
    """Whether the stream comes without usage unless the proxy asks for it, which the upstream has not refused yet."""
    provider_compacts: bool = False
    """Whether the client asks the provider to compact: no new block is made unless it refuses the request."""

    def read_block(self, stored_bytes: bytes) -> Block | None:
        """Read a stored block, once: that of a long conversation has 100 kB, and is looked up at every turn."""
        return self.request.known.memo("block", stored_bytes, partial(Block.from_bytes, stored_bytes))

    def note_block(self, block: Block, conversation: str) -> bytes:
        """Return the bytes of a block, and remember it, so that the next request need not read them."""
        block_bytes = block.to_bytes(conversation)
        self.request.known.memo("block", block_bytes, lambda: block)
        return block_bytes

    @property
    def pieces(self) -> list[bytes]:
        return [message.raw for message in self.request.messages] + [self.request.tools or b""]

    def find_rules(self) -> Rules:
        """Return the policy's rules, without new blocks if the client or an operator has switched them off."""
        if self.mode == "off" or self.caller.switch != "on":
            return replace(self.rules, new_blocks=False)
        return self.rules

    def to_fit(self) -> "Asked":
        """Return this request without a switch that allows new blocks for requests which would be refused otherwise."""
        may_fit = self.caller.switch in ("still-fit", "bypass") and self.mode not in ("off", "observe")
        if not may_fit or not self.rules.new_blocks:
            return self
        return replace(self, mode="auto", caller=replace(self.caller, switch="on"))

    def narrow(self, limit: Window | None) -> Window:
        """Return the window under a learned limit, which overrules table and probe but not the operator."""
        window = self.window
        if limit is None or window.origin == "config":
            return window
        if not limit.is_known:  # only of the answer something was learned
            return replace(window, shared=limit.shared, longest_answer=limit.longest_answer)
        return replace(limit, output=limit.output or window.output, prices=window.prices, cliffs=window.cliffs)

    def gather_facts(
        self, rules: Rules, window: Window, calibration: Calibration, cache: CacheMemory = NOTHING_SEEN
    ) -> Facts:
        """Gather the facts of this request alone. `Conversation.gather_facts` adds those of earlier requests."""
        wanted = self.request.max_output
        usable = window.usable_tokens(wanted)
        nominal = window.usable_tokens() if wanted else usable
        base = window.tokens if rules.trigger_of == "window" else usable
        if usable is not None and rules.estimator == "chars":
            # The window is in the upstream's tokens; the estimate is not.
            usable = int(usable / calibration.ratio)
        # The request may ask for a lifetime. That of its model is only assumed, so observed hits and losses bound it.
        cache_seconds = self.request.cache_seconds
        if cache_seconds is None:
            cache_seconds = cache.bound_lifetime(self.cache_seconds)
        return Facts(
            usable_tokens=usable,
            nominal_tokens=nominal,
            trigger_base_tokens=base,
            prices=self.prices,
            cache_seconds=cache_seconds,
            refetches_much=self.refetches_much,
            force=self.mode == "force",
            focus=self.focus,
        )

    def describe_left_alone(self, window: Window, *, is_large: bool, is_rewritten: bool) -> Decision:
        """Describe a history that is below every threshold, and for which no block stands."""
        rules = self.find_rules()
        outcome: Outcome = "none" if rules.new_blocks else self.outcome_without_blocks
        reason: Reason = ""
        if self.caller.switch != "on":
            reason = "switched-off"
        elif self.provider_compacts:
            reason = "provider-compacts"
        elif is_rewritten:
            reason = "client-rewrites"
        elif is_large and rules.new_blocks and rules.trigger != 0 and not window.is_known:
            reason = "window-unknown"
        return Decision(outcome, reason)

    @property
    def outcome_without_blocks(self) -> Outcome:
        return "bypassed" if self.caller.switch == "bypass" else "off"


class Conversation(Struct, frozen=True, dict=True):  # with a dict, for the cached property
    asked: Asked
    rules: Rules
    """The rules in force for this request."""
    identity: Identity
    rewritten: str = ""
    """The name of the conversation, if its client shortens its own results at every turn."""
    block: Block | None = None
    stored_block: Stored | None = None
    """The block as it is stored, also if it cannot be read. A new block with the same key replaces it."""
    last: LastRequest | None = None
    calibration: Calibration = UNCALIBRATED
    learned_window: Window | None = None
    candidate: SummaryCandidate | None = None
    cache: CacheMemory = NOTHING_SEEN
    has_store_answered: bool = True
    """If it has, a request of which nothing is found is the first of its conversation."""

    def read(self, values: FoundValues | None) -> "Conversation":
        """Return this conversation with the values that the store remembers of it."""
        if values is None:
            return replace(self, has_store_answered=False)
        stored_block, fact, window, cache = values
        last, calibration = None, None
        if fact is not None and fact.key == self.identity.scale_key:
            # A new conversation: only the calibration of the tenant's last one is known.
            calibration = Calibration.from_bytes(fact.value)
        elif fact is not None:
            last = LastRequest.from_bytes(fact.value)
            # The counts of one upstream and family of models say nothing about those of another.
            if last is not None and last.counter == self.identity.counter:
                calibration = last.calibration
        stored_window = StoredWindow.from_bytes(window.value) if window is not None else None
        cache_memory = CacheMemory.from_bytes(cache.value) if cache is not None else None
        conversation = replace(
            self,
            last=last,
            calibration=calibration or self.asked.prior,
            learned_window=stored_window.window if stored_window is not None else None,
            cache=cache_memory or NOTHING_SEEN,
        )
        return conversation.with_block(stored_block)

    def with_block(self, stored: Stored | None) -> "Conversation":
        block = None if stored is None else self.asked.read_block(stored.value)
        return replace(self, block=block, stored_block=stored)

    @cached_property
    def window(self) -> Window:
        return self.asked.narrow(self.learned_window)

    @cached_property
    def asked_covers(self) -> int:
        """Messages that the newest question for a summary was about; 0 if none was asked."""
        covers = 0 if self.last is None else self.last.asked_covers
        if self.candidate is not None:
            covers = max(covers, self.candidate.covers)
        if self.block is not None and self.block.summary is not None:
            covers = max(covers, self.block.summary.covers)
        return covers

    def count_read_since_question(self) -> int | None:
        """Tokens that requests have read since a model was last asked for a summary; None if none was asked."""
        asked_covers = self.asked_covers
        if not asked_covers:
            return None
        if self.last is None or self.last.asked_covers < asked_covers:
            return 0
        return self.last.read_since_question

    def count_unused_summaries(self) -> int:
        """Calls for a summary in a row that failed, or whose summary is in no block."""
        candidate, block = self.candidate, self.block
        if candidate is None:
            return 0
        if block is not None and block.summary is not None and block.summary.covers >= candidate.covers:
            return 0
        return candidate.failures + (candidate.state == "ready")

    def after_question(self, question: Question | None) -> "Conversation":
        """Return this conversation once a model is asked for a summary. *question* is None if it was asked before."""
        if question is None:
            return self
        failures = self.count_unused_summaries()
        return replace(self, candidate=SummaryCandidate("making", failures=failures, covers=question.covers))

    def to_fit(self) -> "Conversation":
        asked = self.asked.to_fit()
        return replace(self, asked=asked, rules=replace(self.rules, new_blocks=asked.find_rules().new_blocks))

    @property
    def is_block_observed(self) -> bool:
        stored = self.stored_block
        return stored is not None and stored.key.startswith(f"{self.identity.tenant}/{OBSERVED}/")

    @property
    def is_observed(self) -> bool:
        """Return True if the block is only tried out, and stored apart from those in force."""
        return self.asked.mode == "observe" and (self.is_block_observed or self.block is None)

    @property
    def count(self) -> Count:
        return partial(count_calibrated, self.asked.count, self.choose_calibration(self.calibration))

    def choose_calibration(self, calibration: Calibration) -> Calibration:
        if self.rules.estimator == "tokens":
            return calibration
        return UNCALIBRATED

    def fits(self, size: int) -> bool:
        """Return whether this many tokens fit in the window, or the window is not known."""
        return self.gather_facts(can_summarize=True).fits(size)

    def bound_answer(self, prompt_tokens: int) -> int | None:
        """Return a bound of the answer if the upstream has refused one as long as the client wants after such a prompt.

        The request is not sent so again. There is none if so little room is left that the history is too long.
        """
        request = self.asked.request
        if self.rules.estimator == "chars":
            prompt_tokens = round(prompt_tokens * self.calibration.ratio)
        bound = self.window.bound_answer(request.max_output, prompt_tokens)
        if bound is None or bound < LEAST_ANSWER_TOKENS + request.least_thinking:
            return None
        return bound

    def serves(self, block: Block | None) -> bool:
        """Return True if a block may be used under this head."""
        return block is None or block.serves(self.identity.head)

    @property
    def is_known_caller(self) -> bool:
        """Return True if it is of a team, or an upstream has accepted it here or, as the store tells, elsewhere."""
        return self.asked.is_known_caller or self.last is not None or self.stored_block is not None

    def may_store(self, plan: Plan) -> bool:
        """Return True if the caller is known, or a model has just written a summary for it."""
        is_summarized = plan.block is not None and plan.block.summary is not None
        return self.is_known_caller or is_summarized

    def count_refused_views(self) -> int:
        """Return how many requests the upstream called invalid when shortened, and then accepted as they came."""
        last = self.last
        if last is None or last.counter != self.identity.counter:
            return 0
        return last.refused_views

    @property
    def model_keys(self) -> tuple[str, str, str]:
        """The keys in the store of the learned window, of the probed window, and of the memory of the cache."""
        return make_model_keys(self.identity.tenant, self.asked.base_url, self.asked.request.model)

    def gather_facts(self, *, can_summarize: bool) -> Facts:
        facts = self.asked.gather_facts(self.rules, self.window, self.calibration, self.cache)
        last, observes = self.last, self.asked.mode == "observe"
        candidate = self.candidate
        if candidate is None or facts.force:
            # A client that asks for a summary does not get an older one, or an older failure.
            candidate = SummaryCandidate("failed")
        anchor = idle_seconds = None
        if last is not None:
            idle_seconds = max(0.0, self.asked.now - last.forwarded_at)
            if self.rules.estimator == "tokens" and last.counter == self.identity.counter:
                anchor = last.anchor
        is_failing = candidate.state == "failed" and candidate.failures > 0
        summary, in_progress = None, 0
        if candidate.state == "ready":
            summary = Summary(candidate.covers, candidate.text)
        elif candidate.state == "making" and not observes:
            in_progress = candidate.covers
        return replace(
            facts,
            was_forwarded=last is not None,
            can_summarize=(can_summarize or facts.force) and not observes,
            summary_failed=self.rules.summary.enabled and not observes and (is_failing or not can_summarize),
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
        if rules is None:
            rules = self.rules
            is_in_force = self.block is not None and not self.is_block_observed
            # If the request is only observed, a block in force stays and no other follows it.
            if (self.asked.mode == "observe" and is_in_force) or self.asked.provider_compacts:
                rules = replace(rules, new_blocks=False)
        return ConversationState.of(
            self.asked.request,
            self.identity.links,
            self.block,
            rules,
            count=self.asked.count,
            calibration=calibration or self.choose_calibration(self.calibration),
            facts=facts,
        )

    def describe(self, plan: Plan) -> Decision:
        asked, rules, reason = self.asked, self.rules, plan.reason
        outcome: Outcome = "observed" if self.is_observed else plan.action
        if outcome == "none" and not rules.new_blocks:
            outcome = asked.outcome_without_blocks
        block = plan.block or self.block
        if outcome in ("off", "bypassed") and asked.caller.switch != "on":
            reason = "switched-off"
        elif asked.mode == "force" and asked.focus and (block is None or block.focus != asked.focus):
            reason = "focus-unused"
        elif not reason and asked.provider_compacts:
            reason = "provider-compacts"
        elif not reason and self.rewritten:
            reason = "client-rewrites"
        elif not reason and not self.window.is_known:
            reason = "window-unknown"
        may_change = asked.mode != "observe" and rules.new_blocks
        longest_answer = self.bound_answer(plan.tokens_after) if may_change else None
        if longest_answer is not None and not reason:
            reason = "overflow_retry"
        asks_usage = asked.may_ask_usage and may_change
        if asks_usage and plan.action == "none":
            facts = asked.gather_facts(rules, self.window, self.calibration, self.cache)
            asks_usage = planning.is_near_limit(plan.tokens_after, rules, facts)
        decision = Decision(
            outcome,
            reason,
            rules.policy,
            rules.version,
            self.identity.conversation,
            plan,
            longest_answer,
            asks_usage=asks_usage,
            tokens_before=plan.tokens_before,
            tokens_after=plan.tokens_after,
            tokens_would_be=plan.tokens_after,
            tokens_unshortened=plan.tokens_unshortened,
            refetches=plan.refetch_cost.refetches,
        )
        if outcome != "observed":
            return decision
        # The request leaves as it came.
        return replace(decision, tokens_after=plan.tokens_before, tokens_unshortened=plan.tokens_before, refetches=0)


def list_forwarded_pieces(plan: Plan) -> list[bytes]:
    return [message.raw for message in plan.view] + [plan.tools or b""]
