"""Remedies for a refused request: one of them is tried, once.

    the upstream says                     the remedies, in this order
    too long (input, tpm-hard, output)    a shorter history, or a shorter answer
    a signature is invalid                no reasoning behind the block; then no reasoning at all
    `stream_options` is unknown           the same request without it
    invalid, and no more                  the history as the client sent it

A remedy is a generator that returns a `Forwarding`, or None if it cannot help. The first one whose request differs from
the refused one is sent. If that is refused as well, the client gets the first refusal, and nothing is remembered of it.
The figures (how short, which window) are computed in `recovery.py`.

Signatures: https://docs.anthropic.com/en/docs/build-with-claude/extended-thinking
`stream_options`: https://platform.openai.com/docs/api-reference/chat/create#chat-create-stream_options
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from proxy.path import planning
from proxy.path.actions import (
    Actions,
    AwaitSummary,
    CanSummarize,
    CountTokens,
    Forwarding,
    Opening,
    ReportRefusal,
    Send,
)
from proxy.path.conversation import Context, Conversation, list_forwarded_pieces
from proxy.path.planning import NeedSummary, Plan
from proxy.path.recognition import load_memory
from proxy.path.recovery import (
    REASON,
    REASONING_REMOVED,
    SHORTENED_REFUSED,
    Cure,
    Refusal,
    find_cures,
    limit_of,
    plan_untouched,
)
from proxy.path.remember import begin, give_up_summary, learn_window, report_end
from proxy.shorten.economics import Calibration, Window
from proxy.shorten.rules import Facts
from proxy.shorten.summary import Summary

Gather = Callable[[], Context]


def try_remedies(gather: Gather | None, first: Forwarding, refused: Opening) -> Actions[tuple[Forwarding, Opening]]:
    """Send a refused request once more if something may help. Return the forwarding and the answer that count.

    `gather` is None for a request that is bypassed: nothing but refused reasoning may be removed from it.
    """
    refusal, was_retried, has_helped = refused.refusal, False, False
    if refusal is None and not refused.is_invalid:
        return first, refused
    result = first, refused
    for remedy in _list_remedies(gather, first, refusal):
        retry = yield from remedy
        if retry is None:
            continue
        opening: Opening = yield Send(retry)
        if not opening.was_sent:
            continue
        was_retried, has_helped = True, opening.is_good
        if has_helped:
            result = retry, opening
        break
    yield ReportRefusal(refusal, was_retried=was_retried, helped=has_helped)
    return result


def _list_remedies(
    gather: Gather | None, first: Forwarding, refusal: Refusal | None
) -> Sequence[Actions[Forwarding | None]]:
    """Return the remedies for this refusal, the mildest first."""
    if gather is None:
        is_about_reasoning = refusal is not None and refusal.kind == "signature"
        return [_remove_reasoning(first)] if is_about_reasoning else []
    if refusal is None:
        return [_send_untouched(first)]
    if refusal.kind == "usage-option":
        return [_drop_usage_option(first)]
    remedies = [_change_history(gather, first, refusal)]
    if refusal.kind == "signature":
        remedies.append(_remove_reasoning(first))
    return remedies


def _drop_usage_option(first: Forwarding) -> Actions[Forwarding | None]:
    """Send the same request without the option that the proxy added; nothing if it is the client's."""
    yield from ()
    if not first.decision.asks_usage:
        return None
    return replace(first, decision=replace(first.decision, asks_usage=False), drops_usage_option=True)


def _remove_reasoning(first: Forwarding) -> Actions[Forwarding | None]:
    """Send the same request without any signed reasoning.

    It was written behind a shortened history, and is bound to that. A bypass, or a lost block while no new ones may be
    made, leaves it behind a history that it was not written under. Nothing of this is remembered.
    """
    yield from ()
    if first.decision.outcome == "observed" or not _has_reasoning(first):
        return None
    decision = replace(first.decision, removes_reasoning=True, reason=REASONING_REMOVED)
    return replace(first, decision=decision)


def _has_reasoning(first: Forwarding) -> bool:
    """Return False if no forwarded message is signed. True if that is not known: the request was not read."""
    if first.conversation is None:
        return True
    messages = first.conversation.context.request.messages
    if first.decision.plan is not None and first.decision.rewrites:
        messages = first.decision.plan.view
    return any(message.signed for message in messages)


def _send_untouched(first: Forwarding) -> Actions[Forwarding | None]:
    """Send the history as it came, if it fits: the upstream calls the shortened one invalid."""
    conversation, plan = first.conversation, first.decision.plan
    if conversation is None or plan is None:
        return None
    yield from give_up_summary(first)
    if not first.decision.rewrites or not conversation.fits(plan.tokens_before):
        return None
    retry = forward_untouched(conversation, plan.tokens_before)
    return replace(retry, decision=replace(retry.decision, asks_usage=False), is_untouched_retry=True)


def forward_untouched(conversation: Conversation, size: int) -> Forwarding:
    """Forward the client's own history, because the upstream calls the shortened ones of it invalid."""
    plan = plan_untouched(conversation.context.request, size, SHORTENED_REFUSED)
    return Forwarding(conversation.describe(plan), conversation)


def _change_history(gather: Gather, first: Forwarding, refusal: Refusal) -> Actions[Forwarding | None]:
    """Send a shorter history, ask for a shorter answer, or take refused reasoning out under a block."""
    conversation = first.conversation or Conversation.of(gather())
    if conversation.observes or not conversation.rules.new_blocks:
        return None
    if conversation.identity is None:
        first = yield from _look_closer(conversation)
        conversation = first.conversation or conversation
    refused_plan = first.decision.plan
    if refused_plan is None:
        return None
    request = conversation.context.request
    limit = limit_of(refusal, request.max_output)
    window = conversation.window
    if limit is not None:
        yield from learn_window(conversation, limit)
        window = conversation.narrow(limit.window())
    counted_tokens = sum((yield CountTokens(list_forwarded_pieces(refused_plan))))
    ratio = conversation.memory.calibration.ratio
    for cure in find_cures(refusal, counted_tokens, ratio, request.max_output, request.least_thinking):
        if not cure.changes_history:
            return _bound_answer(replace(first, was_refused=True, learned=cure.learned), cure)
        plan = _apply(cure, conversation, refused_plan, window)
        if plan is not None:
            return (yield from _use_cure(first, conversation, cure, plan, window))
    return None


def _look_closer(conversation: Conversation) -> Actions[Forwarding]:
    """Look up a conversation that was below every threshold, now that it turned out not to fit."""
    context = conversation.context
    yield CountTokens(context.pieces)
    conversation = yield from load_memory(conversation, 0)
    size = sum(map(conversation.count_with(conversation.memory.calibration), context.pieces))
    return Forwarding(conversation.describe(plan_untouched(context.request, size)), conversation)


def _apply(
    cure: Cure, conversation: Conversation, refused_plan: Plan, window: Window, summary: Summary | None = None
) -> Plan | None:
    """Return the history that a cure makes, or None if it does not help. `window`: narrowed by this refusal."""
    if cure.learned is not None:
        window = conversation.narrow(cure.learned.window())
    facts = Facts(
        usable_tokens=cure.window_tokens,
        nominal_tokens=window.usable_tokens(),
        prices=conversation.context.prices,
        summary=summary,
    )
    state = conversation.build_state(facts, Calibration(cure.ratio), cure.harden(conversation.rules))
    if not cure.strip_signed or refused_plan.block is None:
        return cure(state)
    # Only its reasoning was refused: the rest of the new block stays, or the next request would do it again.
    plan = cure(state.with_block(refused_plan.block, has_block=True))
    if plan is None:
        return None
    return replace(
        plan,
        tokens_before=refused_plan.tokens_before,
        tokens_without_block=refused_plan.tokens_without_block,
        reports=refused_plan.reports + plan.reports,
    )


def _use_cure(
    first: Forwarding, conversation: Conversation, cure: Cure, plan: Plan, window: Window
) -> Actions[Forwarding | None]:
    """Write the original, and ask for a summary if the policy waits for one."""
    decision = conversation.describe(plan)
    retry = yield from begin(
        replace(first, decision=decision, conversation=conversation, was_refused=True, learned=cure.learned)
    )
    if retry is None:
        return None
    summary = yield from _await_summary(conversation, cure, window)
    if summary is not None and first.decision.plan is not None:
        plan_with_summary = _apply(cure, conversation, first.decision.plan, window, summary)
        if plan_with_summary is not None:
            retry = replace(retry, decision=conversation.describe(plan_with_summary))
    yield from report_end(retry.decision)
    return _bound_answer(retry, cure)


def _bound_answer(retry: Forwarding, cure: Cure) -> Forwarding:
    """Ask for a shorter answer, if the cure says so."""
    if cure.most_answer_tokens is None:
        return retry
    return replace(retry, decision=replace(retry.decision, max_answer_tokens=cure.most_answer_tokens, reason=REASON))


def _await_summary(conversation: Conversation, cure: Cure, window: Window) -> Actions[Summary | None]:
    """Ask for the summary of a refused history, if the policy has a request over its trigger wait for one."""
    if conversation.rules.summary.ahead or cure.strip_signed or not (yield CanSummarize(conversation)):
        return None
    facts = replace(
        conversation.gather_facts(can_summarize=True),
        usable_tokens=cure.window_tokens,
        nominal_tokens=window.usable_tokens(),
        trigger_base_tokens=None,
        anchor=None,
    )
    need = planning.decide(conversation.build_state(facts, Calibration(cure.ratio), conversation.rules))
    if not isinstance(need, NeedSummary) or need.question is None or need.is_about_notes:
        return None
    seconds = conversation.context.wait_seconds
    summary: Summary | None = yield AwaitSummary(need.question, need.question.covers, seconds, conversation)
    return summary
