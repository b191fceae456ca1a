"""After a refusal: what may be tried once more, and only once. Decisions only; the compactor carries them out.

A history that was too long is brought well below the limit, harder than a policy would: the request is lost otherwise,
and so is the cache. An answer that was too long is asked for shorter, and nothing of the history is touched. Reasoning
whose signature is refused goes whole. Where none of this would make the request acceptable nothing is tried, and the
client hears what the upstream said.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from proxy.core import plan
from proxy.core.messages import Request
from proxy.core.overlay import Block
from proxy.core.pipeline import Count, Draft, run
from proxy.core.plan import NeedSummary, Ready
from proxy.core.rules import Facts, Rules
from proxy.core.scene import Scene
from proxy.core.steps import StripReasoning
from proxy.tokenizer import plausible
from proxy.windows import Learned, Window, learned
from proxy.wire.overflow import LEAST_ANSWER, Fault

REASON = "overflow_retry"
FILL = 0.85  # of what fits: counts are estimates, and the next turn should fit, too
GUESSED = 0.5  # of what was refused, where nobody says what would fit
WORTH_A_TRY = 0.9  # of what was refused: then, less than a tenth gone is no try
SLACK = 16  # tokens: some servers count the beginning of the answer, some want less and not at most
SMALLEST = 1_500  # tokens: a request so short did not overflow, whatever was said


@dataclass(frozen=True, slots=True)
class Cure:
    """What to change, and the judge of how: called with a history it says what to forward, or None if it cannot."""

    room: int | None = None
    """What the history may take at most, in the upstream's tokens; None: its length is not the trouble."""
    goal: int | None = None
    """The window to compact for."""
    bare: bool = False
    """Take signed reasoning out."""
    ratio: float = 1.0
    """How many of the upstream's tokens one of ours is."""
    answer: int | None = None
    """Ask for at most so many tokens of answer; None: as the client does."""
    lesson: Learned | None = None
    """What to remember once it has helped."""

    @property
    def of_history(self) -> bool:
        return self.bare or self.room is not None

    def __call__(
        self,
        request: Request,
        chain: Sequence[bytes],
        blocks: Sequence[Block],
        rules: Rules,
        *,
        count: Count,
        facts: Facts,
    ) -> Ready | None:
        if self.bare:
            return _without_reasoning(Scene.of(request, chain, blocks, rules, count=count, facts=facts))
        decided = plan.decide(request, chain, blocks, rules.harder(), count=count, facts=facts)
        ready = decided.give_up() if isinstance(decided, NeedSummary) else decided
        fits = ready.action != "none" and self.room is not None and ready.after <= self.room
        return replace(ready, reason=REASON) if fits else None


def cure(fault: Fault, counted: int, ratio: float, wanted: int | None) -> Cure | None:
    """For a request that we count as so many tokens, of which the upstream's own are about `ratio` as many."""
    if fault.kind == "signature":
        return Cure(bare=True, ratio=ratio)
    if fault.kind == "output":
        return _shorter_answer(fault, round(counted * ratio), wanted)
    if fault.kind in ("input", "tpm-hard") and counted * ratio >= SMALLEST:
        return _shorter_history(fault, counted, ratio, wanted)
    return None


def _shorter_answer(fault: Fault, size: int, wanted: int | None) -> Cure | None:
    room = fault.room
    if room is None and fault.limit is not None:
        room = int((fault.limit - size) * FILL)
    elif room is not None and fault.limit is not None:
        room -= SLACK
    if room is None or room < LEAST_ANSWER - SLACK or (wanted is not None and wanted <= room):
        return None
    return Cure(answer=room)


def _shorter_history(fault: Fault, counted: int, ratio: float, wanted: int | None) -> Cure:
    if fault.limit is None:
        size = round(counted * ratio)
        return Cure(int(size * WORTH_A_TRY), int(size * GUESSED), ratio=ratio, lesson=learned(size, "input"))
    if fault.covers == "input":
        room, answer = fault.limit, None
    else:
        reserve = min(Window(total=fault.limit).reserve(wanted), fault.limit // 2)
        room = fault.limit - reserve
        answer = reserve if wanted and wanted > reserve else None
    told = (fault.size or 0) - (wanted or 0 if fault.kind == "tpm-hard" else 0)  # a minute's budget covers the answer
    if plausible(counted, told):
        ratio = told / counted
    ratio = max(ratio, (room + 1) / counted)  # it did not fit, so it is larger than that
    return Cure(room, int(room * FILL), ratio=ratio, answer=answer)


def taught(fault: Fault, wanted: int | None = None) -> Learned | None:
    """The limit an upstream stated. Where most of it is the answer's, nothing is kept: the next may ask for less."""
    if fault.kind == "output" and not (wanted and fault.limit and 2 * wanted <= fault.limit):
        return None
    return learned(fault.limit, fault.covers) if fault.kind in ("input", "output", "tpm-hard") else None


def untouched(request: Request, size: int) -> Ready:
    """What went out as it came."""
    return Ready(request.messages, request.tools, "none", "", size, size)


def _without_reasoning(scene: Scene) -> Ready | None:
    """All signed reasoning out of what the model said so far, kept as a promise: next turn it would be refused again.

    Reasoning without a signature stays: some upstreams demand it back.
    """
    head, view = scene.request.head, scene.view
    unsigned = frozenset(message.start for message in view if not message.signed)
    draft = Draft(head, view, tools=scene.tools, fixed=unsigned, origin=scene.body, count=scene.count)
    bare, reports = run((StripReasoning(with_calls=True, signed=True),), draft)
    if bare.middle == draft.middle:
        return None
    new, size = scene.settled(bare, "signature"), scene.size()
    return Ready(
        view=head + new.view,
        tools=new.tools,
        action="created",
        reason=REASON,
        before=size,
        after=size - sum(report.saved for report in reports),
        block=new.block,
        link=new.basis,
        basis=new.basis,
        reports=reports,
    )
