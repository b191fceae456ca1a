"""When a history is folded, and down to which size: one rule, from sizes and the state of the upstream's cache alone.

    trigger   |                     ______/   over it: always
              |               _____/           from 0.6 of it on: when a user writes, if caches last an hour
    target    | __..________ /                 so far over it that `fold_cold_at_least` are freed: cache expired
              |/
              +------------------------------ requests

A rewrite costs the tokens that the upstream would have had in its cache: none if the cache has expired. A cache of an
hour hardly ever expires while a person works, so there the moment is a user's message. Of the rewrites that would have
been best in hindsight, 61 % fall on expired caches, which 3 % of requests find.
"""

from collections.abc import Sequence

from msgspec import Struct

from proxy.shorten.reasons import BlockReason
from proxy.shorten.rules import ENOUGH_SHARE, Facts, Rules


class DueFold(Struct, frozen=True):
    """A fold for which the moment has come."""

    limit: int
    reason: BlockReason
    goal: int
    """Tokens that a fold brings the history down to."""
    freed_at_least: int = 0
    """Tokens that must be freed, or the moment passes unused; 0 if the history is over its limit."""

    @property
    def may_pass(self) -> bool:
        return self.freed_at_least > 0

    def is_enough_cleared(self, size: int, freed_tokens: int) -> bool:
        # If clearing halves the view, a fold is not worth the loss of the agent's own words and code, which it often
        # needs again (decision 0008).
        target = max(self.goal, min(size, self.limit) // 2)
        return size - freed_tokens <= target and freed_tokens >= self.freed_at_least

    def is_enough_folded(self, size: int, freed_tokens: int) -> bool:
        return size - freed_tokens <= self.limit * ENOUGH_SHARE and freed_tokens >= self.freed_at_least


def find_due_fold(
    rules: Rules, facts: Facts, size: int, *, user_writes: bool, needed_tokens: int = 0
) -> DueFold | None:
    """Return the fold that is due for a history of this size, or None.

    *needed_tokens*: the size of the results that a fold must leave whole, because the agent fetched such results again.
    If these are more than half of the view, each fold would free little and the next one would follow at once. So the
    limit is raised to twice their size.
    """
    limits = rules.limits(facts)
    if not limits:
        return None
    limit, reason = limits[0]
    goal = rules.find_goal(limit)
    if needed_tokens:
        limit = max(limit, min(2 * needed_tokens, facts.usable_tokens or 2 * needed_tokens))
        goal = max(goal, min(needed_tokens, int(limit * ENOUGH_SHARE)))
    if size > limit:
        return DueFold(limit, reason, goal)
    least = rules.fold_cold_at_least
    if not least or size < goal + least:
        return None
    if facts.is_cold:
        return DueFold(limit, "cold", goal, least)
    long_lived_seconds = 3_600
    if user_writes and facts.cache_seconds >= long_lived_seconds and size > limit * 0.6:
        return DueFold(limit, "user", goal, least)
    return None


def find_smallest_due(rules: Rules, limits: Sequence[tuple[int, BlockReason]]) -> float:
    """Return the size below which no history is folded; infinite if none ever is."""
    if not limits:
        return float("inf")
    limit = limits[0][0]
    if not rules.fold_cold_at_least:
        return limit
    return min(limit, rules.find_goal(limit) + rules.fold_cold_at_least)
