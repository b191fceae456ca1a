"""From file, environment and command line to one frozen configuration, or to all of its faults at once.

Precedence, weakest first: default, file, `OPENAI_UPSTREAM`, `COMPACTION_PROXY_...` variables, command line. For
each value `Loaded.origins` remembers which of them won. A fault names its path and line, never the value: it may be
a secret.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from proxy.config.settings import Config

PREFIX = "COMPACTION_PROXY_"
UPSTREAM_VARIABLE = "OPENAI_UPSTREAM"

Place = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong, and where."""

    path: str
    origin: str
    message: str

    def __str__(self) -> str:
        return f"{self.origin}: {self.path}: {self.message}" if self.path else f"{self.origin}: {self.message}"


class InvalidConfig(Exception):
    """A configuration that cannot be used, with all its faults."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__("\n".join(map(str, faults)))
        self.faults = tuple(faults)


@dataclass(frozen=True, slots=True)
class Loaded:
    config: Config
    origins: Mapping[Place, str]

    def origin(self, *path: str | int) -> str:
        """Who set a value: the nearest of its parents that anybody set."""
        for end in range(len(path), 0, -1):
            if path[:end] in self.origins:
                return self.origins[path[:end]]
        return "default"


def load(file: Path | None, environ: Mapping[str, str], options: Mapping[Place, object] | None = None) -> Loaded:
    """The configuration from all its sources; `options` are the command line's."""
    values, origins = _from_file(file) if file else ({}, {})
    if UPSTREAM_VARIABLE in environ and not values.get("upstreams"):
        _set(values, origins, ("upstreams", 0, "base_url"), environ[UPSTREAM_VARIABLE], UPSTREAM_VARIABLE)
    for name in sorted(environ):
        if name.startswith(PREFIX):
            path = tuple(int(p) if p.isdigit() else p for p in name[len(PREFIX) :].lower().split("__"))
            _set(values, origins, path, _scalar(environ[name]), name)
    for path, value in (options or {}).items():
        _set(values, origins, path, value, "command line")
    try:
        return Loaded(Config.model_validate(values, context=environ), origins)
    except ValidationError as fault:
        source = str(file) if file else "configuration"
        raise InvalidConfig(_faults(fault, Loaded(Config.model_construct(), origins), source)) from None


def _faults(fault: ValidationError, loaded: Loaded, source: str) -> list[Fault]:
    found = []
    for error in fault.errors(include_url=False, include_input=False):
        path = error["loc"]
        origin = loaded.origin(*path)
        message = error["msg"].removeprefix("Value error, ")
        if error["type"] == "extra_forbidden":
            message = "there is no such setting"
        found.append(Fault(".".join(map(str, path)), source if origin == "default" else origin, message))
    return found


def _from_file(file: Path) -> tuple[dict[str, Any], dict[Place, str]]:
    try:
        text = file.read_text(encoding="utf-8")
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except (OSError, UnicodeDecodeError) as fault:
        raise InvalidConfig([Fault("", str(file), f"cannot be read: {fault}")]) from None
    except yaml.MarkedYAMLError as fault:
        line = fault.problem_mark.line + 1 if fault.problem_mark else 0
        raise InvalidConfig([Fault("", f"{file}:{line}", f"not YAML: {fault.problem}")]) from None
    if node is None:
        return {}, {}
    if not isinstance(node, yaml.MappingNode):
        raise InvalidConfig([Fault("", str(file), "the file must be a mapping of settings")])
    origins: dict[Place, str] = {}
    twice: list[Fault] = []
    _note_lines(node, (), str(file), origins, twice)
    if twice:
        raise InvalidConfig(twice)
    values = yaml.safe_load(text)
    return {key: value for key, value in values.items() if value is not None}, origins


def _note_lines(node: yaml.Node, path: Place, file: str, origins: dict[Place, str], twice: list[Fault]) -> None:
    """Remember the line of each value; YAML would let a key that stands twice pass in silence."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            below = (*path, str(key.value))
            origin = f"{file}:{key.start_mark.line + 1}"
            if below in origins:
                twice.append(Fault(".".join(map(str, below)), origin, "stands here a second time"))
            origins[below] = origin
            _note_lines(value, below, file, origins, twice)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            origins[(*path, index)] = f"{file}:{value.start_mark.line + 1}"
            _note_lines(value, (*path, index), file, origins, twice)


def _scalar(text: str) -> object:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return text


def _set(values: dict[str, Any], origins: dict[Place, str], path: Place, value: object, origin: str) -> None:
    """Put one value into the tree, making what is missing on the way."""
    at: Any = values
    for step, following in pairwise(path):
        at = _into(at, step, [] if isinstance(following, int) else {}, path, origin)
    _into(at, path[-1], None, path, origin)
    at[path[-1]] = value
    origins[path] = origin


def _into(at: Any, step: str | int, missing: object, path: Place, origin: str) -> Any:  # noqa: ANN401 (a YAML tree)
    if isinstance(at, list) and isinstance(step, int):
        if step > len(at):
            raise InvalidConfig([Fault(".".join(map(str, path)), origin, f"there is no entry {step - 1} before it")])
        if step == len(at):
            at.append(missing)
        return at[step]
    if isinstance(at, dict) and isinstance(step, str):
        return at.setdefault(step, missing)
    raise InvalidConfig([Fault(".".join(map(str, path)), origin, "there is no such setting")])
