"""Attempts to bring a full view down to its target. None of them needs a model.

1. Clear old results.
2. If a summary is stored, replace the messages that it covers by it.
3. Fold the oldest part to the user's own words and a ledger: as little of it as reaches the target.
4. Do the same with a smaller newest part, and last with the smallest.
5. If the request would still not fit, fold once more for each `Sacrifice`, until it does.

Each starts from the current view. The first to reach the target is taken, else the one that frees most.
"""

from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from proxy.history.grouping import find_group_starts, snap_to
from proxy.history.messages import Message
from proxy.shorten.block import BlockReason
from proxy.shorten.pipeline import Draft, Sacrifice, StepReport, run
from proxy.shorten.rules import DueFold, Keep
from proxy.shorten.state import ConversationState
from proxy.shorten.summary import Summarize, join_summaries

DEEPEST = Keep(tokens=0, groups=1)


class Attempt(Struct, frozen=True):
    way: Literal["cleared", "summarized", "folded"]
    state: ConversationState
    freed: int
    reports: tuple[StepReport, ...]


def find_best_attempt(state: ConversationState, due: DueFold) -> Attempt:
    """Return the first attempt that reaches the target of a due fold, else the one that frees most."""
    goal, reason = due.goal, due.reason
    attempts: list[Attempt] = []
    for attempt in _make_attempts(state, goal, reason, attempts):
        attempts.append(attempt)
        is_enough = due.is_enough_cleared if attempt.way == "cleared" else due.is_enough_folded
        if is_enough(state.size, attempt.freed):
            break
    best = max(attempts, key=attrgetter("freed"))
    for sacrifice in tuple(Sacrifice)[1:]:
        if state.fits(best.freed):
            return best
        cleared = _clear(state, replace(state.draft(DEEPEST), sacrifice=sacrifice, goal=goal))
        best = max(best, _fold_oldest(state, cleared, reason, state.size - goal), key=attrgetter("freed"))
    return best


class _Cleared(Struct, frozen=True):
    """A draft before and after its old results were cleared."""

    whole: Draft
    short: Draft
    reports: tuple[StepReport, ...]


def _clear(state: ConversationState, draft: Draft) -> _Cleared:
    return _Cleared(draft, *run(state.rules.when_full, draft))


def clear_old(state: ConversationState, reason: BlockReason) -> Attempt:
    cleared = _clear(state, state.draft(state.rules.keep))
    return _build_attempt("cleared", state, cleared.short, cleared.reports, reason)


def _make_attempts(
    state: ConversationState, goal: int, reason: BlockReason, earlier: Sequence[Attempt]
) -> Iterator[Attempt]:
    # A smaller newest part takes what the agent has just read and is about to use, so it is tried last.
    policy_keep = state.rules.keep
    quarter = replace(policy_keep, tokens=policy_keep.tokens // 4)
    for number, keep in enumerate((policy_keep, quarter, DEEPEST)):
        if keep is DEEPEST and any(state.fits(attempt.freed) for attempt in earlier):
            return  # an earlier attempt fits, and leaves more of the newest messages whole
        cleared = _clear(state, replace(state.draft(keep), goal=goal))
        yield _build_attempt("cleared", state, cleared.short, cleared.reports, reason)
        if number == 0:
            summarized = _use_summary(state, reason, goal)
            if summarized is not None:
                yield summarized
                # The summary has cost a call of a model, so it is used even if it alone does not free enough: then the
                # oldest messages after it are folded, too.
                excess = state.size - summarized.freed - goal
                newer = _clear(summarized.state, replace(summarized.state.draft(policy_keep), goal=goal))
                folded = _fold_oldest(summarized.state, newer, reason, excess)
                reports = summarized.reports + folded.reports
                yield replace(folded, freed=summarized.freed + folded.freed, reports=reports)
        yield _fold_oldest(state, cleared, reason, state.size - goal)


def summarize_forced(state: ConversationState, limit: int) -> Attempt | None:
    """Use the summary that a client has asked for, or return None if that does not shorten the history."""
    attempt = _use_summary(state, "forced", state.rules.find_goal(limit, "forced"))
    if attempt is None or attempt.state.view_tokens >= state.count_body():
        return None
    return attempt


def _use_summary(state: ConversationState, reason: BlockReason, goal: int) -> Attempt | None:
    summary, tokens_before = state.newer_summary, state.view_tokens
    if summary is None:
        return None
    if state.is_refocused:
        state = state.without_block()
    draft = state.draft_up_to(summary.covers)
    if draft is None:
        return None
    rules = state.rules
    joined_summary = join_summaries(state.block.summary, summary, rules.summary.scope)
    summarize = Summarize(joined_summary.text, rules.summary, state.facts.force)
    short_draft, reports = run((summarize,), replace(draft, goal=goal))
    if short_draft.middle == draft.middle:
        return None
    new_state = state.with_draft(short_draft, reason, joined_summary)
    after_summary = new_state.draft(rules.keep)
    bare_draft, clear_reports = run(rules.when_full, after_summary)
    if bare_draft.middle != after_summary.middle:
        new_state = new_state.with_draft(bare_draft, reason)
    return Attempt("summarized", new_state, tokens_before - new_state.view_tokens, reports + clear_reports)


def _fold_oldest(state: ConversationState, cleared: _Cleared, reason: BlockReason, excess: int) -> Attempt:
    """Fold the oldest messages of the cleared middle: as few as free *excess* tokens in all, else all of them."""
    cleared_draft, reports = cleared.short, cleared.reports
    middle = cleared_draft.middle
    remaining_tokens = state.count_tokens(cleared.whole.middle) - excess
    attempts: list[Attempt] = []
    starts, stop = list(find_group_starts(middle)), 0
    while stop < len(middle) or not attempts:
        stop = len(middle)
        if not state.rules.fold_all and not attempts[2:]:  # three partial folds at most
            stop = snap_to(starts, _find_tail(state, middle, remaining_tokens))
        folded_draft, fold_reports = run(
            state.rules.fold, replace(cleared_draft, middle=middle[:stop], after=middle[stop:] + cleared_draft.after)
        )
        shorter = replace(cleared_draft, middle=folded_draft.middle + middle[stop:])
        attempt = _build_attempt("folded", state, shorter, reports + fold_reports, reason)
        attempts.append(attempt)
        if attempt.freed >= excess:
            return attempt
        remaining_tokens -= 2 * (excess - attempt.freed)  # notes take tokens as well, and more each time
    return max(attempts, key=attrgetter("freed"))


def _find_tail(state: ConversationState, messages: Sequence[Message], tokens: int) -> int:
    """Return the start of the newest messages that fit in *tokens*."""
    for place in reversed(range(len(messages))):
        tokens -= state.count(messages[place].raw)
        if tokens < 0:
            return place + 1
    return 0


def _build_attempt(
    way: Literal["cleared", "folded"],
    state: ConversationState,
    draft: Draft,
    reports: tuple[StepReport, ...],
    reason: BlockReason,
) -> Attempt:
    new_state = state.with_draft(draft, reason)
    freed_tokens = state.view_tokens - new_state.view_tokens
    if state.tools is not None and new_state.tools is not None:
        freed_tokens += state.count(state.tools) - state.count(new_state.tools)
    return Attempt(way, new_state, freed_tokens, reports)
