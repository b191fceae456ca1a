"""Token counts as an upstream reports them, and how they relate to the proxy's own counts."""

import json
from dataclasses import dataclass, replace

MIN_WEIGHT = 0.2  # of a new observation, once there are five
LEAST_TRUSTED_TOKENS = 2_000  # tokens: below, markup drowns the ratio
# Reported / counted: outside, the prompt was cut silently, or only its uncached part is reported.
PLAUSIBLE = (0.5, 3.0)


@dataclass(frozen=True, slots=True)
class Calibration:
    """The ratio of the upstream's token count to the proxy's: a bounded moving average."""

    ratio: float = 1.0
    observations: int = 0

    def calibrate(self, counted: int) -> int:
        return round(counted * self.ratio)

    def learn(self, counted: int, reported: int) -> "Calibration":
        if counted < LEAST_TRUSTED_TOKENS or not is_plausible(counted, reported):
            return self
        weight = max(MIN_WEIGHT, 1 / (self.observations + 1))
        return replace(
            self, ratio=self.ratio + weight * (reported / counted - self.ratio), observations=self.observations + 1
        )

    def to_bytes(self) -> bytes:
        return json.dumps([1, self.ratio, self.observations]).encode()

    @classmethod
    def from_bytes(cls, value: bytes) -> "Calibration":
        _, ratio, seen = json.loads(value)
        return cls(ratio, seen)


def is_plausible(counted: int, reported: int) -> bool:
    low, high = PLAUSIBLE
    return low <= reported / max(counted, 1) <= high


UNCALIBRATED = Calibration()
LARGEST_COUNT = 10**9
"""A larger number of tokens is a broken answer, not a count."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one answer, as the upstream reported them."""

    prompt: int = 0
    """0: not reported."""
    cached: int | None = None
    written: int = 0


NOT_REPORTED = Usage()
