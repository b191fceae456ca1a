"""Relative prices, and after how many requests a rewrite has paid for itself.

A prefix that an upstream has read before costs a tenth of the price or less when it is sent again. Editing an old
message makes everything after it new, and every later request must pay that back by its savings. So rewrites are rare
and deep, and best made while the cache is cold anyway: then they cost nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

from proxy.history.messages import Message
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
"""What rewriting a token costs over reading it, in reads, where they cost .1 and 1: most models."""


def count_shared(old: Sequence[Message], new: Sequence[Message]) -> int:
    """How many messages both begin with."""
    shared = 0
    for one, other in zip(old, new, strict=False):
        if one is not other and one.raw != other.raw:
            break
        shared += 1
    return shared


def estimate_payback(old: Sequence[Message], new: Sequence[Message], count: Count, prices: Prices) -> float:
    """The number of requests after which the rewrite from `old` to `new` has paid for itself; infinite if never."""
    shared = count_shared(old, new)
    # What is rewritten begins behind the last block, and no request has ended there since that was made.
    written = sum(count(message.raw) for message in new[:shared]) if prices.ends_only else 0
    rest = sum(count(message.raw) for message in new[shared:])
    freed = sum(count(message.raw) for message in old[shared:]) - rest
    saved = freed * prices.read
    if saved <= 0:
        return 0.0 if freed > 0 else float("inf")
    return (written + rest) * max(0.0, prices.write - prices.read) / saved


def find_share_worth_clearing(prices: Prices) -> float:
    """The share of the usual amount at which a clearing is worth its rewrite: 1, or less where cached tokens are dear.

    Rewriting costs the same whatever is cleared, and waiting costs the reads of what could have gone: the best amount
    grows with the root of their ratio. It does not grow over 1: where reads are cheaper, waiting for more saved nothing
    on recorded conversations, which end before that.
    """
    if prices.read <= 0:
        return 1.0
    return min(1.0, sqrt(max(0.0, prices.write - prices.read) / prices.read / USUAL_PRICE_RATIO))


def is_cold(idle: float | None, prices: Prices) -> bool:
    """True where the upstream's cache of this conversation has expired; False where the idle time is unknown."""
    return idle is not None and idle > prices.lifetime
