"""The rungs from a full view down to its target, without a model.

First what is old is cleared. If that is not enough, the oldest part is folded to the user's own words and a ledger,
as much of it as it takes. If even that is not enough, less of the newest is left alone. Each rung is tried on the
view as it stands; the first that reaches the target is taken, and if none does, the one that comes nearest.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from proxy.core.groups import snap
from proxy.core.messages import Message
from proxy.core.pipeline import Draft, StepReport, run
from proxy.core.rules import Keep
from proxy.core.scene import Scene

_ENOUGH = 0.9
# So often less of the middle is folded than all of it.
TRIES = 3
DEEPEST = Keep(tokens=0, groups=1)


@dataclass(frozen=True, slots=True)
class Rung:
    """What one try would come to."""

    scene: Scene
    freed: int
    folded: bool
    reports: tuple[StepReport, ...]


def cleared(scene: Scene, draft: Draft, reason: str) -> Rung:
    """Only the when-full steps."""
    return _rung(scene, *run(scene.rules.when_full, draft), reason)


def ladder(scene: Scene, size: int, limit: int, reason: str) -> Rung:
    """The first rung that reaches the target, else the deepest.

    One that leaves the view well under the limit is good enough not to give up more of the newest.
    """
    goal = int(limit * scene.rules.target)
    rungs: list[Rung] = []
    for keep in _keeps(scene.rules.keep, goal):
        draft = scene.draft(keep)
        rung = cleared(scene, draft, reason)
        if size - rung.freed > goal:
            rung = _folded(scene, draft, reason, size - goal)
        rungs.append(rung)
        if size - rung.freed <= (limit * _ENOUGH if rung.folded else goal):
            break
    return max(rungs, key=lambda rung: rung.freed)


def _keeps(keep: Keep, goal: int) -> tuple[Keep, ...]:
    tokens = min(keep.tokens, goal // 2)
    return replace(keep, tokens=tokens), replace(keep, tokens=tokens // 4, groups=1), DEEPEST


def _folded(scene: Scene, draft: Draft, reason: str, excess: int) -> Rung:
    """Clear, then fold the oldest of the middle: as little of it as frees the excess, else all of it."""
    shorter, reports = run(scene.rules.when_full, draft)
    room = scene.total(draft.middle) - excess
    rungs: list[Rung] = []
    while not rungs or rungs[-1].freed < excess:
        stop = snap(shorter.middle, _tail(scene, shorter.middle, room)) if len(rungs) < TRIES else len(shorter.middle)
        oldest = replace(shorter, middle=shorter.middle[:stop], after=shorter.middle[stop:] + shorter.after)
        folded, more = run(scene.rules.fold, oldest)
        whole = replace(shorter, middle=folded.middle + shorter.middle[stop:])
        rungs.append(_rung(scene, whole, reports + more, reason, folded=True))
        if stop == len(shorter.middle):
            break
        room -= 2 * (excess - rungs[-1].freed)  # what folding leaves behind takes room as well, and more each time
    return max(rungs, key=lambda rung: rung.freed) if rungs[-1].freed < excess else rungs[-1]


def _tail(scene: Scene, messages: Sequence[Message], room: int) -> int:
    """From which place on the messages fit the room."""
    place = len(messages)
    while place and (room := room - scene.count(messages[place - 1].raw)) >= 0:
        place -= 1
    return place


def _rung(scene: Scene, draft: Draft, reports: tuple[StepReport, ...], reason: str, *, folded: bool = False) -> Rung:
    new = scene.settled(draft, reason)
    freed = scene.total(scene.view) - scene.total(new.view)
    if scene.tools is not None and new.tools is not None:
        freed += scene.count(scene.tools) - scene.count(new.tools)
    return Rung(new, freed, folded, reports)
