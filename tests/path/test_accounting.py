"""The report of a request: figures that do not flatter, and no text of the conversation."""

from proxy.shorten.economics import PriceCliff, TokenPrices, Window, price_prompt

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
