"""Models of declared settings: pydantic checks what plain dataclasses declare (`proxy.declaration`).

    @dataclass                                      class Keep(ConfigModel):
    class Keep:                                         tokens: int = Field(
        tokens: int = 2_000             becomes             2_000, ge=0, le=AMOUNT_MAX,
        "Keep the newest ..."                            description="Keep the newest ...")

`step_settings` does the same for steps.
"""

import ast
import inspect
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from itertools import pairwise
from textwrap import dedent
from typing import Annotated, Any, Literal, get_args, get_type_hints

from pydantic import BaseModel, BeforeValidator, Field, TypeAdapter, ValidationError, create_model

from proxy.config.values import AMOUNT_MAX, ConfigModel, refuse_if

_BOUNDS: Mapping[Any, Mapping[str, Any]] = {int: {"ge": 0, "le": AMOUNT_MAX}, float: {"ge": 0, "le": 1}}
_AUTO = Literal["auto"]


def build_model(kind: Any, types: Mapping[str, Any], base: type[ConfigModel] = ConfigModel) -> type[BaseModel]:  # noqa: ANN401 (a dataclass)
    """Build a model of the settings that a dataclass declares, after those of *base*.

    *types* has the type and the default of each setting that a file writes in another form.
    """
    hints = get_type_hints(kind)
    descriptions = read_descriptions(kind)
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
        members[field.name] = (annotation, Field(default, description=descriptions.get(field.name)))
    return create_model(kind.__name__, __base__=base, __doc__=kind.__doc__, **members)


def read_descriptions(kind: type) -> dict[str, str]:
    """Read the docstrings below the fields of a class. Without its source file there are none."""
    try:
        source = inspect.getsource(kind)
    except (OSError, TypeError):
        return {}
    (definition,) = ast.parse(dedent(source)).body
    descriptions = {}
    for statement, below in pairwise(getattr(definition, "body", ())):
        match statement, below:
            case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                descriptions[name] = inspect.cleandoc(text)
    return descriptions


def narrow(annotation: Any, bounds: Mapping[str, float]) -> Any:  # noqa: ANN401 (any type a setting has)
    """Add bounds to the type of a number. With a negative amount or an infinite one something would fail later."""
    if annotation in _BOUNDS:
        return Annotated[annotation, Field(**{**_BOUNDS[annotation], **bounds})]
    if _AUTO in get_args(annotation):
        return _build_auto(get_args(annotation)[0], bounds)
    return annotation


def _build_auto(kind: type[int | float], bounds: Mapping[str, float]) -> Any:  # noqa: ANN401 (a type)
    """The type of a number or `auto`, with one message for both."""
    limits: dict[str, Any] = {**_BOUNDS[kind], **bounds}
    annotation: Any = Annotated[kind, Field(**limits)]
    number = TypeAdapter[Any](annotation)
    allowed = f"a number from {limits['ge']} to {limits['le']}"
    if kind is int:
        allowed = f"a whole number of tokens from {limits['ge']}"

    def read(value: object) -> object:
        if isinstance(value, str) and value.lower() == "auto":
            return "auto"
        try:
            return number.validate_python(value)
        except ValidationError:
            raise ValueError(f"must be `auto`, or {allowed}") from None

    return Annotated[annotation | _AUTO, BeforeValidator(read)]
