"""What is remembered of a conversation: looked up before a decision, and stored once a request is accepted."""

from operator import attrgetter

from msgspec.structs import replace

from proxy.decide import planning
from proxy.decide.actions import (
    Actions,
    AnnounceLargeWork,
    CanSummarize,
    CountTokens,
    Delivered,
    Forwarding,
    KeepOriginals,
    LookUp,
    Note,
    Planned,
    ProbeWindow,
    Recount,
    ShareProbedWindow,
    StartSummary,
    StoreBlock,
    StoreFact,
)
from proxy.decide.conversation import (
    DAY_SECONDS,
    FACT_SECONDS,
    Asked,
    Conversation,
    LastRequest,
    Originals,
    SummaryCandidate,
    Writing,
    choose_writing,
    list_forwarded_pieces,
    may_fold_unwritten,
    read_candidate,
)
from proxy.decide.planning import Plan
from proxy.events import MODEL_MAX_CHARS, CompactionEnded, CompactionStarted, PromptTruncated, TurnEnded
from proxy.history import observations
from proxy.history.identity import Identity
from proxy.history.messages import Message, find_last_assistant
from proxy.shorten.block import Block
from proxy.shorten.economics import (
    LEARNED_SECONDS,
    MIN_GAP_SECONDS,
    UNKNOWN,
    CacheMemory,
    StoredWindow,
    Usage,
    Window,
    count_shared,
    is_plausible,
    price_answer,
    price_prompt,
)
from proxy.shorten.rules import Anchor, Facts, Rules

BYTES_PER_TOKEN = 3
"""Text and code have more bytes for each token. Data such as base64 has half as many: `planning.find_thresholds`."""
LOOK_UP_MIN_TOKENS = 1_024
"""A longer history is looked up even below every threshold: it may have a block from before a reload."""


def recognize(asked: Asked) -> Actions[Conversation | Forwarding]:
    """Return the conversation of a request.

    If its history is below every threshold and no block stands for it, return how it is left alone.
    """
    rules, guess = asked.find_rules(), len(asked.request.source) // BYTES_PER_TOKEN
    smallest_window_tokens = 2_048
    if guess > smallest_window_tokens and not asked.window.is_known:
        # A small window may matter long before any threshold is reached.
        yield ProbeWindow()
    if (yield from _may_be_due(asked, rules, guess, asked.window)):
        return (yield from load_memory(asked, rules))
    if guess < LOOK_UP_MIN_TOKENS:
        return Forwarding(asked.describe_left_alone(asked.window, is_large=False, is_rewritten=False))
    conversation = yield from load_memory(asked, rules)
    if conversation.block is not None:
        return conversation
    if conversation.window != asked.window and (yield from _may_be_due(asked, rules, guess, conversation.window)):
        return conversation
    is_large, is_rewritten = guess > smallest_window_tokens, conversation.rewritten != ""
    decision = asked.describe_left_alone(conversation.window, is_large=is_large, is_rewritten=is_rewritten)
    return Forwarding(decision, conversation)


def _may_be_due(asked: Asked, rules: Rules, guess: int, window: Window) -> Actions[bool]:
    """Count the history if it may be over a threshold in this window, and return whether it is."""
    facts = asked.gather_facts(rules, window, asked.prior)
    threshold, probe_threshold = planning.find_thresholds(rules, facts)
    # The answer may have to be bounded. A token is at least a byte.
    if window.bound_answer(asked.request.max_output, len(asked.request.source)) is not None:
        threshold = 0
    known = asked.request.known
    if guess < threshold:
        # A picture or a file that is given by its address or id takes about a thousand tokens, or more.
        guess += 1_000 * sum(known.map("references", _count_references))
    if guess < threshold and not observations.was_asked(asked.request):
        return False
    # Only messages that no earlier request has counted.
    outside = (*asked.request.head, *known.list_uncounted(asked.count))
    pieces = [message.raw for message in outside]
    counts = yield from CountTokens([asked.request.tools or b"", *pieces])
    size = sum(counts[: 1 + len(asked.request.head)]) + known.count_tokens(asked.count)
    # If the user asked to compact the history there may be a block, however short it is.
    was_asked = size < probe_threshold and observations.was_asked(asked.request)
    # No upstream is asked for a window that the operator has configured.
    if window.origin != "config" and (size >= probe_threshold or was_asked):
        yield ProbeWindow()
    return size >= threshold or was_asked


def _count_references(message: Message) -> int:
    """Return the number of pictures and files that a message gives by their addresses or ids, or some more."""
    if not message.attached:
        return 0
    content = message.content
    return content.count(b'"url"') + content.count(b'"image_url"') + content.count(b'"file_id"')


def load_memory(asked: Asked, rules: Rules) -> Actions[Conversation]:
    """Return the request with the identity of its conversation and the values that the store remembers of it."""
    identity = Identity.of(asked.request, asked.tenant, asked.secret, asked.name, asked.counter)
    if "{" in rules.summary.pointer:
        path, pointer = asked.locate_originals(identity), ""
        if path:
            pointer = rules.summary.pointer.replace("{path}", path).replace("{conversation}", identity.conversation)
        rules = replace(rules, summary=replace(rules.summary, pointer=pointer))
    conversation = Conversation(asked, rules, identity, asked.name_rewritten(identity), calibration=asked.prior)
    observes = asked.mode == "observe"
    learned_key, probed_key, memory_key = conversation.model_keys
    # A window that the operator has configured overrules a learned one.
    window_keys = () if asked.window.origin == "config" else (learned_key, probed_key)
    cache_keys = (memory_key,) if asked.request.cache_seconds is None else ()
    block_keys, anchor_keys = identity.list_block_keys(observes=observes), identity.list_anchor_keys()
    values = yield from LookUp(block_keys, (anchor_keys, window_keys, cache_keys))
    conversation = conversation.read(values)
    if not conversation.serves(conversation.block):
        conversation = yield from _find_other_block(conversation, observes=observes)
    return conversation


def find_summary(conversation: Conversation) -> Actions[Conversation]:
    """Look up the newest summary of the history, which may be in progress or have failed."""
    keys = conversation.identity.list_summary_keys()
    values = yield from LookUp(facts=(keys,))
    return replace(conversation, candidate=read_candidate(values[1], keys) if values is not None else None)


def _find_other_block(conversation: Conversation, *, observes: bool) -> Actions[Conversation]:
    """Look up the longest block that serves this conversation. Longer ones hold summaries for other heads."""
    identity, stored = conversation.identity, conversation.stored_block
    keys: list[str] = []
    for is_observed in (False, True) if observes else (False,):
        for link in reversed(identity.links):
            keys += reversed(identity.block_keys(link, is_observed=is_observed))
    if stored is not None:
        place = keys.index(stored.key)
        keys = [keys[place - 1], *keys[place + 1 :]]  # the one with this head, and all of shorter histories
    for _ in range(8):  # each look-up is a round trip to the store, for which the client waits
        values = yield from LookUp(keys)
        stored = values[0] if values is not None else None
        conversation = conversation.with_block(stored)
        if stored is None or conversation.serves(conversation.block):
            return conversation
        keys = keys[keys.index(stored.key) + 1 :]
    return conversation.with_block(None)


def begin(forwarding: Planned) -> Actions[Planned | None]:
    """Write the original and announce a new block. Return None if that failed, and without it nothing new may leave."""
    conversation, plan = forwarding.conversation, forwarding.plan
    is_known_caller = conversation.may_store(plan)
    next_forwarding = yield from _write_original(forwarding, is_known_caller=is_known_caller)
    if next_forwarding is None or plan.action != "created" or next_forwarding.is_announced:
        return next_forwarding
    asked, identity = conversation.asked, conversation.identity
    path = asked.locate_originals(identity) if next_forwarding.originals_are_written else ""
    size, policy = plan.tokens_without_block, conversation.rules.policy
    yield Note(CompactionStarted(identity.conversation, policy, plan.reason, size, path, asked.request_id))
    return replace(next_forwarding, is_announced=True)


def report_end(forwarding: Planned) -> Actions[None]:
    """Tell the listeners what a new block comes to. It is stored once the upstream has accepted it: `store_written`."""
    decision, plan = forwarding.decision, forwarding.plan
    if plan.action != "created":
        return
    yield Note(
        CompactionEnded(
            decision.conversation,
            decision.policy,
            plan.reason,
            plan.tokens_without_block,
            plan.tokens_after,
            tuple((report.step, report.messages, report.saved) for report in plan.reports),
            is_observed=decision.outcome == "observed",
            turns=plan.turns,
            request_id=forwarding.conversation.asked.request_id,
        )
    )


def _write_original(forwarding: Planned, *, is_known_caller: bool) -> Actions[Planned | None]:
    """Write the original if `choose_writing` says so. Return None if the plan may not be forwarded without it."""
    conversation, plan = forwarding.conversation, forwarding.plan
    if forwarding.originals_are_written or forwarding.decision.rewrite is None:
        return forwarding
    originals, is_new_block = conversation.asked.originals, plan.action == "created"
    writing = choose_writing(originals, is_new_block=is_new_block, is_known_caller=is_known_caller)
    if writing is Writing.NOTHING:
        return forwarding
    is_written = yield from KeepOriginals(writing, conversation)
    if not is_written:
        fits = not forwarding.was_refused and conversation.fits(plan.tokens_before)
        may_fold = may_fold_unwritten(originals, is_new_block=is_new_block, fits=fits)
        if not may_fold:
            return None
        return forwarding
    return replace(forwarding, originals_are_written=writing is not Writing.CHECK)


def remember(forwarding: Planned) -> Actions[None]:
    """Store the new block and learned windows, now that the upstream has accepted the request."""
    conversation, plan = forwarding.conversation, forwarding.plan
    if conversation.is_observed and plan.action != "none" and conversation.asked.originals is not Originals.OFF:
        # The admin pages show how each message would have been shortened.
        yield KeepOriginals(Writing.HAND_OVER, conversation)
    if plan.block is not None and not (yield from store_written(forwarding, plan.block)):
        return
    if forwarding.learned is not None:
        yield from learn_window(conversation, forwarding.learned)
    # The upstream may have answered since this request arrived.
    if conversation.asked.window.origin != "config":
        yield ShareProbedWindow(conversation)


def store_written(forwarding: Planned, block: Block) -> Actions[bool]:
    """Store the new block. Return False if its original must be written, and is not."""
    conversation = forwarding.conversation
    # The original of an unknown caller was not written before its request was accepted.
    if (yield from _write_original(forwarding, is_known_caller=True)) is None:
        return False
    asked, identity, stored = conversation.asked, conversation.identity, conversation.stored_block
    block_bytes = asked.note_block(block.bound_to(identity.head), identity.conversation)
    # The block is stored under its link. If that holds a summary for another head, it is stored under link and head.
    for key in identity.block_keys(identity.links[block.covers], is_observed=conversation.is_observed):
        replaces = stored.value if stored is not None and stored.key == key else None
        stored_block = yield from StoreBlock(key, block_bytes, replaces, identity)
        if stored_block is None or conversation.serves(asked.read_block(stored_block)):
            break
    return True


def learn_window(conversation: Conversation, window: Window) -> Actions[None]:
    """Store what a refusal tells. It may tell of the whole window only, or of the answer only."""
    learned_key, _, _ = conversation.model_keys
    earlier = conversation.learned_window or UNKNOWN
    shared, longest_answer = window.shared or earlier.shared, window.longest_answer or earlier.longest_answer
    window = replace(window, shared=shared, longest_answer=longest_answer)
    yield StoreFact(learned_key, StoredWindow(window).to_bytes(), LEARNED_SECONDS)


def give_up_summary(forwarding: Planned) -> Actions[None]:
    """Store that the summary in the refused block has failed, if it is a new one."""
    conversation, plan = forwarding.conversation, forwarding.plan
    if plan.block is None or plan.block.summary is None:
        return
    summary, before = plan.block.summary, conversation.block
    if before is None or summary != before.summary:
        given_up = SummaryCandidate("failed", failures=conversation.count_unused_summaries() + 1).to_bytes()
        key = conversation.identity.summary_key(summary.covers, plan.block.focus)
        yield StoreFact(key, given_up, DAY_SECONDS)


def account(forwarding: Planned, delivery: Delivered) -> Actions[Conversation | None]:
    """Store this request as the last one of its conversation, and report the turn.

    Return the conversation as the next request will find it, or None if the answer broke off or the policy only
    observes.
    """
    conversation, plan = forwarding.conversation, forwarding.plan
    if not delivery.is_whole:
        yield _report_turn(forwarding, delivery)
        return None
    identity = conversation.identity
    forwarded_tokens = yield from _count_forwarded(forwarding)
    reported_tokens = _find_prompt_tokens(delivery)
    if not reported_tokens and conversation.rules.recount == "probe" and plan.action == "created":
        reported_tokens = yield from Recount()
    read_tokens = 0
    if is_plausible(forwarded_tokens, reported_tokens) and not conversation.is_observed:
        read_tokens = reported_tokens
    calibration = conversation.calibration.learn(forwarded_tokens, read_tokens)
    after = replace(conversation, block=plan.block or conversation.block)
    read_since_question = after.count_read_since_question()
    if read_since_question is not None:
        read_since_question += _find_size(conversation, plan, read_tokens)
    last = LastRequest(
        Anchor(identity.links[-1], read_tokens, plan.view_id),
        delivery.now,
        identity.counter,
        calibration,
        refused_views=conversation.count_refused_views() + forwarding.is_untouched_retry,
        asked_covers=after.asked_covers,
        read_since_question=read_since_question or 0,
    )
    yield StoreFact(identity.anchor_key(identity.links[-1]), last.to_bytes(), FACT_SECONDS)
    if conversation.last is None and calibration.observations:
        # The tenant's next conversation begins with this calibration.
        yield StoreFact(identity.scale_key, calibration.to_bytes(), FACT_SECONDS)
    cache = _learn_cache(conversation, plan, delivery)
    if cache != conversation.cache:
        yield StoreFact(conversation.model_keys[2], cache.to_bytes(), LEARNED_SECONDS)
    # Reports come after the values that the next request needs.
    if is_silently_cut(forwarded_tokens, delivery):
        upstream = conversation.asked.upstream
        yield Note(PromptTruncated(forwarding.decision.conversation, upstream, forwarded_tokens, reported_tokens))
    yield _report_turn(forwarding, delivery)
    if conversation.asked.mode == "observe":
        return None
    return replace(after, last=last, calibration=calibration)


def _learn_cache(conversation: Conversation, plan: Plan, delivery: Delivered) -> CacheMemory:
    """Learn from a request after a gap whose prefix the upstream had read before."""
    cache, last, cached_tokens = conversation.cache, conversation.last, delivery.usage.cached
    if last is None or cached_tokens is None or plan.action == "created" or last.anchor.view_id != plan.view_id:
        return cache
    gap, min_prefix_tokens = conversation.asked.now - last.forwarded_at, 4_096
    if gap < MIN_GAP_SECONDS or last.anchor.tokens < min_prefix_tokens:
        return cache
    # In between nothing is certain: the cache may have found only the instructions, which other conversations share.
    share = cached_tokens / last.anchor.tokens
    lost_share, found_share = 0.5, 0.8
    if lost_share < share < found_share:
        return cache
    return cache.learn(gap, was_found=share >= found_share)


def _find_prompt_tokens(delivery: Delivered) -> int:
    if delivery.forwarded_tokens is None:
        return delivery.usage.prompt
    return delivery.forwarded_tokens


def _find_size(conversation: Conversation, plan: Plan, read_tokens: int) -> int:
    if read_tokens and conversation.rules.estimator == "tokens":
        return read_tokens
    return plan.tokens_after


def _count_forwarded(forwarding: Planned) -> Actions[int]:
    plan, state, asked = forwarding.plan, forwarding.state, forwarding.conversation.asked
    if plan.action == "created" or state is None:
        return sum((yield from CountTokens(list_forwarded_pieces(plan))))
    outside = [plan.tools or b"", *map(attrgetter("raw"), asked.request.head)]
    return sum(map(asked.count, outside)) + state.known_view.count_tokens(asked.count)


def is_silently_cut(counted_tokens: int, delivery: Delivered) -> bool:
    """Return whether the upstream has read far less than was sent: some servers cut a prompt without an error."""
    if delivery.says_truncated:
        return True
    if counted_tokens < 2_000:  # noqa: PLR2004 (markup drowns the difference between our count and the upstream's)
        return False
    # Some servers report only the uncached part as prompt tokens, as Anthropic does: that is no cut.
    # https://docs.anthropic.com/en/docs/build-with-claude/prompt-caching
    read = max(_find_prompt_tokens(delivery), delivery.usage.cached or 0)
    return bool(delivery.usage.prompt) and read < counted_tokens / 2


def report_answered_here(forwarding: Planned) -> Note:
    """Report a turn of which nothing was sent, without figures: it tells whose the stored block and summary are."""
    no_figures = {"tokens_before": 0, "tokens_after": 0, "tokens_would_be": 0, "tokens_unshortened": 0, "refetches": 0}
    decision = replace(forwarding.decision, outcome="none", **no_figures)
    delivery = Delivered(forwarding.conversation.asked.now, is_whole=False)
    return _report_turn(replace(forwarding, decision=decision), delivery)


def _report_turn(forwarding: Planned, delivery: Delivered) -> Note:
    conversation, plan = forwarding.conversation, forwarding.plan
    asked, decision, usage, now = conversation.asked, forwarding.decision, delivery.usage, delivery.now
    identity, request = conversation.identity, asked.request
    paid_dollars = plain_dollars = would_be_dollars = None
    if usage.cached is not None and usage.prompt:
        paid_dollars = price_prompt(conversation.window, usage.prompt, usage.cached)
        plain_dollars = would_be_dollars = paid_dollars
        if decision.tokens_after != decision.tokens_before:
            plain_dollars = _price_unchanged(conversation, plan, usage, now)
        if decision.tokens_after != decision.tokens_would_be:
            # The price of the prompt if the observed plan had been forwarded.
            ratio = usage.prompt / max(1, plan.tokens_before)
            cached_tokens = _count_cached_observed(forwarding, now) if usage.cached else 0
            would_be_tokens = round(plan.tokens_after * ratio)
            would_be_dollars = price_prompt(conversation.window, would_be_tokens, round(cached_tokens * ratio))
    turn = TurnEnded(
        conversation=decision.conversation,
        tenant=identity.tenant,
        link=identity.links[-1].hex(),
        team=asked.caller.team,
        key=asked.caller.key_id,
        tag=asked.caller.tag[:64],
        model=request.model[:MODEL_MAX_CHARS],
        upstream=asked.upstream,
        policy=decision.policy,
        policy_version=decision.version,
        action=decision.outcome,
        reason=decision.reason,
        messages=len(request.body),
        tokens_before=decision.tokens_before,
        tokens_after=decision.tokens_after,
        tokens_would_be=decision.tokens_would_be,
        tokens_unshortened=decision.tokens_unshortened,
        refetches=decision.refetches,
        prompt_tokens=usage.prompt,
        cached_tokens=usage.cached,
        output_tokens=usage.written,
        paid_dollars=paid_dollars,
        plain_dollars=plain_dollars,
        would_be_dollars=would_be_dollars,
        answer_dollars=price_answer(conversation.window, usage.prompt, usage.written),
        asked_by_user=bool(request.body) and observations.is_of_user(request.body[-1]),
        request_id=asked.request_id,
        is_first=delivery.is_whole and conversation.has_store_answered and conversation.last is None,
    )
    return Note(turn)


def _price_unchanged(conversation: Conversation, plan: Plan, usage: Usage, now: float) -> float | None:
    """Return the price of the prompt without this proxy.

    A request that shortening has caused would not have been made, and its answer not been written. One that would not
    have fit would have been refused: it saves nothing.
    """
    window, refetch_cost = conversation.window, plan.refetch_cost
    if refetch_cost.is_whole_step:
        return price_answer(window, plan.tokens_after, -usage.written)
    if window.tokens is not None and plan.tokens_unshortened > window.tokens:
        return price_prompt(window, usage.prompt, usage.cached or 0)
    cached_tokens = 0
    if usage.cached or plan.action == "created":
        refetched_tokens = refetch_cost.tokens - refetch_cost.new_tokens  # the new ones are not among the cached
        cached_tokens = _count_cached_unchanged(conversation, plan, now) - refetched_tokens
    return price_prompt(window, plan.tokens_unshortened, cached_tokens)


def _count_cached_observed(forwarding: Planned, now: float) -> int:
    conversation, plan = forwarding.conversation, forwarding.plan
    unchanged_tokens = _count_cached_unchanged(conversation, plan, now)
    if not unchanged_tokens:
        return 0
    cached_tokens = max(0, plan.tokens_after - (plan.tokens_before - unchanged_tokens))
    if plan.action != "created" or forwarding.state is None:
        return cached_tokens
    shared = count_shared(conversation.asked.request.head + forwarding.state.view, plan.view)
    pieces = [plan.tools or b"", *map(attrgetter("raw"), plan.view[:shared])]
    return min(cached_tokens, sum(map(conversation.count, pieces)))


def _count_cached_unchanged(conversation: Conversation, plan: Plan, now: float) -> int:
    last, body, links = conversation.last, conversation.asked.request.body, conversation.identity.links
    start = find_last_assistant(body) or 0
    if last is not None:
        facts = conversation.gather_facts(can_summarize=False)
        if now - last.forwarded_at > facts.cache_seconds:
            return 0
        if last.anchor.link in links:
            start = links.index(last.anchor.link)
    count = conversation.count
    return plan.tokens_before - sum(count(message.raw) for message in body[start:])


def prepare_next_summary(forwarding: Planned, after: Conversation, last: LastRequest) -> Actions[None]:
    """*after*: the conversation with this request as its *last* one."""
    conversation, plan = forwarding.conversation, forwarding.plan
    if forwarding.state is not None:
        facts = forwarding.state.facts
    else:
        facts = conversation.gather_facts(can_summarize=True)
    size = _find_size(conversation, plan, last.anchor.tokens)
    if conversation.asked.provider_compacts or not planning.is_near_limit(size, conversation.rules, facts):
        return
    if _was_planned(conversation, last.anchor, size, facts) or not (yield from CanSummarize(conversation)):
        return
    after = yield from find_summary(after)
    yield AnnounceLargeWork()
    state = after.build_state(after.gather_facts(can_summarize=True), rules=after.rules)
    question = planning.plan_next_summary(state)
    if question is not None:
        yield StartSummary(question, after)


def _was_planned(conversation: Conversation, anchor: Anchor, size: int, facts: Facts) -> bool:
    """Return whether the last request has planned a summary already.

    Planning reads the whole history, so it is repeated only when that has grown by a sixteenth of its limit.
    """
    rules, last, links = conversation.rules, conversation.last, conversation.identity.links
    limit = rules.find_limit(facts)
    if limit is None or last is None or last.anchor.view_id != anchor.view_id:
        return False
    if last.anchor.tokens and anchor.tokens:
        size_before, size = last.anchor.tokens, anchor.tokens
    elif last.anchor.link in links:  # many upstreams report no usage in a stream
        new_messages = conversation.asked.request.body[links.index(last.anchor.link) :]
        size_before = size - sum(conversation.count(message.raw) for message in new_messages)
    else:
        return False
    stride = max(1, limit.tokens // 16)
    is_same = size_before // stride == size // stride
    return is_same and planning.is_near_limit(size_before, rules, facts)
