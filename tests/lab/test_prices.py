"""What tokens cost, computed on paper."""

import pytest

from proxy.lab.replay.replay_values import PICO_PER_DOLLAR, Tokens, bill
from proxy.shorten.economics import PriceCliff, TokenPrices, Window

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
