"""Is this rewrite worth its price?

An upstream that has read a prefix before sells it again at a tenth of the price or less. Editing an old message makes
everything after it new: that must be paid back by what is saved on every request that follows. So rewrites come
rarely and deep, and best of all while the cache is cold anyway, when they cost nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from proxy.core.messages import Message
from proxy.core.pipeline import Count


@dataclass(frozen=True, slots=True)
class Prices:
    """What input costs, in parts of its plain price, and where it jumps."""

    read: float = 0.1
    """A token the upstream has in its cache."""
    write: float = 1.25
    """A token it has not, the storing included."""
    lifetime: float = 300.0
    """Seconds an unused cache lives."""
    cliffs: tuple[int, ...] = ()
    """Input sizes above which every token of a request costs more."""


def payback(old: Sequence[Message], new: Sequence[Message], count: Count, prices: Prices) -> float:
    """After how many requests the rewrite from `old` to `new` has paid for itself; infinite when it frees nothing."""
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
    """Has the upstream forgotten this conversation? Unknown counts as no."""
    return idle is not None and idle > prices.lifetime
