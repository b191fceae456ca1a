"""Prices of tokens: eight price models in parts of the plain input price, and dollars where a model's prices are known.

The agent's own answers cost the same with any proxy, so they are left out. Summaries are not: what is
written for one costs five times the plain input price.
"""

from collections.abc import Mapping

from proxy.core.window import Prices, Window
from proxy.lab.replay.values import PICO_PER_DOLLAR, Scores, Tokens

PRICES: Mapping[str, Prices] = {
    ".1/1": Prices(0.1, 1.0),
    ".1/1.25": Prices(0.1, 1.25),
    ".1/2": Prices(0.1, 2.0),
    ".05/1.25": Prices(0.05, 1.25),
    ".025/1": Prices(0.025, 1.0),
    ".02/1": Prices(0.02, 1.0),
    ".5/1": Prices(0.5, 1.0),
    "none": Prices(1.0, 1.0),
}
"""By name: what a cached token costs, and one that is not, the storing included. In shares, .02/1 is .025/1.25."""
WRITTEN_PRICE_RATIO = 5.0
_PICO_A_TOKEN = PICO_PER_DOLLAR // 1_000_000


def cost(tokens: Tokens, prices: Prices) -> float:
    return tokens.cached * prices.read + tokens.fresh * prices.write + tokens.written * WRITTEN_PRICE_RATIO


def share(scores: Scores, prices: Prices) -> float:
    """Cost of forwarded requests and summaries, as a share of doing nothing."""
    plain = cost(scores.raw, prices)
    return (cost(scores.forwarded, prices) + cost(scores.summaries, prices)) / plain if plain else 1.0


def summaries_share(scores: Scores, prices: Prices) -> float:
    """Cost of the summaries alone, as a share of doing nothing."""
    plain = cost(scores.raw, prices)
    return cost(scores.summaries, prices) / plain if plain else 0.0


def bill(tokens: Tokens, window: Window) -> int:
    """Cost of one request in picodollars; 0 where the prices are not known."""
    prices = window.prices_at(tokens.read)
    if prices is None:
        return 0
    read = tokens.cached * _pico(prices.cached) + tokens.fresh * _pico(prices.fresh)
    return read + tokens.written * _pico(prices.output or 0.0)


def _pico(dollars_a_million: float) -> int:
    return round(dollars_a_million * _PICO_A_TOKEN)
