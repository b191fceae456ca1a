"""Remedies for a refused request: one is tried, once.

    the upstream says                     the remedies, in this order
    too long (input, tpm-hard, output)    the block that `switch bypass` set aside; a shorter history or answer
    a signature is invalid                a block without signed reasoning; then the request without it, and no block
    an added option is unknown            the same request without any that the proxy adds
    invalid, and no more                  the history as the client sent it; then the request without what was added

A remedy returns None if it cannot help. The first one whose request differs from the refused one is sent. If that is
refused as well, the client gets the first refusal.

Signatures: https://docs.anthropic.com/en/docs/build-with-claude/extended-thinking
`stream_options`: https://platform.openai.com/docs/api-reference/chat/create#chat-create-stream_options
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from proxy.decide import planning
from proxy.decide.actions import (
    Actions,
    AwaitSummary,
    CanSummarize,
    CountTokens,
    Forwarding,
    Note,
    Opening,
    Planned,
    SendAgain,
)
from proxy.decide.conversation import Asked, Conversation, list_forwarded_pieces
from proxy.decide.planning import NeedSummary, Plan
from proxy.decide.remember import (
    begin,
    find_summary,
    give_up_summary,
    learn_window,
    load_memory,
    report_end,
)
from proxy.events import SizeRefused, UpstreamRetried, ViewRefused
from proxy.history.messages import Message
from proxy.history.request import Request
from proxy.shorten.attempts import Attempt
from proxy.shorten.block import Reason
from proxy.shorten.clear_results import StripReasoning
from proxy.shorten.economics import FILL_SHARE, UNKNOWN, Calibration, Window, is_plausible, make_learned_window
from proxy.shorten.pipeline import Draft, run
from proxy.shorten.rules import Facts, Rules
from proxy.shorten.state import ConversationState
from proxy.shorten.summary import Summary
from proxy.wire.refusals import LEAST_ANSWER_TOKENS, Refusal, RefusalKind, is_option

_ALL_REASONING = StripReasoning(with_calls=True, signed=True)
# Some servers count the beginning of the answer as input, and some want less than the limit instead of at most that.
SLACK_TOKENS = 16
# A shorter request did not overflow, whatever the error says.
SMALLEST_OVERFLOW_TOKENS = 1_500
# The shares of the limit that the answer gets: smaller ones are tried if the instructions fill the rest.
ANSWER_DIVISORS = (2, 4, 8)


class Cure(Struct, frozen=True):
    """The changes to a request that is too long."""

    most_tokens: int | None = None
    """Upper bound of the history, in the upstream's tokens; None if the history is not too long."""
    window_tokens: int | None = None
    ratio: float = 1.0
    most_answer_tokens: int | None = None
    learned: Window | None = None


def find_cures(
    refusal: Refusal, counted_tokens: int, ratio: float, max_output: int | None, least_thinking: int = 0
) -> Iterator[Cure]:
    """Yield the cures, the mildest first. Later ones reserve less for the answer, and leave room for instructions.

    We count *counted_tokens*, the upstream about *ratio* times that; *max_output* is the client's bound of the answer.
    """
    size, least_answer_tokens = counted_tokens * ratio, LEAST_ANSWER_TOKENS + least_thinking
    if refusal.kind == "output":
        answer_tokens = _find_answer_room(refusal, round(size), max_output)
        if answer_tokens is not None and answer_tokens >= least_answer_tokens - SLACK_TOKENS:
            yield Cure(most_answer_tokens=answer_tokens)
            return
        if answer_tokens is None or refusal.limit is None:
            return
    else:
        if refusal.size is not None and is_plausible(counted_tokens, refusal.size):
            # Usage, which gave the ratio, may be far below the size that is refused.
            size = max(size, refusal.size)
        if refusal.kind not in ("input", "tpm-hard") or size < SMALLEST_OVERFLOW_TOKENS:
            return
    for divisor in ANSWER_DIVISORS:
        if divisor != ANSWER_DIVISORS[0] and (refusal.limit or 0) // divisor < least_answer_tokens:
            return
        cure = _shorten_history(refusal, counted_tokens, ratio, max_output, divisor)
        yield cure
        if cure.most_answer_tokens is None:
            return


def _find_answer_room(refusal: Refusal, size: int, max_output: int | None) -> int | None:
    """Return the longest answer that fits beside a prompt of this size, or None if a shorter answer does not help."""
    room = refusal.answer_room
    if room is None and refusal.limit is not None:
        room = int((refusal.limit - size) * FILL_SHARE)
    elif room is not None and refusal.limit is not None:
        room -= SLACK_TOKENS
    if room is None or room < LEAST_ANSWER_TOKENS - SLACK_TOKENS or (max_output is not None and max_output <= room):
        return None
    return room


def _shorten_history(refusal: Refusal, counted_tokens: int, ratio: float, max_output: int | None, divisor: int) -> Cure:
    if refusal.limit is None:
        size = round(counted_tokens * ratio)
        return Cure(
            int(size * 0.9),  # a history that loses less than a tenth is not worth a retry
            int(size * 0.5),  # a guess, because the refusal states no limit
            ratio=ratio,
            learned=make_learned_window(size, "input"),
        )
    if refusal.covers == "input":
        room, answer = refusal.limit, None
    else:
        reserve = min(Window(total=refusal.limit).answer_tokens(max_output), refusal.limit // divisor)
        room = refusal.limit - reserve
        answer = reserve if max_output and max_output > reserve else None
    reported_tokens = refusal.size or 0
    if refusal.kind == "tpm-hard":  # the budget of tokens per minute covers the answer, too
        reported_tokens -= max_output or 0
    if is_plausible(counted_tokens, reported_tokens):
        ratio = reported_tokens / counted_tokens
    # The history did not fit together with the requested answer, so it is larger than the rest of the limit.
    excluded_tokens = room if divisor == ANSWER_DIVISORS[0] else (refusal.limit or 0) - (max_output or 0)
    ratio = max(ratio, (excluded_tokens + 1) / counted_tokens)
    return Cure(room, int(room * FILL_SHARE), ratio=ratio, most_answer_tokens=answer)


def limit_of(refusal: Refusal, max_output: int | None = None) -> Window | None:
    if refusal.kind == "output" and not (max_output and refusal.limit and 2 * max_output <= refusal.limit):
        return None
    if refusal.kind not in ("input", "output", "tpm-hard"):
        return None
    return make_learned_window(refusal.limit, refusal.covers)


def plan_untouched(request: Request, size: int, reason: Reason = "") -> Plan:
    return Plan(request.messages, request.tools, "none", reason, size, size)


def remove_reasoning(state: ConversationState) -> Attempt | None:
    """Remove signed reasoning from the view. Unsigned reasoning stays: some upstreams demand it back."""
    view = state.view
    unsigned_starts = frozenset(message.start for message in view if not message.signed)
    draft = Draft(
        state.request.head, view, tools=state.tools, fixed=unsigned_starts, origin=state.body, count=state.count
    )
    bare, reports = run((_ALL_REASONING,), draft)
    if bare.middle == draft.middle:
        return None
    freed_tokens = sum(report.saved for report in reports)
    return Attempt("cleared", state.with_draft(bare, "signature"), freed_tokens, reports)


def strip_signed(messages: Sequence[Message]) -> tuple[Message, ...]:
    return tuple(
        _ALL_REASONING.strip(message) if message.role == "assistant" and message.signed else message
        for message in messages
    )


class Refused(Struct, frozen=True):
    """A request that the upstream has refused."""

    asked: Asked
    first: Forwarding
    """What was sent."""
    refusal: Refusal
    has_doubtful_options: bool = False


def try_remedies(
    asked: Asked, first: Forwarding, first_opening: Opening, remedies: "Remedies"
) -> Actions[tuple[Forwarding, Opening]]:
    """Send once more after a refusal, with the first remedy that changes the request.

    Return the retry if it was accepted, else the first request, and how its answer begins.
    """
    refusal, was_retried, has_helped, result = first_opening.refusal, False, False, (first, first_opening)
    if refusal is None or refusal.kind == "other":
        return result
    refused = Refused(asked, first, refusal, first_opening.has_doubtful_options)
    for remedy in remedies.get(refusal.kind, ()):
        retry = yield from remedy(refused)
        if retry is None:
            continue
        opening = yield from SendAgain(retry)
        if opening is None:
            continue
        was_retried, has_helped = True, opening.refusal is None
        if has_helped:
            result = retry, opening
        if retry.refused_option is not None and refusal.kind == "invalid":
            refusal = Refusal(retry.refused_option)
        break
    if was_retried or refusal.kind != "invalid":
        yield from _report_refusal(asked, refusal, helped=has_helped)
    return result


def _report_refusal(asked: Asked, refusal: Refusal, *, helped: bool) -> Actions[None]:
    request_id, upstream = asked.request_id, asked.upstream
    if refusal.kind == "invalid":
        yield Note(ViewRefused(request_id, upstream, helped))
    elif not is_option(refusal.kind):
        is_observed = asked.mode == "observe" and not helped and refusal.kind != "signature"
        team = asked.caller.team
        yield Note(SizeRefused(request_id, upstream, refusal.kind, refusal.limit, helped, is_observed, team))
    elif helped:
        yield Note(UpstreamRetried(upstream, refusal.kind, attempt=1))


def _drop_options(refused: Refused) -> Actions[Forwarding | None]:
    """Drop all added options, because only one retry is sent. The driver sends none if nothing was added."""
    yield from ()  # a remedy is a generator, even if it needs no action
    first, kind = refused.first, refused.refusal.kind
    if not is_option(kind) or (kind == "usage-option" and not first.decision.asks_usage):
        return None
    return replace(first, decision=replace(first.decision, asks_usage=False), refused_option=kind)


def _drop_doubtful_options(refused: Refused) -> Actions[Forwarding | None]:
    """Drop all added options: perhaps the upstream calls one of them invalid."""
    yield from ()
    if not refused.has_doubtful_options:
        return None
    decision = replace(refused.first.decision, asks_usage=False)
    return replace(refused.first, decision=decision, refused_option="options")


def _remove_reasoning(refused: Refused) -> Actions[Forwarding | None]:
    """Remove all signed reasoning: it is bound to the shortened history after which it was written."""
    yield from ()
    first = refused.first
    if first.decision.outcome == "observed" or not _has_reasoning(first):
        return None
    decision = replace(first.decision, removes_reasoning=True, reason="reasoning-removed")
    return replace(first, decision=decision)


def _has_reasoning(first: Forwarding) -> bool:
    if first.conversation is None:
        return True
    messages = first.conversation.asked.request.messages
    if (rewrite := first.decision.rewrite) is not None:
        messages = rewrite.view
    return any(message.signed for message in messages)


def _send_untouched(refused: Refused) -> Actions[Forwarding | None]:
    first = refused.first
    if not isinstance(first, Planned):
        return None
    yield from give_up_summary(first)
    if first.decision.rewrite is None or not first.conversation.fits(first.plan.tokens_before):
        return None
    retry = forward_untouched(first.conversation, first.plan.tokens_before)
    return replace(retry, decision=replace(retry.decision, asks_usage=False), is_untouched_retry=True)


def forward_untouched(conversation: Conversation, size: int) -> Planned:
    return Planned.of(conversation, plan_untouched(conversation.asked.request, size, "shortened-refused"))


def _load_refused(refused: Refused) -> Actions[Planned | None]:
    """Return the refused request with a plan, or None if its history may not be changed, even to fit."""
    first = refused.first
    if isinstance(first, Planned):
        conversation = first.conversation.to_fit()
        may_change = conversation.asked.mode != "observe" and conversation.rules.new_blocks
        return first if may_change else None
    asked = refused.asked.to_fit()
    rules = asked.find_rules()
    if asked.mode == "observe" or not rules.new_blocks:
        return None
    yield CountTokens(asked.pieces)
    conversation = yield from load_memory(asked, rules)
    return Planned.of(conversation, plan_untouched(asked.request, sum(map(conversation.count, asked.pieces))))


def _remove_reasoning_by_block(refused: Refused) -> Actions[Forwarding | None]:
    """Remove signed reasoning by a block. It is stored, so that the next turn is not refused as well."""
    if refused.first.decision.outcome == "bypassed":
        return None
    forwarding = yield from _load_refused(refused)
    if forwarding is None:
        return None
    conversation, refused_plan = forwarding.conversation.to_fit(), forwarding.plan
    facts = Facts(nominal_tokens=conversation.window.usable_tokens(), prices=conversation.asked.prices)
    calibration = Calibration(conversation.calibration.ratio)
    state = conversation.build_state(facts, calibration, conversation.rules)
    if refused_plan.block is not None:
        # The rest of the new block stays. Otherwise, the next request would make it again.
        state = state.with_block(refused_plan.block, has_block=True)
    attempt = remove_reasoning(state)
    if attempt is None:
        return None
    plan = planning.use_block(state, attempt)
    plan = replace(plan, reason="reasoning-removed", tokens_before=refused_plan.tokens_before)
    if refused_plan.block is not None:
        plan = replace(
            plan,
            tokens_without_block=refused_plan.tokens_without_block,
            reports=refused_plan.reports + plan.reports,
            shared=min(refused_plan.shared, plan.shared),
        )
    retry = yield from begin(replace(forwarding.with_plan(conversation, plan), was_refused=True))
    if retry is not None:
        yield from report_end(retry)
    return retry


def _use_standing_block(refused: Refused) -> Actions[Forwarding | None]:
    """Use the block that the switch `bypass` has set aside, if the client's own bytes are too long, in any mode."""
    first = refused.first
    if first.decision.outcome != "bypassed" or not isinstance(first, Planned):
        return None
    rules = replace(first.conversation.rules, new_blocks=False)
    return (yield from _try_cures(refused.refusal, first, first.conversation, rules))


def _shorten(refused: Refused) -> Actions[Forwarding | None]:
    forwarding = yield from _load_refused(refused)
    if forwarding is None:
        return None
    conversation = forwarding.conversation.to_fit()
    return (yield from _try_cures(refused.refusal, forwarding, conversation, conversation.rules.for_overflow()))


def _try_cures(
    refusal: Refusal, forwarding: Planned, conversation: Conversation, rules: Rules
) -> Actions[Forwarding | None]:
    request, window = conversation.asked.request, conversation.window
    limit = limit_of(refusal, request.max_output)
    if limit is not None:
        yield from learn_window(conversation, limit)
        window = conversation.asked.narrow(limit)
    counted_tokens = sum((yield from CountTokens(list_forwarded_pieces(forwarding.plan))))
    ratio = conversation.calibration.ratio
    for cure in find_cures(refusal, counted_tokens, ratio, request.max_output, request.least_thinking):
        retry = replace(forwarding, was_refused=True, learned=cure.learned)
        if cure.most_tokens is None and rules.new_blocks:
            learned = limit or conversation.learned_window or UNKNOWN
            if refusal.limit is None:
                learned = replace(learned, longest_answer=cure.most_answer_tokens)
            else:
                learned = replace(learned, shared=refusal.limit)
            return _bound_answer(replace(retry, learned=learned), cure)
        plan = _plan_cure(cure, conversation, window, rules)
        if plan is None:
            continue
        begun_retry = yield from begin(retry.with_plan(conversation, plan))
        if begun_retry is None:
            return None
        summary = (yield from _await_summary_for_cure(conversation, cure, window)) if rules.new_blocks else None
        if summary is not None:
            plan_with_summary = _plan_cure(cure, conversation, window, rules, summary)
            if plan_with_summary is not None:
                begun_retry = begun_retry.with_plan(conversation, plan_with_summary)
        yield from report_end(begun_retry)
        return _bound_answer(begun_retry, cure)
    return None


def _plan_cure(
    cure: Cure, conversation: Conversation, window: Window, rules: Rules, summary: Summary | None = None
) -> Plan | None:
    """Plan the history for this cure, in a window that the refusal has narrowed. Return None if that does not help."""
    if cure.learned is not None:
        window = conversation.asked.narrow(cure.learned)
    facts = Facts(
        usable_tokens=cure.window_tokens,
        nominal_tokens=window.usable_tokens(),
        prices=conversation.asked.prices,
        summary=summary,
    )
    state = conversation.build_state(facts, Calibration(cure.ratio), rules)
    plan = planning.plan_without_model(state)
    if plan.action == "none" or cure.most_tokens is None or plan.tokens_after > cure.most_tokens:
        return None
    return replace(plan, reason="overflow_retry")


def _bound_answer(retry: Forwarding, cure: Cure) -> Forwarding:
    if cure.most_answer_tokens is None:
        return retry
    return replace(
        retry, decision=replace(retry.decision, max_answer_tokens=cure.most_answer_tokens, reason="overflow_retry")
    )


def _await_summary_for_cure(conversation: Conversation, cure: Cure, window: Window) -> Actions[Summary | None]:
    """Wait for a summary, if the policy lets a request over its trigger wait for one."""
    if conversation.rules.summary.ahead or not (yield from CanSummarize(conversation)):
        return None
    conversation = yield from find_summary(conversation)  # after one that failed or is under way, none is asked for
    facts = replace(
        conversation.gather_facts(can_summarize=True),
        usable_tokens=cure.window_tokens,
        nominal_tokens=window.usable_tokens(),
        trigger_base_tokens=None,
        anchor=None,
    )
    state = conversation.build_state(facts, Calibration(cure.ratio), conversation.rules)
    need = planning.make_plan(state)
    if not isinstance(need, NeedSummary):
        return state.newer_summary
    if need.question is None:
        return None
    wait_seconds = conversation.rules.summary.wait
    summary = yield from AwaitSummary(need.question, need.question.covers, wait_seconds, conversation)
    return summary


Remedies = Mapping[RefusalKind, Sequence[Callable[[Refused], Actions[Forwarding | None]]]]
"""The remedies for each kind of refusal, in the order in which they are tried."""
REMEDIES: Remedies = {
    "input": (_use_standing_block, _shorten),
    "tpm-hard": (_use_standing_block, _shorten),
    "output": (_use_standing_block, _shorten),
    "signature": (_remove_reasoning_by_block, _remove_reasoning),
    "usage-option": (_drop_options,),
    "cache-marks": (_drop_options,),
    "cache-key": (_drop_options,),
    "invalid": (_send_untouched, _drop_doubtful_options),
}
REMEDIES_IN_BYPASS: Remedies = {"signature": (_remove_reasoning,)}
"""The remedies for a request in the mode `bypass`, which its client wants forwarded as it is."""
