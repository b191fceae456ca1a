"""Prices of models that differ from the price list: contracts, servers of one's own, subscriptions."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Literal

from msgspec.structs import astuple, replace
from pydantic import Field

from proxy.config.values import ALL_PERCENT, ConfigModel, Percent
from proxy.shorten.economics import PriceCliff, TokenPrices, Window

SUBSCRIPTION = "subscription"
"""Nothing is paid by the token: pages and metrics show tokens, and no money."""


class ModelPrices(ConfigModel):
    """Dollars per million tokens. A price that is not set is that of the price list."""

    input: float | None = Field(None, ge=0)
    """Input tokens."""
    cached: float | None = Field(None, ge=0)
    """Input tokens that are read from the cache."""
    written: float | None = Field(None, ge=0)
    """Input tokens that are written to the cache."""
    output: float | None = Field(None, ge=0)
    """Output tokens."""
    discount: Percent = 0.0
    """Percentage off all of these prices, listed ones included."""

    def price(self, window: Window) -> Window:
        own = (self.input, self.cached, self.written, self.output)
        listed = window.prices or TokenPrices(0.0, None, None, None)
        if window.prices is None and self.input is None:
            return window
        cliffs: tuple[PriceCliff, ...] = ()
        if own == (None, None, None, None):
            cliffs = tuple(replace(cliff, prices=self._reduce(cliff.prices)) for cliff in window.cliffs)
        prices = [mine if mine is not None else theirs for mine, theirs in zip(own, astuple(listed), strict=True)]
        return replace(window, prices=self._reduce(TokenPrices(*prices)), cliffs=cliffs)

    def _reduce(self, prices: TokenPrices) -> TokenPrices:
        share = 1 - self.discount / ALL_PERCENT
        reduced = [None if price is None else price * share for price in astuple(prices)]
        return TokenPrices(reduced[0] or 0.0, *reduced[1:])


Prices = Mapping[str, ModelPrices | Literal["subscription"]]
"""By model (glob); the first that matches counts."""


def find_prices(prices: Prices, model: str) -> ModelPrices | Literal["subscription"] | None:
    for pattern, model_prices in prices.items():
        if fnmatchcase(model, pattern):
            return model_prices
    return None


def describe_prices(prices: Prices, window: Window, model: str) -> tuple[str, str]:
    """Return the prices of a model, whose *window* has them, in a sentence, and where they are from."""
    own_prices = find_prices(prices, model)
    if own_prices == SUBSCRIPTION:
        return "none: tokens only", SUBSCRIPTION
    if window.prices is None:
        return "not known: its money is in no sum", "set `prices` of the upstream"
    origin = "the price list" if own_prices is None else "`prices` of the upstream, else the price list"
    names = ("input", "cached", "written", "output")
    values = (window.prices.input, window.prices.cached, window.prices.fresh, window.prices.output)
    return ", ".join(
        f"{name} {value:g}" for name, value in zip(names, values, strict=True) if value is not None
    ), origin
