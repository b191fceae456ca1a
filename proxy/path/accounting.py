"""After the answer: the cost of the request, the upstream's count, and the summary that is asked for ahead."""

from dataclasses import replace
from itertools import takewhile

from proxy.history.messages import find_last_assistant
from proxy.path import planning
from proxy.path.actions import (
    Actions,
    AnswerReport,
    CanSummarize,
    CountTokens,
    Delivered,
    Forwarding,
    RecountByProbe,
    Report,
    Rewrite,
    StartSummary,
    StoreFact,
    TurnReport,
)
from proxy.path.conversation import Conversation, list_forwarded_pieces
from proxy.path.planning import USELESS_BLOCKS_MAX, Plan
from proxy.path.recovery import REASON
from proxy.shorten import economics
from proxy.shorten.block import FACT_SECONDS, FoundValues, LastRequest, LookUp, read_candidate
from proxy.shorten.economics import Usage, is_plausible, price_prompt
from proxy.shorten.marked_history import count_all
from proxy.shorten.rules import ENOUGH_SHARE, Anchor, Facts
from proxy.shorten.state import WINDOW_REASONS

LASTING_REQUESTS = 5
"""A block that needs the next one within fewer requests than this was of no use."""
SILENT_CUT_MIN_TOKENS = 2_000
"""Below, markup drowns the difference between our count and the upstream's."""
SILENT_CUT_SHARE = 0.5
AHEAD_STRIDE_SHARE = 1 / 16
"""A share of the limit: each time a history near its limit has grown by this, the next summary is planned."""


def account(forwarding: Forwarding, delivered: Delivered) -> Actions[LastRequest | None]:
    """Report the turn, and remember the upstream's count. None: no summary is to be prepared."""
    conversation, plan, answer = forwarding.conversation, forwarding.decision.plan, delivered.answer
    if conversation is None or conversation.identity is None or plan is None:
        return None
    if not delivered.is_whole:
        yield Report(_report_turn(forwarding, conversation, plan, answer.usage, delivered.now))
        return None
    identity, memory = conversation.identity, conversation.memory
    forwarded_tokens = yield from _count_forwarded(forwarding, conversation, plan)
    reported_tokens = _find_prompt_tokens(answer)
    if not reported_tokens and conversation.context.recounts and plan.action == "created":
        reported_tokens = yield RecountByProbe()
    read_tokens = 0
    if is_plausible(forwarded_tokens, reported_tokens) and not conversation.is_observed:
        read_tokens = reported_tokens
    useless, since = _rate_block(conversation, plan, _find_size(conversation, plan, read_tokens))
    calibration = memory.calibration.learn(forwarded_tokens, read_tokens)
    refused_views = conversation.count_refused_views() + forwarding.is_untouched_retry
    anchor = Anchor(identity.links[-1], read_tokens, plan.view_id)
    last = LastRequest(anchor, delivered.now, identity.counter, calibration, useless, since, refused_views)
    yield StoreFact(identity.anchor_key(identity.links[-1]), last.to_bytes(), FACT_SECONDS)
    if memory.last is None and calibration.observations:
        # The next conversation begins with the calibration that the first request of this one taught.
        yield StoreFact(identity.scale_key, calibration.to_bytes(), FACT_SECONDS)
    turn = _report_turn(
        forwarding, conversation, plan, answer.usage, delivered.now
    )  # after what the next request needs
    if is_silently_cut(forwarded_tokens, answer):
        turn = replace(turn, silently_cut=(forwarded_tokens, reported_tokens))
    is_last_useless = useless == USELESS_BLOCKS_MAX and plan.action == "created"
    yield Report(replace(turn, breaker_opened=is_last_useless and not conversation.is_observed))
    if conversation.observes:
        return None
    return last


def _find_prompt_tokens(answer: AnswerReport) -> int:
    """Return the tokens of the request as it was forwarded; 0: not reported."""
    if answer.forwarded_tokens is None:
        return answer.usage.prompt
    return answer.forwarded_tokens


def _find_size(conversation: Conversation, plan: Plan, read_tokens: int) -> int:
    """Return the size of the forwarded history: as the upstream counted it if the policy trusts that."""
    if read_tokens and conversation.rules.trusts_usage:
        return read_tokens
    return plan.tokens_after


def _count_forwarded(forwarding: Forwarding, conversation: Conversation, plan: Plan) -> Actions[int]:
    """Count the tokens of the forwarded history by our tokenizer."""
    state, count = forwarding.state, conversation.context.count
    if plan.action == "created" or state is None:
        return sum((yield CountTokens(list_forwarded_pieces(plan))))
    outside = [*(message.raw for message in conversation.context.request.head), plan.tools or b""]
    return sum(map(count, outside)) + count_all(state.columns, state.view, count)


def is_silently_cut(counted_tokens: int, answer: AnswerReport) -> bool:
    """Return True if the upstream answered without reading all of its prompt (some servers cut and do not say so)."""
    if answer.says_truncated:
        return True
    # Some servers report only the uncached part as prompt tokens, as Anthropic does: that is no cut.
    # https://docs.anthropic.com/en/docs/build-with-claude/prompt-caching
    read = max(_find_prompt_tokens(answer), answer.usage.cached or 0)
    return (
        bool(answer.usage.prompt)
        and counted_tokens >= SILENT_CUT_MIN_TOKENS
        and read < counted_tokens * SILENT_CUT_SHARE
    )


def _rate_block(conversation: Conversation, plan: Plan, size: int) -> tuple[int, int]:
    """Return how many blocks in a row did not help, and how many requests ago the last one was made.

    A block helps if it brings the history well under its limit, by the upstream's own count, and lasts.
    """
    rules, last = conversation.rules, conversation.memory.last
    useless, since = 0, LASTING_REQUESTS
    if last is not None:
        useless, since = last.useless_blocks, last.requests_since_block + 1
    limits = rules.limits(conversation.gather_request_facts(conversation.window))
    if not limits:
        return 0, since
    limit = limits[0][0]
    if size <= rules.find_goal(limit):
        useless = 0
    is_for_window = plan.block is not None and plan.block.reason in WINDOW_REASONS
    if not is_for_window or plan.reason == REASON:
        return useless, since
    if size <= limit * ENOUGH_SHARE and since >= LASTING_REQUESTS:
        return 0, 0
    return useless + 1, 0


def _report_turn(
    forwarding: Forwarding, conversation: Conversation, plan: Plan, usage: Usage, now: float
) -> TurnReport:
    """Return the report of a turn: the price paid, and the price without the proxy."""
    decision, identity = forwarding.decision, conversation.identified
    dollars_paid = dollars_unchanged = dollars_would_be = None
    if usage.cached is not None and usage.prompt:
        dollars_paid = dollars_unchanged = dollars_would_be = price_prompt(
            conversation.window, usage.prompt, usage.cached
        )
        if decision.tokens_after != decision.tokens_before:
            cached_tokens = 0
            # An upstream whose cache was empty would have found nothing of the longer history either.
            if usage.cached or plan.action == "created":
                cached_tokens = _count_cached_unchanged(conversation, plan, now)
            dollars_unchanged = price_prompt(conversation.window, plan.tokens_before, cached_tokens)
        if decision.tokens_after != decision.tokens_would_be:
            dollars_would_be = _price_observed(conversation, plan, usage, now)
    return TurnReport(
        decision=decision,
        tenant=identity.tenant,
        link=identity.links[-1].hex(),
        messages=len(conversation.context.request.body),
        usage=usage,
        dollars_paid=dollars_paid,
        dollars_unchanged=dollars_unchanged,
        dollars_would_be=dollars_would_be,
    )


def _price_observed(conversation: Conversation, plan: Plan, usage: Usage, now: float) -> float | None:
    """Return the dollars for a view that was only tried out, scaled by the upstream's count of the real one."""
    ratio = usage.prompt / max(1, plan.tokens_before)
    cached_tokens = 0
    # An upstream whose cache was empty would have found nothing of the shorter history either.
    if usage.cached:
        cached_tokens = _count_cached_observed(conversation, plan, now)
    return price_prompt(conversation.window, round(plan.tokens_after * ratio), round(cached_tokens * ratio))


def _count_cached_observed(conversation: Conversation, plan: Plan, now: float) -> int:
    """Count the tokens of a view that was only tried out that would have been in the upstream's cache."""
    unchanged_tokens = _count_cached_unchanged(conversation, plan, now)
    if not unchanged_tokens:
        return 0
    cached_tokens = max(0, plan.tokens_after - (plan.tokens_before - unchanged_tokens))
    if plan.action != "created" or not cached_tokens:
        return cached_tokens
    state = conversation.build_state(conversation.gather_facts(can_summarize=False))
    before, count = conversation.context.request.head + state.view, conversation.count
    pairs = zip(before, plan.view, strict=False)
    shared_pairs = takewhile(lambda pair: pair[0].raw == pair[1].raw, pairs)
    return min(cached_tokens, count(plan.tools or b"") + sum(count(message.raw) for message, _ in shared_pairs))


def _count_cached_unchanged(conversation: Conversation, plan: Plan, now: float) -> int:
    """Count the tokens that would have been in the upstream's cache, had the history been forwarded as it came."""
    last, body, links = conversation.memory.last, conversation.context.request.body, conversation.identified.links
    start = find_last_assistant(body) or 0
    if last is not None:
        if economics.is_cold(now - last.forwarded_at, conversation.context.prices):
            return 0
        if last.anchor.link in links:
            start = links.index(last.anchor.link)
    count = conversation.count
    return plan.tokens_before - sum(count(message.raw) for message in body[start:])


def prepare_next_summary(forwarding: Forwarding, last: LastRequest) -> Actions[None]:
    """Ask now for the summary that the next requests will need."""
    conversation, plan = forwarding.conversation, forwarding.decision.plan
    if conversation is None or plan is None:
        return
    facts = conversation.gather_facts(can_summarize=True)
    size = _find_size(conversation, plan, last.anchor.tokens)
    if not planning.is_near_limit(size, conversation.rules, facts):
        return
    if _was_planned(conversation, last.anchor, facts) or not (yield CanSummarize(conversation)):
        return
    keys = conversation.identified.summary_keys()
    values: FoundValues | None = yield LookUp(facts=keys)
    candidate = None
    if values is not None:
        candidate = read_candidate(values[1], keys)
    memory = conversation.memory
    memory = replace(memory, block=plan.block or memory.block, candidate=candidate)
    conversation = replace(conversation, memory=memory)
    facts = replace(
        conversation.gather_facts(can_summarize=True),
        anchor=last.anchor if conversation.rules.trusts_usage else None,
        useless_blocks=last.useless_blocks,
    )
    yield Rewrite()
    calibration = conversation.choose_calibration(last.calibration)
    state = conversation.build_state(facts, calibration, conversation.rules)
    question = planning.plan_next_summary(state)
    if question is not None:
        yield StartSummary(question, conversation)


def _was_planned(conversation: Conversation, anchor: Anchor, facts: Facts) -> bool:
    """Return True if the next summary was planned after an earlier answer, at about the same size.

    Planning goes over the whole history, so it is not done again for every few tokens more.
    """
    rules, last = conversation.rules, conversation.memory.last
    if last is None or last.anchor.view_id != anchor.view_id or not (last.anchor.tokens and anchor.tokens):
        return False
    stride = max(1, int(rules.limits(facts)[0][0] * AHEAD_STRIDE_SHARE))
    is_same = last.anchor.tokens // stride == anchor.tokens // stride
    return is_same and planning.is_near_limit(last.anchor.tokens, rules, facts)
