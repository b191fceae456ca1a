"""Faults of a configuration: the place, what is wrong, what is allowed, what was probably meant.

Values are quoted only where they cannot be a secret: people paste keys into the wrong line, and what is printed here
ends up in the logs of a deployment.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

Place = tuple[str | int, ...]

# Settings that may hold a secret, whatever it looks like.
_SECRET_SETTINGS = frozenset({"key", "secret", "token", "url", "headers", "query", "base_url", "command", "patterns"})
# Words without digits: keys and passwords that are any good hold some.
_QUOTABLE_TEXT = re.compile(r"[A-Za-z_ -]{1,24}")
_SIMILARITY_MIN_RATIO = 0.6


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of the configuration and its place."""

    path: str
    origin: str
    message: str

    def __str__(self) -> str:
        return f"{self.origin}: {self.path}: {self.message}" if self.path else f"{self.origin}: {self.message}"


class InvalidConfig(Exception):
    """A configuration that cannot be used, with all its faults."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(map(str, self.faults)))


def describe_errors(invalid: ValidationError, model: type[BaseModel]) -> Iterator[tuple[Place, str]]:
    """Each error of a validation as its place and a message."""
    for error in invalid.errors(include_url=False):
        message = error["msg"].removeprefix("Value error, ")
        if not error["loc"]:  # between several settings: a line for each, and each begins with its place
            yield from _split_lines(message)
            continue
        place: Place = error["loc"]
        if error["type"] == "extra_forbidden":
            message = f"there is no such setting{_suggest_setting(place, model)}"
        else:
            message += _suggest_value(error.get("input"), error.get("ctx", {}).get("expected"))
            message += _quote(place, error.get("input"))
        yield place, message


def suggest(wrong: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?`, where one of the known names is like the wrong one; else nothing."""
    close = get_close_matches(wrong, list(known), n=1, cutoff=_SIMILARITY_MIN_RATIO)
    return f"; did you mean {close[0]!r}?" if close else ""


def parse_place(text: str, between: str) -> Place:
    """`upstreams.0.name` as its parts."""
    return tuple(int(part) if part.isdecimal() else part for part in text.split(between))


def _split_lines(message: str) -> Iterator[tuple[Place, str]]:
    for line in message.splitlines():
        place, _, why = line.partition(": ")
        yield parse_place(place, "."), why


def _quote(place: Place, value: object) -> str:
    """` (it says 'x')`, where the value is short and no secret."""
    if _SECRET_SETTINGS & set(place):
        return ""
    if isinstance(value, bool | int | float):
        return f" (it says {str(value).lower() if isinstance(value, bool) else value})"
    is_plain = isinstance(value, str) and _QUOTABLE_TEXT.fullmatch(value)
    return f" (it says {value!r})" if is_plain else ""


def _suggest_value(value: object, expected: object) -> str:
    """The possible value of a setting that is most similar to the given one."""
    if not isinstance(value, str) or not isinstance(expected, str):
        return ""
    return suggest(value, re.findall(r"'([^']*)'", expected))


def _suggest_setting(place: Place, model: type[BaseModel]) -> str:
    """The setting that was probably meant: a similar name beside it, or the same name in another group."""
    group, name = _model_at(model, place[:-1]), str(place[-1])
    if group is not None and (told := suggest(name, group.model_fields)):
        return told
    elsewhere = next((path for path in _setting_paths(model) if path.rpartition(".")[2] == name), None)
    return f"; did you mean {elsewhere!r}?" if elsewhere else ""


def _setting_paths(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        yield prefix + name
        if (below := _model_in(field.annotation)) is not None:
            entry = "" if isinstance(field.annotation, type) else "0." if _is_list(field.annotation) else "NAME."
            yield from _setting_paths(below, f"{prefix}{name}.{entry}")


def _model_at(model: type[BaseModel], place: Place) -> type[BaseModel] | None:
    """The model of the group at a place; list positions and names of policies and teams are passed over."""
    found: type[BaseModel] | None = model
    for part in place:
        field = found.model_fields.get(str(part)) if found is not None else None
        if field is not None:
            found = _model_in(field.annotation)
    return found


def _model_in(annotation: Any) -> type[BaseModel] | None:  # noqa: ANN401 (any type a setting has)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    found = (_model_in(each) for each in get_args(annotation))
    return next((each for each in found if each is not None), None)


def _is_list(annotation: Any) -> bool:  # noqa: ANN401 (any type a setting has)
    return getattr(annotation, "__origin__", None) is tuple


def without_places(values: Mapping[str, Any], places: Iterable[Place]) -> dict[str, Any]:
    """The values without those at these places, as deep as they can be followed."""
    left = {key: _copy(value) for key, value in values.items()}
    for place in places:
        _take_out(left, place)
    return left


def _copy(value: Any) -> Any:  # noqa: ANN401 (a YAML tree)
    if isinstance(value, dict):
        return {key: _copy(below) for key, below in value.items()}
    return [_copy(below) for below in value] if isinstance(value, list) else value


def _take_out(values: dict[str, Any], place: Place) -> None:
    """Groups in a list are emptied, so that the others keep their places; a list with any other wrong entry goes."""
    at: Any = values
    for depth, step in enumerate(place):
        below = at[step] if _has(at, step) else None
        if depth == len(place) - 1 or not isinstance(below, dict | list):
            if isinstance(at, dict):
                at.pop(step, None)
            elif isinstance(below, dict):
                at[step] = {}
            else:
                _take_out(values, place[:depth])
            return
        at = below


def _has(at: Any, step: str | int) -> bool:  # noqa: ANN401 (a YAML tree)
    if isinstance(at, dict):
        return step in at
    return isinstance(at, list) and isinstance(step, int) and 0 <= step < len(at)
