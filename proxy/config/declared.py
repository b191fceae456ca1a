"""Models of declared settings: pydantic checks the values that plain dataclasses declare (`proxy.declaration`).

    @dataclass                                      class Keep(ConfigModel):
    class Keep:                         becomes         tokens: Annotated[int, Field(ge=0, le=AMOUNT_MAX)] = 2_000
        tokens: int = 2_000

Steps, as a policy writes them (`- clear_results: {over: 800}`), are checked by models of their fields in the same way.
"""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Annotated, Any, Literal, get_args, get_type_hints

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    create_model,
)

from proxy.config.values import AMOUNT_MAX, ConfigModel, ExactModel, refuse_if, suggest
from proxy.designs.strategies import DedupOld
from proxy.designs.tool_hints import ToolHints
from proxy.shorten.block import STEPS
from proxy.shorten.pipeline import Step

_BOUNDS: Mapping[Any, Mapping[str, Any]] = {int: {"ge": 0, "le": AMOUNT_MAX}, float: {"ge": 0, "le": 1}}
_AUTO = Literal["auto"]


def build_model(kind: Any, types: Mapping[str, Any], base: type[ConfigModel] = ConfigModel) -> type[BaseModel]:  # noqa: ANN401 (a dataclass)
    """Build a model of the settings that a dataclass declares, after those of *base*.

    *types* has the type and the default of each setting that a file writes in another form.
    """
    hints = get_type_hints(kind)
    members: dict[str, Any] = {}
    for field in fields(kind):
        if "is_internal" in field.metadata:
            continue
        annotation, default = hints[field.name], field.default
        if field.name in types:
            annotation, default = types[field.name]
        elif is_dataclass(annotation):
            annotation = build_model(annotation, {})
            default = annotation()
        elif field.metadata.get("check"):
            annotation = tuple[Annotated[str, refuse_if(field.metadata["check"])], ...]
        else:
            annotation = narrow(annotation, field.metadata.get("bounds", {}))
        members[field.name] = (annotation, default)
    model = create_model(kind.__name__, __base__=base, __doc__=kind.__doc__, **members)
    model.declared_by = kind
    return model


def narrow(annotation: Any, bounds: Mapping[str, float]) -> Any:  # noqa: ANN401 (any type a setting has)
    """Add bounds to the type of a number. With a negative amount or an infinite one something would fail later."""
    if annotation in _BOUNDS:
        return Annotated[annotation, Field(**{**_BOUNDS[annotation], **bounds})]
    if _AUTO in get_args(annotation):
        return _build_auto(get_args(annotation)[0], bounds)
    return annotation


def _build_auto(kind: type[int | float], bounds: Mapping[str, float]) -> Any:  # noqa: ANN401 (a type)
    limits: dict[str, Any] = {**_BOUNDS[kind], **bounds}
    annotation: Any = Annotated[kind, Field(**limits)]
    number = TypeAdapter[Any](annotation)
    range_text = f"a number from {limits['ge']} to {limits['le']}"
    if kind is int:
        range_text = f"a whole number of tokens from {limits['ge']}"

    def read(value: object) -> object:
        if isinstance(value, str) and value.lower() == "auto":
            return "auto"
        try:
            return number.validate_python(value)
        except ValidationError:
            raise ValueError(f"must be `auto`, or {range_text}") from None

    return Annotated[annotation | _AUTO, BeforeValidator(read)]


STEP_LISTS = ("always", "when_full", "fold")
_SUBSUMES_EXAMPLE = "write `tools: {NAME: {subsumes: {path: ARGUMENT, start: ARGUMENT, end: ARGUMENT}}}` in the policy"


def build_step(entry: Mapping[str, Any]) -> Step:
    if len(entry) != 1:
        raise ValueError("a step is one name with its settings: `- clear_results: {over: 800}`")
    ((name, settings),) = entry.items()
    if name not in STEPS:
        raise ValueError(f"there is no step {name!r}{suggest(name, STEPS)} (the steps are {', '.join(STEPS)})")
    if name == DedupOld.name and "subsumes" in (settings or {}):
        raise ValueError(f"`subsumes` of {name} is set for each tool: {_SUBSUMES_EXAMPLE}")
    return STEPS[name](**dict(_settings_of(name).model_validate(settings or {})))


def write_steps(steps: tuple[Any, ...]) -> tuple[dict[str, Any], ...]:
    entries = []
    for step in steps:
        settings = {field.name: getattr(step, field.name) for field in fields(step)}
        changed_settings = {
            field.name: settings[field.name] for field in fields(step) if settings[field.name] != field.default
        }
        entries.append({step.name: changed_settings})
    return tuple(entries)


class _StepModel(ExactModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


@cache
def _settings_of(name: str) -> type[BaseModel]:
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
