"""Loading: file, environment and command line become one frozen configuration, or a list of all its faults.

Precedence, weakest first: default, file, `OPENAI_UPSTREAM`, `COMPACTION_PROXY_...` variables, command line. For
each value `Loaded.origins` remembers which of them won.

A fault says the place, what is wrong, what is allowed, what was probably meant. It quotes values only where they cannot
be a secret: people paste keys into the wrong line, and what is printed ends up in the logs of a deployment. What
still looks like a secret is redacted.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from proxy.config.policies import Policy, shipped_policies
from proxy.config.settings import Config, Upstream
from proxy.config.values import ConfigModel, suggest
from proxy.wire.redaction import redaction

Place = tuple[str | int, ...]

# Settings that may hold a secret, whatever it looks like.
_SECRET_SETTINGS = frozenset({"key", "secret", "token", "url", "headers", "query", "base_url", "command", "patterns"})
# Words without digits: keys and passwords that are any good hold some.
_QUOTABLE_TEXT = re.compile(r"[A-Za-z_ -]{1,24}")
_QUOTABLE_FIGURE = re.compile(r"[\d.,_]{1,10} ?[A-Za-z%]{0,4}")

# The beginning of a message of PyYAML, up to the first word that it quotes from the file: an alias or a tag may be a
# secret that begins with `*` or `!`. Single characters and its own words, such as '<block end>', are none.
_YAML_PROBLEM = re.compile(r"(?:[^'\"]|'(?:\\?.|<[a-z ]+>)')*")
_REDACTION = redaction()

PREFIX = "COMPACTION_PROXY_"
UPSTREAM_VARIABLE = "OPENAI_UPSTREAM"

PASSES_MAX = 4
_QUOTABLE_BITS_MAX = 128
_NAMING = {"upstreams": "upstream", "policies": "policy"}
_ENTRY_MAX_LEVELS = 2


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of the configuration and its place."""

    path: str
    origin: str
    message: str

    def __str__(self) -> str:
        return f"{self.origin}: {self.path}: {self.message}" if self.path else f"{self.origin}: {self.message}"


def _redact(fault: Fault) -> Fault:
    """The fault without what looks like a secret: the name of a setting may be one as well as its value."""
    path, message = (_REDACTION.of_text(text)[0] for text in (fault.path, fault.message))
    return replace(fault, path=path, message=message)


class InvalidConfig(Exception):
    """A configuration that cannot be used, with all its faults."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(_redact(fault) for fault in faults)
        super().__init__("\n".join(map(str, self.faults)))


@dataclass(frozen=True, slots=True)
class Loaded:
    config: Config
    origins: Mapping[Place, str]
    has_file_settings: bool = False
    """False without a file, and with one that sets nothing: an empty one, or one of comments only."""

    def origin(self, *path: str | int) -> str:
        """Origin of a value: the place where it was set, or the nearest group around it that was."""
        for end in range(len(path), 0, -1):
            if path[:end] in self.origins:
                return self.origins[path[:end]]
        return "default"


def load(
    file: Path | None,
    environ: Mapping[str, str],
    options: Mapping[Place, object] | None = None,
    text: str | None = None,
) -> Loaded:
    """Read the configuration from all its sources; `options` are those of the command line.

    `text` stands for what the file holds, to check a change of it.
    """
    values, origins, faults = _read_file(file, text) if file else ({}, {}, [])
    has_file_settings = bool(values)
    for path, value, origin in _overrides(values, environ, options or {}):
        try:
            _set(values, origins, path, value, origin)
        except InvalidConfig as invalid:
            faults += invalid.faults
    loaded = Loaded(Config.model_construct(), origins)
    try:
        loaded = Loaded(Config.model_validate(values, context=environ), origins, has_file_settings)
    except ValidationError:
        faults += _find_faults(values, loaded, str(file or "configuration"), environ)
    if faults:
        raise InvalidConfig(_sort_by_line(faults, file))
    return loaded


def with_policy(config: Config, name: str, values: Mapping[str, Any]) -> Config:
    """The same configuration with one policy replaced, to try it out. InvalidConfig: the values cannot be used."""
    where = f"policy {name}"
    try:
        policy = Policy.model_validate(values)
        changed = config.model_copy(update={"policies": {**config.policies, name: policy}})
        changed.policy(name)
    except ValidationError as invalid:
        faults = [Fault(".".join(map(str, at)), where, why) for at, why in describe_errors(invalid, Policy)]
        raise InvalidConfig(faults) from None
    except KeyError as missing:
        raise InvalidConfig([Fault("inherit", where, f"there is no policy {missing}")]) from None
    except ValueError as circle:
        raise InvalidConfig([Fault("inherit", where, str(circle))]) from None
    return changed


def _overrides(
    values: Mapping[str, Any], environ: Mapping[str, str], options: Mapping[Place, object]
) -> Iterator[tuple[Place, object, str]]:
    """Values that override those of the file, weakest first, each with its origin."""
    if UPSTREAM_VARIABLE in environ and _names_no_upstream(values.get("upstreams")):
        yield ("upstreams", 0, "base_url"), environ[UPSTREAM_VARIABLE], UPSTREAM_VARIABLE
    for name in sorted(environ):
        if name.startswith(PREFIX):
            path = parse_place(name[len(PREFIX) :].lower(), "__")
            yield path, parse_variable(environ[name]), name
    for path, value in options.items():
        yield path, value, "command line"


def _names_no_upstream(upstreams: object) -> bool:
    """True without upstreams, and with the default one alone, as the shipped proxy.yaml lists it in a checkout."""
    match upstreams:
        case None | []:
            return True
        case [{**only}]:
            default = Upstream.model_fields["base_url"].default
            return only.get("base_url", default) == default and not only.get("key")
        case _:
            return False


def _find_faults(values: Mapping[str, Any], loaded: Loaded, source: str, environ: Mapping[str, str]) -> list[Fault]:
    """All faults of values that are not valid.

    What is wrong with one setting hides what is wrong between several: so what is wrong is taken out, and the rest is
    looked at again.
    """
    found: dict[Place, str] = {}
    for _ in range(PASSES_MAX):
        try:
            Config.model_validate(without_places(values, found), context=environ)
            break
        except ValidationError as invalid:
            hides = {kind for kind in _NAMING if any(_hides_names(place, kind) for place in found)}
            new = {
                place: why
                for place, why in describe_errors(invalid, Config)
                if place not in found and not any(why.startswith(f"there is no {_NAMING[kind]}") for kind in hides)
            }
            found |= new
            if not new:
                break
    return [Fault(".".join(map(str, place)), _find_origin(place, loaded, source), why) for place, why in found.items()]


def _hides_names(place: Place, group: str) -> bool:
    """True where removing this fault may have removed a name that other settings refer to."""
    return place[0] == group and (len(place) <= _ENTRY_MAX_LEVELS or place[-1] in ("name", "inherit"))


def _sort_by_line(faults: list[Fault], file: Path | None) -> list[Fault]:
    """Sort faults: those of the file first, by line, then those of variables and the command line."""

    def line(fault: Fault) -> tuple[bool, int]:
        source, _, number = fault.origin.rpartition(":")
        return (False, int(number)) if source == str(file) and number.isdecimal() else (fault.origin != str(file), 0)

    return sorted(faults, key=line)


def _find_origin(path: Place, loaded: Loaded, source: str) -> str:
    """The origin of a value; of a group, that of the first value in it."""
    origin = loaded.origin(*path)
    if origin != "default":
        return origin
    return next((who for place, who in loaded.origins.items() if place[: len(path)] == path), source)


class YamlReader(yaml.SafeLoader):
    """YAML reader by version 1.2 where 1.1 reads another value than the one that was written.

    `off` and `yes` are text (`mode: off`), and so are a date (`api-version`), `010` (1.1: eight) and `1:30` (ninety).
    """


YamlReader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in kinds if not tag.endswith((":timestamp", ":bool", ":int", ":float"))]
    for first, kinds in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
YamlReader.add_implicit_resolver(
    "tag:yaml.org,2002:int",
    re.compile(r"^(?:[-+]?(?:0|[1-9][0-9_]*)|0x[0-9a-fA-F_]+|0b[01_]+)$"),
    list("-+0123456789"),
)
YamlReader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(
        r"^(?:[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
    ),
    list("-+0123456789."),
)
YamlReader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)


# What PyYAML makes of a tag that lies, of a circle, and of a decimal number of thousands of digits.
_PARSER_FAULTS = (ValueError, TypeError, AttributeError, RecursionError)

FileContent = tuple[dict[str, Any], dict[Place, str], list[Fault]]


def _read_file(file: Path, text: str | None) -> FileContent:
    try:
        return _parse(read_text(file) if text is None else text, file)
    except yaml.MarkedYAMLError as fault:
        line = fault.problem_mark.line + 1 if fault.problem_mark else 0
        problem = _describe_yaml_problem(fault.problem or "it cannot be read")
        why = f"not YAML: {problem}: check indentation, quotes and brackets here and in the line before"
        raise InvalidConfig([Fault("", f"{file}:{line}", why)]) from None
    except yaml.YAMLError:
        raise InvalidConfig([Fault("", str(file), "not YAML: it holds characters that no text has")]) from None
    except _PARSER_FAULTS:
        why = "not YAML: a value is not what its tag says, or stands within itself"
        raise InvalidConfig([Fault("", str(file), why)]) from None


def _describe_yaml_problem(problem: str) -> str:
    harmless = _YAML_PROBLEM.match(problem)
    return harmless[0].rstrip(" ,:") if harmless else ""


def read_text(file: Path) -> str:
    """The text of a configuration file, with the line ends that it has."""
    try:
        return file.read_bytes().decode("utf-8")
    except OSError as fault:
        raise InvalidConfig([Fault("", str(file), f"cannot be read: {fault.strerror}")]) from None
    except UnicodeDecodeError as fault:
        raise InvalidConfig([Fault("", str(file), f"cannot be read: {fault}")]) from None


def _parse(text: str, file: Path) -> FileContent:
    reader = YamlReader(text)
    node = reader.get_single_node()
    values = None if node is None else reader.construct_document(node)
    if values is None:
        return {}, {}, []
    if not isinstance(node, yaml.MappingNode):
        raise InvalidConfig([Fault("", str(file), "the file must be a mapping of settings")])
    origins: dict[Place, str] = {}
    twice: list[Fault] = []
    _note_lines(node, (), str(file), origins, twice)
    return {key: value for key, value in values.items() if value is not None}, origins, twice


def _note_lines(node: yaml.Node, path: Place, file: str, origins: dict[Place, str], twice: list[Fault]) -> None:
    """Note the line of each value, and keys that are given twice: YAML itself takes the last one silently."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            below = (*path, str(key.value))
            origin = f"{file}:{key.start_mark.line + 1}"
            if below in origins:
                first = f"first in line {origins[below].rpartition(':')[2]}"
                twice.append(Fault(".".join(map(str, below)), origin, f"is set a second time ({first}): remove one"))
            origins[below] = origin
            _note_lines(value, below, file, origins, twice)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            origins[(*path, index)] = f"{file}:{value.start_mark.line + 1}"
            _note_lines(value, (*path, index), file, origins, twice)


def parse_variable(text: str) -> object:
    """Parse the value of a variable. A number stays text: a setting that is a number or a boolean reads `1` itself."""
    try:
        value = YamlReader(text).get_single_data()
    except (yaml.YAMLError, *_PARSER_FAULTS):
        return text
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return text.strip() if is_number else value


def _set(values: dict[str, Any], origins: dict[Place, str], path: Place, value: object, origin: str) -> None:
    """Set one value in the tree; missing groups on the way are created."""
    at: Any = values
    for step, following in pairwise(path):
        at = _into(at, step, [] if isinstance(following, int) else {}, path, origin)
    _into(at, path[-1], None, path, origin)
    at[path[-1]] = value
    for below in [place for place in origins if place[: len(path)] == path]:
        del origins[below]  # a group is replaced whole, with all that the file had set in it
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
            message = _describe_kind(error["type"], error.get("ctx", {}), place) or message
            message += _suggest_value(error.get("input"), error.get("ctx", {}).get("expected"))
            message += _quote(place, error.get("input"))
        yield place, message


def _describe_kind(kind: str, context: Mapping[str, Any], place: Place) -> str:
    """The form that a setting must have, as it is written in YAML. Empty: the validator's own message is good."""
    if kind in ("dict_type", "model_type", "mapping_type", "dataclass_type"):
        return f"must be a mapping of settings{_EXAMPLES.get(str(place[-1]), ', such as `{name: value}`')}"
    if kind == "literal_error":
        return f"must be {context.get('expected', '')}"
    limit = next((context[name] for name in ("ge", "gt", "le", "lt") if name in context), "")
    is_whole = isinstance(limit, float) and limit.is_integer()
    return _KINDS.get(kind, "").format(int(limit) if is_whole else limit)


# By kind of error of pydantic.
_KINDS = {
    "tuple_type": "must be a list, such as `[one, two]`",
    "list_type": "must be a list, such as `[one, two]`",
    "string_type": "must be text: put it in quotes",
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "int_parsing": "must be a whole number, such as 4",
    "int_type": "must be a whole number, such as 4",
    "int_from_float": "must be a whole number",
    "float_parsing": "must be a number, such as 0.5",
    "float_type": "must be a number, such as 0.5",
    "greater_than_equal": "must be {} or more",
    "greater_than": "must be more than {}",
    "less_than_equal": "must be {} or less",
    "less_than": "must be less than {}",
}
_EXAMPLES = {"teams": ": `teams: {research: {policy: default}}`", "policies": ": `policies: {mine: {trigger: 0.8}}`"}
_GATEWAY = " are no part of this proxy: put a gateway such as LiteLLM in front of it or behind it"
_SAMPLED = ": remove it; placeholders hold no sampled lines or names since version 0.3, only the lines of an outcome"
# Settings of other programs and of earlier versions, and the hint for each.
_FOREIGN = {
    "timeout": "; did you mean 'silence_seconds' (without a byte) or 'connect_seconds'?",
    "api_key": "; did you mean 'key' (env:NAME or file:PATH)?",
    "api_base": "; did you mean 'base_url'?",
    "url": "; did you mean 'base_url'?",
    **dict.fromkeys(("fallback", "fallbacks"), f": fallbacks{_GATEWAY}"),
    **dict.fromkeys(("alias", "model_alias", "model_aliases", "aliases"), f": other names for models{_GATEWAY}"),
    **dict.fromkeys(
        ("budget", "max_budget", "rpm", "tpm", "rate_limit", "limits"), f" for limits and budgets{_GATEWAY}"
    ),
    "command": ": hooks call a `url`; commands were removed in version 0.2",
    "file": ": the log goes to standard output; redirect that",
    **dict.fromkeys(("outline", "outline_bytes", "names"), _SAMPLED),
}


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
    if isinstance(value, int) and value.bit_length() > _QUOTABLE_BITS_MAX:
        return ""  # Python refuses to write out an integer of thousands of digits
    if isinstance(value, bool | int | float):
        return f" (it says {str(value).lower() if isinstance(value, bool) else value})"
    is_plain = isinstance(value, str) and (_QUOTABLE_TEXT.fullmatch(value) or _QUOTABLE_FIGURE.fullmatch(value))
    return f" (it says {value!r})" if is_plain else ""


def _suggest_value(value: object, expected: object) -> str:
    """The possible value of a setting that is most similar to the given one."""
    if not isinstance(value, str) or not isinstance(expected, str):
        return ""
    return suggest(value, re.findall(r"'([^']*)'", expected))


def _suggest_setting(place: Place, model: type[BaseModel]) -> str:
    """The setting that was probably meant: a similar name beside it, or the same name in another group."""
    group, name = _model_at(model, place[:-1]), str(place[-1])
    if name in _FOREIGN and not (group is not None and name in group.model_fields):
        return _FOREIGN[name]
    if group is not None and (suggestion := suggest(name, group.model_fields)):
        return suggestion
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
    found = (_model_in(argument) for argument in get_args(annotation))
    return next((model for model in found if model is not None), None)


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
    """Groups in a list are emptied, so that the others keep their places; a list with any other wrong entry goes.

    An empty step of a policy would be a fault itself: the list of steps goes too.
    """
    at: Any = values
    for depth, step in enumerate(place):
        below = at[step] if _has(at, step) else None
        if depth == len(place) - 1 or not isinstance(below, dict | list):
            if isinstance(at, dict):
                at.pop(step, None)
            elif isinstance(below, dict) and place[0] != "policies":
                at[step] = {}
            else:
                _take_out(values, place[:depth])
            return
        at = below


def _has(at: Any, step: str | int) -> bool:  # noqa: ANN401 (a YAML tree)
    if isinstance(at, dict):
        return step in at
    return isinstance(at, list) and isinstance(step, int) and 0 <= step < len(at)


def find_origins(loaded: Loaded, policy: str) -> Iterator[tuple[tuple[str, ...], Any, str]]:
    """List every effective value of a policy, as JSON, with its origin in words."""
    for field, value in loaded.config.policy(policy).model_dump(mode="json", exclude={"inherit"}).items():
        for part, shown in value.items() if isinstance(value, dict) else [("", value)]:
            path = (field, part) if part else (field,)
            yield path, shown, _setter(loaded, policy, path)


def _setter(loaded: Loaded, policy: str, path: tuple[str, ...]) -> str:
    for ancestor in loaded.config.lineage(policy):
        if _sets(loaded.config, ancestor, path):
            if ancestor in loaded.config.policies:
                return f"{loaded.origin('policies', ancestor, *path)} (policy {ancestor})"
            if ancestor in shipped_policies():
                return f"shipped policy {ancestor}"
    return "default"


def _sets(config: Config, policy: str, path: tuple[str, ...]) -> bool:
    at: Any = config.all_policies.get(policy)
    for step in path:
        if isinstance(at, Mapping):
            at = at.get(step)
        else:
            at = getattr(at, step) if isinstance(at, ConfigModel) and step in at.model_fields_set else None
    return at is not None
