"""Economics of a rewrite: after how many requests it has paid for itself.

A prefix that an upstream has read before costs a tenth of the price or less when it is sent again. Editing an old
message makes everything after it new, and that must be paid back by what every later request saves. So rewrites are
rare and deep, and best made while the cache is cold anyway: then they cost nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from proxy.core.model.messages import Message
from proxy.core.pipeline import Count


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


def payback(old: Sequence[Message], new: Sequence[Message], count: Count, prices: Prices) -> float:
    """The number of requests after which the rewrite from `old` to `new` has paid for itself; infinite if never."""
    shared = 0
    for one, other in zip(old, new, strict=False):
        if one is not other and one.raw != other.raw:
            break
        shared += 1
    rest = sum(count(message.raw) for message in new[shared:])
    freed = sum(count(message.raw) for message in old[shared:]) - rest
    saved = freed * prices.read
    if saved <= 0:
        return 0.0 if freed > 0 else float("inf")
    return rest * max(0.0, prices.write - prices.read) / saved


def cold(idle: float | None, prices: Prices) -> bool:
    """True where the upstream's cache of this conversation has expired; False where the idle time is unknown."""
    return idle is not None and idle > prices.lifetime
