"""What is decided, and why: each occasion for a block, and each reason to make none."""

import pytest
from msgspec.structs import replace

from proxy.decide.planning import find_thresholds
from proxy.history.identity import compute_chain
from proxy.history.pins import Pins
from proxy.shorten.clear_results import ClearResults, ClipOutput
from proxy.shorten.economics import Prices
from proxy.shorten.fold import OPENING
from proxy.shorten.rules import Anchor, Facts, Keep, Rules
from proxy.shorten.summary import SummaryRules
from proxy.shorten.tool_designs import OneLiners
from tests.support.compaction_worker import BIG, Worker, work
from tests.support.messages import KEY, TENANT, assistant, body, call, history, parse_request, system, user

ALONE = SummaryRules(enabled=False)
RULES = Rules(
    always=(ClipOutput(),),
    when_full=(ClearResults(over=500),),
    keep=Keep(tokens=1_000, groups=3),
    clear_at_least=2_000,
    trigger=0.8,
    summary=ALONE,
)
WINDOW = Facts(usable_tokens=8_000)
LIMIT = 6_400
ASIDE = [*assistant("Done."), *user("Summarize this conversation.")]


def done(messages, rules=RULES, facts=WINDOW):
    plan = Worker(rules, facts).send(messages).plan
    return plan.action, plan.reason


def continue_history(messages, answer="Go on.", text="Yes?"):
    return [*messages, *assistant(answer), *user(text)]


def test_when_enough_can_go_it_goes_in_one_stride():
    plan = Worker(RULES, WINDOW).send(work(10)).plan
    assert (plan.action, plan.reason) == ("created", "stride")
    assert plan.tokens_before - plan.tokens_after >= RULES.clear_at_least
    assert [(report.step, report.saved) for report in plan.reports] == [
        ("clear_results", plan.tokens_before - plan.tokens_after)
    ]


def test_a_block_names_the_turns_that_none_before_it_took():
    """The last of one block and the first of the next may be one turn, which is cut within."""
    tasks = [[*user(f"Task {n}."), *call("Read", path=f"{n}.py", out=BIG), *assistant("Done.")] for n in range(20)]
    worker = Worker(replace(RULES, clear_at_least=1_000_000), WINDOW)
    plans = [worker.send(history(*tasks[:count])).plan for count in (12, 20)]
    assert [plan.turns for plan in plans] == [(1, 11), (11, 19)]


def test_by_default_results_are_never_cleared_below_the_trigger_while_the_cache_is_warm():
    assert done(work(80), Rules(summary=ALONE), Facts(usable_tokens=100_000)) == ("none", "")


def test_without_new_blocks_existing_ones_apply():
    worker = Worker(replace(RULES, new_blocks=False), WINDOW)
    assert worker.send(work(20)).plan.action == "none"
    worker.rules = RULES
    made = worker.send(work(20))
    worker.rules = replace(RULES, new_blocks=False)
    again = worker.send(continue_history(work(20)))
    assert again.plan.action == "applied"
    assert again.raws[: len(made.raws)] == made.raws


USUAL = Rules(summary=ALONE)
LARGE = Facts(usable_tokens=100_000)
HOUR = 3_600.0


def test_with_an_expired_cache_a_fold_is_due_as_soon_as_it_frees_enough():
    worker = Worker(USUAL, replace(LARGE, idle_seconds=301.0))
    assert worker.send(work(70)).plan.action == "none"
    plan = worker.send(work(90)).plan
    assert (plan.action, plan.reason) == ("created", "cold")
    assert plan.tokens_before - plan.tokens_after >= USUAL.fold_cold_at_least
    assert done(work(90), replace(USUAL, fold_cold_at_least=0), replace(LARGE, idle_seconds=301.0)) == ("none", "")


def test_a_cache_is_expired_once_it_was_left_alone_for_longer_than_it_lives():
    assert done(work(90), USUAL, replace(LARGE, idle_seconds=300.0)) == ("none", "")
    assert done(work(90), USUAL, replace(LARGE, idle_seconds=1_800.0, cache_seconds=HOUR)) == ("none", "")
    assert done(work(90), USUAL, replace(LARGE, idle_seconds=3_601.0, cache_seconds=HOUR)) == ("created", "cold")
    assert done(work(90), USUAL, replace(LARGE, idle_seconds=None)) == ("none", "")


def test_where_caches_live_for_an_hour_a_users_message_is_the_moment():
    long_lived = replace(LARGE, idle_seconds=30.0, cache_seconds=HOUR)
    at_message = continue_history(work(90))
    assert done(at_message, USUAL, long_lived) == ("created", "user")
    assert done(work(90), USUAL, long_lived) == ("none", "")
    assert done(continue_history(work(75)), USUAL, long_lived) == ("none", "")
    assert done(at_message, USUAL, replace(LARGE, idle_seconds=30.0)) == ("none", "")


def test_the_agents_own_words_stay_as_long_as_its_results_are_enough():
    told = "I see how the totals are rounded. " * 40
    messages = work(1)
    for step in range(60):
        messages += history(assistant(f"{step} {told}"), call("Read", path=f"{step}.py", out=f"{step}\n{BIG}\n{BIG}"))
    cold = replace(LARGE, usable_tokens=200_000, idle_seconds=600.0)
    plan = Worker(USUAL, cold).send(messages).plan
    assert plan.reason == "cold"
    assert plan.tokens_after > USUAL.find_goal(95_000)
    assert sum(message.text.endswith(told) for message in plan.view) == 60


DEEP = replace(RULES, clear_at_least=0)


def test_over_the_trigger_the_view_goes_down_to_the_target():
    plan = Worker(DEEP, WINDOW).send(work(12)).plan
    assert (plan.action, plan.reason) == ("created", "window")
    assert plan.tokens_after <= DEEP.find_goal(LIMIT)
    assert done(work(9), DEEP) == ("none", "")


def test_of_window_cliff_and_a_number_of_tokens_the_lowest_counts():
    cliff = replace(WINDOW, prices=Prices(cliffs=(4_000,)))
    assert done(work(9), DEEP, cliff) == ("created", "cliff")
    assert done(work(9), replace(DEEP, trigger_tokens=3_000), cliff) == ("created", "window")
    assert done(work(9), replace(DEEP, trigger=0), WINDOW) == done(work(9), DEEP, Facts()) == ("none", "")
    assert done(work(9), replace(DEEP, trigger="auto"), Facts()) == ("none", "")


def test_if_need_be_less_of_the_newest_is_left_alone():
    plan = Worker(replace(DEEP, keep=Keep(groups=20)), WINDOW).send(work(16)).plan
    assert plan.reason == "window"
    assert plan.tokens_after <= 8_000


def test_a_history_of_protected_messages_makes_a_floor_and_not_a_block():
    text = history(
        user("Mend it."), assistant("How?"), system("word " * 5_000), assistant("I see."), user("word " * 3_000)
    )
    assert done(text, DEEP) == ("none", "floor")
    assert done(work(12), replace(DEEP, min_groups=20)) == ("none", "min_groups")
    assert done(work(12), replace(DEEP, min_turns=1)) == ("none", "min_turns")
    assert done([*work(12), *user("Go on.")], replace(DEEP, min_turns=1)) == ("created", "window")


@pytest.mark.parametrize(
    ("usable", "limit"), [(None, 95_000), (8_000, 6_640), (100_000, 83_000), (200_000, 95_000), (1_000_000, 95_000)]
)
def test_the_trigger_auto_is_a_share_of_a_small_window_and_a_number_of_tokens_in_any_other(usable, limit):
    assert Rules().find_limit(Facts(usable_tokens=usable)) == (limit, "window")


@pytest.mark.parametrize("usable", [8_000, 1_000_000])
def test_a_trigger_that_was_typed_is_in_force_in_any_window(usable):
    assert Rules(trigger=0.3).find_limit(Facts(usable_tokens=usable)) == (int(usable * 0.3), "window")


def test_a_block_leaves_room_for_the_next_requests_and_half_of_all_where_it_is_asked_for():
    assert [Rules().find_goal(limit) for limit in (100_000, 20_000, 8_000)] == [25_000, 8_000, 4_000]
    assert Rules(target=0.8).find_goal(8_000) == 6_400
    assert [Rules(**own).find_goal(100_000, "forced") for own in ({"target": 0.8}, {})] == [50_000, 25_000]


def test_a_message_folded_before_it_was_pinned_returns_once_with_the_next_block():
    folding = replace(DEEP, when_full=(), fold=(OneLiners(tokens=0),))
    worker = Worker(folding, WINDOW)
    asked = [
        *user("Mend it."),
        *assistant("How? " * 200),
        *user("As you like. <pin>Never push.</pin>"),
        *assistant("Good."),
        *user("Go."),
    ]
    worker.send([*asked, *work(12)[1:]])
    worker.rules, worker.facts = replace(RULES, pins=Pins(tags=("pin",))), Facts()
    sent = [worker.send([*asked, *work(steps)[1:]]) for steps in (16, 22, 28)]
    note = f"{OPENING}\nPinned, word for word:\n<pin>Never push.</pin>\n"
    assert [each.plan.reason for each in sent] == ["stride"] * 3
    assert [[message.text.startswith(note) for message in each.plan.view].count(True) for each in sent] == [1] * 3


def test_no_size_is_below_zero_where_an_upstream_counts_far_less():
    messages = work(12)
    links = compute_chain(parse_request(body(messages)), TENANT, KEY)
    anchor = Anchor(links[-1], tokens=900, view_id=b"")
    facts = replace(WINDOW, anchor=anchor, force=True)
    plan = Worker(RULES, facts).send(messages).plan
    assert plan.action == "created"
    assert plan.tokens_before == 900
    assert plan.tokens_after >= 0


@pytest.mark.parametrize(("size", "is_quiet"), [(1_999, True), (2_000, False)])
def test_the_notice_threshold_is_below_every_stride_and_limit(size, is_quiet):
    assert (size < find_thresholds(RULES, Facts())[1]) == is_quiet
    assert find_thresholds(RULES, Facts(force=True)) == (0, 0)
    assert size >= find_thresholds(RULES, Facts(usable_tokens=1_000))[1]
    asking = replace(RULES, clear_at_least=0, trigger_tokens=2_100, summary=SummaryRules(prepare=0.8))
    assert size >= find_thresholds(asking, Facts())[1]
    # The upstream may count twice as many tokens, unless only the estimate counts.
    alone = replace(asking, summary=ALONE)
    doubtful_size, own_size = find_thresholds(alone, Facts())
    assert doubtful_size <= size < own_size
    assert size < find_thresholds(replace(alone, estimator="chars"), Facts())[0]


def test_compaction_by_name_makes_a_block_however_little_it_saves():
    assert done(work(5), facts=Facts(force=True)) == ("created", "summaries-off")


def test_the_same_request_again_is_done_already():
    worker = Worker(RULES, Facts(force=True))
    first, second = worker.send(work(6)), worker.send(work(6))
    assert (second.plan.action, second.plan.reason) == ("applied", "")
    assert second.left == first.left
    assert worker.send([*work(6), *work(14)[13:]]).plan.block.reason == "forced"


def test_a_question_about_the_conversation_gets_existing_blocks_only():
    worker = Worker(RULES, WINDOW)
    assert worker.send([*work(10), *ASIDE]).plan.action == "none"
    made = worker.send(work(10))
    beside = worker.send([*work(20)[:25], *ASIDE])
    assert (made.plan.action, beside.plan.action) == ("created", "applied")
    assert beside.raws[: len(made.raws) - 8] == made.raws[: len(made.raws) - 8]


def test_unless_it_is_asked_for_or_does_not_fit():
    assert done([*work(10), *ASIDE], facts=replace(WINDOW, force=True)) == ("created", "summaries-off")
    assert done([*work(20), *ASIDE]) == ("created", "window")


def test_the_first_rewrite_of_an_always_step_stores_a_block():
    huge = history(user("x"), call("Bash", out="y\n" * 15_000))
    worker = Worker(RULES)
    first = worker.send(huge)
    assert (first.plan.action, first.plan.reason) == ("created", "opening")
    worker.rules = replace(RULES, always=())
    second = worker.send(continue_history(huge))
    assert (second.plan.action, second.raws[: len(first.raws)]) == ("applied", first.raws)


MARK = {"cache_control": {"type": "ephemeral"}}
CONTENTS = {
    "a list for the mark only": lambda text, mark: [{"type": "text", "text": text, **mark}] if mark else text,
    "a list in any case": lambda text, mark: [{"type": "text", "text": text, **mark}],
    "two parts": lambda text, mark: [{"type": "text", "text": "Two:"}, {"type": "text", "text": text, **mark}],
}


@pytest.mark.parametrize("write", CONTENTS.values(), ids=CONTENTS)
@pytest.mark.parametrize("size", [450, 480, 500, 2_000, 19_960, 25_000])
def test_a_cache_mark_that_moves_on_changes_nothing_of_what_an_always_step_did(write, size):
    """Clients mark the newest message, some in a list that is there for the mark only, and take it off a turn later."""
    first = call("Read", path="first.py", out="y" * 30_000)  # an always-step acts from here on
    more = [call("Read", path=f"{turn % 2}.py", out=f"{turn % 2}" * size) for turn in range(5)]
    read = history(user("x"), first, *more)
    worker = Worker(replace(RULES, always=Rules().always, when_full=(), clear_at_least=1))
    before = []
    for newest in (place for place, message in enumerate(read) if message["role"] == "tool"):
        sent = worker.send(
            [
                {**each, "content": write(each["content"], MARK if place == newest else {})}
                if each["role"] == "tool"
                else each
                for place, each in enumerate(read[: newest + 1])
            ]
        )
        said = [
            "".join(part["text"] for part in each["content"]) if isinstance(each["content"], list) else each["content"]
            for each in sent.messages
        ]
        assert said[: len(before)] == before
        before = said


@pytest.mark.parametrize(("usable", "outcome"), [(8_000, ("none", "floor")), (7_000, ("created", "window"))])
def test_a_block_that_frees_less_than_a_tenth_is_made_only_if_it_makes_the_request_fit(usable, outcome):
    one_can_go = replace(DEEP, when_full=(ClearResults(over=2_700),), fold=())
    largest = call("Read", path="long.py", out=BIG + BIG[:700])
    messages = [*user("Mend the tests."), *history(largest), *work(11)[1:]]
    assert done(messages, one_can_go, Facts(usable_tokens=usable)) == outcome


@pytest.mark.parametrize(("words", "outcome"), [(5_800, ("none", "floor")), (6_000, ("created", "window"))])
def test_a_little_that_may_go_goes_only_if_it_makes_the_request_fit(words, outcome):
    lasting = [*assistant("How?"), *system("word " * words), *assistant("I see."), *user("Go on.")]
    assert done([*work(1), *lasting], DEEP) == outcome


def test_a_fold_takes_no_more_than_it_must_although_its_notes_take_room_as_well():
    reads = [call("Read", path=f"{step}.py", out=f"{step}\n{BIG}"[: (400, 2_000)[step % 2]]) for step in range(36)]
    rules = replace(DEEP, when_full=(), target=0.7, keep=Keep(tokens=300, groups=2))
    plan = Worker(rules, WINDOW).send(history(user("Mend the tests."), *reads)).plan
    assert 0.75 * rules.find_goal(LIMIT) < plan.tokens_after <= rules.find_goal(LIMIT)
