"""Compare two groups of conversations, of which one was left alone: intervals, and whether the difference is real.

    treated      12.1  9.8  30.5 ...    dollars of each conversation
    left alone   15.0  22.4 ...         -> -23 % (-35 % to -9 %)

Nothing is claimed before there are as many conversations as a difference of `DETECTABLE_SHARE` needs, since a look a
day at a growing sample would find a difference sooner or later. All measures together claim a difference that is not
there in at most 5 of 100 comparisons: each is tested at a share of 0.05. Few conversations are tested by permutation,
which holds for any distribution, many by the normal approximation of it.
"""

import math
import random
from collections.abc import Mapping, Sequence
from statistics import NormalDist, fmean, pvariance

from msgspec import Struct

DETECTABLE_SHARE = 0.2
"""The sample is large enough for a difference of this share of the mean."""
CONVERSATIONS_MIN = 20
"""The fewest conversations of an arm. Fewer do not tell how much conversations vary."""
RESAMPLE_COUNT = 1_000
GROUP_COUNT = 200
"""If there are more conversations, they are put into this many groups whose means are drawn, which bounds the time."""
_NORMAL = NormalDist()


class Difference(Struct, frozen=True):
    """The treated arm's mean against that of the arm that was left alone."""

    treated: float
    left_alone: float
    share: float | None
    """The relative difference: -0.2 is a fifth less than left alone. None if the mean of those left alone is 0."""
    low: float | None
    high: float | None
    """The interval of `share`."""
    is_claimed: bool
    missing: int
    """Conversations that are still needed, of both arms together."""


def compare(treated: Mapping[str, Sequence[float]], left_alone: Mapping[str, Sequence[float]]) -> dict[str, Difference]:
    """Compare the arms by each measure. Each value is that of one conversation."""
    level = 0.05 / max(1, len(treated))  # 0.05: the share of comparisons that may claim too much
    return {name: _compare_values(values, left_alone[name], level) for name, values in treated.items()}


def _compare_values(treated: Sequence[float], left_alone: Sequence[float], level: float) -> Difference:
    means = fmean(treated) if treated else 0.0, fmean(left_alone) if left_alone else 0.0
    missing = count_missing(treated, left_alone, level)
    if not treated or not left_alone or not means[1]:
        return Difference(*means, None, None, None, is_claimed=False, missing=missing)
    dice = random.Random(1)  # noqa: S311 (the same values have the same interval)
    low, high = _find_interval(treated, left_alone, level, dice)
    is_claimed = not missing and not low <= 0 <= high and _is_significant(treated, left_alone, level, dice)
    return Difference(*means, means[0] / means[1] - 1, low, high, is_claimed=is_claimed, missing=missing)


def count_missing(treated: Sequence[float], left_alone: Sequence[float], level: float) -> int:
    """Return how many conversations more, of both arms, a difference of `DETECTABLE_SHARE` needs."""
    sizes = len(treated), len(left_alone)
    total = sum(sizes)
    if min(sizes) < CONVERSATIONS_MIN:
        share = max(min(sizes), 1) / max(total, 1)
        return max(2 * CONVERSATIONS_MIN, math.ceil(CONVERSATIONS_MIN / share)) - total
    mean = fmean(left_alone)
    if not mean:
        return 0
    deviations = _NORMAL.inv_cdf(1 - level / 2) + _NORMAL.inv_cdf(0.8)  # 0.8: the share of differences to be found
    # Divided by the number of all conversations, this is the variance of the difference of the means.
    variance = pvariance(treated) * total / sizes[0] + pvariance(left_alone) * total / sizes[1]
    needed_conversations = math.ceil(variance * (deviations / (DETECTABLE_SHARE * mean)) ** 2)
    return max(0, needed_conversations - total)


def _find_interval(
    treated: Sequence[float], left_alone: Sequence[float], level: float, dice: random.Random
) -> tuple[float, float]:
    treated_means, base_means = _gather(treated), _gather(left_alone)
    shares = []
    for _ in range(RESAMPLE_COUNT):
        base = fmean(dice.choices(base_means, k=len(base_means)))
        if base:
            shares.append(fmean(dice.choices(treated_means, k=len(treated_means))) / base - 1)
    shares.sort()
    edge = int(level / 2 * len(shares))
    return shares[edge], shares[-1 - edge]


def _gather(values: Sequence[float]) -> Sequence[float]:
    if len(values) <= GROUP_COUNT:
        return values
    return [fmean(values[number::GROUP_COUNT]) for number in range(GROUP_COUNT)]


def _is_significant(treated: Sequence[float], left_alone: Sequence[float], level: float, dice: random.Random) -> bool:
    values = [*treated, *left_alone]
    difference = abs(fmean(treated) - fmean(left_alone))
    size, rest = len(left_alone), len(treated)
    if size >= GROUP_COUNT and rest >= GROUP_COUNT:
        error = math.sqrt(pvariance(values) * (1 / size + 1 / rest))
        return difference > error * _NORMAL.inv_cdf(1 - level / 2)
    total, extreme = sum(values), 0
    for _ in range(RESAMPLE_COUNT):
        part = sum(dice.sample(values, size))
        extreme += abs(part / size - (total - part) / rest) >= difference
    return extreme / RESAMPLE_COUNT < level
