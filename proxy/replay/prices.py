"""What tokens cost: under five price models, in parts of the plain input price, and in dollars where a model's prices
are known.

The agent's own answers cost the same whoever stands in between, so they are left out. Summaries are not: what is
written for one costs five times the plain input price.
"""

from collections.abc import Mapping

from proxy.core.economics import Prices
from proxy.replay.values import PICO, Scores, Tokens
from proxy.windows import Prices as Tier
from proxy.windows import Window

PRICES: Mapping[str, Prices] = {
    ".1/1.25": Prices(0.1, 1.25),
    ".05/1.25": Prices(0.05, 1.25),
    ".02/1": Prices(0.02, 1.0),
    ".5/1": Prices(0.5, 1.0),
    "none": Prices(1.0, 1.0),
}
"""By name: what a cached token costs, and one that is not, the storing included."""
WRITTEN = 5.0
_PICO_A_TOKEN = PICO // 1_000_000


def cost(tokens: Tokens, prices: Prices) -> float:
    return tokens.cached * prices.read + tokens.fresh * prices.write + tokens.written * WRITTEN


def share(scores: Scores, prices: Prices) -> float:
    """Everything that was forwarded and the summaries, in parts of doing nothing."""
    plain = cost(scores.raw, prices)
    return (cost(scores.forwarded, prices) + cost(scores.summaries, prices)) / plain if plain else 1.0


def summaries_share(scores: Scores, prices: Prices) -> float:
    """The summaries alone, in parts of doing nothing."""
    plain = cost(scores.raw, prices)
    return cost(scores.summaries, prices) / plain if plain else 0.0


def bill(tokens: Tokens, window: Window) -> int:
    """Of one request, in picodollars; 0 where the prices are not known. Above a cliff all of it costs what it says."""
    tier = window.prices
    if tier is None:
        return 0
    for cliff in sorted(window.cliffs, key=lambda cliff: cliff.above):
        tier = cliff.prices if tokens.read > cliff.above else tier
    read, write = _or_input(tier.cache_read, tier), _or_input(tier.cache_write, tier)
    return tokens.cached * _pico(read) + tokens.fresh * _pico(write) + tokens.written * _pico(tier.output or 0.0)


def _or_input(price: float | None, tier: Tier) -> float:
    return tier.input if price is None else price


def _pico(dollars_a_million: float) -> int:
    return round(dollars_a_million * _PICO_A_TOKEN)
