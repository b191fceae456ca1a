"""Token counts as an upstream reports them, and how they relate to the proxy's own counts."""

import json
from dataclasses import dataclass

MIN_WEIGHT = 0.2
"""Weight of a new observation, once there are five."""
LEAST_TRUSTED_TOKENS = 2_000
"""In smaller prompts, markup drowns the ratio."""
PLAUSIBLE = (0.5, 3.0)
"""Reported / counted. Outside, the prompt was cut silently, or only its uncached part is reported."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """The ratio of the upstream's token count to the proxy's: a bounded moving average."""

    ratio: float = 1.0
    observations: int = 0

    def calibrate(self, tokens: int) -> int:
        """Return our count as the upstream would report it."""
        return round(tokens * self.ratio)

    def learn(self, our_tokens: int, reported_tokens: int) -> "Calibration":
        """Return the ratio after one more observation; implausible ones change nothing."""
        if our_tokens < LEAST_TRUSTED_TOKENS or not is_plausible(our_tokens, reported_tokens):
            return self
        weight = max(MIN_WEIGHT, 1 / (self.observations + 1))
        ratio = self.ratio + weight * (reported_tokens / our_tokens - self.ratio)
        return Calibration(ratio, self.observations + 1)

    def to_bytes(self) -> bytes:
        return json.dumps([1, self.ratio, self.observations]).encode()

    @classmethod
    def from_bytes(cls, value: bytes) -> "Calibration":
        _, ratio, observations = json.loads(value)
        return cls(ratio, observations)


def is_plausible(our_tokens: int, reported_tokens: int) -> bool:
    low, high = PLAUSIBLE
    return low <= reported_tokens / max(our_tokens, 1) <= high


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
