"""The rungs from a full view down to its target. No model is needed for any of them.

First, what is old is cleared. If that is not enough, a summary takes its place, where one is at hand; else the oldest
part is folded to the user's own words and a ledger, only as much of it as it takes. If even that is not enough, less of
the newest is left alone. Each rung is tried on the view as it stands: the first to reach the target is taken, and if
none does, the one that comes nearest.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from proxy.core.model.groups import snap
from proxy.core.model.messages import Message
from proxy.core.pipeline import Draft, StepReport, run
from proxy.core.rules import Keep
from proxy.core.state import ConversationState
from proxy.core.summaries.summary import Summarize, join_summaries

_ENOUGH_SHARE = 0.9
# How many times less than all of the middle is folded, before all of it is.
TRIES = 3
DEEPEST = Keep(tokens=0, groups=1)


@dataclass(frozen=True, slots=True)
class Rung:
    """The result of one try at shortening the view."""

    way: Literal["cleared", "told", "folded"]
    state: ConversationState
    freed: int
    reports: tuple[StepReport, ...]


def ladder(state: ConversationState, size: int, limit: int, reason: str) -> Rung:
    """The first rung that reaches the target, else the one that frees most.

    A rung that tells or folds loses something: one that brings the view well under the limit is enough.
    """
    goal = int(limit * state.rules.target)
    rungs: list[Rung] = []
    for rung in _rungs(state, size, goal, reason):
        rungs.append(rung)
        if size - rung.freed <= (goal if rung.way == "cleared" else limit * _ENOUGH_SHARE):
            break
    best = max(rungs, key=_freed_tokens)
    usable = state.facts.usable_tokens
    if usable is None or size - best.freed <= usable:
        return best
    # Everything else is better than a request that is refused, so here even the lines and names of what goes are lost.
    return max(
        best,
        _fold_oldest(state, replace(state.draft(DEEPEST), bare=True), reason, size - goal, goal),
        key=_freed_tokens,
    )


def _freed_tokens(rung: "Rung") -> int:
    return rung.freed


def clear_old(state: ConversationState, draft: Draft, reason: str) -> Rung:
    """The rung that only clears."""
    return _rung("cleared", state, *run(state.rules.when_full, draft), reason)


def _rungs(state: ConversationState, size: int, goal: int, reason: str) -> Iterator[Rung]:
    for number, keep in enumerate(_keeps(state.rules.keep, goal)):
        draft = state.draft(keep)
        yield clear_old(state, draft, reason)
        if number == 0:
            yield from _use_summary(state, reason, goal)
        yield _fold_oldest(state, draft, reason, size - goal, goal)


def _use_summary(state: ConversationState, reason: str, goal: int) -> Iterator[Rung]:
    """The rung that puts the summary at hand in place of what it covers, and clears what is old behind it."""
    summary = state.newer_summary
    draft = state.draft_up_to(summary.covers) if summary is not None else None
    if summary is None or draft is None:
        return
    rules = state.rules.summary
    standing = join_summaries(state.block.summary, summary, rules, state.count)
    told, reports = run((Summarize(standing.text, rules),), replace(draft, goal=goal))
    if told.middle == draft.middle:
        return
    new = state.with_draft(told, reason, standing)
    behind = new.draft(state.rules.keep)
    shorter, more = run(state.rules.when_full, behind)
    new = new if shorter.middle == behind.middle else new.with_draft(shorter, reason)
    yield Rung("told", new, state.count_tokens(state.view) - state.count_tokens(new.view), reports + more)


def _keeps(keep: Keep, goal: int) -> tuple[Keep, ...]:
    tokens = min(keep.tokens, goal // 2)
    return replace(keep, tokens=tokens), replace(keep, tokens=tokens // 4, groups=1), DEEPEST


def _fold_oldest(state: ConversationState, draft: Draft, reason: str, excess: int, goal: int) -> Rung:
    """Clear, then fold the oldest of the middle: as little as frees the excess, or else all of it."""
    shorter, reports = run(state.rules.when_full, replace(draft, goal=goal))
    room = state.count_tokens(draft.middle) - excess
    rungs: list[Rung] = []
    while not rungs or rungs[-1].freed < excess:
        stop = snap(shorter.middle, _tail(state, shorter.middle, room)) if len(rungs) < TRIES else len(shorter.middle)
        oldest = replace(shorter, middle=shorter.middle[:stop], after=shorter.middle[stop:] + shorter.after)
        folded, more = run(state.rules.fold, oldest)
        whole = replace(shorter, middle=folded.middle + shorter.middle[stop:])
        rungs.append(_rung("folded", state, whole, reports + more, reason))
        if stop == len(shorter.middle):
            break
        room -= 2 * (excess - rungs[-1].freed)  # what folding leaves behind takes room as well, and more each time
    return max(rungs, key=_freed_tokens) if rungs[-1].freed < excess else rungs[-1]


def _tail(state: ConversationState, messages: Sequence[Message], room: int) -> int:
    """The place from which on the messages fit into the room."""
    place = len(messages)
    while place and (room := room - state.count(messages[place - 1].raw)) >= 0:
        place -= 1
    return place


def _rung(
    way: Literal["cleared", "folded"],
    state: ConversationState,
    draft: Draft,
    reports: tuple[StepReport, ...],
    reason: str,
) -> Rung:
    new = state.with_draft(draft, reason)
    freed = state.count_tokens(state.view) - state.count_tokens(new.view)
    if state.tools is not None and new.tools is not None:
        freed += state.count(state.tools) - state.count(new.tools)
    return Rung(way, new, freed, reports)
