"""All steps by name, as policies write them and stored blocks hold them."""

from collections.abc import Callable
from dataclasses import asdict, fields
from typing import Any

from proxy.designs.clear_arguments import ClearArguments
from proxy.designs.dedup_old import DedupOld
from proxy.designs.one_liners import OneLiners
from proxy.designs.prune_tools import PruneTools
from proxy.designs.strip_attachments import StripAttachments
from proxy.designs.tool_hints import ToolHints
from proxy.shorten.pipeline import Step
from proxy.shorten.steps.clear_observations import ClearObservations
from proxy.shorten.steps.clear_results import ClearResults
from proxy.shorten.steps.clip_output import ClipOutput
from proxy.shorten.steps.dedup_arrivals import DedupArrivals
from proxy.shorten.steps.drop_middle import DropMiddle
from proxy.shorten.steps.strip_reasoning import StripReasoning

STEPS: dict[str, Callable[..., Step]] = {
    step.name: step
    for step in (
        ClipOutput,
        DedupArrivals,
        ClearResults,
        ClearObservations,
        ClearArguments,
        ToolHints,
        DedupOld,
        StripReasoning,
        StripAttachments,
        OneLiners,
        DropMiddle,
        PruneTools,
    )
}


def step_to_json(step: Step) -> list[Any]:
    """A step as plain data: its name and its settings."""
    return [step.name, asdict(step)]  # type: ignore[call-overload]  # a step is a dataclass; no protocol can say so


def step_from_json(name: str, settings: dict[str, Any]) -> Step:
    """The step with this name and these settings. They come as JSON has them: lists in place of tuples.

    Settings that the step does not have any more are left out: blocks of earlier versions hold them.
    """
    step: Any = STEPS[name]
    names = {field.name for field in fields(step)}
    return STEPS[name](**{key: _make_tuples(value) for key, value in settings.items() if key in names})


def _make_tuples(value: Any) -> Any:  # noqa: ANN401 - JSON
    return tuple(map(_make_tuples, value)) if isinstance(value, list) else value
