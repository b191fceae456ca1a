"""Prices of tokens: three price models in parts of the plain input price, and dollars if a model's prices are known.

The agent's own answers cost the same with any proxy, so they are left out. Summaries are not: a token that is written
for one costs five times the plain input price.

*Break-even lambda*: the extra steps of an agent, per 1,000 tokens that are removed from its history, that the saving
pays for. With a saving of 600 in 100 requests that cost 4 each, 150 more requests would eat it up; with 50,000 tokens
removed, lambda is 150 / 50 = 3. An agent that needs fewer extra steps gains.
"""

from collections.abc import Mapping

from proxy.lab.replay.replay_values import PICO_PER_DOLLAR, Scores, Tokens
from proxy.shorten.economics import Prices, Window

PRICES: Mapping[str, Prices] = {
    "tenth": Prices(0.1, 1.25),
    "twentieth": Prices(0.05, 1.25),
    "fortieth": Prices(0.025, 1.25),
}
"""By the price of a token that is cached; one that is not costs 1.25, the storing included."""
MODEL = "model"
"""The name of each model's own prices; `None` as prices here."""
WRITTEN_PRICE_RATIO = 5.0
_PICO_A_TOKEN = PICO_PER_DOLLAR // 1_000_000
_THOUSAND_TOKENS = 1_000


def cost(tokens: Tokens, prices: Prices) -> float:
    return tokens.cached * prices.read + tokens.fresh * prices.write + tokens.written * WRITTEN_PRICE_RATIO


def cost_unchanged(scores: Scores, prices: Prices | None) -> float:
    """The cost of doing nothing."""
    return scores.raw_bill if prices is None else cost(scores.raw, prices)


def cost_forwarded(scores: Scores, prices: Prices | None) -> float:
    """The cost of forwarded requests and summaries."""
    if prices is None:
        return scores.bill
    return cost(scores.forwarded, prices) + cost(scores.summaries, prices)


def cost_with_rereads(scores: Scores, prices: Prices | None) -> float:
    """The same with the steps that read lost spans again."""
    if prices is None:
        return scores.bill + scores.reread_bill
    return cost_forwarded(scores, prices) + cost(scores.needed.reread, prices)


def share(scores: Scores, prices: Prices | None) -> float:
    """Cost of forwarded requests and summaries, as a share of doing nothing."""
    unchanged = cost_unchanged(scores, prices)
    return cost_forwarded(scores, prices) / unchanged if unchanged else 1.0


def share_with_rereads(scores: Scores, prices: Prices | None) -> float:
    unchanged = cost_unchanged(scores, prices)
    return cost_with_rereads(scores, prices) / unchanged if unchanged else 1.0


def find_break_even(scores: Scores, prices: Prices | None) -> float | None:
    """Lambda; None if nothing was removed."""
    spent = cost_forwarded(scores, prices)
    if not (scores.removed and spent):
        return None
    extra_requests = (cost_unchanged(scores, prices) - spent) / (spent / scores.requests)
    return extra_requests / (scores.removed / _THOUSAND_TOKENS)


def bill(tokens: Tokens, window: Window) -> int:
    """Cost of one request in picodollars; 0 if the prices are not known."""
    prices = window.prices_at(tokens.read)
    if prices is None:
        return 0
    read = tokens.cached * _pico(prices.cached) + tokens.fresh * _pico(prices.fresh)
    return read + tokens.written * _pico(prices.output or 0.0)


def _pico(dollars_a_million: float) -> int:
    return round(dollars_a_million * _PICO_A_TOKEN)
