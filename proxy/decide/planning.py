"""The plan of one request, and with it perhaps a new block.

1. The state already shows the block instead of the messages that it covers, and the rest as the always-steps leave it.
2. A rewrite has one of two causes: the client asked for it, or a fold is due (`shorten/rules.py`). Some policies also
   clear old results whenever enough have piled up (a stride). Without a rewrite, the first message that an always-step
   shortens makes an *opening block*.
3. In a rewrite the when-full steps shorten old messages. If that is not enough, the oldest are folded. A block that
   would not free enough is not made.

Deciding twice changes nothing: a block is stored once the upstream has accepted the request. Read `state.py` first;
then `attempts.py`, which needs no model, and `question.py`, which does.
"""

from math import inf
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from proxy.decide.question import Question, find_question
from proxy.history.messages import Message
from proxy.history.observations import is_aside
from proxy.shorten.attempts import Attempt, clear_old, find_best_attempt, summarize_forced
from proxy.shorten.back_off import RefetchCost
from proxy.shorten.block import Block, Reason
from proxy.shorten.bounds import bound_cleared, bound_folded
from proxy.shorten.economics import count_shared
from proxy.shorten.pipeline import StepReport
from proxy.shorten.rules import DueFold, Facts, Rules, find_smallest_due
from proxy.shorten.state import ConversationState, is_worth_rewriting


class Plan(Struct, frozen=True):
    view: tuple[Message, ...]
    tools: bytes | None
    action: Literal["none", "applied", "created"]
    reason: Reason
    tokens_before: int
    tokens_after: int
    block: Block | None = None
    view_id: bytes = b""
    """The name of this view, by which the next request finds it in its `Anchor`."""
    reports: tuple[StepReport, ...] = ()
    shared: int = 0
    """Messages at the start of `view` that the new block does not change."""
    tokens_without_block: int = 0
    turns: tuple[int, int] | None = None
    """The first and the last turn of which the new block covers more than the one before it, numbered from 1."""
    refetch_cost: RefetchCost = RefetchCost()

    @property
    def tokens_unshortened(self) -> int:
        """The request as it would have been without this proxy; 0 if it was caused by shortening."""
        if self.refetch_cost.is_whole_step:
            return 0
        return max(0, self.tokens_before - self.refetch_cost.tokens)


class NeedSummary(Struct, frozen=True):
    """A plan that waits for a model. Without its answer `without_model` is used."""

    question: Question | None
    """The question to ask, or None if a summary is in progress already."""
    without_model: Plan
    urgent: bool
    """Whether this request waits for the summary, instead of a later one."""


def find_thresholds(rules: Rules, facts: Facts) -> tuple[float, float]:
    """Return the tokens below which a history needs no look-up, and those if the upstream counts as we do."""
    if facts.force:
        return 0, 0
    limit = rules.find_limit(facts)
    size = inf
    if limit is not None:
        size = find_smallest_due(rules, limit.tokens)
    if limit is not None and rules.summary.enabled:
        # A model is asked only about a prefix that was forwarded before, so a history is looked up one request earlier.
        size = min(size, limit.tokens * rules.summary.prepare * 0.9)
    clear_at_least = rules.clear_at_least or inf
    # An upstream may count twice as many tokens as our tokenizer does.
    count_error = 2 if rules.estimator == "tokens" else 1
    return min(size / count_error, clear_at_least), min(size, clear_at_least)


def is_near_limit(size: int, rules: Rules, facts: Facts) -> bool:
    """Return whether a history is so near to its first limit that a summary may be prepared."""
    limit = rules.find_limit(facts)
    return limit is not None and size > limit.tokens * rules.summary.prepare and rules.may_ask(facts)


def needs_summary(state: ConversationState, plan: Plan | None) -> bool:
    """Return whether a stored summary may change this turn, given the plan of `plan_without_rewrite`.

    A new block may use the summary. Near the limit, the request notes that a model was asked for it.
    """
    if not state.rules.summary.enabled:
        return False
    if plan is None:
        return state.facts.force or state.find_due_fold() is not None
    return is_near_limit(state.size, state.rules, state.facts)


def make_plan(state: ConversationState) -> Plan | NeedSummary:
    return plan_without_rewrite(state) or plan_rewrite(state)


def plan_without_model(state: ConversationState) -> Plan:
    plan = make_plan(state)
    return plan.without_model if isinstance(plan, NeedSummary) else plan


def plan_without_rewrite(state: ConversationState) -> Plan | None:
    """Return the plan that keeps the block in force, or None if the new messages alone do not rule out a new block."""
    is_side_question = state.fits() and not state.facts.force and is_aside(state.body, state.rules.asides)
    refetches_much = state.facts.refetches_much and state.fits() and not state.facts.force
    if not state.rules.new_blocks or is_side_question or refetches_much:
        return keep_view(state, "fetches-high" if refetches_much else "")
    if state.facts.force:
        return None
    due = state.find_due_fold()
    if due is not None:
        # The request may still have room until the summary is ready that a model is writing.
        is_writing = state.awaits_summary and state.newer_summary is None and not due.may_pass
        if is_writing and not _is_urgent(state, due.limit):
            return keep_view(state, "summary-pending")
        return _rule_out_fold(state, due)
    rules = state.rules
    if not rules.clear_at_least or state.short_by or bound_cleared(state, rules.keep) < rules.clear_at_least:
        return keep_view(state)
    return None


def plan_rewrite(state: ConversationState) -> Plan | NeedSummary:
    facts, due = state.facts, state.find_due_fold()
    if facts.force:
        return _plan_forced(state, state.size if due is None else due.limit)
    if due is not None:
        return _plan_fold(state, due)
    attempt = clear_old(state, "cold" if facts.is_cold else "stride")
    if attempt.freed < state.rules.clear_at_least:
        return keep_view(state)
    return use_block(state, attempt)


def plan_next_summary(state: ConversationState) -> Question | None:
    """Return the question for a summary that will be needed soon, so that it is ready when the limit is reached."""
    rules, facts = state.rules, state.facts
    if not (rules.new_blocks and rules.summary.ahead):
        return None
    if state.newer_summary is not None or state.awaits_summary or is_aside(state.body, rules.asides):
        return None
    lowest_limit = rules.find_limit(facts)
    if lowest_limit is None or not is_near_limit(state.size, rules, facts):
        return None
    limit, reason = lowest_limit
    if state.size - bound_folded(state) > limit:
        return None
    due = DueFold(limit, reason, rules.find_goal(limit))
    attempt = clear_old(state, reason)
    if due.is_enough_cleared(state.size, attempt.freed):
        return None
    return find_question(state, limit)


def _rule_out_fold(state: ConversationState, due: DueFold) -> Plan | None:
    """Return the plan that keeps the view if no fold could free enough, or None if one may."""
    if state.fits() and state.short_by:
        return keep_view(state, state.short_by)
    most_tokens = bound_folded(state)
    # If the request does not fit, all is tried.
    if _is_enough(state, due, most_tokens) or (not state.fits() and most_tokens >= 1):
        return None
    return keep_view(state, "" if due.may_pass else "floor")


def _is_enough(state: ConversationState, due: DueFold, freed_tokens: float) -> bool:
    # A block that frees less would break the cache for a request that is refused anyway.
    if not state.fits() and state.fits(freed_tokens):
        return True
    return freed_tokens >= due.freed_at_least and is_worth_rewriting(state, freed_tokens, due.limit)


def _plan_fold(state: ConversationState, due: DueFold) -> Plan | NeedSummary:
    limit, attempt = due.limit, find_best_attempt(state, due)
    is_enough = _is_enough(state, due, attempt.freed)
    if is_enough and (attempt.way != "folded" or due.may_pass):
        return use_block(state, attempt)
    if due.may_pass:
        return keep_view(state)
    without_model = use_block(state, attempt) if is_enough else keep_view(state, "floor")
    return _ask_for_summary(state, without_model, limit)


def _plan_forced(state: ConversationState, limit: int) -> Plan | NeedSummary:
    if state.fits() and _is_repeated_force(state):
        return keep_view(state)
    summary_attempt = summarize_forced(state, limit)
    if summary_attempt is not None and state.fits(summary_attempt.freed):
        return use_block(state, summary_attempt)
    attempt = find_best_attempt(state, DueFold(limit, "forced", state.rules.find_goal(limit, "forced")))
    without_model = use_block(state, attempt) if attempt.freed > 0 else keep_view(state, "floor")
    return _ask_for_summary(state, without_model, limit)


def _ask_for_summary(state: ConversationState, without_model: Plan, limit: int) -> Plan | NeedSummary:
    """Return the plan that waits for a model, or the one without it if there is nothing to ask."""
    question = None if state.awaits_summary else find_question(state, limit)
    if question is None and not state.awaits_summary:
        if state.facts.summary_failed:
            without_model = plan_without_summary(state, without_model)
        return _say_why_not_asked(state, without_model)
    return NeedSummary(question, without_model, state.facts.force or _is_urgent(state, limit))


def plan_without_summary(state: ConversationState, without_model: Plan) -> Plan:
    """Return the plan after a call that failed: nothing is folded if the history fits."""
    if not state.fits():
        return without_model
    if state.facts.force:
        attempt = clear_old(state, "forced")
        if attempt.freed > 0:
            return replace(use_block(state, attempt), reason="no-summary")
    return keep_view(state, "no-summary")


def _say_why_not_asked(state: ConversationState, plan: Plan) -> Plan:
    rules, facts = state.rules, state.facts
    if plan.action != "created":
        return plan
    if not rules.summary.enabled:
        return replace(plan, reason="summaries-off") if facts.force else plan
    if facts.summary_failed:
        return replace(plan, reason="no-summary")
    if rules.may_ask(facts):
        return replace(plan, reason="summary-no-gain")
    return plan


def _is_urgent(state: ConversationState, limit: int) -> bool:
    """Return whether the next request may no longer fit, so that this one has to wait for a summary."""
    usable = state.facts.usable_tokens
    # If the window is unknown, the history may grow over its limit by a tenth until the summary is ready.
    room = (limit + usable) / 2 if usable is not None else limit * 1.1
    return not state.rules.summary.ahead or state.size > room


def _is_repeated_force(state: ConversationState) -> bool:
    """Return whether the block in force was forced as well, for the same focus, and covers as much as a new one."""
    draft = state.draft(state.rules.keep)
    covers = draft.after[0].start if draft.after else len(state.body)
    is_same = state.facts.focus in ("", state.block.focus)
    return state.has_block and state.block.reason == "forced" and covers <= state.block.covers and is_same


def keep_view(state: ConversationState, reason: Reason = "") -> Plan:
    """Return the plan that changes nothing. If an always-step acts for the first time, it makes the opening block."""
    before = state.size + state.count_body() - state.view_tokens
    plan = Plan(
        view=state.request.messages,
        tools=state.tools,
        action="none",
        reason=reason,
        tokens_before=before,
        tokens_after=state.size,
        tokens_without_block=before,
        view_id=state.view_id,
        refetch_cost=state.refetch_cost,
    )
    if state.is_untouched:
        return plan
    if state.has_block:
        return replace(plan, view=state.request.head + state.view, action="applied")
    opening = state.with_opening_block()
    return replace(
        plan,
        view=opening.request.head + opening.view,
        tools=opening.tools,
        action="created",
        reason="opening",
        block=opening.block,
        view_id=opening.view_id,
    )


def use_block(state: ConversationState, attempt: Attempt) -> Plan:
    """Return the plan that forwards the view of a new block."""
    new_state, covered_before = attempt.state, state.block.covers if state.has_block else 0
    turns = state.known.turns[covered_before : new_state.block.covers]
    return Plan(
        view=new_state.request.head + new_state.view,
        tools=new_state.tools,
        action="created",
        reason=new_state.block.reason,
        tokens_before=state.size + state.count_body() - state.view_tokens,
        tokens_after=max(0, state.size - attempt.freed),  # an upstream may count far less than we do
        block=new_state.block,
        shared=len(new_state.request.head) + count_shared(state.view, new_state.view),
        view_id=new_state.view_id,
        reports=attempt.reports,
        tokens_without_block=state.size,
        turns=(turns[0], turns[-1]) if turns else None,
        refetch_cost=state.refetch_cost,
    )
