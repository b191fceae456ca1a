"""Planning: `decide()` says what to forward for one request, and whether a new block is made.

1. The state already shows the block in place of the messages it covers, the always-steps over the tail.
2. A new block has one of five causes: the client asked for it, the window is nearly full, a price cliff is near, the
   cache is cold anyway, or enough old results have piled up to be worth one rewrite (a stride).
3. The when-full steps then shorten what is old. Near the window, what clearing cannot reach is folded. A block that
   would not free enough, or not pay for itself, is not made, and the view stays as it is.

All of it is pure. A plan may carry a block, which is stored once the upstream has accepted the request, so deciding
twice changes nothing. Read `state.py` first; then `attempts.py`, which needs no model, and `question.py`, which does.
"""

from dataclasses import dataclass, replace
from typing import Literal

from proxy.history.agents import is_aside
from proxy.history.grouping import find_turns
from proxy.history.messages import Message
from proxy.shorten import window
from proxy.shorten.attempts import DEEPEST, Attempt, clear_old, find_best_attempt, summarize_forced
from proxy.shorten.block import Block
from proxy.shorten.fold import append_note
from proxy.shorten.pipeline import StepReport, run
from proxy.shorten.rules import Facts, Rules
from proxy.shorten.state import OPENING_REASON, WINDOW_REASONS, ConversationState
from proxy.shorten.summary import NOTES_HEADING
from proxy.summary.question import Question, build_note_question, find_question, may_ask

COUNT_ERROR_RATIO = 2
"""An upstream may count twice as many tokens as our tokenizer does."""
# How far over its limit a view may grow until a summary is there, where the window is not known.
SUMMARY_OVERSHOOT_RATIO = 1.1
# A model is asked only about a prefix that was forwarded before, so a history must be looked at one request earlier:
# from this share of the size at which a model would be asked.
NOTICE_SHARE = 0.9
# After this many useless blocks in a row no more are made, as long as the view fits.
USELESS_BLOCKS_MAX = 2
NO_SUMMARY = "no-summary"
SUMMARY_PENDING = "summary-pending"
NOTES_PENDING = "notes-pending"
NOTES_PATIENCE_RATIO = 2
"""Results are cleared without notes if so many times the tokens that are due could go, and there are no notes yet."""
SUMMARY_NO_GAIN = "summary-no-gain"
BREAKER_OPEN = "breaker-open"
# The share of the view that a block must free if its view, like that of the block before it, is still over the limit.
REPEATED_BLOCK_SHARE = 0.3


@dataclass(frozen=True, slots=True)
class Plan:
    """A view that is forwarded, and the block that is stored once the upstream has accepted it."""

    view: tuple[Message, ...]
    tools: bytes | None
    action: Literal["none", "applied", "created"]
    """`none`: the client's own messages; `applied`: a stored block; `created`: a new one."""
    reason: str
    """Why a block was made, or why one that was due was not (`floor`, `min_turns`)."""
    tokens_before: int
    """Tokens of the history as it came, tools and head included."""
    tokens_after: int
    """Tokens of what is forwarded."""
    block: Block | None = None
    """The new block, to be stored under `link` once the upstream has accepted this request."""
    link: bytes = b""
    view_id: bytes = b""
    """Which block the view is built on; goes into the `Anchor` with the usage that comes back."""
    reports: tuple[StepReport, ...] = ()
    shared: int = 0
    """How many messages of `view`, from the first on, are as they would be without the new block."""
    tokens_without_block: int = 0
    """Tokens of what would have been forwarded without the new block."""
    turns: tuple[int, int] | None = None
    """The first and the last turn that the new block covers and the one before did not, from 1 on."""
    threshold_tokens: int = 0
    """The tokens that had to go for this block to be made; 0 if it has another cause than a stride."""


@dataclass(frozen=True, slots=True)
class NeedSummary:
    """Clearing is not enough, so a model should summarize the old part. Without an answer `without_model` is used."""

    question: Question | None
    """None where a summary is in progress already."""
    current: Plan
    """The view without a new block, to be used while the summary is written."""
    without_model: Plan
    """The view with a block that needs no model."""
    if_call_fails: Plan
    """The plan where the call fails: the current view, as long as that fits."""
    urgent: bool
    """Wait for the summary: the view may no longer fit, or the client asked for it."""
    is_about_notes: bool = False
    """Notes before results are cleared are wanted, and no summary."""


def choose_without_model(plan: Plan | NeedSummary) -> Plan:
    """The plan to use when no summary is available."""
    return plan.without_model if isinstance(plan, NeedSummary) else plan


def is_below_threshold(size: int, rules: Rules, facts: Facts, *, count_error: float = 1.0) -> bool:
    """True where a history of about this size is too small to act on: its bytes go out without a look-up.

    `count_error`: how many times our count the upstream's may be.
    """
    limits = rules.limits(facts)
    soon = rules.summary.prepare * NOTICE_SHARE if rules.summary.enabled else 1.0
    # Only a history that is followed has a count by the upstream, and that may be far over ours.
    error = count_error if rules.trusts_usage else 1.0
    least = [rules.find_clearing(facts.prices), *(limit * soon / error for limit, _ in limits)]
    return not facts.force and size < min(least)


def is_near_limit(size: int, rules: Rules, facts: Facts) -> bool:
    """True where a view of about this size is so near its limit that a summary may be needed soon."""
    limits = rules.limits(facts)
    return may_ask(rules, facts) and bool(limits) and size > limits[0][0] * rules.summary.prepare


def decide(state: ConversationState) -> Plan | NeedSummary:
    """Decide what to forward for this request."""
    return plan_without_rewrite(state) or plan_rewrite(state)


def plan_without_rewrite(state: ConversationState) -> Plan | None:
    """The plan that makes no new block, where a look at what is new shows that none is due; None where one may be."""
    size = state.size()
    if not state.rules.new_blocks or _is_side_question(state, size):
        return _keep_view(state, size)
    if state.facts.force:
        return None
    crossed = state.find_exceeded_limit(size)
    if crossed is not None:
        return _keep_view(state, size, SUMMARY_PENDING) if _may_wait(state, size, crossed[0]) else None
    least = _count_least(state)
    # In the order of what it costs to find out.
    is_due = state.count_request() >= least and state.may_reach(least, state.rules.when_full) and not state.is_short
    return None if is_due else _keep_view(state, size)


def plan_rewrite(state: ConversationState) -> Plan | NeedSummary:
    """Decide whether a new block is made, and which: this goes over the whole history."""
    size, facts = state.size(), state.facts
    crossed = state.find_exceeded_limit(size)
    # Who asks for a summary by name waits for it at any size; who only forces a block gets the one that is due.
    if facts.insists or (facts.force and crossed is None):
        return _plan_forced(state, size, size if crossed is None else crossed[0])
    return _plan_stride(state, size) if crossed is None else _plan_fold(state, size, *crossed)


def plan_next_summary(state: ConversationState) -> Question | None:
    """The question to ask a model now, so that its answer is there once the history is over its limit."""
    rules, facts = state.rules, state.facts
    if not (rules.new_blocks and rules.summary.ahead) or facts.useless_blocks >= USELESS_BLOCKS_MAX:
        return None
    size = state.size()
    if state.newer_summary is not None or state.awaits_summary or is_aside(state.body, rules.asides):
        return None
    if not is_near_limit(size, rules, facts):
        return None
    limit, reason = rules.limits(facts)[0]
    attempt = clear_old(state, state.draft(rules.keep), reason)
    return find_question(state, size, limit) if size - attempt.freed > rules.find_goal(limit) else None


def _is_side_question(state: ConversationState, size: int) -> bool:
    """True where the client only asks something about the conversation, and the view fits."""
    return _fits(state, size) and not state.facts.force and is_aside(state.body, state.rules.asides)


def _plan_stride(state: ConversationState, size: int) -> Plan | NeedSummary:
    """Clear old results once enough of them can go, and sooner where the prompt cache is cold."""
    rules, cold, least = state.rules, _is_cold(state), _count_least(state)
    draft = state.draft(rules.keep)
    if sum(step.reach(draft) for step in rules.when_full) < least:
        return _keep_view(state, size)
    attempt = clear_old(state, draft, "cold" if cold else "stride")
    if attempt.freed < least or (not cold and _estimate_payback(state, attempt) > rules.horizon):
        return _keep_view(state, size)
    stride = replace(_use_block(state, attempt, size), threshold_tokens=least)
    if not (rules.summary.notes and may_ask(rules, state.facts)):
        return stride
    # With a cold cache the question would be read at full price.
    is_in_time = not cold and attempt.freed < NOTES_PATIENCE_RATIO * least
    question = build_note_question(state, draft, attempt.freed) if is_in_time else None
    current = _keep_view(state, size, NOTES_PENDING)
    return NeedSummary(question, current, stride, stride, urgent=False, is_about_notes=True)


def plan_stride_with_notes(state: ConversationState, covers: int, notes: str) -> Plan | None:
    """Clear `body[:covers]` and put the notes on it there; None if that frees nothing."""
    draft = state.draft_up_to(covers)
    if draft is None:
        return None
    cleared, reports = run(state.rules.when_full, draft)
    new = state.with_draft(append_note(cleared, f"{NOTES_HEADING}\n{notes}"), "stride")
    attempt = Attempt("cleared", new, state.count_view() - new.count_view(), reports)
    if attempt.freed <= 0:
        return None
    return replace(_use_block(state, attempt, state.size()), threshold_tokens=_count_least(state))


def _is_cold(state: ConversationState) -> bool:
    return window.is_cold(state.facts.idle_seconds, state.facts.prices)


def _count_least(state: ConversationState) -> int:
    """The tokens that must go for a stride to be made: by default fewer where rewriting costs little."""
    return state.rules.clear_cold_tokens if _is_cold(state) else state.rules.find_clearing(state.facts.prices)


def _plan_fold(state: ConversationState, size: int, limit: int, reason: str) -> Plan | NeedSummary:
    """Bring a view that is over the limit down to the target, by the first attempt that gets there."""
    against = _find_objection(state, size)
    if against is not None:
        return _keep_view(state, size, against)
    least = max(1, _count_required(state, size, limit))
    if _count_reachable(state) < (least if _fits(state, size) else 1):
        return _keep_view(state, size, "floor")
    attempt = find_best_attempt(state, size, limit, reason)
    # What neither frees much nor makes the request fit would break the cache for a request that is refused anyway.
    makes_it_fit = not _fits(state, size) and _fits(state, size - attempt.freed)
    is_enough = makes_it_fit or (attempt.freed >= least and not _is_useless(state, size, size - attempt.freed, limit))
    if is_enough and attempt.way != "folded":
        return _use_block(state, attempt, size)
    without_model = _use_block(state, attempt, size) if is_enough else _keep_view(state, size, "floor")
    return _plan_summary_first(state, without_model, size, limit)


def _plan_forced(state: ConversationState, size: int, limit: int) -> Plan | NeedSummary:
    """The plan for a client that asks to compact: a summary, even where clearing would do; else what needs no model."""
    if _fits(state, size) and _is_repeated_force(state):
        return _keep_view(state, size)
    summarized = summarize_forced(state, limit)
    if summarized is not None and _fits(state, size - summarized.freed):
        return _use_block(state, summarized, size)
    facts = state.facts
    attempt = find_best_attempt(state, size, limit, "forced")
    without_model = _use_block(state, attempt, size) if attempt.freed > 0 else _keep_view(state, size, "floor")
    is_awaited = state.awaits_summary and not facts.insists
    question = None if is_awaited else find_question(state, size, limit)
    if question is None and not is_awaited:
        return _plan_without_summary(state, size, without_model) if facts.summary_failed else without_model
    return NeedSummary(
        question, _keep_view(state, size), without_model, _plan_without_summary(state, size, without_model), urgent=True
    )


def _plan_without_summary(state: ConversationState, size: int, without_model: Plan) -> Plan:
    """The plan after a call for a summary has failed: nothing that fits is folded away for it."""
    if not _fits(state, size):
        return without_model
    if state.facts.force:
        attempt = clear_old(state, state.draft(state.rules.keep), "forced")
        if attempt.freed > 0:
            return replace(_use_block(state, attempt, size), reason=NO_SUMMARY)
    return _keep_view(state, size, NO_SUMMARY)


def _fits(state: ConversationState, size: int) -> bool:
    return state.facts.usable_tokens is None or size <= state.facts.usable_tokens


def _find_objection(state: ConversationState, size: int) -> str | None:
    """The reason for not trying to make a block, or None."""
    if not _fits(state, size):
        return None
    if state.facts.useless_blocks >= USELESS_BLOCKS_MAX:
        return BREAKER_OPEN
    return state.short_by or None


def _plan_summary_first(state: ConversationState, without_model: Plan, size: int, limit: int) -> Plan | NeedSummary:
    """Ask a model for a summary, or wait for one in progress; the plan without a model is used where neither helps."""
    question = None if state.awaits_summary else find_question(state, size, limit)
    if_call_fails = _plan_without_summary(state, size, without_model)
    if question is None and not state.awaits_summary:
        return _say_why_not_asked(state, if_call_fails if state.facts.summary_failed else without_model)
    urgent = _is_urgent(state, size, limit)
    return NeedSummary(question, _keep_view(state, size), without_model, if_call_fails, urgent)


def _say_why_not_asked(state: ConversationState, plan: Plan) -> Plan:
    """The plan without a model, with the reason why none was asked although the policy has summaries."""
    rules, facts = state.rules, state.facts
    if plan.action != "created" or not rules.summary.enabled:
        return plan
    if facts.summary_failed:
        return replace(plan, reason=NO_SUMMARY)
    if facts.useless_blocks >= USELESS_BLOCKS_MAX:
        return replace(plan, reason=BREAKER_OPEN)
    return replace(plan, reason=SUMMARY_NO_GAIN) if may_ask(rules, facts) else plan


def _is_urgent(state: ConversationState, size: int, limit: int) -> bool:
    """True where a request has to wait for its summary: the next one may no longer fit."""
    usable = state.facts.usable_tokens
    room = limit * SUMMARY_OVERSHOOT_RATIO if usable is None else (limit + usable) / 2
    return not state.rules.summary.ahead or size > room


def _may_wait(state: ConversationState, size: int, limit: int) -> bool:
    """True where a model is writing the summary that is due, and there is room until it is there."""
    is_due = state.awaits_summary and state.newer_summary is None
    return is_due and state.facts.useless_blocks < USELESS_BLOCKS_MAX and not _is_urgent(state, size, limit)


def _is_repeated_force(state: ConversationState) -> bool:
    """True where the forced block is there already, because this is the same request again."""
    draft = state.draft(state.rules.keep)
    covers = draft.after[0].start if draft.after else len(state.body)
    is_same = state.facts.focus in ("", state.block.focus)
    return state.has_block and state.block.reason == "forced" and covers <= state.block.covers and is_same


def _count_required(state: ConversationState, size: int, limit: int) -> int:
    """The tokens a block must free to be worth making.

    One that follows another must go half way to the target, or every turn would make a block.
    """
    least = int(size * state.rules.min_progress)
    again = state.has_block and state.block.reason in WINDOW_REASONS
    return max(least, (limit - state.rules.find_goal(limit)) // 2) if again else least


def _is_useless(state: ConversationState, size: int, after: int, limit: int) -> bool:
    """True where the block would be one of many in a row, because what must stay is over the limit by itself.

    A second block in a row with a view over its limit must make the request fit, or free `REPEATED_BLOCK_SHARE` of it.
    """
    if after <= limit or not (state.has_block and state.block.reason in WINDOW_REASONS):
        return False
    usable = state.facts.usable_tokens
    makes_it_fit = usable is not None and after <= usable < size
    return not makes_it_fit and size - after < size * REPEATED_BLOCK_SHARE


def _count_reachable(state: ConversationState) -> int:
    """The most tokens that any block could free: all that the deepest attempt may touch."""
    draft = state.draft(DEEPEST)
    return state.count_tokens(filter(draft.may_fold, draft.middle))


def _estimate_payback(state: ConversationState, attempt: Attempt) -> float:
    return window.estimate_payback(state.view, attempt.state.view, state.count, state.facts.prices)


def _keep_view(state: ConversationState, size: int, reason: str = "") -> Plan:
    """The plan that makes no new block. Only the first time an always-step acts, the opening block is made here."""
    untouched = state.is_untouched
    opening = not state.has_block and not untouched
    stored = state.with_opening_block() if opening else state
    before = size + state.count_body() - state.count_view()
    return Plan(
        view=state.request.messages if untouched else state.request.head + stored.view,
        tools=stored.tools,
        action="none" if untouched else "created" if opening else "applied",
        reason=OPENING_REASON if opening else reason,
        tokens_before=before,
        tokens_after=size,
        block=stored.block if opening else None,
        tokens_without_block=before,
        link=stored.link if opening else b"",
        view_id=stored.view_id,
    )


def _use_block(state: ConversationState, attempt: Attempt, size: int) -> Plan:
    """The plan with the new block of this attempt."""
    new = attempt.state
    return Plan(
        view=new.request.head + new.view,
        tools=new.tools,
        action="created",
        reason=new.block.reason,
        tokens_before=size + state.count_body() - state.count_view(),
        tokens_after=max(0, size - attempt.freed),  # an upstream may count far less than we do
        block=new.block,
        shared=len(new.request.head) + window.count_shared(state.view, new.view),
        link=new.link,
        view_id=new.view_id,
        reports=attempt.reports,
        tokens_without_block=size,
        turns=_find_covered_turns(state, new.block.covers),
    )


def _find_covered_turns(state: ConversationState, covers: int) -> tuple[int, int] | None:
    """The turns of the client's history from the end of the current block up to this place, numbered from 1."""
    start = state.block.covers if state.has_block else 0
    numbers = [
        number for number, turn in enumerate(find_turns(state.body), 1) if turn.start < covers and turn.stop > start
    ]
    return (numbers[0], numbers[-1]) if numbers else None
