"""Figures for a retry: how short a refused history or its answer has to become. `remedies` acts on them.

A history that was too long is brought well below the limit, more harshly than the policy would: otherwise the request
is lost, and the cache with it. If only the answer would have been too long, a shorter one is asked for and the
history is left alone. Reasoning whose signature is refused goes whole. A shortened history that is called invalid is
sent as the client wrote it, if that fits. If none of this can help nothing is tried, and the client gets the
upstream's refusal.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from proxy.history.messages import Message
from proxy.history.request import Request
from proxy.path import planning
from proxy.path.planning import Plan
from proxy.shorten.clear_results import StripReasoning
from proxy.shorten.economics import Covers, LearnedLimit, Window, is_plausible, make_learned_limit
from proxy.shorten.pipeline import Draft, run
from proxy.shorten.rules import Rules
from proxy.shorten.state import REASONING_REFUSED, ConversationState

INVALID_STATUSES = (400, 422)
"""An API answers so to a request that is not valid."""
REASON = "overflow_retry"
REASONING_REMOVED = "reasoning-removed"
SHORTENED_REFUSED = "shortened-refused"
REFUSED_VIEWS_MAX = 2
"""After so many shortened histories of a conversation that were called invalid, it is left alone while it fits."""
FILL_SHARE = 0.85  # of the room: counts are estimates, and the next turn should fit, too
GUESSED_SHARE = 0.5  # of the refused size, if the refusal states no limit
LARGEST_RETRY_SHARE = 0.9  # of the refused size: then, less than a tenth gone is no try
_ALL_REASONING = StripReasoning(with_calls=True, signed=True)
SLACK_TOKENS = 16  # tokens: some servers count the beginning of the answer, some want less and not at most
SMALLEST_OVERFLOW_TOKENS = 1_500  # tokens: a request so short did not overflow, whatever the error says


RefusalKind = Literal["input", "output", "tpm-hard", "rate", "bytes", "signature", "usage-option"]
# At most this part of the window is kept for the answer; less of it if the history cannot be made so short.
ANSWER_DIVISOR = 2
SMALLER_ANSWER_DIVISORS = (4, 8)
LEAST_ANSWER_TOKENS = 1_024  # if less is left for an answer, it is the history that is too long


@dataclass(frozen=True, slots=True)
class Refusal:
    """A parsed refusal; a field it does not state is None."""

    kind: RefusalKind
    limit: int | None = None
    """The most tokens a request may have."""
    size: int | None = None
    """The tokens of this one's prompt, as the upstream counted them."""
    covers: Covers = "total"
    """Is the limit shared with the answer, or the prompt's alone?"""
    answer_room: int | None = None
    """How many tokens of answer would have been allowed."""


@dataclass(frozen=True, slots=True)
class Cure:
    """A cure for a refusal: called with a history it returns a plan, or None if it cannot help."""

    most_tokens: int | None = None
    """What the history may take at most, in the upstream's tokens; None: its length is not the trouble."""
    window_tokens: int | None = None
    """The window to compact for."""
    strip_signed: bool = False
    """Take signed reasoning out."""
    ratio: float = 1.0
    """The upstream's tokens per token of the proxy's own count."""
    most_answer_tokens: int | None = None
    """The bound to ask for, in tokens of answer; None: the client's own."""
    learned: LearnedLimit | None = None
    """What to remember once it has helped."""

    @property
    def changes_history(self) -> bool:
        return self.strip_signed or self.most_tokens is not None

    def harden(self, rules: Rules) -> Rules:
        """The rules for the second try."""
        if self.strip_signed:
            return rules
        return rules.for_overflow()

    def __call__(self, state: ConversationState) -> Plan | None:
        if self.strip_signed:
            return _without_reasoning(state)
        plan = planning.choose_without_model(planning.decide(state))
        fits = plan.action != "none" and self.most_tokens is not None and plan.tokens_after <= self.most_tokens
        if not fits:
            return None
        return replace(plan, reason=REASON)


def find_cures(
    fault: Refusal, counted_tokens: int, ratio: float, max_output: int | None, least_thinking: int = 0
) -> Iterator[Cure]:
    """The cures for a refused request, mildest first: the first that can be applied is tried, and no other.

    A request that asks for a large answer may be mostly instructions and tools, which stay: then less of the window is
    kept for the answer, and more of the history fits.
    """
    cure = find_cure(fault, counted_tokens, ratio, max_output, least_thinking)
    if cure is None:
        return
    yield cure
    for divisor in SMALLER_ANSWER_DIVISORS if cure.most_answer_tokens is not None and cure.changes_history else ():
        if fault.limit is not None and fault.limit // divisor >= LEAST_ANSWER_TOKENS + least_thinking:
            yield _shorten_history(fault, counted_tokens, ratio, max_output, divisor)


def find_cure(
    fault: Refusal, counted_tokens: int, ratio: float, max_output: int | None, least_thinking: int = 0
) -> Cure | None:
    """The mildest cure for a refused request, or None.

    We count `counted_tokens`, the upstream about `ratio` times that; `max_output` is the client's bound, of which
    thinking takes `least_thinking` at least.
    """
    if fault.kind == "signature":
        return Cure(strip_signed=True, ratio=ratio)
    if fault.kind == "output":
        cure = _shorten_answer(fault, round(counted_tokens * ratio), max_output)
        room = LEAST_ANSWER_TOKENS + least_thinking - SLACK_TOKENS
        if cure is None or cure.most_answer_tokens is None or cure.most_answer_tokens >= room:
            return cure
        if fault.limit is None:
            return None
        return _shorten_history(fault, counted_tokens, ratio, max_output)
    size = counted_tokens * ratio
    if fault.size is not None and is_plausible(counted_tokens, fault.size):
        size = max(size, fault.size)  # usage, which gave the ratio, may be far below the size that is refused
    if fault.kind in ("input", "tpm-hard") and size >= SMALLEST_OVERFLOW_TOKENS:
        return _shorten_history(fault, counted_tokens, ratio, max_output)
    return None


def _shorten_answer(fault: Refusal, size: int, max_output: int | None) -> Cure | None:
    room = fault.answer_room
    if room is None and fault.limit is not None:
        room = int((fault.limit - size) * FILL_SHARE)
    elif room is not None and fault.limit is not None:
        room -= SLACK_TOKENS
    if room is None or room < LEAST_ANSWER_TOKENS - SLACK_TOKENS or (max_output is not None and max_output <= room):
        return None
    return Cure(most_answer_tokens=room)


def _shorten_history(
    fault: Refusal, counted_tokens: int, ratio: float, max_output: int | None, divisor: int = ANSWER_DIVISOR
) -> Cure:
    if fault.limit is None:
        size = round(counted_tokens * ratio)
        return Cure(
            int(size * LARGEST_RETRY_SHARE),
            int(size * GUESSED_SHARE),
            ratio=ratio,
            learned=make_learned_limit(size, "input"),
        )
    if fault.covers == "input":
        room, answer = fault.limit, None
    else:
        reserve = min(Window(total=fault.limit).answer_tokens(max_output), fault.limit // divisor)
        room = fault.limit - reserve
        answer = reserve if max_output and max_output > reserve else None
    reported_tokens = (fault.size or 0) - (
        max_output or 0 if fault.kind == "tpm-hard" else 0
    )  # a minute's budget covers the answer
    if is_plausible(counted_tokens, reported_tokens):
        ratio = reported_tokens / counted_tokens
    # It did not fit beside the answer that was asked for, so it is larger than that.
    excluded_tokens = room
    if divisor != ANSWER_DIVISOR:
        excluded_tokens = (fault.limit or 0) - (max_output or 0)
    ratio = max(ratio, (excluded_tokens + 1) / counted_tokens)
    return Cure(room, int(room * FILL_SHARE), ratio=ratio, most_answer_tokens=answer)


def limit_of(fault: Refusal, max_output: int | None = None) -> LearnedLimit | None:
    """The limit that the upstream stated, to be remembered; not if mostly the answer was too long."""
    if fault.kind == "output" and not (max_output and fault.limit and 2 * max_output <= fault.limit):
        return None
    if fault.kind not in ("input", "output", "tpm-hard"):
        return None
    return make_learned_limit(fault.limit, fault.covers)


def plan_untouched(request: Request, size: int, reason: str = "") -> Plan:
    """The plan of a request that is forwarded unchanged."""
    return Plan(request.messages, request.tools, "none", reason, size, size)


def _without_reasoning(state: ConversationState) -> Plan | None:
    """The view without any signed reasoning, under a block: else it would be refused again next turn.

    Unsigned reasoning stays, because some upstreams demand it back.
    """
    head, view = state.request.head, state.view
    unsigned_starts = frozenset(message.start for message in view if not message.signed)
    draft = Draft(head, view, tools=state.tools, fixed=unsigned_starts, origin=state.body, count=state.count)
    bare, reports = run((_ALL_REASONING,), draft)
    if bare.middle == draft.middle:
        return None
    new_state, size = state.with_draft(bare, REASONING_REFUSED), state.size()
    return Plan(
        view=head + new_state.view,
        tools=new_state.tools,
        action="created",
        reason=REASONING_REMOVED,
        tokens_before=size,
        tokens_after=max(0, size - sum(report.saved for report in reports)),
        block=new_state.block,
        link=new_state.link,
        view_id=new_state.view_id,
        reports=reports,
        tokens_without_block=size,
    )


def strip_signed(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The messages without any signed reasoning, for a history that is forwarded as the client sent it."""
    return tuple(
        _ALL_REASONING.strip(message) if message.role == "assistant" and message.signed else message
        for message in messages
    )
