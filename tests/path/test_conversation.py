"""One request, step by step: what `run` asks its driver for, and what it remembers."""

from types import NoneType
from typing import get_args, get_type_hints

import pytest
from msgspec.structs import replace

from proxy.decide.actions import (
    Action,
    AnnounceLargeWork,
    AwaitSummary,
    CanSummarize,
    CountTokens,
    Deliver,
    Delivered,
    Finished,
    Gather,
    Interpreter,
    KeepOriginals,
    LookUp,
    Note,
    NoteAccepted,
    Opening,
    Recount,
    Send,
    SendAgain,
    StartSummary,
    StoreBlock,
    StoreFact,
)
from proxy.decide.conversation import Asked, LastRequest, Originals, SummaryCandidate
from proxy.decide.program import compact, run
from proxy.events import SizeRefused, TurnEnded, ViewRefused
from proxy.history.identity import Identity
from proxy.lab.replay.simulation import UnheardInterpreter, drive
from proxy.shorten.economics import NOT_REPORTED, StoredWindow, Usage, Window, make_model_keys
from proxy.shorten.rules import Keep, Rules
from proxy.shorten.summary import Summary, SummaryRules
from proxy.store.contract import Found
from proxy.wire.http_head import Caller
from proxy.wire.refusals import Refusal
from tests.support.agent import reading
from tests.support.messages import body, call, parse_request, user
from tests.support.recorded_actions import record

WORK = reading(16)
LONGER = reading(24)
SHORT = user("Hello?")
RULES = Rules(policy="small", clear_at_least=3_000, keep=Keep(tokens=1_000))
FOLDING = replace(RULES, when_full=(), clear_at_least=0, summary=SummaryRules(prompt="Summarise.", max_tokens=200))
TEXT = "The user reads files one after the other; nothing has failed, and nothing is decided yet."
NOW = 1_000_000.0


def quarter(raw):
    return len(raw) // 4


class Driver(UnheardInterpreter):
    """Performs actions at once and remembers them. Two that share `stored` are two requests to one proxy."""

    def __init__(self, stored=None, *, summary=None, recounted=0, answers=True, starts=True):
        self.stored = {} if stored is None else stored
        self.actions = []
        self._summary, self._recounted, self._answers, self._starts = summary, recounted, answers, starts

    async def count_tokens(self, pieces):
        return [quarter(piece) for piece in pieces]

    async def look_up(self, blocks, facts):
        return tuple(map(self._first, (blocks, *facts))) if self._answers else None

    async def store_block(self, key, block, replaces, _identity):
        if self.stored.get(key, replaces) == replaces:
            self.stored[key] = block
        return self.stored[key]

    async def store_fact(self, key, value, _seconds):
        self.stored[key] = value

    async def can_summarize(self, _conversation):
        return True

    async def start_summary(self, _question, _conversation):
        return self._starts

    async def await_summary(self, _question, covers, _seconds, _conversation):
        return self._summary(covers) if self._summary is not None else None

    async def recount(self):
        return self._recounted

    def _first(self, keys):
        return next((Found(key, self.stored[key]) for key in keys if key in self.stored), None)

    def kinds(self):
        return [type(action) for action in self.actions]

    def actions_of(self, kind):
        return [action for action in self.actions if isinstance(action, kind)]

    def notes_of(self, kind):
        return [note.event for note in self.actions_of(Note) if isinstance(note.event, kind)]


class Life:
    """One request, driven from one `Send` or `Deliver` to the next."""

    def __init__(self, context, driver):
        self.asked, self.driver = context, driver
        self._life = record(run(), driver.actions)
        self.step = None

    @property
    def forwarding(self):
        return self.step.forwarding

    @property
    def decision(self):
        return self.forwarding.decision

    @property
    def conversation(self):
        return self.forwarding.conversation

    def prepare(self):
        return self._go_on(None).decision

    def refuse(self, refusal=None):
        """The upstream calls it invalid, and perhaps why. What is tried once more, or None."""
        self._go_on(Opening(refusal or Refusal("invalid")))
        return self.decision if isinstance(self.step, SendAgain) else None

    def accept(self):
        self._go_on(Opening())

    def complete(self, usage=NOT_REPORTED, now=NOW, **more):
        drive(self._life, self.driver, Delivered(now, usage, **more))

    def _go_on(self, result):
        self.driver.asked = self.asked
        self.step = drive(self._life, self.driver, result)
        return self.forwarding


def context_of(messages, rules=RULES, max_tokens=None, **context):
    context = {"window": Window(total=1_000_000, origin="config"), "now": NOW, **context}
    asked = {} if max_tokens is None else {"max_tokens": max_tokens}
    request = parse_request(body(messages, **asked))
    return Asked(request=request, rules=rules, count=quarter, tenant="team", secret=b"k" * 32, **context)


def prepared(messages, driver, rules=RULES, **context):
    life = Life(context_of(messages, rules, **context), driver)
    life.prepare()
    return life


def decide(messages, driver, rules=RULES, **context):
    return prepared(messages, driver, rules, **context).decision


def answered(messages, driver, rules=RULES, usage=NOT_REPORTED, now=NOW, **context):
    life = prepared(messages, driver, rules, **context)
    life.accept()
    life.complete(usage, now)
    return life


def test_a_short_history_asks_for_nothing():
    driver = Driver()
    decision = decide(SHORT, driver)
    assert (decision.outcome, decision.plan, decision.tokens_before) == ("none", None, 0)
    assert driver.kinds() == [Gather]


@pytest.mark.parametrize(
    ("max_tokens", "bound"), [(None, None), (2_000, None), (32_000, 16_384)], ids=["unbounded", "short", "too long"]
)
def test_a_request_below_every_threshold_is_decided_on_only_if_its_answer_may_be_bounded(max_tokens, bound):
    learned = StoredWindow(Window(shared=100_000, longest_answer=16_384))
    key, _, _ = make_model_keys("team", "", "gpt-4o")
    context = {"max_tokens": max_tokens, "window": Window(total=1_000_000, origin="bundled")}
    decision = decide(user("Look at it. " * 400), Driver({key: learned.to_bytes()}), **context)
    assert (decision.max_answer_tokens, decision.plan is not None) == (bound, bound is not None)


@pytest.mark.parametrize(
    ("context", "outcome"),
    [
        ({"mode": "off"}, "off"),
        ({"rules": replace(RULES, new_blocks=False)}, "off"),
        ({"caller": Caller(switch="off")}, "off"),
        ({"caller": Caller(switch="bypass")}, "bypassed"),
    ],
)
def test_that_compaction_is_switched_off_is_told_of_short_histories_too(context, outcome):
    assert decide(SHORT, Driver(), **context).outcome == outcome


def test_a_history_that_makes_a_block_is_counted_looked_up_decided_on_and_stored_once_it_is_accepted():
    driver = Driver()
    made = prepared(WORK, driver, originals=Originals.TO_FIT)
    decision = made.decision
    assert decision.outcome == "created"
    assert decision.rewrite
    assert driver.kinds() == [
        *(Gather, CountTokens, LookUp, CanSummarize, AnnounceLargeWork, KeepOriginals, Note, Note),
    ]
    assert driver.stored == {}
    made.accept()
    assert driver.kinds()[-2:] == [NoteAccepted, StoreBlock]
    assert len(driver.actions_of(KeepOriginals)) == 1


def test_a_history_is_gone_over_whole_only_where_a_block_comes_of_it():
    """Not for results that stay anyway, of tools that are exempt."""
    exempt = call("TodoWrite", out="Read the next file. " * 400)
    driver, made, length = Driver(), 0, len(reading(1))
    for number in range(4, 40):
        history = [*reading(number)[:length], *exempt, *reading(number)[length:]]
        made += answered(history, driver, replace(RULES, when_full=Rules().when_full)).decision.outcome == "created"
    assert made > 2
    assert len(driver.actions_of(AnnounceLargeWork)) <= 2 * made


def forward_in_turn(windows, steps, driver, lengths=(800, 8_000)):
    """The outcomes of requests that ask for answers of these lengths in turn, each with whether the last request, as it
    was forwarded, is a prefix of it.
    """
    before = []
    for number, (window, step) in enumerate(zip(windows, steps, strict=True)):
        wanted = lengths[number % len(lengths)]
        rules = replace(FOLDING, summary=SummaryRules(enabled=False))
        made = answered(reading(step), driver, rules, max_tokens=wanted, window=window)
        plan = made.decision.plan
        view = [message.raw for message in (made.asked.request.messages if plan is None else plan.view)]
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


def test_while_the_store_does_not_answer_the_caller_is_treated_as_new():
    driver = Driver(answers=False)
    decision = decide(WORK, driver)
    assert decision.outcome == "created"


def test_a_block_in_force_is_applied_while_observing_and_no_other_follows_it():
    driver = Driver()
    answered(WORK, driver)
    assert decide(reading(40), Driver(driver.stored), mode="observe").outcome == "applied"


def write(covers):
    return Summary(covers, TEXT)


@pytest.mark.parametrize("summary", [None, write])
def test_a_plan_that_follows_an_answer_of_a_model_is_announced_as_large_work(summary):
    """It clears or folds the whole history, however little of it is new."""
    driver = Driver(summary=summary)
    decide(WORK, driver, FOLDING, mode="force")
    kinds = driver.kinds()
    assert kinds[kinds.index(AwaitSummary) + 1] is AnnounceLargeWork


def test_a_question_that_was_not_answered_is_remembered_at_once():
    """What later requests read counts from it on, and not from when its failure is looked up."""
    driver = Driver()
    made = prepared(LONGER, driver, FOLDING, mode="force")
    made.accept()
    made.complete()
    (waited,) = driver.actions_of(AwaitSummary)
    fact = next(fact for fact in driver.actions_of(StoreFact) if "/anchor/" in fact.key)
    assert LastRequest.from_bytes(fact.value).asked_covers == waited.covers > 0


@pytest.mark.parametrize("starts", [True, False])
def test_a_question_for_later_requests_is_remembered_only_if_no_other_one_is_under_way(starts):
    limit = quarter(body(reading(60)))
    rules = replace(FOLDING, trigger_tokens=limit, summary=replace(FOLDING.summary, ahead=True))
    stored = {}
    answered(reading(50), Driver(stored), rules)
    driver = Driver(stored, starts=starts)
    made = answered(reading(62), driver, rules)
    assert made.decision.reason == "summary-pending"
    assert driver.actions_of(StartSummary)
    fact = next(fact for fact in driver.actions_of(StoreFact) if "/anchor/" in fact.key)
    assert (LastRequest.from_bytes(fact.value).asked_covers > 0) == starts


class OnceRestingDriver(Driver):
    """The model may not be asked yet when the first request of a driver is decided on, and may be after its answer."""

    async def can_summarize(self, _conversation):
        return len(self.actions_of(CanSummarize)) > 1


def test_a_model_that_could_not_be_asked_before_an_answer_is_asked_after_it():
    rules = replace(FOLDING, trigger_tokens=quarter(body(reading(60))), fold=(), min_groups=0)
    stored = {}
    answered(reading(50), Driver(stored), rules)
    driver = OnceRestingDriver(stored)
    made = answered(reading(61), driver, rules)
    assert made.decision.reason == "no-summary"
    assert driver.actions_of(StartSummary)


@pytest.mark.parametrize("reports", [True, False])
def test_the_next_summary_is_thought_of_at_some_sizes_and_not_after_every_answer(reports):
    """Each time goes over the whole history: between four fifths of the limit and all of it, that is three times."""
    lengths = range(60, 74)
    sizes = [quarter(body(reading(length))) for length in lengths]
    early = replace(FOLDING.summary, prepare=0.8)
    rules = replace(FOLDING, trigger_tokens=sizes[-1] + 50, summary=early)
    stored, times = {}, []
    for length, size in zip(lengths, sizes, strict=True):
        driver = Driver(stored)
        made = prepared(reading(length), driver, rules)
        made.accept()
        assert driver.actions_of(AnnounceLargeWork) == []
        made.complete(Usage(size) if reports else NOT_REPORTED)
        times.append(len(driver.actions_of(AnnounceLargeWork)))
    assert times[-1] == 0
    assert 2 <= sum(times) <= 4, (times, sizes, rules.trigger_tokens)


@pytest.mark.parametrize("mode", ["auto", "observe"])
def test_a_stored_summary_is_looked_for_where_a_fold_is_due_or_near_and_not_for_a_long_history_with_a_short_view(mode):
    limit, near_length = quarter(body(reading(60))), 55
    rules = replace(RULES, clear_at_least=0, trigger_tokens=limit, target=0.5, summary=SummaryRules(prepare=0.9))
    stored, looked_up = {}, {}
    for length in range(50, 66):
        driver = Driver(stored)
        made = prepared(reading(length), driver, rules, mode=mode)
        asked = any(not look_up.blocks for look_up in driver.actions_of(LookUp))
        looked_up.setdefault(made.decision.plan.action, set()).add((length >= near_length, asked))
        made.accept()
        made.complete()
    finds = mode == "auto"
    assert looked_up == {
        "none": {(False, False), (True, finds)},
        "created": {(True, finds)},
        "applied": {(True, False)},
    }


def test_a_forced_request_waits_as_long_as_its_summary_may_take_and_uses_it():
    driver = Driver(summary=write)
    rules = replace(FOLDING, summary=replace(FOLDING.summary, wait=7.0, seconds=70.0))
    made = prepared(LONGER, driver, rules, mode="force")
    decision = made.decision
    (waited,) = driver.actions_of(AwaitSummary)
    assert waited.seconds == 70.0
    assert decision.plan.block.summary.text == TEXT


@pytest.mark.parametrize(("path", "pointer"), [("/originals", "Kept: /originals as {}."), ("", "")])
def test_a_sentence_that_points_at_the_originals_names_them_and_goes_where_none_are_kept(path, pointer):
    rules = replace(FOLDING, summary=replace(FOLDING.summary, pointer="Kept: {path} as {conversation}."))
    made = prepared(LONGER, Driver(summary=write), rules, mode="force", locate_originals=lambda _: path)
    pointer = pointer.format(made.decision.conversation)
    assert made.conversation.rules.summary.pointer == pointer
    assert pointer in made.decision.plan.block.to_bytes().decode()


def test_a_summary_for_a_request_called_invalid_is_dropped():
    driver = Driver(summary=write)
    made = prepared(LONGER, driver, FOLDING, mode="force")
    assert made.refuse().reason == "shortened-refused"
    (fact,) = driver.actions_of(StoreFact)
    assert SummaryCandidate.from_bytes(fact.value) == SummaryCandidate("failed", failures=1)
    assert "/summary/" in fact.key
    made.accept()
    assert [event.helped for event in driver.notes_of(ViewRefused)] == [True]


def failed_summaries(driver):
    facts = [fact for fact in driver.actions_of(StoreFact) if "/summary/" in fact.key]
    return [SummaryCandidate.from_bytes(fact.value).failures for fact in facts]


def test_a_second_bad_summary_is_given_up_as_well_and_one_that_was_accepted_before_is_not():
    stored = {}
    answered(LONGER, Driver(stored, summary=write), FOLDING, mode="force")
    again = Driver(stored, summary=lambda covers: Summary(covers, f"{TEXT} And more."))
    made = prepared([*LONGER, *reading(30)[len(LONGER) :]], again, FOLDING, mode="force")
    assert made.conversation.block.summary.text == TEXT
    assert made.decision.plan.block.summary.text != TEXT
    made.refuse()
    assert failed_summaries(again) == [1]
    applied = Driver(stored)
    assert prepared([*LONGER, *user("And now?")], applied, FOLDING).refuse().reason == "shortened-refused"
    assert failed_summaries(applied) == []


@pytest.mark.parametrize("refusal", [Refusal("input", limit=100), Refusal("signature")], ids=["too long", "signature"])
def test_a_summary_is_kept_if_the_refusal_names_another_cause(refusal):
    driver = Driver(summary=write)
    made = prepared(LONGER, driver, FOLDING, mode="force")
    assert made.decision.plan.block.summary is not None
    made.refuse(refusal)
    made.complete()
    assert failed_summaries(driver) == []


def test_compacting_by_name_stores_the_block_at_once_where_that_was_asked_for():
    for store in (False, True):
        driver = Driver(summary=write)
        driver.asked = context_of(LONGER, FOLDING, mode="force", originals=Originals.TO_FIT)
        decision = drive(record(compact(store=store), driver.actions), driver).value
        assert decision.outcome == "created"
        assert (StoreBlock in driver.kinds(), KeepOriginals in driver.kinds()) == (store, store)


def test_a_history_that_the_upstream_finds_too_long_is_shortened_and_the_limit_remembered():
    driver = Driver()
    made = prepared(LONGER, driver, replace(RULES, clear_at_least=0), window=Window())
    again = made.refuse(Refusal("input", limit=8_000))
    assert (again.outcome, again.plan.reason) == ("created", "overflow_retry")
    assert again.tokens_after < 8_000
    (fact,) = [fact for fact in driver.actions_of(StoreFact) if "/window/" in fact.key]
    assert StoredWindow.from_bytes(fact.value).window.total == 8_000
    made.accept()
    assert len(driver.actions_of(StoreBlock)) == 1
    assert decide(LONGER, Driver(driver.stored), window=Window()).outcome == "applied"


def test_what_was_learned_of_answers_outlives_a_limit_that_is_learned_later():
    key, _, _ = make_model_keys("team", "", "gpt-4o")
    driver = Driver({key: StoredWindow(Window(shared=62_000, longest_answer=16_384)).to_bytes()})
    prepared(LONGER, driver, window=Window()).refuse(Refusal("input", limit=8_000))
    stored = StoredWindow.from_bytes(driver.stored[key]).window
    assert (stored.total, stored.shared, stored.longest_answer) == (8_000, 62_000, 16_384)


@pytest.mark.parametrize("ahead", [False, True])
def test_a_policy_that_waits_for_its_summaries_gets_one_for_a_refused_history_too(ahead):
    driver, rules = Driver(summary=write), replace(FOLDING, summary=replace(FOLDING.summary, ahead=ahead))
    made = prepared(LONGER, driver, rules)
    again = made.refuse(Refusal("input", limit=8_000))
    assert (again.outcome, again.plan.reason) == ("created", "overflow_retry")
    assert again.tokens_after < 8_000
    assert (again.plan.block.summary is not None) == (not ahead)


@pytest.mark.parametrize(
    "stored", [SummaryCandidate("failed", failures=1), SummaryCandidate("making"), SummaryCandidate("ready", TEXT)]
)
def test_a_refused_history_is_not_asked_about_again_and_a_summary_that_is_there_is_used(stored):
    rules, refusal = replace(FOLDING, trigger_tokens=20_000), Refusal("input", limit=8_000)
    rules = replace(rules, summary=replace(rules.summary, ahead=False))
    driver = Driver()
    prepared(LONGER, driver, rules).refuse(refusal)
    (question,) = driver.actions_of(AwaitSummary)
    driver = Driver({question.conversation.identity.summary_key(question.covers): stored.to_bytes()})
    again = prepared(reading(26), driver, rules).refuse(refusal)
    assert again.plan.reason == "overflow_retry"
    assert driver.actions_of(AwaitSummary) == []
    assert (again.plan.block.summary is not None) == (stored.state == "ready")


@pytest.mark.parametrize(
    ("refusal", "messages", "context"),
    [
        (Refusal("rate"), WORK, {}),
        (Refusal("input", limit=8_000), WORK, {"mode": "observe"}),
        (Refusal("input", limit=8_000), WORK, {"mode": "off"}),
        (Refusal("signature"), WORK, {}),
        # What came is what was sent, or does not fit.
        (Refusal("invalid"), SHORT, {}),
        (Refusal("invalid"), WORK, {"mode": "observe"}),
        (Refusal("invalid"), WORK, {"window": Window(total=8_000, origin="config")}),
    ],
)
def test_where_nothing_would_help_nothing_is_tried(refusal, messages, context):
    assert prepared(messages, Driver(), **context).refuse(refusal) is None


@pytest.mark.parametrize("mode", ["auto", "observe", "off"])
def test_own_bytes_that_the_switch_forwards_and_the_upstream_finds_too_long_give_way_to_the_standing_block(mode):
    stored = Driver().stored
    standing = answered(LONGER, Driver(stored), window=Window()).decision.plan
    bypass = {"caller": Caller(switch="bypass"), "mode": mode, "window": Window()}
    driver = Driver(stored)
    made = prepared(LONGER, driver, **bypass)
    assert made.decision.outcome == "bypassed"
    limit = standing.tokens_after + 1_000
    again = made.refuse(Refusal("input", limit=limit, covers="input"))
    assert (again.outcome, again.plan.reason) == ("applied", "overflow_retry")
    assert again.plan.view == standing.view
    made.accept()
    next_decision = decide(LONGER, Driver(stored), **bypass)
    assert next_decision.plan.view == standing.view, "the window is known now"


@pytest.mark.parametrize(("mode", "outcome"), [("auto", "created"), ("observe", ""), ("off", "")])
def test_where_the_standing_block_is_too_long_as_well_bypass_shortens_if_the_mode_lets_it(mode, outcome):
    stored = Driver().stored
    standing = answered(LONGER, Driver(stored), window=Window()).decision.plan
    made = prepared(LONGER, Driver(stored), caller=Caller(switch="bypass"), mode=mode, window=Window())
    again = made.refuse(Refusal("input", limit=standing.tokens_after - 500, covers="input"))
    assert (again.outcome if again else "") == outcome


def test_after_two_such_histories_a_conversation_is_left_alone_while_it_fits():
    driver = Driver()
    for history in (WORK, LONGER):
        made = prepared(history, driver)
        assert made.decision.rewrite
        made.refuse()
        made.accept()
        made.complete()
    longest = [*LONGER, *reading(20)[2:]]
    left = decide(longest, driver)
    assert (left.outcome, left.reason) == ("none", "shortened-refused")
    too_long = {"window": Window(total=left.tokens_before - 1, origin="config")}
    assert decide(longest, driver, **too_long).rewrite
    assert decide(longest, driver, mode="force").rewrite
    assert decide(longest, driver, base_url="another", counter="another").rewrite


def test_a_second_refusal_of_the_client_s_own_history_is_not_remembered():
    driver = Driver()
    for history in (WORK, LONGER, LONGER):
        made = prepared(history, driver)
        first = made.decision
        assert first.rewrite
        assert made.refuse() is not None
        assert made.refuse() is None
        assert made.decision is first
        made.complete()


REFUSED = Refusal("signature")
SIGNED = [{"role": "assistant", "content": "Yes.", "reasoning_details": [{"type": "reasoning.text", "signature": "c"}]}]


@pytest.mark.parametrize(
    ("messages", "context", "outcome"),
    [
        ([*WORK, *SIGNED, *user("Go on.")], {}, ("created", "reasoning-removed", False)),
        ([*WORK, *SIGNED, *user("Go on.")], {"mode": "off"}, ("off", "reasoning-removed", True)),
        ([*user("Hello."), *SIGNED, *user("Go on.")], {}, ("created", "reasoning-removed", False)),
        ([*WORK, *SIGNED, *user("Go on.")], {"mode": "observe"}, None),
        (WORK, {}, None),
        (WORK, {"mode": "off"}, None),
    ],
)
def test_reasoning_whose_signature_is_refused_goes_for_good_or_for_once(messages, context, outcome):
    driver = Driver()
    made = prepared(messages, driver, **context)
    before = made.decision
    retried = made.refuse(REFUSED)
    if outcome is None:
        assert retried is None
        assert driver.actions_of(Note)[-1] == Note(SizeRefused("", "", "signature", None, helped=False))
        return
    assert (retried.outcome, retried.reason, retried.removes_reasoning) == outcome
    if before.outcome == retried.outcome == "created":
        assert (retried.tokens_before, retried.plan.reports[0]) == (before.tokens_before, before.plan.reports[0])
    made.accept()
    assert driver.actions_of(Note)[-1] == Note(SizeRefused("", "", REFUSED.kind, REFUSED.limit, helped=True))
    if before.outcome == "created":
        later = decide([*messages, *SIGNED, *user("And now?")], Driver(driver.stored), **context)
        assert (later.outcome, later.plan.view[: len(messages) - 1]) == ("applied", retried.plan.view[:-1])


def test_reasoning_that_goes_under_a_standing_block_is_counted_beside_the_history_that_the_client_sent():
    driver = Driver()
    answered(LONGER, driver)
    made = prepared([*LONGER, *SIGNED, *user("Go on.")], driver)
    applied = made.decision
    assert applied.outcome == "applied"
    retried = made.refuse(REFUSED)
    assert (retried.reason, retried.tokens_before) == ("reasoning-removed", applied.tokens_before)


def test_the_upstreams_own_count_is_the_anchor_of_the_next_request():
    driver = Driver()
    made = answered(WORK, driver)
    counted = made.decision.tokens_after + 500
    answered(WORK, driver, usage=Usage(prompt=counted))
    assert decide(WORK, Driver(driver.stored)).tokens_after == counted
    assert any("/scale/" in key for key in driver.stored) is False  # learned by a first request only


@pytest.mark.parametrize("recount", ["answer", "probe"])
def test_the_upstream_is_asked_for_a_size_that_it_did_not_report_if_the_policy_says_so(recount):
    driver = Driver(recounted=4_000)
    answered(WORK, driver, replace(RULES, recount=recount))
    assert (Recount in driver.kinds()) == (recount == "probe")
    assert (decide(WORK, Driver(driver.stored)).tokens_after == 4_000) == (recount == "probe")


def test_the_count_learned_from_a_first_request_starts_the_next_conversation():
    driver = Driver()
    long = user("Explain it. " * 800)
    answered([*long, *WORK], driver, usage=Usage(prompt=quarter(body([*long, *WORK]))))
    assert any("/scale/" in key for key in driver.stored)


def test_an_answer_that_broke_off_is_still_a_turn():
    driver = Driver()
    made = prepared(WORK, driver)
    made.accept()
    made.complete(Usage(prompt=7), is_whole=False)
    (report,) = driver.notes_of(TurnEnded)
    assert report.prompt_tokens == 7
    for is_whole in (True, False):
        short = prepared(SHORT, driver)
        short.accept()
        short.complete(is_whole=is_whole)
    assert len(driver.notes_of(TurnEnded)) == 1


def test_a_summary_of_another_head_is_skipped_and_this_heads_block_is_kept_beside_it():
    one = [{"role": "system", "content": "You help ALICE."}, *LONGER]
    other = [{"role": "system", "content": "You help BOB."}, *LONGER]
    driver = Driver(summary=write)
    answered(one, driver, FOLDING, mode="force")
    bob = answered(other, driver, FOLDING, mode="force")
    assert bob.conversation.block is None
    keys = [key for key in driver.stored if "/block/" in key]
    assert len(keys) == 2
    assert keys[1] == f"{keys[0]}.{bob.forwarding.conversation.identity.head}"
    again = Driver(driver.stored)
    assert answered(other, again, FOLDING).conversation.stored_block.key == keys[1]
    assert Identity.of(bob.asked.request, "team", b"k" * 32, "", "").head == bob.forwarding.conversation.identity.head


def test_a_small_request_is_served_without_gathering_anything():
    driver = Driver()
    life = record(run(is_small=True), driver.actions)
    assert isinstance(drive(life, driver), Send)
    assert isinstance(drive(life, driver, Opening()), Deliver)
    assert isinstance(drive(life, driver, Delivered(NOW)), Finished)
    assert driver.kinds() == [NoteAccepted]


@pytest.mark.parametrize("action", Action.__subclasses__(), ids=lambda action: action.method)
def test_an_action_has_the_fields_and_the_reply_of_the_method_that_performs_it(action):
    parameters = get_type_hints(getattr(Interpreter, action.method))
    (base,) = action.__orig_bases__
    (reply,) = get_args(base)
    assert get_args(parameters.pop("return")) == (None if reply is NoneType else reply,)
    assert list(get_type_hints(action).items())[1:] == list(parameters.items())
