"""Moments: the equal steps of time in which the pages show figures."""

from proxy.store.activity_log import DAY_SECONDS, MINUTE_SECONDS

HOUR_SECONDS = 3600.0
MOMENTS_MAX = 60
STEPS_SECONDS = (
    MINUTE_SECONDS,
    5 * MINUTE_SECONDS,
    10 * MINUTE_SECONDS,
    30 * MINUTE_SECONDS,
    HOUR_SECONDS,
    3 * HOUR_SECONDS,
    6 * HOUR_SECONDS,
    12 * HOUR_SECONDS,
    DAY_SECONDS,
)
"""Lengths that a moment may have: spans that people name."""


def choose_step(span_seconds: float) -> float:
    """Return the shortest step by which a span has at most `MOMENTS_MAX` moments."""
    for step in STEPS_SECONDS:
        if span_seconds / step <= MOMENTS_MAX:
            return float(step)
    return DAY_SECONDS


def list_moments(since: float, now: float, step: float) -> range:
    """Return the numbers of all moments of a span. Moment 3 begins at `3 * step` seconds since 1970."""
    return range(int(since // step) + 1, int(now // step) + 1)
