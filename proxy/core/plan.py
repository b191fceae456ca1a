"""`decide()`: a history in, what to forward out. The only entrance to the heart, and pure: whatever it must know is
handed in.

1. The standing block, if one fits, takes the place of the messages it covers; the always-steps go over the rest
   (`Scene`).
2. Is there an occasion for a new block? The client asked, the window is nearly full, a price cliff is near, the cache
   is cold anyway, or enough old results have piled up to be worth one rewrite (a stride).
3. If so, the when-full steps shorten what is old; near the window, what clearing cannot reach is folded. A block that
   does not free enough, or would not pay for itself, is not made: then everything stays as it was promised.

Nothing here acts. A plan may carry a block, to be stored once the upstream has taken the request; deciding twice
changes nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from proxy.core import economics
from proxy.core.asides import is_aside
from proxy.core.groups import groups
from proxy.core.ladder import DEEPEST, Rung, cleared, ladder
from proxy.core.messages import Message, Request
from proxy.core.overlay import Block
from proxy.core.pipeline import Count, StepReport, quarter
from proxy.core.question import Question, asked, may_ask
from proxy.core.rules import NOTHING_KNOWN, Facts, Rules
from proxy.core.scene import WINDOWED, Scene

# So far over its limit a view may grow while an answer is awaited, where the window is not known.
PATIENCE = 1.1
# A model is asked about what was seen before: before this share of where it is asked a history must have been seen.
SOON = 0.9
# After so many blocks in a row that did not help there are no more, as long as the view fits.
BREAKER = 2
# What a block must free that does not bring a view below its limit, when the one before it did not either.
REAL_SHARE = 0.3


@dataclass(frozen=True, slots=True)
class Ready:
    """What to forward, and the promise to keep if it is accepted."""

    view: tuple[Message, ...]
    tools: bytes | None
    action: str
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
    """On which block the view rests; goes into the `Anchor` with the usage that comes back."""
    reports: tuple[StepReport, ...] = ()


@dataclass(frozen=True, slots=True)
class NeedSummary:
    """Clearing is not enough: a model should tell what the old part was. Whoever cannot ask one gives up."""

    question: Question | None
    """None: it was asked already, and the answer is awaited."""
    standing: Ready
    """The view as it was promised; it serves while the answer is awaited."""
    mechanical: Ready
    urgent: bool
    """The view as promised may not fit any more, or the client asked for this: wait for the answer."""

    def give_up(self) -> Ready:
        """The same without a model."""
        return self.mechanical


def quiet(size: int, rules: Rules, facts: Facts) -> bool:
    """Is a history of about so many tokens beneath notice? Then nothing is looked up and the client's bytes go out."""
    limits = rules.limits(facts.usable, facts.prices)
    soon = rules.summary.prepare * SOON if rules.summary.enabled else 1.0
    return not facts.force and size < min([rules.clear_at_least, *(limit * soon for limit, _ in limits)])


def nears(size: int, rules: Rules, facts: Facts) -> bool:
    """Is a view of about so many tokens so near its limit that a summary may be needed soon?"""
    limits = rules.limits(facts.usable, facts.prices)
    return may_ask(rules, facts) and bool(limits) and size > limits[0][0] * rules.summary.prepare


def decide(
    request: Request,
    chain: Sequence[bytes],
    blocks: Sequence[Block],
    rules: Rules,
    *,
    count: Count = quarter,
    facts: Facts = NOTHING_KNOWN,
) -> Ready | NeedSummary:
    """What to forward for this request.

    `blocks` are the promises known for links of its `chain`, the longest first; `count` is told the bytes of a message.
    """
    scene = Scene.of(request, chain, blocks, rules, count=count, facts=facts)
    size = scene.size()
    if not rules.new_blocks or _is_beside(scene, size):
        return _kept(scene, size)
    crossed = scene.over(size) or ((size, "forced") if scene.facts.force else None)
    if crossed is not None:
        return _deep(scene, size, *crossed)
    return _stride(scene, size)


def ahead(
    request: Request,
    chain: Sequence[bytes],
    blocks: Sequence[Block],
    rules: Rules,
    *,
    count: Count = quarter,
    facts: Facts = NOTHING_KNOWN,
) -> Question | None:
    """What to ask a model now, so that its answer is there when the history has grown over its limit."""
    if not rules.new_blocks or facts.vain >= BREAKER:
        return None
    scene = Scene.of(request, chain, blocks, rules, count=count, facts=facts)
    size = scene.size()
    if scene.summary is not None or scene.awaits_summary or is_aside(scene.body, rules.asides):
        return None
    if not nears(size, rules, facts):
        return None
    limit, reason = rules.limits(facts.usable, facts.prices)[0]
    rung = cleared(scene, scene.draft(rules.keep), reason)
    return asked(scene, size, limit) if size - rung.freed > limit * rules.target else None


def _is_beside(scene: Scene, size: int) -> bool:
    """The client asks something about the conversation, and that fits as it is."""
    return _fits(scene, size) and not scene.facts.force and is_aside(scene.body, scene.rules.asides)


def _stride(scene: Scene, size: int) -> Ready:
    """Clear what is old once enough of it can go; all the sooner while the upstream has forgotten it anyway."""
    rules, facts = scene.rules, scene.facts
    cold = economics.cold(facts.idle, facts.prices)
    least = rules.clear_cold_at_least if cold else rules.clear_at_least
    draft = scene.draft(rules.keep)
    few = len(groups(scene.body)) < rules.min_groups
    if few or sum(step.reach(draft) for step in rules.when_full) < least:
        return _kept(scene, size)
    rung = cleared(scene, draft, "cold" if cold else "stride")
    if rung.freed < least or (not cold and _payback(scene, rung) > rules.horizon):
        return _kept(scene, size)
    return _made(scene, rung, size)


def _deep(scene: Scene, size: int, limit: int, reason: str) -> Ready | NeedSummary:
    """Down from over the limit to the target, by the first rung of the ladder that gets there."""
    against = _against(scene, size, reason)
    if against is not None:
        return _kept(scene, size, against)
    bound = reason != "forced" and _fits(scene, size)
    least = max(1, _least(scene, size, limit)) if bound else 1
    if _most(scene) < least:
        return _kept(scene, size, "floor")
    rung = ladder(scene, size, limit, reason)
    if rung.freed < least or _in_vain(scene, size, size - rung.freed, limit):
        return _kept(scene, size, "floor")
    return _told(scene, rung, size, limit) if rung.way == "folded" or reason == "forced" else _made(scene, rung, size)


def _fits(scene: Scene, size: int) -> bool:
    return scene.facts.usable is None or size <= scene.facts.usable


def _against(scene: Scene, size: int, reason: str) -> str | None:
    """Why no block is even tried; None: nothing speaks against it."""
    if reason == "forced":
        return "" if _is_done(scene) else None
    if not _fits(scene, size):
        return None
    if scene.facts.vain >= BREAKER:
        return "breaker-open"
    return "floor" if len(groups(scene.body)) < scene.rules.min_groups else None


def _told(scene: Scene, rung: Rung, size: int, limit: int) -> Ready | NeedSummary:
    """Instead of folding without a model: ask one, or wait for the one that was asked."""
    mechanical, usable, forced = _made(scene, rung, size), scene.facts.usable, rung.scene.block.reason == "forced"
    question = None if scene.awaits_summary else asked(scene, size, limit)
    if question is None and not scene.awaits_summary:
        return mechanical
    room = limit * PATIENCE if usable is None else (limit + usable) / 2
    return NeedSummary(question, _kept(scene, size), mechanical, urgent=forced or size > room)


def _is_done(scene: Scene) -> bool:
    """What the client asks for was done when it asked the last time; this is the same request again."""
    draft = scene.draft(scene.rules.keep)
    covers = draft.after[0].start if draft.after else len(scene.body)
    return scene.stands and scene.block.reason == "forced" and covers <= scene.block.covers


def _least(scene: Scene, size: int, limit: int) -> int:
    """What a block must free to be worth making; one after another must go half the way down, or they never end."""
    least = int(size * scene.rules.min_progress)
    again = scene.stands and scene.block.reason in WINDOWED
    return max(least, int(limit * (1 - scene.rules.target)) // 2) if again else least


def _in_vain(scene: Scene, size: int, after: int, limit: int) -> bool:
    """Whether this would only be the next of many rewrites: what may not go is over the limit by itself.

    A second block in a row that stays over its limit must make the request fit, or free a real share of it.
    """
    if after <= limit or not (scene.stands and scene.block.reason in WINDOWED):
        return False
    usable = scene.facts.usable
    makes_it_fit = usable is not None and after <= usable < size
    return not makes_it_fit and size - after < size * REAL_SHARE


def _most(scene: Scene) -> int:
    """No block can free more than this: all that the deepest rung may touch."""
    draft = scene.draft(DEEPEST)
    return scene.total(filter(draft.free, draft.middle))


def _payback(scene: Scene, rung: Rung) -> float:
    return economics.payback(scene.view, rung.scene.view, scene.count, scene.facts.prices)


def _kept(scene: Scene, size: int, reason: str = "") -> Ready:
    """The view as it was promised. The always-steps' first act makes the promise they go on under."""
    untouched = all(map(_is, scene.view, scene.body)) and len(scene.view) == len(scene.body)
    opening = not scene.stands and not untouched
    before = size + scene.total(scene.body) - scene.total(scene.view)
    return Ready(
        view=scene.request.messages if untouched else scene.request.head + scene.view,
        tools=scene.tools,
        action="none" if untouched else "created" if opening else "applied",
        reason="opening" if opening else reason,
        before=before,
        after=size,
        block=scene.block if opening else None,
        link=scene.chain[scene.block.covers] if opening else b"",
        basis=replace(scene, stands=True).ground if opening else scene.ground,
    )


def _made(scene: Scene, rung: Rung, size: int) -> Ready:
    new = rung.scene
    return Ready(
        view=new.request.head + new.view,
        tools=new.tools,
        action="created",
        reason=new.block.reason,
        before=size + scene.total(scene.body) - scene.total(scene.view),
        after=size - rung.freed,
        block=new.block,
        link=new.basis,
        basis=new.ground,
        reports=rung.reports,
    )


def _is(one: Message, other: Message) -> bool:
    return one is other
