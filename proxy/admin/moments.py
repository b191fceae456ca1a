"""Moments: the steps of time in which the pages show figures."""

from proxy.store.activity_log import DAY_SECONDS, MINUTE_SECONDS

HOUR_SECONDS = 3600.0
STEPS_SECONDS = (
    MINUTE_SECONDS,
    5 * MINUTE_SECONDS,
    10 * MINUTE_SECONDS,
    1800.0,
    3600.0,
    3 * 3600.0,
    6 * 3600.0,
    12 * 3600.0,
    DAY_SECONDS,
)
"""Lengths that a moment may have: spans that people name."""
MOMENTS_MAX = 60


def choose_step(span_seconds: float) -> float:
    """Seconds of a moment, so that a span has at most `MOMENTS_MAX` of them."""
    return float(next(step for step in STEPS_SECONDS if span_seconds / step <= MOMENTS_MAX))
