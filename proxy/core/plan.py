"""`decide()`: a history in, what to forward out. The only entrance to the heart, and pure: all it knows is in the
`Scene` that it is given.

1. The scene already shows what was promised: the standing block in place of the messages it covers, the always-steps
   over the rest.
2. Is there an occasion for a new block? The client asked for one, the window is nearly full, a price cliff is near, the
   cache is cold anyway, or enough old results have piled up to be worth one rewrite (a stride).
3. If so, the when-full steps shorten what is old; near the window, what clearing cannot reach is folded. A block that
   would not free enough, or not pay for itself, is not made: then everything stays as it was promised.

Nothing here acts. A plan may carry a block, to be stored once the upstream has accepted the request, so deciding twice
changes nothing.
"""

from dataclasses import dataclass, replace
from operator import is_
from typing import Literal

from proxy.core import economics
from proxy.core.asides import is_aside
from proxy.core.groups import groups
from proxy.core.ladder import DEEPEST, Rung, cleared, ladder
from proxy.core.messages import Message
from proxy.core.overlay import Block
from proxy.core.pipeline import StepReport
from proxy.core.question import Question, asked, may_ask
from proxy.core.rules import Facts, Rules
from proxy.core.scene import WINDOWED, Scene

# How far over its limit a view may grow while a summary is awaited, where the window is not known.
PATIENCE = 1.1
# A model is asked only about a prefix seen in an earlier request, so histories are noticed from this share on of the
# size at which it would be asked.
SOON = 0.9
# After this many blocks in a row that did not help no more are made, as long as the view fits.
BREAKER = 2
# The share of the view that a block must free when it stays over the limit and the one before it did so too.
REAL_SHARE = 0.3


@dataclass(frozen=True, slots=True)
class Ready:
    """What to forward, and the promise to keep if it is accepted."""

    view: tuple[Message, ...]
    tools: bytes | None
    action: Literal["none", "applied", "created"]
    """`none`: the client's own messages; `applied`: a standing block; `created`: a new one."""
    reason: str
    """Why a block was made, or why one that was due was not (`floor`)."""
    before: int
    """Tokens of the history as it came, tools and head included."""
    after: int
    """Tokens of what is forwarded."""
    block: Block | None = None
    """A candidate: store it under `link` once the upstream has accepted this request."""
    link: bytes = b""
    basis: bytes = b""
    """What the view is built on; goes into the `Anchor` with the usage that comes back."""
    reports: tuple[StepReport, ...] = ()


@dataclass(frozen=True, slots=True)
class NeedSummary:
    """Clearing is not enough: a model should say what the old part was. Whoever gets no answer takes `mechanical`."""

    question: Question | None
    """None: it was asked before, and the answer is on its way."""
    standing: Ready
    """The view as it was promised: it serves while the answer is awaited."""
    mechanical: Ready
    """The view under a block that needs no model."""
    urgent: bool
    """The view as promised may no longer fit, or the client asked for this: wait for the answer."""


def without_a_model(plan: Ready | NeedSummary) -> Ready:
    """What to forward when no summary comes of it."""
    return plan.mechanical if isinstance(plan, NeedSummary) else plan


def quiet(size: int, rules: Rules, facts: Facts) -> bool:
    """Is a history of about this size beneath notice? Then nothing is looked up and the client's bytes go out."""
    limits = rules.limits(facts.usable, facts.prices)
    soon = rules.summary.prepare * SOON if rules.summary.enabled else 1.0
    return not facts.force and size < min([rules.clear_at_least, *(limit * soon for limit, _ in limits)])


def nears(size: int, rules: Rules, facts: Facts) -> bool:
    """Is a view of about this size so near its limit that a summary may be needed soon?"""
    limits = rules.limits(facts.usable, facts.prices)
    return may_ask(rules, facts) and bool(limits) and size > limits[0][0] * rules.summary.prepare


def decide(scene: Scene) -> Ready | NeedSummary:
    """What to forward for this request."""
    size = scene.size()
    if not scene.rules.new_blocks or _is_beside(scene, size):
        return _as_promised(scene, size)
    crossed = scene.over(size) or ((size, "forced") if scene.facts.force else None)
    return _stride(scene, size) if crossed is None else _deep(scene, size, *crossed)


def ahead(scene: Scene) -> Question | None:
    """What to ask a model now, so that its answer is there when the history has grown over its limit."""
    rules, facts = scene.rules, scene.facts
    if not rules.new_blocks or facts.vain >= BREAKER:
        return None
    size = scene.size()
    if scene.summary is not None or scene.awaits_summary or is_aside(scene.body, rules.asides):
        return None
    if not nears(size, rules, facts):
        return None
    limit, reason = rules.limits(facts.usable, facts.prices)[0]
    rung = cleared(scene, scene.draft(rules.keep), reason)
    return asked(scene, size, limit) if size - rung.freed > limit * rules.target else None


def _is_beside(scene: Scene, size: int) -> bool:
    """Whether the client only asks something about the conversation, and that fits as it is."""
    return _fits(scene, size) and not scene.facts.force and is_aside(scene.body, scene.rules.asides)


def _stride(scene: Scene, size: int) -> Ready:
    """Clear old results once enough of them can go; sooner where the upstream has forgotten the conversation anyway."""
    rules, facts = scene.rules, scene.facts
    cold = economics.cold(facts.idle, facts.prices)
    least = rules.clear_cold_at_least if cold else rules.clear_at_least
    draft = scene.draft(rules.keep)
    few = len(groups(scene.body)) < rules.min_groups
    if few or sum(step.reach(draft) for step in rules.when_full) < least:
        return _as_promised(scene, size)
    rung = cleared(scene, draft, "cold" if cold else "stride")
    if rung.freed < least or (not cold and _payback(scene, rung) > rules.horizon):
        return _as_promised(scene, size)
    return _with_block(scene, rung, size)


def _deep(scene: Scene, size: int, limit: int, reason: str) -> Ready | NeedSummary:
    """Down from over the limit to the target, by the first rung of the ladder that gets there."""
    against = _objection(scene, size, reason)
    if against is not None:
        return _as_promised(scene, size, against)
    bound = reason != "forced" and _fits(scene, size)
    least = max(1, _least_freed(scene, size, limit)) if bound else 1
    if _reachable(scene) < least:
        return _as_promised(scene, size, "floor")
    rung = ladder(scene, size, limit, reason)
    if rung.freed < least or _in_vain(scene, size, size - rung.freed, limit):
        return _as_promised(scene, size, "floor")
    a_model_helps = rung.way == "folded" or reason == "forced"
    return _asking_first(scene, rung, size, limit) if a_model_helps else _with_block(scene, rung, size)


def _fits(scene: Scene, size: int) -> bool:
    return scene.facts.usable is None or size <= scene.facts.usable


def _objection(scene: Scene, size: int, reason: str) -> str | None:
    """The reason for not even trying to make a block, or None."""
    if reason == "forced":
        return "" if _is_done(scene) else None
    if not _fits(scene, size):
        return None
    if scene.facts.vain >= BREAKER:
        return "breaker-open"
    return "floor" if len(groups(scene.body)) < scene.rules.min_groups else None


def _asking_first(scene: Scene, rung: Rung, size: int, limit: int) -> Ready | NeedSummary:
    """The folded rung is what remains without a model: ask one first, or wait for the one that was asked."""
    mechanical, usable = _with_block(scene, rung, size), scene.facts.usable
    question = None if scene.awaits_summary else asked(scene, size, limit)
    if question is None and not scene.awaits_summary:
        return mechanical
    room = limit * PATIENCE if usable is None else (limit + usable) / 2
    urgent = mechanical.reason == "forced" or size > room
    return NeedSummary(question, _as_promised(scene, size), mechanical, urgent)


def _is_done(scene: Scene) -> bool:
    """Whether the block that the client asks for stands already: this is the same request again."""
    draft = scene.draft(scene.rules.keep)
    covers = draft.after[0].start if draft.after else len(scene.body)
    return scene.stands and scene.block.reason == "forced" and covers <= scene.block.covers


def _least_freed(scene: Scene, size: int, limit: int) -> int:
    """What a block must free to be worth making. One that follows another must go half way to the target, or there
    would be no end of them.
    """
    least = int(size * scene.rules.min_progress)
    again = scene.stands and scene.block.reason in WINDOWED
    return max(least, int(limit * (1 - scene.rules.target)) // 2) if again else least


def _in_vain(scene: Scene, size: int, after: int, limit: int) -> bool:
    """Whether this would only be the next of many rewrites, because what must stay is over the limit by itself.

    A second block in a row that stays over its limit must make the request fit, or free a real share of it.
    """
    if after <= limit or not (scene.stands and scene.block.reason in WINDOWED):
        return False
    usable = scene.facts.usable
    makes_it_fit = usable is not None and after <= usable < size
    return not makes_it_fit and size - after < size * REAL_SHARE


def _reachable(scene: Scene) -> int:
    """The most that any block could free: all that the deepest rung may touch."""
    draft = scene.draft(DEEPEST)
    return scene.total(filter(draft.free, draft.middle))


def _payback(scene: Scene, rung: Rung) -> float:
    return economics.payback(scene.view, rung.scene.view, scene.count, scene.facts.prices)


def _as_promised(scene: Scene, size: int, reason: str = "") -> Ready:
    """The view under the promise that stands. The first time an always-step acts, that promise is made here."""
    untouched = all(map(is_, scene.view, scene.body)) and len(scene.view) == len(scene.body)
    opening = not scene.stands and not untouched
    promised = replace(scene, stands=True) if opening else scene
    before = size + scene.total(scene.body) - scene.total(scene.view)
    return Ready(
        view=scene.request.messages if untouched else scene.request.head + scene.view,
        tools=scene.tools,
        action="none" if untouched else "created" if opening else "applied",
        reason="opening" if opening else reason,
        before=before,
        after=size,
        block=scene.block if opening else None,
        link=promised.link if opening else b"",
        basis=promised.basis,
    )


def _with_block(scene: Scene, rung: Rung, size: int) -> Ready:
    """The view under the new block of this rung."""
    new = rung.scene
    return Ready(
        view=new.request.head + new.view,
        tools=new.tools,
        action="created",
        reason=new.block.reason,
        before=size + scene.total(scene.body) - scene.total(scene.view),
        after=max(0, size - rung.freed),  # an upstream may count far less than we do
        block=new.block,
        link=new.link,
        basis=new.basis,
        reports=rung.reports,
    )
