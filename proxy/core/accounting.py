"""Cost of a request: token counts as the upstream reports them, and their price in dollars.

What it would have cost without compaction is stated cautiously: everything the client had sent before, within the
lifetime of a cache, counts as read from the cache.
"""

from dataclasses import dataclass

from proxy.core.window import Window

PER_MILLION_TOKENS = 1_000_000
LARGEST_COUNT = 10**9
"""A larger number of tokens is a broken answer, not a count."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one answer, as the upstream reported them."""

    prompt: int = 0
    """0: not reported."""
    cached: int | None = None
    written: int = 0


NOT_REPORTED = Usage()


def dollars(window: Window, tokens: int, cached: int) -> float | None:
    """The price of a prompt of this size, `cached` of it read from the cache; None where prices are unknown."""
    prices = window.prices_at(tokens)
    if prices is None:
        return None
    warm = min(max(0, cached), tokens)
    return (warm * prices.cached + (tokens - warm) * prices.fresh) / PER_MILLION_TOKENS
