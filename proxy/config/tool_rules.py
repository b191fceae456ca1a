"""Rules of a policy for single tools (`tools`), and the steps that carry them out."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from pydantic import Field, model_validator

from proxy.config.values import ConfigModel
from proxy.designs.one_liners import OneLiners
from proxy.designs.strategies import DedupOld, PruneTools, StripAttachments, Subsumption
from proxy.designs.tool_hints import ClearArguments, ToolHints
from proxy.history.agents import Hint
from proxy.shorten.arrivals import ClipOutput
from proxy.shorten.clear_results import ClearResults
from proxy.shorten.drop_middle import DropMiddle
from proxy.shorten.pipeline import Step


class SubsumesConfig(ConfigModel):
    """The arguments of a tool that say which part of which document a call returns."""

    path: str = Field(min_length=1)
    """Argument with the name of the document."""
    start: str = ""
    """Argument with the first line or page, or with both ends, such as `[1, 50]`."""
    end: str = ""
    """Argument with the last line or page."""
    count: str = ""
    """Argument with the number of lines or pages."""

    @model_validator(mode="after")
    def _name_a_range(self) -> "SubsumesConfig":
        if not (self.start or self.end or self.count):
            raise ValueError("name the argument of `start`, `end` or `count` too: equal calls need no `subsumes`")
        return self


class ToolConfig(ConfigModel):
    """Rules for old calls of a tool. They come before the settings of the steps."""

    request: Literal["keep", "strip", "remove"] | None = None
    """What to do with the arguments of old calls: `keep`, `strip` long texts, or `remove` the call with its result."""
    response: Literal["keep", "strip", "remove"] | None = None
    """What to do with the results of old calls: `keep`, `strip` long texts, or `remove` the call with its result. Kept
    results survive folds and summaries with their calls, up to half of `target`."""
    dedup: bool | None = None
    """Whether a repeated call makes the older one obsolete (`dedup_old`). Set it to false if every call counts."""
    subsumes: SubsumesConfig | None = None
    """Arguments by which a later call of a wider range makes an older one obsolete. All others must be equal."""


ToolRules = Mapping[str, ToolConfig]
"""By tool (glob): of several that match, the first that names a setting counts."""


def list_hints(tools: ToolRules) -> tuple[Hint, ...]:
    return tuple((glob, tool.request or "", tool.response or "") for glob, tool in tools.items())


def apply_rules(tools: ToolRules, step: Step) -> Step:
    """Return the step with the rules of the policy before its own."""
    match step:
        case DedupOld():
            subsumes = (*_list_subsumptions(tools), *step.subsumes)
            return replace(step, hints=(*_list_repeats(tools), *step.hints), subsumes=subsumes)
        case ToolHints() | ClearResults() | ClearArguments() | ClipOutput() | StripAttachments():
            return replace(step, hints=(*list_hints(tools), *step.hints))
        case OneLiners() | DropMiddle():
            return replace(step, hints=(*list_hints(tools), *step.hints))
        case _:
            return step


def add_steps(tools: ToolRules, steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Add steps to `when_full` for rules that none of its own steps would carry out."""
    added: list[Step] = []
    repeats = _list_repeats(tools)
    if any(is_obsolete for _, is_obsolete in repeats) and _find_step(steps, DedupOld) is None:
        subsumes = (*_list_subsumptions(tools), *DedupOld().subsumes)
        added.append(DedupOld(exempt=("*",), hints=repeats, subsumes=subsumes))
    hints = _list_undone_hints(tools, steps)
    if hints and _find_step(steps, ToolHints) is None:
        like = _find_clearing(steps) or ClearResults()
        added.append(
            ToolHints(
                hints=hints,
                request="keep",
                response="keep",
                over=like.over,
                template=like.template,
                keep_recent=like.keep_recent,
            )
        )
    # Before results are cleared: a call that is removed needs no placeholder.
    index = len(steps)
    for number, step in enumerate(steps):
        if isinstance(step, ClearResults | PruneTools):
            index = number
            break
    return (*steps[:index], *added, *steps[index:])


def _list_undone_hints(tools: ToolRules, steps: tuple[Step, ...]) -> tuple[Hint, ...]:
    """List the hints for a step that removes calls, and strips what no other step strips; empty if nothing is left."""
    hints = []
    strips_requests = _find_step(steps, ClearArguments) is not None
    strips_responses = _find_clearing(steps) is not None
    for glob, request, response in list_hints(tools):
        own_request = "keep" if request == "strip" and strips_requests else request
        own_response = "keep" if response == "strip" and strips_responses else response
        hints.append((glob, own_request, own_response))
    if any({"strip", "remove"} & set(hint[1:]) for hint in hints):
        return tuple(hints)
    return ()


def _find_clearing(steps: tuple[Step, ...]) -> ClearResults | None:
    for step in steps:
        if type(step) is ClearResults:
            return step
    return None


def _find_step(steps: tuple[Step, ...], kind: type[Step]) -> Step | None:
    for step in steps:
        if isinstance(step, kind):
            return step
    return None


def _list_repeats(tools: ToolRules) -> tuple[tuple[str, bool], ...]:
    """List whether repeated calls make older ones obsolete: if a range is named they do, unless `dedup` is false."""
    repeats = []
    for glob, tool in tools.items():
        if tool.dedup is not None or tool.subsumes is not None:
            repeats.append((glob, tool.dedup is not False))
    return tuple(repeats)


def _list_subsumptions(tools: ToolRules) -> tuple[Subsumption, ...]:
    subsumptions = []
    for glob, tool in tools.items():
        arguments = tool.subsumes
        if arguments is not None:
            subsumptions.append((glob, arguments.path, arguments.start, arguments.end, arguments.count))
    return tuple(subsumptions)
