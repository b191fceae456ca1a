"""Decisions while a model may be asked: which requests wait, what is forwarded, and when none is asked."""

import pytest
from msgspec.structs import replace

from proxy.decide.conversation import SummaryCandidate
from proxy.decide.planning import NeedSummary, Plan, make_plan, plan_without_model, plan_without_summary
from proxy.shorten.clear_results import ClearResults
from proxy.shorten.drop_middle import DropMiddle
from proxy.shorten.fold import HEADING
from proxy.shorten.pipeline import estimate_tokens
from proxy.shorten.rules import Anchor, Facts, Keep, Rules
from proxy.shorten.summary import THEN, Summary, SummaryRules, join_summaries
from proxy.shorten.tool_designs import PruneTools
from tests.support.compaction_worker import BIG, Worker, work
from tests.support.messages import assistant, call, history, system, tool, user

RULES = Rules(always=(), when_full=(), trigger=0.8, summary=SummaryRules(max_tokens=100, ledger=400, prepare=0.8))
# Its trigger is at 6,400 tokens; a step weighs about 600.
WINDOW = Facts(usable_tokens=8_000)
NEAR, OVER, ALMOST_FULL, FULL = 9, 11, 12, 15
ASIDE = [*assistant("Done."), *user("Summarize this conversation.")]


def considers(steps, rules=RULES, **facts):
    return Worker(rules, replace(WINDOW, **facts)).considers(work(steps))


def asks(messages, rules=RULES, **facts):
    return Worker(rules, replace(WINDOW, **facts)).asks(messages)


@pytest.mark.parametrize("steps", [5, 15, 30, 60, 120])
def test_a_client_that_asks_by_name_gets_a_view_that_fits_whatever_the_model_answers(steps):
    state = Worker(RULES, replace(WINDOW, force=True, focus="the parser"))._state(work(steps))
    need = make_plan(state)
    assert need.urgent
    told = Summary(need.question.covers, "## Done\nMuch.")
    answered = plan_without_model(replace(state, facts=replace(state.facts, summary=told)))
    plans = need.without_model, plan_without_summary(state, need.without_model), answered
    assert max(plan.tokens_after for plan in plans) <= WINDOW.usable_tokens
    assert HEADING in "".join(message.text for message in answered.view)


def test_a_summary_asked_for_by_name_that_leaves_too_much_is_not_all_that_is_done():
    large = [call("Read", path=f"large_{step}.py", out=f"{step}\n{BIG * 8}") for step in range(2)]
    state = Worker(RULES, replace(WINDOW, force=True, focus="the parser"))._state([*work(10), *history(*large)])
    question = make_plan(state).question
    told = Summary(question.covers, "## Done\nMuch.")
    answered = plan_without_model(replace(state, facts=replace(state.facts, summary=told)))
    assert answered.tokens_after <= WINDOW.usable_tokens


def test_a_repeated_request_by_name_is_shortened_again_where_it_no_longer_fits():
    asked = replace(WINDOW, usable_tokens=80_000, force=True, focus="the parser")
    worker = Worker(RULES, asked, model="## Done\nMuch more was done than that.")
    assert worker.send(work(40)).plan.reason == "forced"
    assert worker.considers(work(40)).action == "applied"
    worker.facts = replace(asked, usable_tokens=1_200)
    assert worker.considers(work(40)).without_model.tokens_after <= 1_200


@pytest.mark.parametrize(("steps", "urgent"), [(OVER, False), (ALMOST_FULL, True), (FULL, True)])
def test_no_request_waits_while_the_view_is_well_within_the_window(steps, urgent):
    need = considers(steps)
    assert isinstance(need, NeedSummary)
    assert need.urgent == urgent


def test_a_request_that_cannot_wait_longer_continues_without_a_model():
    need = considers(FULL)
    assert (need.without_model.action, need.without_model.reason) == ("created", "window")
    assert need.without_model.tokens_after <= WINDOW.usable_tokens < need.without_model.tokens_before
    assert not any(HEADING in message.text for message in need.without_model.view)


def test_while_a_summary_is_running_none_is_requested_again_and_fitting_requests_continue():
    pending = considers(OVER, summary_in_progress_covers=5)
    assert isinstance(pending, Plan)
    assert (pending.action, pending.reason) == ("none", "summary-pending")


def test_a_request_that_must_wait_uses_the_running_summary():
    pending = considers(FULL, summary_in_progress_covers=5)
    assert isinstance(pending, NeedSummary)
    assert (pending.question, pending.urgent) == (None, True)


def test_a_summary_at_hand_that_is_not_enough_any_more_is_followed_by_another_question():
    need = considers(24, summary=Summary(5, "## Done\nLittle."))
    assert need.question.covers > 5


def test_where_a_summary_would_gain_nothing_the_reason_of_the_block_says_so():
    """Ten calls are kept, so that little else could be told in a summary; a fold has to make the request fit."""
    kept = replace(RULES, keep=Keep(groups=11))
    assert considers(FULL, kept).reason == "summary-no-gain"
    assert considers(FULL, replace(kept, summary=SummaryRules(enabled=False))).reason == "window"


@pytest.mark.parametrize(
    ("facts", "reason"), [({"read_since_question": 0}, "summary-no-gain"), ({"can_summarize": False}, "no-summary")]
)
def test_where_no_model_is_asked_the_reason_of_the_block_says_so(facts, reason):
    plan = Worker(RULES, replace(WINDOW, **facts)).send(work(FULL)).plan
    assert (plan.action, plan.block.reason, plan.reason) == ("created", "window", reason)


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        pytest.param(history(user("Mend it."), assistant(BIG * 12), user("And?")), "min_groups", id="too few groups"),
        pytest.param(
            history(*[system("word " * 700), assistant("So.")] * 8, user("And?")), "floor", id="little to fold"
        ),
        pytest.param([*work(OVER), *ASIDE], "", id="an aside"),
    ],
)
def test_no_question_is_asked_about(messages, reason):
    plan = Worker(RULES, WINDOW).considers(messages)
    assert (plan.action, plan.reason) == ("none", reason)


def test_an_aside_that_does_not_fit_is_shortened_like_anything_else():
    assert isinstance(Worker(RULES, WINDOW).considers([*work(FULL), *ASIDE]), NeedSummary)


@pytest.mark.parametrize(("prepare", "asked"), [(0.8, True), (0.9, False), (1.0, False)])
def test_it_is_asked_ahead_over_this_share_of_the_trigger(prepare, asked):
    rules = replace(RULES, summary=replace(RULES.summary, prepare=prepare))
    assert (asks(work(NEAR), rules) is not None) == asked


@pytest.mark.parametrize(
    ("meanwhile", "is_asked"),
    [
        (None, True),
        (SummaryCandidate.claim("another worker"), False),
        (SummaryCandidate("ready", "## Done\nMuch."), False),
    ],
)
async def test_it_is_not_asked_for_again_while_another_worker_makes_it_or_has_it(meanwhile, is_asked):
    """Another request of the conversation has asked after this one looked, and about fewer messages than it would."""
    grown = replace(WINDOW, anchor=Anchor(b"a shorter history", 0, b""))
    worker = Worker(RULES, grown, model="## Done\nMuch.")
    covers = asks(work(NEAR - 1), replace(RULES, summary=replace(RULES.summary, prepare=0.7))).covers
    driver = worker.decides(work(NEAR)).driver
    driver.accept()
    if meanwhile is not None:
        key = driver.forwarding.conversation.identity.summary_key(covers)
        await worker.store.write_fact(key, meanwhile.to_bytes(), 60.0)
    driver.complete()
    assert bool(worker.accounts) == is_asked


def test_without_a_model_the_earlier_summary_stays():
    """A fold without a model takes the newer part; the account of the older one is not thrown away with it."""
    worker = Worker(RULES, replace(WINDOW, summary=Summary(17, "## Done\nPart 3 is mended."), can_summarize=False))
    worker.send(work(OVER))
    worker.rules, worker.facts = replace(RULES, summary=replace(RULES.summary, enabled=False)), WINDOW
    for steps in (22, 30, 40):
        sent = worker.send(work(steps))
        assert sent.plan.reason == "window"
        assert {report.step for report in sent.plan.reports} == {DropMiddle.name}
        assert ["Part 3 is mended." in message.text for message in sent.plan.view].count(True) == 1


def test_the_newest_summaries_are_kept_in_their_order():
    texts = ["## Done\nA\n\n---\n\n## Next\nB", "## Done\nC", "## Done\nD", "## Done\nE"]
    joined = Summary(2, texts[0])
    for number, text in enumerate(texts[1:], 3):
        joined = join_summaries(joined, Summary(number, text), 2)
    assert joined == Summary(5, THEN.join(texts[1:]))
    assert join_summaries(None, joined, 2) == joined
    assert join_summaries(Summary(1, "Old."), joined, 0) == joined


@pytest.mark.parametrize("first", [0, 1, 2, 5])
def test_a_summary_that_a_deep_fold_left_at_the_beginning_is_taken_up_by_the_next_one(first):
    """A fold for a request that would not fit keeps no first groups, so its notes stand where those would."""
    worker = Worker(RULES, WINDOW, model="## Done\nMuch.")
    assert worker.send(work(OVER)).plan.reason == "summary-pending"
    assert HEADING in "".join(message.text for message in worker.send(work(OVER)).plan.view)
    worker.rules = replace(RULES, keep=replace(RULES.keep, first=first))
    for steps in range(OVER + 1, 4 * OVER):
        view = worker.send(work(steps)).plan.view
        assert sum(HEADING in message.text for message in view) == 1, steps


def test_unused_tools_are_removed_with_the_block_and_counted():
    tools = [tool(name, path="string") | {"x": name * 200} for name in ("Read", "Write")]
    rules = replace(RULES, when_full=(PruneTools(), ClearResults(over=500)))
    plan = Worker(rules, WINDOW).send(work(OVER), tools=tools).plan
    assert (plan.reason, plan.block.pruned) == ("window", ("Write",))
    assert plan.tokens_after == sum(estimate_tokens(message.raw) for message in plan.view) + estimate_tokens(plan.tools)
