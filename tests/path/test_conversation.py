"""One exchange of the orchestration, step by step: what it asks its driver for, and what it remembers."""

import json
from dataclasses import replace

import pytest

from proxy.history.identity import Identity
from proxy.path.actions import (
    AwaitSummary,
    BeginCompaction,
    CanKeepOriginals,
    CanSummarize,
    CountTokens,
    Identify,
    KeepOriginals,
    NoteLocalWindow,
    Owner,
    ProbeWindow,
    RecountByProbe,
    Report,
    Rewrite,
    ShareProbedWindow,
    StartSummary,
    StoreBlock,
    StoreFact,
    drive,
)
from proxy.path.conversation import AnswerReport, Context, Exchange, is_silently_cut
from proxy.path.recovery import REASON, SHORTENED_REFUSED, Refusal
from proxy.shorten.calibration import NOT_REPORTED, Usage
from proxy.shorten.memory import MAX_FAILURES, LookUp, SummaryCandidate
from proxy.shorten.rules import Keep, Rules
from proxy.shorten.summary import Summary, SummaryRules
from proxy.shorten.window import PriceCliff, TokenPrices, Window, decode_window
from tests.support.agent import reading
from tests.support.messages import body, call, parse_request, user

WORK = reading(16)
LONGER = reading(24)
SHORT = user("Hello?")
RULES = Rules(policy="small", clear_at_least=3_000, keep=Keep(tokens=1_000))
FOLDING = replace(RULES, when_full=(), clear_at_least=10**9, summary=SummaryRules(prompt="Summarise.", max_tokens=200))
TEXT = "The user reads files one after the other; nothing has failed, and nothing is decided yet."
NOW = 1_000_000.0


def quarter(raw):
    return len(raw) // 4


class StoredValue:
    def __init__(self, key, value):
        self.key, self.value = key, value


class Driver:
    """Performs actions at once and remembers them. Two that share `stored` are two requests to one proxy."""

    def __init__(self, stored=None, *, summary=None, recounted=0, answers=True):
        self.stored = {} if stored is None else stored
        self.actions = []
        self._summary, self._recounted, self._answers = summary, recounted, answers

    def __call__(self, action):  # noqa: C901, PLR0911 (one case per action)
        self.actions.append(action)
        match action:
            case CountTokens(pieces):
                return [quarter(piece) for piece in pieces]
            case Identify():
                return Owner("team", b"k" * 32)
            case LookUp(blocks, facts, windows, summaries) if self._answers:
                return tuple(map(self._first, (blocks, facts, windows, summaries)))
            case CanSummarize():
                return True
            case AwaitSummary(_, covers, _):
                return self._summary(covers) if self._summary is not None else None
            case StoreBlock(key, block, replaces):
                if self.stored.get(key, replaces) == replaces:
                    self.stored[key] = block
                return self.stored[key]
            case StoreFact(key, value):
                self.stored[key] = value
            case KeepOriginals() | CanKeepOriginals():
                return True
            case RecountByProbe():
                return self._recounted
        return None

    def _first(self, keys):
        return next((StoredValue(key, self.stored[key]) for key in keys if key in self.stored), None)

    def kinds(self):
        return [type(action) for action in self.actions]

    def actions_of(self, kind):
        return [action for action in self.actions if isinstance(action, kind)]


def exchange(messages, rules=RULES, max_tokens=None, **context):
    context = {"window": Window(total=1_000_000, origin="config"), "now": NOW, **context}
    asked = {} if max_tokens is None else {"max_tokens": max_tokens}
    return Exchange(Context(request=parse_request(body(messages, **asked)), rules=rules, count=quarter, **context))


def accepted_exchange(messages, driver, rules=RULES, usage=NOT_REPORTED, now=NOW, **context):
    """An exchange that the upstream accepted and answered."""
    made = exchange(messages, rules, **context)
    drive(made.prepare(), driver)
    drive(made.accept(), driver)
    drive(made.complete(AnswerReport(usage), now), driver)
    return made


# --- before the upstream is asked ------------------------------------------------------------------------------------


def test_a_short_history_asks_for_nothing():
    driver = Driver()
    decision = drive(exchange(SHORT).prepare(), driver)
    assert (decision.outcome, decision.plan, decision.tokens_before) == ("none", None, 0)
    assert driver.actions == []


def test_a_history_that_makes_a_block_is_counted_looked_up_decided_on_and_stored_once_it_is_accepted():
    driver = Driver()
    made = exchange(WORK, keeps_originals=True)
    decision = drive(made.prepare(), driver)
    assert decision.outcome == "created"
    assert decision.rewrites
    assert driver.kinds() == [
        *(CountTokens, ProbeWindow, Identify, LookUp, NoteLocalWindow, CanSummarize, Rewrite, KeepOriginals),
        BeginCompaction,
    ]
    assert driver.stored == {}
    drive(made.accept(), driver)
    assert driver.kinds()[-2:] == [StoreBlock, ShareProbedWindow]
    assert len(driver.actions_of(KeepOriginals)) == 1


def test_a_history_is_gone_over_whole_only_where_a_block_comes_of_it():
    """Not for results that stay anyway, of tools that are exempt."""
    exempt = call("TodoWrite", out="Read the next file. " * 400)
    driver, made, length = Driver(), 0, len(reading(1))
    for number in range(4, 40):
        history = [*reading(number)[:length], *exempt, *reading(number)[length:]]
        made += (
            accepted_exchange(history, driver, replace(RULES, when_full=Rules().when_full)).decision.outcome
            == "created"
        )
    assert made > 2
    assert len(driver.actions_of(Rewrite)) <= 2 * made


def test_the_next_request_finds_the_block():
    driver = Driver()
    first = accepted_exchange(WORK, driver)
    second = drive(exchange(WORK).prepare(), Driver(driver.stored))
    assert [message.raw for message in second.plan.view] == [message.raw for message in first.decision.plan.view]
    assert second.outcome == "applied"


def forward_in_turn(windows, steps, driver, lengths=(800, 8_000)):
    """The outcomes of requests that ask for answers of these lengths in turn, each with whether the last request, as it
    was forwarded, is a prefix of it.
    """
    before = []
    for number, (window, step) in enumerate(zip(windows, steps, strict=True)):
        wanted = lengths[number % len(lengths)]
        rules = replace(FOLDING, summary=SummaryRules(enabled=False))
        made = accepted_exchange(reading(step), driver, rules, max_tokens=wanted, window=window)
        plan = made.decision.plan
        view = [message.raw for message in (made.context.request.messages if plan is None else plan.view)]
        yield made.decision.outcome, view[: len(before)] == before
        before = view


SMALL, LARGE = Window(total=20_000, origin="config"), Window(total=50_000, origin="config")


def test_a_block_stays_where_a_client_asks_for_short_answers_and_for_long_ones_in_turn():
    steps = range(10, 60)
    made = [*forward_in_turn([SMALL] * len(steps), steps, Driver())]
    assert {outcome for outcome, _ in made} == {"none", "created", "applied"}
    assert [outcome for outcome, goes_on in made if not goes_on and outcome != "created"] == []


def test_a_client_that_has_gone_on_to_a_larger_window_changes_once_whatever_answers_it_asks_for():
    steps = [20, *range(20, 80)]
    windows = [SMALL, *[LARGE] * 60]
    (first, _), *made = forward_in_turn(windows, steps, Driver(), lengths=(20_000, 1_000))
    assert first == "created"
    outcomes = [outcome for outcome, _ in made]
    assert "none" in outcomes
    assert "none" not in outcomes[outcomes.index("created") :]
    assert [outcome for outcome, goes_on in made[1:] if not goes_on and outcome != "created"] == []


@pytest.mark.parametrize(("window", "outcome"), [(SMALL, "applied"), (LARGE, "none")])
def test_a_block_of_an_earlier_version_is_used_but_in_a_larger_window(window, outcome):
    driver = Driver()
    assert [*forward_in_turn([SMALL], [20], driver, lengths=[8_000])] == [("created", True)]
    for key in driver.stored:
        if "/block/" in key:
            block = json.loads(driver.stored[key])
            assert block.pop("nominal_tokens") > block["window"] // 2
            driver.stored[key] = json.dumps(block).encode()
    made = [*forward_in_turn([window] * 6, [20] * 6, driver, lengths=(8_000, 800))]
    assert {each for each, _ in made} == {outcome}


def test_a_block_made_after_a_refusal_goes_on_whatever_answers_are_asked_for():
    driver = Driver()
    rules = replace(FOLDING, summary=SummaryRules(enabled=False))
    made = exchange(WORK, rules, max_tokens=8_000, window=Window())
    drive(made.prepare(), driver)
    assert drive(made.recover(Refusal("input", limit=16_000)), driver).outcome == "created"
    drive(made.accept(), driver)
    learned = Window(total=16_000, origin="learned")
    assert {outcome for outcome, _ in forward_in_turn([learned] * 4, [16] * 4, driver)} == {"applied"}


def test_without_new_blocks_one_for_a_smaller_window_is_used_where_the_request_would_not_fit():
    driver = Driver()
    assert [*forward_in_turn([SMALL], [24], driver, lengths=[8_000])] == [("created", True)]
    longest = exchange(LONGER, mode="off", max_tokens=40_000, window=LARGE)
    assert drive(longest.prepare(), Driver(driver.stored)).outcome == "applied"
    assert drive(exchange(LONGER, mode="off", window=LARGE).prepare(), Driver(driver.stored)).outcome == "off"


def test_while_the_store_does_not_answer_the_caller_is_treated_as_new():
    driver = Driver(answers=False)
    decision = drive(exchange(WORK).prepare(), driver)
    assert decision.outcome == "created"
    assert driver.actions_of(NoteLocalWindow) == []


def test_of_an_unknown_caller_originals_wait_for_the_upstream_to_accept_it():
    driver = Driver()
    made = exchange(WORK, keeps_originals=True, is_known=False)
    drive(made.prepare(), driver)
    assert driver.actions_of(KeepOriginals) == []
    drive(made.accept(), driver)
    assert driver.kinds().index(KeepOriginals) < driver.kinds().index(StoreBlock)


@pytest.mark.parametrize(("context", "reason"), [({"mode": "off"}, ""), ({"is_halted": True}, "switched-off")])
def test_switched_off_no_new_block_is_made_and_an_existing_one_stays(context, reason):
    driver = Driver()
    decision = drive(exchange(WORK, **context).prepare(), driver)
    assert (decision.outcome, decision.reason) == ("off", reason)
    accepted_exchange(WORK, driver)
    assert drive(exchange(WORK, **context).prepare(), Driver(driver.stored)).outcome == "applied"


def test_an_unknown_window_is_reported():
    made = exchange(LONGER, replace(RULES, clear_at_least=10**9, trigger_tokens=100_000), window=Window())
    small = drive(made.prepare(), Driver())
    assert (small.outcome, small.plan) == ("none", None)
    rules = replace(RULES, horizon=0.0)
    assert drive(exchange(LONGER, rules, window=Window()).prepare(), Driver()).reason == "window-unknown"


# --- observing -------------------------------------------------------------------------------------------------------


def test_an_observed_block_is_stored_apart_and_applied_to_no_request():
    driver = Driver()
    seen = accepted_exchange(WORK, driver, mode="observe")
    assert seen.decision.outcome == "observed"
    assert not seen.decision.rewrites
    assert [key for key in driver.stored if "/block/" in key] == [
        key for key in driver.stored if key.startswith("team/observed/block/")
    ]
    again = Driver(driver.stored)
    assert accepted_exchange(WORK, again, mode="observe").memory.observed
    assert again.actions_of(StartSummary) == []
    assert drive(exchange(WORK).prepare(), Driver(driver.stored)).outcome == "created"


def test_a_block_in_force_is_applied_while_observing_and_no_other_follows_it():
    driver = Driver()
    accepted_exchange(WORK, driver)
    assert drive(exchange(reading(40), mode="observe").prepare(), Driver(driver.stored)).outcome == "applied"


# --- summaries -------------------------------------------------------------------------------------------------------


def write(covers):
    """A model that answers every question."""
    return Summary(covers, TEXT)


def test_the_next_summary_is_thought_of_at_some_sizes_and_not_after_every_answer():
    """Each time goes over the whole history: between four fifths of the limit and all of it, that is three times."""
    lengths = range(60, 74)
    sizes = [quarter(body(reading(length))) for length in lengths]
    rules = replace(FOLDING, trigger_tokens=sizes[-1] + 50)
    stored, times = {}, []
    for length, size in zip(lengths, sizes, strict=True):
        driver = Driver(stored)
        made = exchange(reading(length), rules)
        drive(made.prepare(), driver)
        drive(made.accept(), driver)
        assert driver.actions_of(Rewrite) == []
        drive(made.complete(AnswerReport(Usage(size)), NOW), driver)
        times.append(len(driver.actions_of(Rewrite)))
    assert times[-1] == 0
    assert 2 <= sum(times) <= 4, (times, sizes, rules.trigger_tokens)


def test_a_request_that_does_not_fit_waits_for_its_summary_and_uses_it():
    driver = Driver(summary=write)
    made = exchange(LONGER, FOLDING, mode="force", wait_seconds=7.0)
    decision = drive(made.prepare(), driver)
    (waited,) = driver.actions_of(AwaitSummary)
    assert waited.seconds == 7.0
    assert decision.plan.block.summary.text == TEXT


def test_a_request_that_gets_no_summary_in_time_goes_without():
    driver = Driver()
    decision = drive(exchange(LONGER, FOLDING, mode="force").prepare(), driver)
    assert len(driver.actions_of(AwaitSummary)) == 1
    assert (decision.outcome, decision.reason) == ("none", "no-summary")


def test_a_summary_for_a_request_called_invalid_is_dropped():
    driver = Driver(summary=write)
    made = exchange(LONGER, FOLDING, mode="force")
    drive(made.prepare(), driver)
    drive(made.reject(), driver)
    (fact,) = driver.actions_of(StoreFact)
    assert SummaryCandidate.from_bytes(fact.value).failures == MAX_FAILURES
    assert "/summary/" in fact.key
    assert drive(exchange(SHORT).reject(), driver) is None


def test_compacting_by_name_stores_the_block_at_once_where_that_was_asked_for():
    for store in (False, True):
        driver = Driver(summary=write)
        decision = drive(exchange(LONGER, FOLDING, mode="force", keeps_originals=True).compact(store=store), driver)
        assert decision.outcome == "created"
        assert (StoreBlock in driver.kinds(), KeepOriginals in driver.kinds()) == (store, store)


# --- refusals --------------------------------------------------------------------------------------------------------


def test_a_history_that_the_upstream_finds_too_long_is_shortened_and_the_limit_remembered():
    driver = Driver()
    made = exchange(LONGER, replace(RULES, clear_at_least=10**6), window=Window())
    drive(made.prepare(), driver)
    again = drive(made.recover(Refusal("input", limit=8_000)), driver)
    assert (again.outcome, again.plan.reason) == ("created", REASON)
    assert again.tokens_after < 8_000
    (fact,) = [fact for fact in driver.actions_of(StoreFact) if "/window/" in fact.key]
    assert decode_window(fact.value).total == 8_000
    drive(made.accept(), driver)
    assert len(driver.actions_of(StoreBlock)) == 1
    assert drive(exchange(LONGER, window=Window()).prepare(), Driver(driver.stored)).outcome == "applied"


@pytest.mark.parametrize("ahead", [False, True])
def test_a_policy_that_waits_for_its_summaries_gets_one_for_a_refused_history_too(ahead):
    driver, rules = Driver(summary=write), replace(FOLDING, summary=replace(FOLDING.summary, ahead=ahead))
    made = exchange(LONGER, rules)
    drive(made.prepare(), driver)
    again = drive(made.recover(Refusal("input", limit=8_000)), driver)
    assert (again.outcome, again.plan.reason) == ("created", REASON)
    assert again.tokens_after < 8_000
    assert (again.plan.block.summary is not None) == (not ahead)


def test_a_refusal_of_a_short_history_looks_it_up_after_all():
    driver = Driver()
    made = exchange(reading(10), replace(RULES, clear_at_least=10**6), window=Window())
    assert drive(made.prepare(), driver).plan is None
    again = drive(made.recover(Refusal("input", limit=3_000)), driver)
    assert again is None or again.tokens_after < 3_000
    assert LookUp in driver.kinds()


def test_where_the_second_try_is_refused_as_well_the_first_counts():
    driver = Driver()
    made = exchange(LONGER, replace(RULES, clear_at_least=10**6), window=Window())
    first = drive(made.prepare(), driver)
    assert drive(made.recover(Refusal("input", limit=8_000)), driver) is not None
    made.withdraw()
    assert made.decision.plan is not None
    assert made.decision.outcome != "created" or first.outcome == "created"


def test_where_only_the_answer_was_too_long_a_shorter_one_is_asked_for():
    driver = Driver()
    made = exchange(WORK)
    drive(made.prepare(), driver)
    again = drive(made.recover(Refusal("output", answer_room=4_096)), driver)
    assert (again.max_answer_tokens, again.reason) == (4_096, REASON)


@pytest.mark.parametrize(
    ("refusal", "context"),
    [
        (Refusal("rate"), {}),
        (Refusal("input", limit=8_000), {"mode": "observe"}),
        (Refusal("input", limit=8_000), {"mode": "off"}),
        (Refusal("signature"), {}),
    ],
)
def test_where_nothing_would_help_nothing_is_tried(refusal, context):
    driver = Driver()
    made = exchange(WORK, **context)
    drive(made.prepare(), driver)
    assert drive(made.recover(refusal), driver) is None


def test_a_shortened_history_that_is_called_invalid_is_tried_as_it_came():
    driver = Driver()
    made = exchange(WORK)
    first = drive(made.prepare(), driver)
    again = drive(made.recover_untouched(), driver)
    assert first.outcome == "created"
    assert (again.outcome, again.reason, again.plan.view) == ("none", SHORTENED_REFUSED, made.context.request.messages)
    assert again.tokens_after == again.tokens_before == first.tokens_before
    drive(made.accept(), driver)
    assert driver.actions_of(StoreBlock) == []
    drive(made.complete(AnswerReport(NOT_REPORTED), NOW), driver)
    assert driver.actions_of(Report)[-1].turn.decision is again


def test_after_two_such_histories_a_conversation_is_left_alone_while_it_fits():
    driver = Driver()
    for history in (WORK, LONGER):
        made = exchange(history)
        assert drive(made.prepare(), driver).rewrites
        drive(made.recover_untouched(), driver)
        drive(made.accept(), driver)
        drive(made.complete(AnswerReport(NOT_REPORTED), NOW), driver)
    longest = [*LONGER, *reading(20)[2:]]
    left = drive(exchange(longest).prepare(), driver)
    assert (left.outcome, left.reason) == ("none", SHORTENED_REFUSED)
    too_long = {"window": Window(total=left.tokens_before - 1, origin="config")}
    assert drive(exchange(longest, **too_long).prepare(), driver).rewrites
    assert drive(exchange(longest, mode="force").prepare(), driver).rewrites
    assert drive(exchange(longest, upstream="another", counter="another").prepare(), driver).rewrites


def test_a_second_refusal_of_the_client_s_own_history_is_not_remembered():
    driver = Driver()
    for history in (WORK, LONGER, LONGER):
        made = exchange(history)
        first = drive(made.prepare(), driver)
        assert first.rewrites
        drive(made.recover_untouched(), driver)
        made.withdraw()
        assert made.decision is first
        drive(made.complete(AnswerReport(NOT_REPORTED), NOW), driver)


@pytest.mark.parametrize(
    ("messages", "context"),
    [
        (SHORT, {}),
        (WORK, {"mode": "observe"}),
        (WORK, {"window": Window(total=8_000, origin="config")}),
    ],
    ids=["not shortened", "only observed", "too long"],
)
def test_nothing_is_tried_as_it_came_where_that_is_what_was_sent_or_does_not_fit(messages, context):
    driver = Driver()
    made = exchange(messages, **context)
    drive(made.prepare(), driver)
    assert drive(made.recover_untouched(), driver) is None


# --- the answer ------------------------------------------------------------------------------------------------------


def test_the_upstreams_own_count_is_the_anchor_of_the_next_request():
    driver = Driver()
    made = accepted_exchange(WORK, driver)
    counted = made.decision.tokens_after + 500
    accepted_exchange(WORK, driver, usage=Usage(prompt=counted))
    assert drive(exchange(WORK).prepare(), Driver(driver.stored)).tokens_after == counted
    assert any("/scale/" in key for key in driver.stored) is False  # learned by a first request only


def test_the_count_learned_from_a_first_request_starts_the_next_conversation():
    driver = Driver()
    long = user("Explain it. " * 800)
    accepted_exchange([*long, *WORK], driver, usage=Usage(prompt=quarter(body([*long, *WORK]))))
    assert any("/scale/" in key for key in driver.stored)


def test_without_a_reported_size_the_upstream_may_be_asked():
    driver = Driver(recounted=4_000)
    accepted_exchange(WORK, driver, recounts=True)
    assert len(driver.actions_of(RecountByProbe)) == 1


def test_a_turn_is_reported_with_what_it_cost_and_would_have_cost():
    prices = TokenPrices(input=1.0, cache_read=0.1, cache_write=None, output=2.0)
    window = Window(total=1_000_000, origin="config", prices=prices, cliffs=(PriceCliff(500_000, prices),))
    driver = Driver()
    accepted_exchange(WORK, driver, usage=Usage(prompt=5_000, cached=1_000), window=window)
    accepted_exchange(LONGER, driver, usage=Usage(prompt=6_000, cached=5_000), window=window, now=NOW)
    first, second = (report.turn for report in driver.actions_of(Report))
    assert first.dollars_paid == pytest.approx((1_000 * 0.1 + 4_000 * 1.0) / 10**6)
    assert second.dollars_unchanged > second.dollars_paid
    cold = Driver(driver.stored)
    accepted_exchange(LONGER, cold, usage=Usage(prompt=6_000, cached=0), window=window, now=NOW + 10**6)
    assert cold.actions_of(Report)[0].turn.dollars_unchanged is not None


def test_an_answer_that_broke_off_is_still_a_turn():
    driver = Driver()
    made = exchange(WORK)
    drive(made.prepare(), driver)
    drive(made.abort(Usage(prompt=7), NOW), driver)
    (report,) = driver.actions_of(Report)
    assert report.turn.usage.prompt == 7
    short = exchange(SHORT)
    for steps in (short.prepare(), short.accept(), short.complete(AnswerReport(), NOW), short.abort(Usage(), NOW)):
        drive(steps, driver)
    assert len(driver.actions_of(Report)) == 1


def test_a_prompt_that_was_cut_silently_is_reported():
    driver = Driver()
    accepted_exchange(WORK, driver, usage=Usage(prompt=1_000))
    (report,) = driver.actions_of(Report)
    assert report.turn.silently_cut is not None
    assert is_silently_cut(10, AnswerReport(says_truncated=True))
    assert not is_silently_cut(9_000, AnswerReport(Usage(prompt=100, cached=8_900)))
    assert not is_silently_cut(1_000, AnswerReport(Usage(prompt=100)))


def test_after_blocks_in_a_row_that_did_not_help_the_breaker_opens():
    driver = Driver()
    rules = replace(RULES, clear_at_least=10**6, trigger=0, trigger_tokens=6_000, min_progress=0.0, min_groups=0)
    opened = []
    for steps in range(12, 60, 2):
        made = accepted_exchange(reading(steps), driver, rules, usage=Usage(prompt=9_000), window=Window())
        opened += [report.turn.breaker_opened for report in driver.actions_of(Report)[-1:]]
        if made.decision.reason == "breaker-open":
            break
    assert opened.count(True) <= 1


# --- heads -----------------------------------------------------------------------------------------------------------


def test_a_summary_of_another_head_is_skipped_and_this_heads_block_is_kept_beside_it():
    one = [{"role": "system", "content": "You help ALICE."}, *LONGER]
    other = [{"role": "system", "content": "You help BOB."}, *LONGER]
    driver = Driver(summary=write)
    accepted_exchange(one, driver, FOLDING, mode="force")
    bob = accepted_exchange(other, driver, FOLDING, mode="force")
    assert bob.memory.block is None
    keys = [key for key in driver.stored if "/block/" in key]
    assert len(keys) == 2
    assert keys[1] == f"{keys[0]}.{bob.identified.head}"
    again = Driver(driver.stored)
    assert accepted_exchange(other, again, FOLDING).memory.block_key == keys[1]
    assert Identity.of(bob.context.request, "team", b"k" * 32, "", "").head == bob.identified.head


def test_before_the_look_up_there_is_neither_identity_nor_plan():
    made = exchange(WORK)
    with pytest.raises(ValueError, match="identified"):
        _ = made.identified
    with pytest.raises(ValueError, match="decided"):
        _ = made._plan
