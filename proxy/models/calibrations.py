"""How far a count is from the upstream's own: the key under which that is learned, and the factor to begin with."""

from proxy.models.names import model_family
from proxy.shorten.economics import Calibration

_PRIOR_FACTORS = {"claude-2": 1.2, "claude-3": 1.2, "claude-4": 1.29, "claude-5": 1.55}


def make_counter_name(upstream: str, model: str) -> str:
    """The key of a calibration: token counts of one upstream and one model family say nothing of others."""
    return f"{upstream}/{model_family(model)}"


def find_prior_calibration(model: str) -> Calibration:
    """The calibration to begin with, before the first usage comes back."""
    return Calibration(_PRIOR_FACTORS.get(model_family(model), 1.0))
