"""One request, from its first byte to its last note, as one generator.

    recognize      is the history large enough to matter, and remembered?
    shorten        the plan; may ask a model for a summary
    Send           it is sent, and the reply tells how the answer begins
    try_remedies   after a refusal: once more, with something changed
    remember       after an acceptance: stores the block, and the originals of a new caller
    Deliver        the answer is delivered to the client
    account        its cost, and the upstream's count
    prepare_next_summary   asks for the summary that the next requests will need

`run` is driven by the proxy (`serve/driver.py`), by the lab in simulated time (`lab/replay/simulation.py`) and by
tests, so published figures and proofs are about the code that serves. All state is in local variables and frozen
values: a retry that is refused as well leaves nothing to put back.
"""

from typing import Any

from msgspec.structs import replace

from proxy.decide import planning
from proxy.decide.actions import (
    Action,
    Actions,
    AnnounceLargeWork,
    AwaitSummary,
    CanSummarize,
    CountTokens,
    Deliver,
    Finished,
    Forwarding,
    Gather,
    Halt,
    NoteAccepted,
    Planned,
    Send,
    StartSummary,
)
from proxy.decide.conversation import Asked, Conversation, Decision, Originals
from proxy.decide.planning import NeedSummary, Plan
from proxy.decide.remedies import REMEDIES, REMEDIES_IN_BYPASS, forward_untouched, plan_untouched, try_remedies
from proxy.decide.remember import (
    account,
    begin,
    find_summary,
    load_memory,
    prepare_next_summary,
    recognize,
    remember,
    report_answered_here,
    report_end,
    store_written,
)
from proxy.shorten.state import ConversationState


def run(*, is_small: bool = False) -> Actions[None]:
    """Return the life of a request. *is_small*: nothing is decided unless the upstream refuses it."""
    forwarding = Forwarding()
    if not is_small:
        forwarding = yield from decide((yield from Gather()))
    opening = yield from Send(forwarding)
    if opening.refusal is not None:
        forwarding, opening = yield from try_remedies((yield from Gather()), forwarding, opening, REMEDIES)
    if opening.refusal is None:
        yield NoteAccepted(forwarding.refused_option)
        if isinstance(forwarding, Planned):
            yield from remember(forwarding)
    delivery = yield from Deliver(forwarding, opening)
    if isinstance(forwarding, Planned):
        after = yield from account(forwarding, delivery)
        if after is not None and after.last is not None:
            yield from prepare_next_summary(forwarding, after, after.last)


def bypass() -> Actions[None]:
    """Return the life of a request in the mode `bypass`, which its client wants forwarded as it is.

    Only signed reasoning is removed, if the upstream refuses it. Under an operator's switch of this name, requests live
    as all others do: `decide` forwards their own bytes if they fit.
    """
    forwarding = Forwarding(Decision("bypassed"))
    opening = yield from Send(forwarding)
    if opening.refusal is not None:
        asked = yield from Gather()
        forwarding, opening = yield from try_remedies(asked, forwarding, opening, REMEDIES_IN_BYPASS)
    yield Deliver(forwarding, opening)


def compact(*, store: bool) -> Actions[Decision]:
    """Compact a history for a client that waits as long as a summary may take. *store*: store the block at once."""
    asked = yield from Gather()
    yield CountTokens(asked.pieces)
    conversation = yield from load_memory(asked, asked.find_rules())
    originals = asked.originals
    if not store:
        originals = Originals.OFF
    elif originals in (Originals.TO_FIT, Originals.BEFORE_LOSS) and conversation.is_known_caller:
        # Without its original the block may not be made. That is an error here: the client would not notice it.
        originals = Originals.REQUIRED
    conversation = replace(conversation, asked=replace(asked, originals=originals))
    forwarding = yield from shorten(conversation)
    if conversation.may_store(forwarding.plan):
        if store and forwarding.plan.block is not None:
            yield from store_written(forwarding, forwarding.plan.block)
        yield report_answered_here(forwarding)
    return forwarding.decision


def decide(asked: Asked) -> Actions[Forwarding]:
    """Decide how to forward a request. A history below every threshold is left alone, unless it has a block."""
    conversation = yield from recognize(asked)
    if isinstance(conversation, Forwarding):
        return conversation
    # Twice the upstream has accepted only the client's own history, so that is sent at once, if it fits.
    refuses_views = conversation.count_refused_views() > 1
    if refuses_views and asked.mode not in ("observe", "force"):
        sizes = yield from CountTokens(asked.pieces)
        size = sum(map(conversation.count, asked.pieces))
        if sizes and conversation.fits(size):
            return forward_untouched(conversation, size)
    if asked.caller.switch != "on":
        standing = planning.plan_without_model(_build_standing_state(conversation))
        if asked.caller.switch == "bypass" and conversation.fits(standing.tokens_before):
            return Planned.of(conversation, plan_untouched(asked.request, standing.tokens_before))
        if not conversation.fits(standing.tokens_after):
            conversation = conversation.to_fit()
    return (yield from shorten(conversation))


def shorten(conversation: Conversation) -> Actions[Planned]:
    state = conversation.build_state(conversation.gather_facts(can_summarize=True))
    standing_plan = planning.plan_without_rewrite(state)
    if conversation.asked.mode != "observe" and planning.needs_summary(state, standing_plan):
        conversation = yield from find_summary(conversation)
        state = replace(state, facts=conversation.gather_facts(can_summarize=True))
        standing_plan = planning.plan_without_rewrite(state)
    plan: Plan | NeedSummary | None = standing_plan
    if plan is None:
        asking_state = state  # `state` stays as it is: the model may be asked again by the time the answer has come
        if not (yield from CanSummarize(conversation)):
            asking_state = replace(state, facts=conversation.gather_facts(can_summarize=False))
        yield AnnounceLargeWork()
        plan = planning.plan_rewrite(asking_state)
    if isinstance(plan, NeedSummary) and not plan.urgent:
        after_question = conversation
        if plan.question is not None and (yield from StartSummary(plan.question, conversation)):
            after_question = conversation.after_question(plan.question)
        plan = replace(planning.keep_view(state), reason="summary-pending")
        forwarding = Planned.of(after_question, plan, state)
    elif isinstance(plan, NeedSummary):
        # The original is written before the model is asked: a hook may want to read the messages before they go.
        provisional = Planned.of(conversation, replace(plan.without_model, action="created"), state)
        begun = yield from begin(provisional)
        if begun is None:
            unwritten = replace(planning.keep_view(state), reason="originals-unwritable")
            forwarding = Planned.of(conversation, unwritten, state)
        else:
            forwarding = replace(begun, conversation=conversation.after_question(plan.question))
            forwarding = forwarding.with_plan(conversation, (yield from _await_summary(conversation, plan, state)))
    else:
        forwarding = Planned.of(conversation, plan, state)
    next_forwarding = yield from begin(forwarding)
    if next_forwarding is None:
        state = _build_standing_state(conversation)
        forwarding = Planned.of(conversation, planning.plan_without_model(state), state)
        return replace(forwarding, decision=replace(forwarding.decision, reason="originals-unwritable"))
    yield from report_end(next_forwarding)
    return next_forwarding


def _await_summary(conversation: Conversation, need: NeedSummary, state: ConversationState) -> Actions[Plan]:
    facts = state.facts
    covers = need.question.covers if need.question is not None else facts.summary_in_progress_covers
    rules = conversation.rules
    wait_seconds = rules.summary.seconds if facts.force else rules.summary.wait
    summary = yield from AwaitSummary(need.question, covers, wait_seconds, conversation)
    yield AnnounceLargeWork()
    if summary is None:
        return planning.plan_without_summary(state, need.without_model)
    facts = replace(
        facts,
        summary=summary,
        can_summarize=False,
        summary_in_progress_covers=0,
        # If the summary that a client asked for cannot be used, its history must not be folded without one.
        summary_failed=facts.force,
    )
    return planning.plan_without_model(conversation.build_state(facts))


def take_step(actions: Actions[Any], reply: object) -> Halt | Action[Any] | AnnounceLargeWork | Finished:
    """Return the next command, or the end. A thread cannot pass StopIteration to a future, so it is a value here."""
    try:
        return actions.send(reply)
    except StopIteration as stop:
        return Finished(stop.value)


def _build_standing_state(conversation: Conversation) -> ConversationState:
    """Return the history under the block that stands for it, if any, without a new one."""
    rules = replace(conversation.rules, new_blocks=False)
    return conversation.build_state(conversation.gather_facts(can_summarize=True), rules=rules)
