"""What tokens cost, computed on paper."""

import pytest
from msgspec.structs import replace

from proxy.lab.replay.replay_values import (
    PICO_PER_DOLLAR,
    PRICES,
    Needed,
    Scores,
    Tokens,
    bill,
    cost,
    find_break_even,
    share,
    share_with_rereads,
)
from proxy.shorten.economics import PriceCliff, TokenPrices, Window

RAW = Tokens(fresh=1_000, cached=9_000)
FORWARDED = Tokens(fresh=1_000, cached=3_000)


@pytest.mark.parametrize(
    ("model", "raw", "forwarded"),
    [
        ("tenth", 1_250 + 900, 1_250 + 300),
        ("twentieth", 1_250 + 450, 1_250 + 150),
        ("fortieth", 1_250 + 225, 1_250 + 75),
    ],
)
def test_cached_and_uncached_tokens_have_their_prices(model, raw, forwarded):
    assert cost(RAW, PRICES[model]) == pytest.approx(raw)
    assert share(Scores(raw=RAW, forwarded=FORWARDED), PRICES[model]) == pytest.approx(forwarded / raw)


def test_a_summary_costs_what_it_reads_and_five_times_what_it_writes():
    scores = Scores(raw=RAW, forwarded=FORWARDED, summaries=Tokens(fresh=100, cached=2_000, written=50))
    assert share(scores, PRICES["tenth"]) == pytest.approx((1_550 + 125 + 200 + 250) / 2_150)


def test_rereads_are_charged_like_requests():
    lost = Needed(asked=3, kept=1, rereads=1, reread=Tokens(fresh=600, cached=3_000))
    scores = Scores(raw=RAW, forwarded=FORWARDED, needed=lost)
    assert share_with_rereads(scores, PRICES["tenth"]) == pytest.approx((1_550 + 750 + 300) / 2_150)
    assert share_with_rereads(replace(scores, raw_bill=100, bill=40, reread_bill=20), None) == pytest.approx(0.6)


def test_lambda_is_the_extra_requests_that_the_saving_pays_for_by_thousand_removed_tokens():
    scores = Scores(requests=10, raw=RAW, forwarded=FORWARDED, removed=2_000)
    assert find_break_even(scores, PRICES["tenth"]) == pytest.approx((2_150 - 1_550) / 155 / 2)
    assert find_break_even(replace(scores, raw_bill=300, bill=100), None) == pytest.approx(200 / 10 / 2)
    assert find_break_even(replace(scores, removed=0), PRICES["tenth"]) is None


def test_nothing_costs_what_nothing_costs():
    assert share(Scores(), PRICES["tenth"]) == 1.0


DEAR = TokenPrices(input=2.0, cache_read=0.2, cache_write=2.5, output=10.0)
PLAIN = TokenPrices(input=1.0, cache_read=None, cache_write=None, output=None)


def dollars(tokens, window):
    return bill(tokens, window) / PICO_PER_DOLLAR


def test_a_model_has_its_own_prices_in_dollars_a_million():
    tokens = Tokens(fresh=1_000_000, cached=10_000_000, written=100_000)
    assert dollars(tokens, Window(prices=DEAR)) == pytest.approx(2.5 + 2.0 + 1.0)
    assert dollars(tokens, Window(prices=PLAIN)) == pytest.approx(1.0 + 10.0)
    assert dollars(tokens, Window()) == 0


def test_over_a_cliff_the_whole_request_costs_more():
    window = Window(prices=PLAIN, cliffs=(PriceCliff(200_000, DEAR),))
    assert dollars(Tokens(fresh=200_000), window) == pytest.approx(0.2)
    assert dollars(Tokens(fresh=200_000, cached=1), window) == pytest.approx(0.5, abs=1e-6)


def test_money_is_whole_numbers():
    assert bill(Tokens(fresh=1, cached=1, written=1), Window(prices=DEAR)) == 2_500_000 + 200_000 + 10_000_000
