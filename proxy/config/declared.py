"""Models of the settings that structs declare: pydantic checks their values (`proxy.foundation.declaration`).

    class Keep(Struct):     becomes     class Keep(ConfigModel):
        tokens: int = 15_000                tokens: Annotated[int, Field(ge=0, le=AMOUNT_MAX)] = 15_000

The settings of a step (`- clear_results: {over: 800}`) are checked in the same way.

A step of one's own is a function that a policy names as `module:function` in `when_full` or `fold`. It gets a `Draft`
and returns a shorter one. It must decide by the draft alone: no clock, no chance, no files. The pipeline checks the
returned draft as that of any step, and more strictly.
"""

from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import Annotated, Any, ClassVar, Literal, get_args, get_origin

from msgspec import Meta, Struct
from msgspec.structs import fields
from pydantic import AfterValidator, BeforeValidator, Field, TypeAdapter, ValidationError, create_model

from proxy.config.values import AMOUNT_MAX, ConfigModel, refuse_if, suggest
from proxy.shorten.pipeline import Draft, Step
from proxy.shorten.steps import STEPS
from proxy.shorten.tool_designs import ToolHints


@cache
def build_model(kind: Any) -> type[ConfigModel]:  # noqa: ANN401 (a struct)
    """Make the model of a struct. A subclass declares anew the settings that a file writes in another form."""
    default_bounds: Mapping[Any, Mapping[str, Any]] = {int: {"ge": 0, "le": AMOUNT_MAX}, float: {"ge": 0, "le": 1}}
    members: dict[str, Any] = {}
    for field in fields(kind):
        annotation, default, meta = field.type, field.default, Meta()
        if get_origin(annotation) is Annotated:
            annotation, meta = get_args(annotation)
        marks = meta.extra or {}
        # A policy writes the hints of its steps under `tools`, once for all steps.
        is_of_tools = field.name in ("subsumes", "hints") and kind is not ToolHints
        if "is_internal" in marks or is_of_tools:
            continue
        if isinstance(default, Struct):
            annotation = build_model(type(default))
            default = annotation()
        elif "find_fault" in marks:
            annotation = tuple[Annotated[str, refuse_if(marks["find_fault"])], ...]
        elif annotation in default_bounds:
            bounds = {name: getattr(meta, name) for name in ("ge", "gt", "le", "lt") if getattr(meta, name) is not None}
            bounds = {**default_bounds[annotation], **bounds}
            if "gt" in bounds:
                del bounds["ge"]  # a fault would be told by the wrong one of both
            annotation = Annotated[annotation, Field(**bounds)]
        members[field.name] = (annotation, default)
    model = create_model(kind.__name__, __base__=ConfigModel, __doc__=kind.__doc__, **members)
    model.declared_by = kind
    return model


Share = Annotated[float, Field(ge=0, le=1)]
_SHARE = TypeAdapter[float](Share)


def _read_share_or_auto(value: object) -> object:
    if isinstance(value, str) and value.lower() == "auto":
        return "auto"
    try:
        return _SHARE.validate_python(value)
    except ValidationError:
        raise ValueError("must be `auto`, or a number from 0 to 1") from None


ShareOrAuto = Annotated[Share | Literal["auto"], BeforeValidator(_read_share_or_auto)]


STEP_LISTS = ("always", "when_full", "fold")


class OwnStep(Struct, frozen=True):
    name: str
    """The name in the policy: `module:function`."""
    function: Callable[[Draft], Draft]
    is_own: ClassVar[bool] = True

    def __call__(self, draft: Draft) -> Draft:
        shorter = self.function(draft)
        if not isinstance(shorter, Draft):
            raise TypeError(f"the step {self.name} must return a draft")
        return shorter


def is_own_step(name: str) -> bool:
    return ":" in name


def build_step(entry: Mapping[str, Any]) -> Step:
    """Build a step, or import the function that is one. Raise ValueError if the entry names neither."""
    if len(entry) != 1:
        raise ValueError("a step is one name with its settings: `- clear_results: {over: 800}`")
    ((name, settings),) = entry.items()
    if is_own_step(name):
        if settings:
            raise ValueError(f"{name} takes no settings: write `{{{name!r}: {{}}}}`")
        module_name, _, function_name = name.partition(":")
        # The exceptions that mistakes in a module raise while it is imported. Others are passed on.
        mistakes = (ImportError, SyntaxError, NameError, TypeError, ValueError, AttributeError, LookupError, OSError)
        try:
            module = import_module(module_name)
        except mistakes as fault:
            why = f"{type(fault).__name__}: {fault}"
            raise ValueError(f"the module {module_name!r} cannot be imported ({why}): is it on PYTHONPATH?") from None
        function = getattr(module, function_name, None)
        if not callable(function):
            raise ValueError(f"the module {module_name!r} has no function {function_name!r}")
        return OwnStep(name, function)
    if name not in STEPS:
        steps = f"the steps are {', '.join(STEPS)}, and `module:function` is one of your own"
        raise ValueError(f"there is no step {name!r}{suggest(name, STEPS)} ({steps})")
    return STEPS[name](**dict(build_model(STEPS[name]).model_validate(settings)))


def _check_step(entry: dict[str, Any]) -> dict[str, Any]:
    try:
        build_step(entry)
    except ValidationError as invalid:
        (name,) = entry
        errors: Any = invalid.errors(include_url=False)
        for error in errors:
            error["loc"] = (name, *error["loc"])
        raise ValidationError.from_exception_data(name, errors) from None
    ((name, settings),) = entry.items()
    return {name: settings or {}}


def _check_changes(changes: dict[str, Any]) -> dict[str, Any]:
    return {name: _check_step({name: settings})[name] for name, settings in changes.items()}


class _StepsSchema(Struct, frozen=True):
    is_list: bool

    def __get_pydantic_json_schema__(self, *_: object) -> dict[str, Any]:
        properties = {}
        for name in STEPS:
            properties[name] = build_model(STEPS[name]).model_json_schema()
            properties[name]["type"] = ["object", "null"]
        steps: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
        steps["patternProperties"] = {r"^[\w.]+:\w+$": {"type": ["object", "null"], "maxProperties": 0}}
        if self.is_list:
            return {"type": "array", "items": {**steps, "maxProperties": 1, "minProperties": 1}}
        return steps


StepList = Annotated[
    tuple[Annotated[dict[str, Any], AfterValidator(_check_step)], ...],
    _StepsSchema(is_list=True),
]
StepChanges = Annotated[dict[str, Any], AfterValidator(_check_changes), _StepsSchema(is_list=False)]
