"""Prompt cache of an upstream: prefixes of requests, by whole messages.

Providers cache from some length on, in blocks of tokens, and forget what was not asked for a while. A prefix here ends
where a message ends, so a message that was changed near its end counts as all new: a little less is cached than a
provider might have, never more. `FOREVER` is the plain cache of the first simulations, for comparison with them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from proxy.shorten.pipeline import Count


@dataclass(frozen=True, slots=True)
class Habit:
    """How a provider caches."""

    least: int
    """Shorter prefixes are not kept."""
    step: int
    """Whole blocks of this many tokens are charged as cached."""
    lifetime: float
    """Seconds without use until a prefix is forgotten."""
    ends_only: bool = False
    """A prefix is kept only where a request ended, and no shorter one is found instead."""
    look_back: int = 0
    """If not 0: a prefix is kept only where it is marked, and looked for in so many pieces up to each mark."""


PROVIDER = Habit(least=1_024, step=128, lifetime=300.0)
FOREVER = Habit(least=0, step=1, lifetime=inf)
# OpenAI from GPT-5.6 on, for a client that sets no breakpoints: one is written behind the newest message.
BREAKPOINTS = Habit(least=1_024, step=1, lifetime=1_800.0, ends_only=True)
# Anthropic: what ends at a mark is kept, and from each mark the API looks back over twenty blocks.
MARKS = Habit(least=1_024, step=1, lifetime=300.0, look_back=20)
HABITS = {"provider": PROVIDER, "forever": FOREVER, "breakpoints": BREAKPOINTS}


class Marked(bytes):
    """A piece of a request at whose end the request has a cache mark."""


class Cache:
    """One conversation's prefixes."""

    def __init__(self, habit: Habit, count: Count) -> None:
        self._habit = habit
        self._count = count
        self._used: dict[int, float] = {}

    def read(self, pieces: Sequence[bytes], now: float) -> tuple[int, int]:
        """Tokens of a request, tools first, and how many of them are cached; it is kept from now on."""
        total = cached = link = 0
        links: list[int] = []
        marks = [place for place, piece in enumerate(pieces) if isinstance(piece, Marked)]
        back = self._habit.look_back
        used, oldest = self._used, now - self._habit.lifetime
        for place, piece in enumerate(pieces):
            link = hash((link, piece))
            links.append(link)
            total += self._count(piece)
            last_use = used.get(link)
            if last_use is None or last_use < oldest:
                continue
            if not back or any(0 <= mark - place < back for mark in marks):
                cached = total
        if back:
            links = [links[mark] for mark in marks]
        elif self._habit.ends_only:
            links = links[-1:]
        used.update(dict.fromkeys(links, now))
        return total, self._charge(cached)

    def _charge(self, cached: int) -> int:
        return cached // self._habit.step * self._habit.step if cached >= self._habit.least else 0
