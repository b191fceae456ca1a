"""Attempts to bring a full view down to its target. No model is needed for any of them.

First, what is old is cleared. If that is not enough, a summary takes its place, where one is at hand; else the oldest
part is folded to the user's own words and a ledger, only as much of it as it takes. If even that is not enough, less
of the newest is left alone. Each attempt starts from the view as it is: the first to reach the target is taken, and
if none does, the one that comes nearest.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from proxy.history.grouping import snap
from proxy.history.messages import Message
from proxy.shorten.pipeline import Draft, StepReport, run
from proxy.shorten.rules import WORKING_MEMORY_SHARE, Keep
from proxy.shorten.state import ConversationState
from proxy.shorten.summary import Summarize, join_summaries

_ENOUGH_SHARE = 0.9
# How many times less than all of the middle is folded, before all of it is.
TRIES = 3
DEEPEST = Keep(tokens=0, groups=1)


@dataclass(frozen=True, slots=True)
class Attempt:
    """The result of one try at shortening the view."""

    way: Literal["cleared", "summarized", "folded"]
    state: ConversationState
    freed: int
    reports: tuple[StepReport, ...]


def find_best_attempt(state: ConversationState, size: int, limit: int, reason: str) -> Attempt:
    """The first attempt that reaches the target, else the one that frees most.

    An attempt that summarizes or folds loses something: one that brings the view well under the limit is enough.
    """
    goal = state.rules.find_goal(limit, reason)
    attempts: list[Attempt] = []
    for attempt in _make_attempts(state, size, goal, reason, attempts):
        attempts.append(attempt)
        if size - attempt.freed <= (goal if attempt.way == "cleared" else limit * _ENOUGH_SHARE):
            break
    best = max(attempts, key=_freed_tokens)
    # Everything else is better than a request that is refused: the lines and names of what goes are lost, and where
    # that is not enough, the user's older words.
    for bare in (replace(state.draft(DEEPEST), bare=True), replace(state.draft(DEEPEST), bare=True, wordless=True)):
        if _makes_it_fit(state, size, best):
            return best
        best = max(best, _fold_oldest(state, bare, reason, size - goal, goal), key=_freed_tokens)
    return best


def _freed_tokens(attempt: Attempt) -> int:
    return attempt.freed


def clear_old(state: ConversationState, draft: Draft, reason: str) -> Attempt:
    """The attempt that only clears."""
    return _build_attempt("cleared", state, *run(state.rules.when_full, draft), reason)


def _makes_it_fit(state: ConversationState, size: int, attempt: Attempt) -> bool:
    usable = state.facts.usable_tokens
    return usable is None or size - attempt.freed <= usable


def _make_attempts(
    state: ConversationState, size: int, goal: int, reason: str, tried: Sequence[Attempt]
) -> Iterator[Attempt]:
    """The attempts, one after the other; `tried` are those that were used by then."""
    for number, keep in enumerate(_list_keeps(state.rules.keep, goal)):
        if keep is DEEPEST and any(_makes_it_fit(state, size, attempt) for attempt in tried):
            return  # what the policy keeps is given up only for a request that would not fit otherwise
        draft = state.draft(keep)
        yield clear_old(state, draft, reason)
        if number == 0:
            yield from _use_summary(state, reason, goal)
        yield _fold_oldest(state, draft, reason, size - goal, goal)


def summarize_forced(state: ConversationState, limit: int) -> Attempt | None:
    """The attempt that uses the summary which the client asked for; None where there is none, or it is not shorter."""
    attempt = next(_use_summary(state, "forced", state.rules.find_goal(limit, "forced")), None)
    is_shorter = attempt is not None and attempt.state.count_view() < state.count_body()
    return attempt if is_shorter else None


def _use_summary(state: ConversationState, reason: str, goal: int) -> Iterator[Attempt]:
    """The attempt that puts the summary at hand in place of what it covers, and clears what is old behind it."""
    summary, before = state.newer_summary, state.count_view()
    state = state.without_block() if state.is_refocused else state
    draft = state.draft_up_to(summary.covers) if summary is not None else None
    if summary is None or draft is None:
        return
    rules = state.rules.summary
    joined = join_summaries(state.block.summary, summary, rules.scope)
    summarized, reports = run((Summarize(joined.text, rules, state.facts.force),), replace(draft, goal=goal))
    if summarized.middle == draft.middle:
        return
    new = state.with_draft(summarized, reason, joined)
    behind = new.draft(state.rules.keep)
    shorter, more = run(state.rules.when_full, behind)
    new = new if shorter.middle == behind.middle else new.with_draft(shorter, reason)
    yield Attempt("summarized", new, before - new.count_view(), reports + more)


def _list_keeps(keep: Keep, goal: int) -> tuple[Keep, ...]:
    tokens = min(keep.tokens, int(goal * WORKING_MEMORY_SHARE))
    return replace(keep, tokens=tokens), replace(keep, tokens=tokens // 4), DEEPEST


def _fold_oldest(state: ConversationState, draft: Draft, reason: str, excess: int, goal: int) -> Attempt:
    """Clear, then fold the oldest of the middle: as little as frees the excess, or else all of it."""
    shorter, reports = run(state.rules.when_full, replace(draft, goal=goal))
    room = state.count_tokens(draft.middle) - excess
    attempts: list[Attempt] = []
    while not attempts or attempts[-1].freed < excess:
        is_last = state.rules.fold_all or len(attempts) == TRIES
        stop = len(shorter.middle) if is_last else snap(shorter.middle, _find_tail(state, shorter.middle, room))
        oldest = replace(shorter, middle=shorter.middle[:stop], after=shorter.middle[stop:] + shorter.after)
        folded, more = run(state.rules.fold, oldest)
        whole = replace(shorter, middle=folded.middle + shorter.middle[stop:])
        attempts.append(_build_attempt("folded", state, whole, reports + more, reason))
        if stop == len(shorter.middle):
            break
        room -= 2 * (excess - attempts[-1].freed)  # what folding leaves behind takes room as well, and more each time
    return max(attempts, key=_freed_tokens) if attempts[-1].freed < excess else attempts[-1]


def _find_tail(state: ConversationState, messages: Sequence[Message], room: int) -> int:
    """The place from which on the messages fit into the room."""
    place = len(messages)
    while place and (room := room - state.count(messages[place - 1].raw)) >= 0:
        place -= 1
    return place


def _build_attempt(
    way: Literal["cleared", "folded"],
    state: ConversationState,
    draft: Draft,
    reports: tuple[StepReport, ...],
    reason: str,
) -> Attempt:
    new = state.with_draft(draft, reason)
    freed = state.count_view() - new.count_view()
    if state.tools is not None and new.tools is not None:
        freed += state.count(state.tools) - state.count(new.tools)
    return Attempt(way, new, freed, reports)
