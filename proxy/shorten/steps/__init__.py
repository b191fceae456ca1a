"""The ways to shorten a history, as frozen values. To add one: write it, list it here, give it golden files.

standard   the steps of the default policy
compat     the steps of the named policies only

*Always* steps run on every request over what no block covers. What they make of a message depends on it and on the
messages before it, so a message that was forwarded once is forwarded again with the same bytes. *When-full* steps run
when a block is made, over everything older than what is kept.
"""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from proxy.shorten.pipeline import Step
from proxy.shorten.steps import compat, standard

STEPS: dict[str, Callable[..., Step]] = {
    step.name: step
    for step in (
        standard.ClipOutput,
        standard.DedupArrivals,
        standard.ClearResults,
        standard.ClearObservations,
        standard.ClearArguments,
        compat.ToolHints,
        standard.DedupOld,
        standard.StripReasoning,
        compat.StripAttachments,
        compat.OneLiners,
        standard.DropMiddle,
        compat.PruneTools,
    )
}


def step_to_json(step: Step) -> list[Any]:
    """A step as plain data: its name and its settings."""
    return [step.name, asdict(step)]  # type: ignore[call-overload]  # a step is a dataclass; no protocol can say so


FORMER_SETTINGS = frozenset({"outline", "outline_bytes", "names"})
"""Settings of version 0.2, which its blocks still hold."""


def step_from_json(name: str, settings: dict[str, Any]) -> Step:
    """The step with this name and these settings. They come as JSON has them: lists where there were tuples."""
    return STEPS[name](**{key: _tuples(value) for key, value in settings.items() if key not in FORMER_SETTINGS})


def _tuples(value: Any) -> Any:  # noqa: ANN401 - JSON
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
