"""The account of a turn: what it cost, what it would have cost, and what requests read between two summaries."""

import pytest
from msgspec.structs import replace

from proxy.decide.actions import Delivered, Note, Planned, StoreFact
from proxy.decide.conversation import Asked, Conversation, LastRequest
from proxy.decide.remedies import plan_untouched
from proxy.decide.remember import account, is_silently_cut
from proxy.history.identity import Identity
from proxy.lab.replay.simulation import UnheardInterpreter, drive
from proxy.shorten.back_off import RefetchCost
from proxy.shorten.block import Block
from proxy.shorten.economics import NOT_REPORTED, CacheMemory, Calibration, PriceCliff, TokenPrices, Usage, Window
from proxy.shorten.rules import Anchor, Rules
from proxy.shorten.summary import Summary
from tests.support.messages import KEY, TENANT, assistant, request, user
from tests.support.recorded_actions import record

ASKED = request(user("a" * 400), assistant("b" * 400), user("c" * 400))
NEWEST, NEW = (sum(len(message.raw) for message in ASKED.body[start:]) for start in (2, 1))
"""The size of the last message, and with the answer before it."""
BEFORE = 4_000
PRICES = TokenPrices(input=1.0, cache_read=0.1, cache_write=None, output=2.0)
WINDOW = Window(total=100_000, origin="config", prices=PRICES, cliffs=(PriceCliff(50_000, PRICES),))
US = Identity.of(ASKED, TENANT, KEY, "", "up/gpt-4")
LAST = LastRequest(Anchor(US.links[1], 900, b"view"), 90.0, US.counter, Calibration())
RULES = Rules(trigger_tokens=10_000, trigger=0, target=0.2)


class ByteCounter(UnheardInterpreter):
    async def count_tokens(self, pieces):
        return list(map(len, pieces))

    async def store_fact(self, key, value, seconds): ...


def account_for(plan, usage=NOT_REPORTED, last=None, rules=RULES, **context):
    """The account of an answer at second 100, and what was stored."""
    asked = Asked(ASKED, rules, len, now=100.0, window=WINDOW, **context)
    conversation = Conversation(asked, asked.find_rules(), US, last=last)
    actions = []
    accounting = account(Planned.of(conversation, plan), Delivered(100.0, usage))
    drive(record(accounting, actions), ByteCounter())
    (report,) = [action.event for action in actions if isinstance(action, Note)]
    last, *facts = [action for action in actions if isinstance(action, StoreFact)]
    return report, LastRequest.from_bytes(last.value), facts


def price(tokens, cached):
    return pytest.approx((tokens - cached + cached / 10) / 1_000_000)


SHORTER = replace(plan_untouched(ASKED, BEFORE), action="applied", tokens_after=1_000)


SUMMARIZED = Block(2, (), reason="window", summary=Summary(2, "Told."))
MADE = replace(SHORTER, action="created", block=Block(1, (), reason="window"))
OLD, COLD = replace(LAST, forwarded_at=-200.0), replace(LAST, forwarded_at=-201.0)
LATER = replace(LAST, anchor=Anchor(US.links[2], 9, b""))


@pytest.mark.parametrize(
    ("plan", "usage", "last", "cached"),
    [
        (SHORTER, Usage(1_000, 600), None, BEFORE - NEW),
        (SHORTER, Usage(1_000, 600), LAST, BEFORE - NEW),
        (SHORTER, Usage(1_000, 600), LATER, BEFORE - NEWEST),
        (SHORTER, Usage(1_000, 600), OLD, BEFORE - NEW),
        (SHORTER, Usage(1_000, 600), COLD, 0),
        (SHORTER, Usage(1_000, 0), LATER, 0),
        (MADE, Usage(1_000, 0), LATER, BEFORE - NEWEST),
    ],
)
def test_as_it_came_all_but_the_new_messages_would_have_been_cached(plan, usage, last, cached):
    report, _, _ = account_for(plan, usage, last)
    assert report.paid_dollars == report.would_be_dollars == price(usage.prompt, usage.cached)
    assert report.plain_dollars == price(BEFORE, cached)


LARGE = replace(LAST, anchor=Anchor(US.links[1], 10_000, b""))


@pytest.mark.parametrize(
    ("plan", "last", "cached", "seen"),
    [
        (SHORTER, replace(LARGE, forwarded_at=-400.0), 9_000, CacheMemory(found_after=500.0)),
        (SHORTER, replace(LARGE, forwarded_at=-400.0), 3_000, CacheMemory(lost_after=500.0, losses=1)),
        (SHORTER, replace(LARGE, forwarded_at=-400.0), 7_000, None),  # neither found nor lost
        (SHORTER, replace(LARGE, forwarded_at=-400.0), None, None),
        (SHORTER, replace(LARGE, forwarded_at=50.0), 9_000, None),
        (SHORTER, replace(LAST, forwarded_at=-400.0), 900, None),
        (SHORTER, None, 9_000, None),
        (MADE, replace(LARGE, forwarded_at=-400.0), 900, None),  # the view was new
    ],
)
def test_after_a_gap_the_usage_tells_whether_the_upstreams_cache_still_held_the_prefix(plan, last, cached, seen):
    _, _, facts = account_for(plan, Usage(12_000, cached), last)
    stored = [CacheMemory.from_bytes(fact.value) for fact in facts if "/cache/" in fact.key]
    assert stored == [seen] * (seen is not None)


def test_a_request_that_only_fetches_again_would_not_have_been_made():
    plan = replace(SHORTER, refetch_cost=RefetchCost(refetches=1, tokens=700, is_whole_step=True))
    report, _, _ = account_for(plan, Usage(1_000, 600, written=50), LATER)
    assert report.paid_dollars == price(1_000, 600)
    assert report.plain_dollars == pytest.approx(-50 * PRICES.output / 1_000_000)


def test_what_was_fetched_again_would_not_have_been_in_the_history():
    plan = replace(SHORTER, refetch_cost=RefetchCost(tokens=700, new_tokens=300))
    report, _, _ = account_for(plan, Usage(1_000, 600), LATER)
    # What is fetched in this step is not cached with the proxy either.
    assert report.plain_dollars == price(BEFORE - 700, BEFORE - NEWEST - 400)


def test_a_request_that_would_have_been_refused_saves_nothing():
    report, _, _ = account_for(replace(SHORTER, tokens_before=WINDOW.total + 1), Usage(1_000, 600), LATER)
    assert report.plain_dollars == report.paid_dollars


@pytest.mark.parametrize(("cached", "last", "would_be"), [(600, LATER, 1_000 - NEWEST), (0, LATER, 0), (600, COLD, 0)])
def test_while_observing_it_would_have_cost_less_by_the_count_of_the_upstream(cached, last, would_be):
    report, _, _ = account_for(SHORTER, Usage(2 * BEFORE, cached), last, mode="observe")
    assert report.paid_dollars == report.plain_dollars == price(2 * BEFORE, cached)
    assert report.would_be_dollars == price(2 * 1_000, 2 * would_be)


@pytest.mark.parametrize("usage", [Usage(1_000, None), Usage(0, 600)])
def test_without_figures_there_is_no_price(usage):
    report, _, _ = account_for(SHORTER, usage)
    assert (report.paid_dollars, report.plain_dollars, report.would_be_dollars) == (None, None, None)


@pytest.mark.parametrize(
    ("plan", "last", "asked_covers", "read_tokens"),
    [
        (SHORTER, None, 0, 0),
        (SHORTER, LAST, 0, 0),
        (SHORTER, replace(LAST, asked_covers=1, read_since_question=70), 1, 1_070),
        (replace(SHORTER, action="created", block=SUMMARIZED), LAST, 2, 1_000),
        (
            replace(SHORTER, action="created", block=SUMMARIZED),
            *(replace(LAST, asked_covers=1, read_since_question=70), 2, 1_000),
        ),
        (
            replace(SHORTER, action="created", block=SUMMARIZED),
            *(replace(LAST, asked_covers=3, read_since_question=70), 3, 1_070),
        ),
    ],
)
def test_what_requests_read_is_added_up_from_one_question_for_a_summary_to_the_next(
    plan, last, asked_covers, read_tokens
):
    _, stored, _ = account_for(plan, last=last)
    assert (stored.asked_covers, stored.read_since_question) == (asked_covers, read_tokens)


@pytest.mark.parametrize(
    ("forwarded", "usage", "is_cut"),
    [
        *((2_000, Usage(999), True), (2_000, Usage(1_000), False), (1_999, Usage(10), False), (2_000, Usage(0), False)),
        *((2_000, Usage(10, 999), True), (2_000, Usage(10, 1_000), False)),
    ],
)
def test_a_prompt_of_which_less_than_half_was_read_was_cut(forwarded, usage, is_cut):
    assert is_silently_cut(forwarded, Delivered(100.0, usage)) == is_cut
    assert is_silently_cut(forwarded, Delivered(100.0, usage, says_truncated=True))


def test_the_upstreams_count_is_remembered_if_it_can_be_true():
    view = sum(len(message.raw) for message in ASKED.messages)
    anchors = [
        account_for(SHORTER, Usage(prompt))[1].anchor.tokens for prompt in (0, view // 2 - 1, view, 3 * view + 1)
    ]
    assert anchors == [0, 0, view, 0]
    assert account_for(SHORTER, Usage(view), mode="observe")[1].anchor.tokens == 0
