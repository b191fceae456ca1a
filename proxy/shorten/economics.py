"""Relative prices, and after how many requests a rewrite has paid for itself.

A prefix that an upstream has read before costs a tenth of the price or less when it is sent again. Editing an old
message makes everything after it new, and every later request must pay that back by its savings. So rewrites are rare
and deep, and best made while the cache is cold anyway: then they cost nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

from proxy.history.messages import Message, is_different
from proxy.shorten.pipeline import Count


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of input relative to its plain price, and the sizes at which they jump."""

    read: float = 0.1
    """A token that is in the upstream's cache."""
    write: float = 1.25
    """A token that is not, the storing included."""
    lifetime: float = 300.0
    """Seconds until an unused cache is forgotten."""
    cliffs: tuple[int, ...] = ()
    """Input sizes above which every token of a request costs more."""
    ends_only: bool = False
    """The cache finds a prefix only where an earlier request ended: a rewrite makes all of the next request new."""


USUAL_PRICE_RATIO = 9.0
"""The cost of rewriting a token minus reading it, in reads, for most models: they cost 1 and 0.1."""


def count_shared(before: Sequence[Message], after: Sequence[Message]) -> int:
    """Return the number of messages that both begin with."""
    for place, (message, other) in enumerate(zip(before, after, strict=False)):
        if is_different(message, other):
            return place
    return min(len(before), len(after))


def estimate_payback(before: Sequence[Message], after: Sequence[Message], count: Count, prices: Prices) -> float:
    """Return the number of requests after which a rewrite has paid for itself; infinite if it never does."""
    start = count_shared(before, after)
    new_tokens = sum(count(message.raw) for message in after[start:])
    saved_tokens = sum(count(message.raw) for message in before[start:]) - new_tokens
    if prices.ends_only:
        # The rewrite begins after the last block, where no request has ended since that was made.
        new_tokens += sum(count(message.raw) for message in after[:start])
    if saved_tokens * prices.read > 0:
        return new_tokens * max(0.0, prices.write - prices.read) / (saved_tokens * prices.read)
    if saved_tokens > 0:
        return 0.0
    return float("inf")


def find_share_worth_clearing(prices: Prices) -> float:
    """Return the share of the usual amount at which a clearing is worth its rewrite: 1, or less if reads are dear.

    Rewriting costs the same for any amount, and waiting costs the reads of what could have gone: the best amount grows
    with the root of their ratio. It stays at 1 if reads are cheaper than usual: waiting for more saved nothing on
    recorded conversations, which end before that.
    """
    if prices.read <= 0:
        return 1.0
    return min(1.0, sqrt(max(0.0, prices.write - prices.read) / prices.read / USUAL_PRICE_RATIO))


def is_cold(idle_seconds: float | None, prices: Prices) -> bool:
    """Whether the upstream's cache of this conversation has expired; False if the idle time is unknown."""
    return idle_seconds is not None and idle_seconds > prices.lifetime
