"""Steps as a policy writes them: `- clear_results: {over: 800}`. Its settings are the fields of the step."""

from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import Annotated, Any, get_type_hints

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError, create_model

from proxy.config.declared import narrow
from proxy.config.values import ExactModel, suggest
from proxy.designs.strategies import DedupOld
from proxy.designs.tool_hints import ToolHints
from proxy.shorten.block import STEPS
from proxy.shorten.pipeline import Step

STEP_LISTS = ("always", "when_full", "fold")
_SUBSUMES_EXAMPLE = "write `tools: {NAME: {subsumes: {path: ARGUMENT, start: ARGUMENT, end: ARGUMENT}}}` in the policy"


def build_step(entry: Mapping[str, Any]) -> Step:
    """Build a step from `{clear_results: {over: 800}}`. Raise ValueError for an unknown step or setting."""
    if len(entry) != 1:
        raise ValueError("a step is one name with its settings: `- clear_results: {over: 800}`")
    ((name, settings),) = entry.items()
    if name not in STEPS:
        raise ValueError(f"there is no step {name!r}{suggest(name, STEPS)} (the steps are {', '.join(STEPS)})")
    if name == DedupOld.name and "subsumes" in (settings or {}):
        raise ValueError(f"`subsumes` of {name} is set for each tool: {_SUBSUMES_EXAMPLE}")
    return STEPS[name](**dict(_settings_of(name).model_validate(settings or {})))


def write_steps(steps: tuple[Any, ...]) -> tuple[dict[str, Any], ...]:
    """Write steps as a policy does, with the settings that differ from their defaults."""
    entries = []
    for step in steps:
        settings = {field.name: getattr(step, field.name) for field in fields(step)}
        changed = {field.name: settings[field.name] for field in fields(step) if settings[field.name] != field.default}
        entries.append({step.name: changed})
    return tuple(entries)


class _StepModel(ExactModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


@cache
def _settings_of(name: str) -> type[BaseModel]:
    """The model of a step's settings."""
    kind: Any = STEPS[name]
    types = get_type_hints(kind)
    members: dict[str, Any] = {}
    for field in fields(kind):
        # A policy writes these under `tools`.
        is_of_tools = field.name == "subsumes" or (field.name == "hints" and name != ToolHints.name)
        if field.init and not is_of_tools:
            members[field.name] = (narrow(types[field.name], field.metadata.get("bounds", {})), field.default)
    return create_model(name, __base__=_StepModel, **members)


def _check_step(entry: dict[str, Any]) -> dict[str, Any]:
    """Check an entry of a list of steps. Its faults have places below the step's name."""
    try:
        build_step(entry)
    except ValidationError as invalid:
        (name,) = entry
        errors: Any = [{**error, "loc": (name, *error["loc"])} for error in invalid.errors(include_url=False)]
        raise ValidationError.from_exception_data(name, errors) from None
    return entry


def _check_changes(changes: dict[str, Any]) -> dict[str, Any]:
    for name, settings in changes.items():
        _check_step({name: settings})
    return {name: settings or {} for name, settings in changes.items()}


def _describe_steps() -> dict[str, Any]:
    """JSON Schema of an object with the settings of each step."""
    properties = {name: {**_settings_of(name).model_json_schema(), "type": ["object", "null"]} for name in STEPS}
    return {"type": "object", "properties": properties, "additionalProperties": False}


class _StepListSchema:
    def __get_pydantic_json_schema__(self, *_: object) -> dict[str, Any]:
        return {"type": "array", "items": {**_describe_steps(), "maxProperties": 1, "minProperties": 1}}


class _StepChangesSchema:
    def __get_pydantic_json_schema__(self, *_: object) -> dict[str, Any]:
        return _describe_steps()


StepList = Annotated[tuple[Annotated[dict[str, Any], AfterValidator(_check_step)], ...], _StepListSchema()]
StepChanges = Annotated[dict[str, Any], AfterValidator(_check_changes), _StepChangesSchema()]
