"""Types that several settings share: the model of a group, secrets, bounded numbers and percentages."""

import re
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, get_args, get_origin

from msgspec import Struct
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError


class ConfigModel(BaseModel):
    """A group of settings. The docstring below a setting is its description in proxy.yaml.

    A spelling that can only mean one thing is accepted: `INFO`, one text for a list, nothing for a group. But a boolean
    is no number: pydantic reads `true` as 1.
    """

    # An input may be a secret. Schemas are built when they are first used: a command needs few of them.
    model_config = ConfigDict(
        frozen=True, extra="forbid", arbitrary_types_allowed=True, hide_input_in_errors=True, defer_build=True
    )

    declared_by: ClassVar[type | None] = None
    """The struct that declares these settings, if one does."""

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_conversion(cls, value: object, info: ValidationInfo) -> object:
        kinds = _list_kinds(cls.model_fields[info.field_name or ""].annotation)
        entries = value if isinstance(value, list | tuple) else (value,)
        for entry in entries:
            if isinstance(entry, bool):
                if float in kinds and bool not in kinds:
                    raise PydanticCustomError("float_type", "must be a number")
                if int in kinds and bool not in kinds:
                    raise PydanticCustomError("int_type", "must be a whole number")
            elif isinstance(entry, int | float) and bool in kinds:
                raise PydanticCustomError("bool_type", "must be true or false")
        return value

    @model_validator(mode="before")
    @classmethod
    def _read_plain_spellings(cls, values: Any) -> Any:  # noqa: ANN401 (any value of a file)
        if values is None:
            return {}
        if not isinstance(values, Mapping):
            return values
        plain = dict(values)
        for name in values.keys() & cls.model_fields.keys():
            annotation, value = cls.model_fields[name].annotation, values[name]
            if value is None and isinstance(annotation, type) and issubclass(annotation, ConfigModel):
                del plain[name]
            elif isinstance(value, str) and get_origin(annotation) is tuple:
                plain[name] = [value]
            elif isinstance(value, str) and get_origin(annotation) is Literal and value.lower() in get_args(annotation):
                plain[name] = value.lower()
        return plain


def _list_kinds(annotation: Any) -> set[Any]:  # noqa: ANN401 (any type a setting has)
    arguments = get_args(annotation)
    if not arguments:
        return {annotation}
    if get_origin(annotation) is Annotated:
        return _list_kinds(arguments[0])
    return set().union(*map(_list_kinds, arguments))


def is_field_value(text: str) -> bool:
    """Return whether a header can carry the text, as printable ASCII and tabs."""
    return text.isascii() and text.replace("\t", " ").isprintable()


def _is_variable_name(text: str) -> bool:
    return text.isascii() and text.isidentifier()


def _is_plain_variable_name(text: str) -> bool:
    """Return whether a text is surely the name of a variable. Many API keys could be one, but not in capitals."""
    return _is_variable_name(text) and text == text.upper() and len(text) <= 64  # noqa: PLR2004 (more than any name has)


class Secret(Struct, frozen=True):
    reference: str
    value: str

    def __repr__(self) -> str:
        return self.reference

    __str__ = __repr__


def reveal(text: Secret | str) -> str:
    return text.value if isinstance(text, Secret) else text


class WithoutSecrets(dict[str, str]):
    """The environment of a command that uses no secrets: a missing one is no fault."""


def _read_reference(reference: object, info: ValidationInfo) -> Secret | None:
    if reference is None or isinstance(reference, Secret):
        return reference
    kind, _, name = str(reference).partition(":")
    # Kubernetes makes variables with other names, too. If such a variable exists, its name is not a pasted key.
    if kind == "env" and not _is_variable_name(name) and name not in (info.context or {}):
        raise ValueError(
            "`env:` is not followed by the name of a variable (letters, digits and _): write the secret itself into a "
            "variable, and the name of the variable here"
        )
    if kind == "env":
        value = (info.context or {}).get(name, "")
        source = f"variable {name}" if _is_plain_variable_name(name) else "the variable that it names"
    elif kind == "file":
        try:
            value = Path(name).read_text(encoding="utf-8-sig")
        except (OSError, ValueError):  # ValueError: an impossible path, or bytes that are not text
            value = ""
        source = f"file {name}" if name.startswith(("/", "./", "../")) else "the file that it names"
    else:
        advice = "write env:NAME for a variable, or file:PATH"
        variable = str(reference).removeprefix("$").removeprefix("{").removesuffix("}")
        if str(reference).startswith("$") and _is_plain_variable_name(variable):
            advice = f"write env:{variable}"
        raise ValueError(f"a secret is named, not written: {advice}")
    value = value.strip()
    if not value and not isinstance(info.context, WithoutSecrets):
        raise ValueError(f"{source} is empty or missing")
    if not is_field_value(value):
        raise ValueError(f"{source} holds characters that no header can carry")
    return Secret(str(reference), value)


def _read_if_reference(value: object, info: ValidationInfo) -> object:
    if isinstance(value, str) and value.startswith(("env:", "file:")):
        return _read_reference(value, info)
    if not isinstance(value, Secret | str):  # one fault, and not one for each type that it might have
        raise PydanticCustomError("string_type", "must be text")
    return value


def check_strength(secret: Secret | None) -> Secret | None:
    if secret is None or not secret.value:
        return secret
    plain, min_characters = secret.value.lower(), 16
    if len(plain) < min_characters or len(set(plain)) < min_characters // 2:
        raise ValueError(f"too weak: it needs {min_characters} characters or more that were drawn at random")
    # Placeholders that people forget to replace, with anything around them.
    weak_words = (
        "password", "changeme", "change-me", "secret", "admin", "letmein", "12345", "abcdef", "qwerty", "asdf",
        "example", "default", "compaction", "replace",
    )  # fmt: skip
    for word in weak_words:
        if word in plain:
            raise ValueError(
                f"too weak: it contains the common word {word!r}; draw it at random (openssl rand -hex 24)"
            )
    return secret


SecretReference = Annotated[
    Secret | None,
    BeforeValidator(_read_reference),
    PlainSerializer(lambda secret: None if secret is None else str(secret)),
    WithJsonSchema({"type": ["string", "null"], "pattern": "^(env|file):."}),
]
MaybeSecret = Annotated[
    Secret | str,
    BeforeValidator(_read_if_reference),
    PlainSerializer(str),
    WithJsonSchema({"type": "string"}),
]

# Clocks, stores and JSON of other programs fail at numbers that are far larger, or infinite.
AMOUNT_MAX = 10**12

Seconds = Annotated[float, Field(le=31_536_000)]
Days = Annotated[float, Field(le=3_650)]
Mib = Annotated[int, Field(le=10**9)]
Amount = Annotated[int, Field(le=AMOUNT_MAX)]

ALL_PERCENT = 100.0


def _read_percent(value: object) -> object:
    """Read `5` and `0.1%`. A plain `0.1` may be meant as a share, as in `trigger: 0.1`."""
    if not isinstance(value, str | int | float):
        return value  # pydantic refuses it, because it is not a number
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*%\s*", str(value))
    if match:
        return float(match[1])
    try:
        number = float(value)
    except ValueError:
        return value
    if 0 < number < 1:
        raise ValueError(
            f"is a percentage: write {number * 100:g} for {number * 100:g} %, or {number:g}% for {number:g} %"
        )
    return value


Percent = Annotated[
    float,
    Field(ge=0, le=ALL_PERCENT),
    BeforeValidator(_read_percent),
    PlainSerializer(lambda value: f"{value:g}%" if 0 < value < 1 else value, when_used="json"),
    WithJsonSchema(
        {"anyOf": [{"type": "number", "minimum": 0, "maximum": 100}, {"type": "string", "pattern": "%\\s*$"}]}
    ),
]
"""A percentage. Between 0 and 1 it needs its sign, so that it is not taken for a share."""


def suggest(wrong: str, names: Iterable[str]) -> str:
    for name in get_close_matches(wrong, list(names), n=1):
        return f"; did you mean {name!r}?"
    return ""


def refuse_if(find_fault: Callable[[str], str | None]) -> AfterValidator:
    def check(text: str) -> str:
        if why := find_fault(text):
            raise ValueError(why)
        return text

    return AfterValidator(check)
