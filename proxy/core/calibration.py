"""Calibration: how an upstream's token counts relate to the proxy's, learned from the usage that it reports."""

import json
from dataclasses import dataclass, replace

MIN_WEIGHT = 0.2  # of a new observation, once there are five
LEAST_TRUSTED_TOKENS = 2_000  # tokens: below, markup drowns the ratio
# Reported / counted: outside, the prompt was cut silently, or only its uncached part is reported.
PLAUSIBLE = (0.5, 3.0)
MOST_TOKENS = 10**12  # no upstream reads more: a larger count says nothing


def prompt_tokens_of(usage: object) -> int | None:
    """The prompt's tokens as the upstream counted them. Missing or zero means unknown, never empty."""
    told = usage.get("prompt_tokens") if isinstance(usage, dict) else None
    # An integer of JSON has any number of digits, and a float has not.
    return told if isinstance(told, int) and 0 < told <= MOST_TOKENS else None


@dataclass(frozen=True, slots=True)
class Calibration:
    """The ratio of the upstream's token count to the proxy's: a bounded moving average."""

    ratio: float = 1.0
    observations: int = 0

    def calibrate(self, counted: int) -> int:
        return round(counted * self.ratio)

    def learn(self, counted: int, told: int) -> "Calibration":
        if counted < LEAST_TRUSTED_TOKENS or not is_plausible(counted, told):
            return self
        weight = max(MIN_WEIGHT, 1 / (self.observations + 1))
        return replace(
            self, ratio=self.ratio + weight * (told / counted - self.ratio), observations=self.observations + 1
        )

    def to_bytes(self) -> bytes:
        return json.dumps([1, self.ratio, self.observations]).encode()

    @classmethod
    def from_bytes(cls, value: bytes) -> "Calibration":
        _, ratio, seen = json.loads(value)
        return cls(ratio, seen)


def is_plausible(counted: int, told: int) -> bool:
    low, high = PLAUSIBLE
    return low <= told / max(counted, 1) <= high


UNCALIBRATED = Calibration()
