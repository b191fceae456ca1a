"""A rewrite is weighed by what it saves on the requests that follow."""

import pytest

from proxy.shorten.economics import (
    PriceCliff,
    Prices,
    TokenPrices,
    Window,
    estimate_payback,
    find_share_worth_clearing,
    is_cold,
    price_prompt,
)
from proxy.shorten.pipeline import estimate_tokens
from tests.support.messages import call, request, user

OLD = request(user("x"), call("Read", out="a" * 4_000), call("Read", out="b" * 4_000)).body
NEW = (*OLD[:2], OLD[2].with_text("s", "x"), *OLD[3:])


def test_a_rewrite_pays_back_after_the_messages_behind_it_were_cached_again():
    rest, freed = (
        sum(estimate_tokens(message.raw) for message in NEW[2:]),
        estimate_tokens(OLD[2].raw) - estimate_tokens(NEW[2].raw),
    )
    assert estimate_payback(OLD, NEW, estimate_tokens, Prices(read=0.1, write=1.25)) == rest * 1.15 / (freed * 0.1)


def test_where_nothing_is_cached_every_rewrite_is_free():
    assert estimate_payback(OLD, NEW, estimate_tokens, Prices(read=1.0, write=1.0)) == 0
    assert estimate_payback(OLD, NEW, estimate_tokens, Prices(read=0.0, write=1.0)) == 0


def test_a_rewrite_that_frees_nothing_never_pays():
    assert estimate_payback(OLD, OLD, estimate_tokens, Prices()) == float("inf")
    assert estimate_payback(NEW, OLD, estimate_tokens, Prices()) == float("inf")


def test_a_cache_is_cold_when_it_was_left_alone_for_longer_than_it_lives():
    assert is_cold(301)
    assert not is_cold(299)
    assert not is_cold(None)


@pytest.mark.parametrize(
    ("read", "write", "share"),
    [(0.1, 1.25, 1.0), (0.1, 1.0, 1.0), (0.1, 2.0, 1.0), (0.05, 1.25, 1.0), (0.5, 1.0, 0.333), (1.0, 1.0, 0.0)],
)
def test_the_dearer_cached_tokens_are_the_less_must_go_for_a_rewrite_to_be_worth_it(read, write, share):
    assert find_share_worth_clearing(Prices(read=read, write=write)) == pytest.approx(share, abs=0.001)


def test_a_free_cache_asks_for_no_other_amount():
    assert find_share_worth_clearing(Prices(read=0.0, write=1.0)) == 1.0


def test_where_only_ends_of_requests_are_found_all_of_the_next_request_is_new():
    everything, freed = (
        sum(estimate_tokens(each.raw) for each in NEW),
        estimate_tokens(OLD[2].raw) - estimate_tokens(NEW[2].raw),
    )
    prices = Prices(read=0.1, write=1.25, ends_only=True)
    assert estimate_payback(OLD, NEW, estimate_tokens, prices) == everything * 1.15 / (freed * 0.1)


PRICED = Window(prices=TokenPrices(input=2.0, cache_read=0.2, cache_write=None, output=8.0))


def test_cached_tokens_cost_the_cache_price():
    assert price_prompt(PRICED, 1_000_000, 0) == 2.0
    assert price_prompt(PRICED, 1_000_000, 1_000_000) == 0.2
    assert price_prompt(PRICED, 1_000_000, 500_000) == 1.1


def test_over_a_cliff_all_of_it_costs_more():
    cliff = PriceCliff(100, TokenPrices(4.0, 0.4, None, 16.0))
    window = Window(prices=PRICED.prices, cliffs=(cliff,))
    assert price_prompt(window, 100, 0) == 100 * 2.0 / 1_000_000
    assert price_prompt(window, 101, 0) == 101 * 4.0 / 1_000_000


def test_no_price_is_no_cost_at_all():
    assert price_prompt(Window(), 1_000, 0) is None


def test_an_upstream_cannot_have_cached_more_than_there_was():
    assert price_prompt(PRICED, 100, 5_000) == price_prompt(PRICED, 100, 100)
