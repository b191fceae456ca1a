"""The registry of steps: each by its name, and a step as JSON, for the blocks that carry one."""

from collections.abc import Callable
from typing import Any

from msgspec import convert
from msgspec.structs import asdict

from proxy.shorten.clear_results import ClearObservations, ClearResults, ClipOutput, DedupArrivals, StripReasoning
from proxy.shorten.drop_middle import DropMiddle
from proxy.shorten.pipeline import Step
from proxy.shorten.tool_designs import ClearArguments, DedupOld, OneLiners, PruneTools, StripAttachments, ToolHints

_CLASSES = (
    *(ClipOutput, DedupArrivals, ClearResults, ClearObservations, ClearArguments, ToolHints, DedupOld),
    *(StripReasoning, StripAttachments, OneLiners, DropMiddle, PruneTools),
)
STEPS: dict[str, Callable[..., Step]] = {step.name: step for step in _CLASSES}


def step_to_json(step: Step) -> tuple[str, dict[str, Any]]:
    return step.name, asdict(step)  # type: ignore[arg-type]  # a step is a struct; no protocol can say so


def step_from_json(name: str, settings: dict[str, Any]) -> Step:
    """Settings that the step does not have any more are left out: earlier versions stored them."""
    kind: Any = STEPS[name]
    step: Step = convert(settings, kind)
    return step
