"""What is written down for a request: originals before a lossy act, and blocks and windows once it is accepted.

A block is stored only after the upstream has accepted a request that used it: a refused one must not stay.
"""

from dataclasses import replace

from proxy.path.actions import (
    Actions,
    BeginCompaction,
    EndCompaction,
    Forwarding,
    KeepOriginals,
    NoteLocalWindow,
    ShareProbedWindow,
    StoreBlock,
    StoreFact,
)
from proxy.path.conversation import Conversation, Decision
from proxy.path.originals_rule import Originals, Writing, choose_writing, may_fold_unwritten
from proxy.path.planning import Plan
from proxy.shorten.block import DAY_SECONDS, MAX_FAILURES, SummaryCandidate
from proxy.shorten.economics import LEARNED_SECONDS, LearnedLimit


def begin(forwarding: Forwarding) -> Actions[Forwarding | None]:
    """Write the original, and report that a compaction begins. None: without the original it may not begin."""
    conversation, plan = _read(forwarding)
    next_forwarding = yield from _write_original(forwarding, is_known_caller=conversation.may_store(plan))
    if next_forwarding is None or plan.action != "created" or next_forwarding.is_announced:
        return next_forwarding
    yield BeginCompaction(plan.reason, plan.tokens_without_block, next_forwarding.originals_are_written, conversation)
    return replace(next_forwarding, is_announced=True)


def report_end(decision: Decision) -> Actions[None]:
    """Report a new block."""
    if decision.plan is not None and decision.plan.action == "created":
        yield EndCompaction(decision)


def _write_original(forwarding: Forwarding, *, is_known_caller: bool) -> Actions[Forwarding | None]:
    """Fulfil the table's duty about the original of a shortened history. None: it may not be forwarded."""
    conversation, plan = _read(forwarding)
    if not forwarding.decision.rewrites or forwarding.originals_are_written:
        return forwarding
    originals, is_new_block = conversation.context.originals, plan.action == "created"
    writing = choose_writing(originals, is_new_block=is_new_block, is_known_caller=is_known_caller)
    if writing is Writing.NOTHING:
        return forwarding
    is_written: bool = yield KeepOriginals(writing, conversation)
    if not is_written:
        fits = not forwarding.was_refused and conversation.fits(plan.tokens_before)
        may_fold = may_fold_unwritten(originals, is_new_block=is_new_block, fits=fits)
        if not may_fold:
            return None
        return forwarding
    return replace(forwarding, originals_are_written=writing is not Writing.CHECK)


def remember(forwarding: Forwarding) -> Actions[None]:
    """Remember a request that the upstream has accepted."""
    if not _is_identified(forwarding):
        return
    conversation, plan = _read(forwarding)
    if conversation.is_observed and plan.action != "none" and conversation.context.originals is not Originals.OFF:
        # Nothing is lost. The admin pages show how each message would have been shortened.
        yield KeepOriginals(Writing.HAND_OVER, conversation)
    if not (yield from store_written(forwarding)):
        return
    tenant = conversation.identified.tenant
    if forwarding.learned is not None:
        yield from learn_window(conversation, forwarding.learned)
    yield ShareProbedWindow(conversation.window_keys(tenant)[1])


def store_written(forwarding: Forwarding) -> Actions[bool]:
    """Store the new block, if its original is written or need not be. False: it must be, and is not."""
    conversation, plan = _read(forwarding)
    # The history of a caller that was unknown until now, shortened for the first time, is written here.
    if (yield from _write_original(forwarding, is_known_caller=True)) is None:
        return False
    yield from _store_block(conversation, plan)
    return True


def _store_block(conversation: Conversation, plan: Plan) -> Actions[None]:
    """Store the new block under its link; if that holds a summary of another head, under link and head."""
    if plan.block is None:
        return
    identity, memory = conversation.identified, conversation.memory
    block = plan.block.bound_to(identity.head).to_bytes()
    for key in identity.block_keys(plan.link, observed=conversation.is_observed):
        replaces = None
        if memory.block_key == key:
            replaces = memory.block_bytes
        stored_block: bytes | None = yield StoreBlock(key, block, replaces)
        if stored_block is None or conversation.serves(conversation.context.read_block(stored_block)):
            return


def learn_window(conversation: Conversation, limit: LearnedLimit) -> Actions[None]:
    """Remember a limit that an overflow taught."""
    yield NoteLocalWindow(limit.window())
    key = conversation.window_keys(conversation.identified.tenant)[0]
    yield StoreFact(key, limit.to_bytes(), LEARNED_SECONDS)


def give_up_summary(forwarding: Forwarding) -> Actions[None]:
    """Mark a new summary as failed: the upstream calls the request invalid, and the summary may be the cause."""
    if not _is_identified(forwarding):
        return
    conversation, plan = _read(forwarding)
    if plan.block is None or plan.block.summary is None:
        return
    summary, before = plan.block.summary, conversation.memory.block
    if before is None or summary != before.summary:
        given_up = SummaryCandidate("failed", failures=MAX_FAILURES).to_bytes()
        key = conversation.identified.summary_key(summary.covers, plan.block.focus)
        yield StoreFact(key, given_up, DAY_SECONDS)


def _is_identified(forwarding: Forwarding) -> bool:
    """Return True if something was decided about the conversation, and is to be remembered."""
    return forwarding.conversation is not None and forwarding.conversation.identity is not None


def _read(forwarding: Forwarding) -> tuple[Conversation, Plan]:
    """Return the conversation and the plan of a forwarding that was decided on."""
    conversation, plan = forwarding.conversation, forwarding.decision.plan
    if conversation is None or plan is None:
        raise ValueError("nothing was decided yet")
    return conversation, plan
