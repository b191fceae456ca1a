"""After a refusal: what may be tried once more, and only once. Decisions only; the compactor carries them out.

A history that was too long is brought well below the limit, more harshly than the policy would: otherwise the request
is lost, and the cache with it. Where only the answer would have been too long, a shorter one is asked for and the
history is left alone. Reasoning whose signature is refused goes whole. Where none of this can help nothing is tried,
and the client hears what the upstream said.
"""

from dataclasses import dataclass, replace

from proxy.core import plan
from proxy.core.messages import Request
from proxy.core.pipeline import Draft, run
from proxy.core.plan import Ready
from proxy.core.rules import Rules
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
    """The bound to ask for, in tokens of answer; None: the client's own."""
    lesson: Learned | None = None
    """What to remember once it has helped."""

    @property
    def of_history(self) -> bool:
        return self.bare or self.room is not None

    def hardened(self, rules: Rules) -> Rules:
        """The rules to try again by."""
        return rules if self.bare else rules.harder()

    def __call__(self, scene: Scene) -> Ready | None:
        if self.bare:
            return _without_reasoning(scene)
        ready = plan.without_a_model(plan.decide(scene))
        fits = ready.action != "none" and self.room is not None and ready.after <= self.room
        return replace(ready, reason=REASON) if fits else None


def cure(fault: Fault, counted: int, ratio: float, wanted: int | None) -> Cure | None:
    """What to try for a request that was refused like this.

    We count it as `counted` tokens, the upstream as about `ratio` times that; `wanted` is the client's bound.
    """
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
    """The limit that the upstream stated, to be remembered; not where mostly the answer was too long."""
    if fault.kind == "output" and not (wanted and fault.limit and 2 * wanted <= fault.limit):
        return None
    return learned(fault.limit, fault.covers) if fault.kind in ("input", "output", "tpm-hard") else None


def untouched(request: Request, size: int) -> Ready:
    """What went out as it came."""
    return Ready(request.messages, request.tools, "none", "", size, size)


def _without_reasoning(scene: Scene) -> Ready | None:
    """The view without any signed reasoning, under a block: else it would be refused again next turn.

    Unsigned reasoning stays, because some upstreams demand it back.
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
        link=new.link,
        basis=new.basis,
        reports=reports,
    )
