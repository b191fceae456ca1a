"""Intervals by resampling whole conversations: requests of one conversation are not independent of each other."""

import random
from collections.abc import Sequence
from typing import NamedTuple

SAMPLES = 500
SEED = 1
_SHARE_OUTSIDE = 0.05


class Interval(NamedTuple):
    """95 of 100 samples lie within."""

    low: float
    high: float


def find_interval(parts: Sequence[tuple[float, float]]) -> Interval | None:
    """The interval of sum(part) / sum(whole) over conversations, each given as (part, whole); None without any."""
    judged = [(part, whole) for part, whole in parts if whole]
    if not judged:
        return None
    dice = random.Random(SEED)  # noqa: S311 (no secret)
    shares = sorted(_divide(dice.choices(judged, k=len(judged))) for _ in range(SAMPLES))
    outside = int(SAMPLES * _SHARE_OUTSIDE / 2)
    return Interval(shares[outside], shares[-1 - outside])


def _divide(parts: Sequence[tuple[float, float]]) -> float:
    return sum(part for part, _ in parts) / sum(whole for _, whole in parts)
