"""The rungs from a full view down to its target. No model is needed for any of them.

First, what is old is cleared. If that is not enough, a summary takes its place, where one is at hand; else the oldest
part is folded to the user's own words and a ledger, only as much of it as it takes. If even that is not enough, less of
the newest is left alone. Each rung is tried on the view as it stands: the first to reach the target is taken, and if
none does, the one that comes nearest.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from proxy.core.groups import snap
from proxy.core.messages import Message
from proxy.core.pipeline import Draft, StepReport, run
from proxy.core.rules import Keep
from proxy.core.scene import Scene
from proxy.core.summary import Summarize, carried

_ENOUGH = 0.9
# How many times less than all of the middle is folded, before all of it is.
TRIES = 3
DEEPEST = Keep(tokens=0, groups=1)


@dataclass(frozen=True, slots=True)
class Rung:
    """What one try comes to."""

    way: Literal["cleared", "told", "folded"]
    scene: Scene
    freed: int
    reports: tuple[StepReport, ...]


def ladder(scene: Scene, size: int, limit: int, reason: str) -> Rung:
    """The first rung that reaches the target, else the one that frees most.

    A rung that tells or folds loses something: one that brings the view well under the limit is enough.
    """
    goal = int(limit * scene.rules.target)
    rungs: list[Rung] = []
    for rung in _rungs(scene, size, goal, reason):
        rungs.append(rung)
        if size - rung.freed <= (goal if rung.way == "cleared" else limit * _ENOUGH):
            break
    best = max(rungs, key=_freed)
    usable = scene.facts.usable
    if usable is None or size - best.freed <= usable:
        return best
    # Everything else is better than a request that is refused, so here even the lines and names of what goes are lost.
    return max(best, _folded(scene, replace(scene.draft(DEEPEST), bare=True), reason, size - goal, goal), key=_freed)


def _freed(rung: "Rung") -> int:
    return rung.freed


def cleared(scene: Scene, draft: Draft, reason: str) -> Rung:
    """The rung that only clears."""
    return _rung("cleared", scene, *run(scene.rules.when_full, draft), reason)


def _rungs(scene: Scene, size: int, goal: int, reason: str) -> Iterator[Rung]:
    for number, keep in enumerate(_keeps(scene.rules.keep, goal)):
        draft = scene.draft(keep)
        yield cleared(scene, draft, reason)
        if number == 0:
            yield from _told(scene, reason, goal)
        yield _folded(scene, draft, reason, size - goal, goal)


def _told(scene: Scene, reason: str, goal: int) -> Iterator[Rung]:
    """The summary at hand in place of what it covers, and what is old behind it cleared."""
    summary = scene.summary
    draft = scene.draft_of(summary.covers) if summary is not None else None
    if summary is None or draft is None:
        return
    rules = scene.rules.summary
    standing = carried(scene.block.summary, summary, rules, scene.count)
    told, reports = run((Summarize(standing.text, rules),), replace(draft, goal=goal))
    if told.middle == draft.middle:
        return
    new = scene.settled(told, reason, standing)
    behind = new.draft(scene.rules.keep)
    shorter, more = run(scene.rules.when_full, behind)
    new = new if shorter.middle == behind.middle else new.settled(shorter, reason)
    yield Rung("told", new, scene.total(scene.view) - scene.total(new.view), reports + more)


def _keeps(keep: Keep, goal: int) -> tuple[Keep, ...]:
    tokens = min(keep.tokens, goal // 2)
    return replace(keep, tokens=tokens), replace(keep, tokens=tokens // 4, groups=1), DEEPEST


def _folded(scene: Scene, draft: Draft, reason: str, excess: int, goal: int) -> Rung:
    """Clear, then fold the oldest of the middle: as little as frees the excess, or else all of it."""
    shorter, reports = run(scene.rules.when_full, replace(draft, goal=goal))
    room = scene.total(draft.middle) - excess
    rungs: list[Rung] = []
    while not rungs or rungs[-1].freed < excess:
        stop = snap(shorter.middle, _tail(scene, shorter.middle, room)) if len(rungs) < TRIES else len(shorter.middle)
        oldest = replace(shorter, middle=shorter.middle[:stop], after=shorter.middle[stop:] + shorter.after)
        folded, more = run(scene.rules.fold, oldest)
        whole = replace(shorter, middle=folded.middle + shorter.middle[stop:])
        rungs.append(_rung("folded", scene, whole, reports + more, reason))
        if stop == len(shorter.middle):
            break
        room -= 2 * (excess - rungs[-1].freed)  # what folding leaves behind takes room as well, and more each time
    return max(rungs, key=_freed) if rungs[-1].freed < excess else rungs[-1]


def _tail(scene: Scene, messages: Sequence[Message], room: int) -> int:
    """The place from which on the messages fit into the room."""
    place = len(messages)
    while place and (room := room - scene.count(messages[place - 1].raw)) >= 0:
        place -= 1
    return place


def _rung(
    way: Literal["cleared", "folded"], scene: Scene, draft: Draft, reports: tuple[StepReport, ...], reason: str
) -> Rung:
    new = scene.settled(draft, reason)
    freed = scene.total(scene.view) - scene.total(new.view)
    if scene.tools is not None and new.tools is not None:
        freed += scene.count(scene.tools) - scene.count(new.tools)
    return Rung(way, new, freed, reports)
