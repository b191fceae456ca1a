"""Faults of a configuration: the place, the mistake, the allowed values, and the one that was probably meant.

People paste keys into the wrong line, and faults end up in logs. So only values are quoted that no good secret is like.
`read_file` reads the YAML of a configuration with the line of each value, so that a fault can name it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, get_args, get_origin

import yaml
from msgspec import Struct
from pydantic import BaseModel, ValidationError

from proxy.config.values import suggest
from proxy.wire.redaction import redaction

Place = tuple[str | int, ...]

_KINDS = {
    "tuple_type": "must be a list, such as `[one, two]`",
    "list_type": "must be a list, such as `[one, two]`",
    "string_type": "must be text: put it in quotes",
    "string_unicode": "must be text in UTF-8",
    "invalid_key": "must be text: put it in quotes",
    "string_pattern_mismatch": "must have the form {pattern}",
    "string_too_short": "must not be empty",
    "missing": "must be set: it has no default",
    "finite_number": "must be a finite number",
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "int_parsing": "must be a whole number, such as 4",
    "int_type": "must be a whole number, such as 4",
    "int_from_float": "must be a whole number",
    "int_parsing_size": "must be a number of fewer digits",
    "float_parsing": "must be a number, such as 0.5",
    "float_type": "must be a number, such as 0.5",
    "greater_than_equal": "must be {ge:.15g} or more",
    "greater_than": "must be more than {gt:.15g}",
    "less_than_equal": "must be {le:.15g} or less",
    "less_than": "must be less than {lt:.15g}",
    "literal_error": "must be {expected}",
    **dict.fromkeys(("dict_type", "model_type", "mapping_type"), "must be a mapping of settings{example}"),
}
"""The form that a setting must have, by pydantic's kind of error."""

_REMOVED_IN_3 = {
    "always_at_least", "answer_tokens", "ask_usage", "budget", "changes", "conclusions", "exempt_tokens",
    "headroom", "hints", "keep_failed", "logs", "members", "metrics_seconds", "names", "outline", "outline_bytes",
    "parts", "priority", "retry_wait_seconds", "room", "rotate_mib", "scope_tokens", "subsumes", "tail", "traces",
    "user_tokens",
}  # fmt: skip
"""Settings of version 0.2 that were removed or moved."""
_REMOVED = {
    "compact_command": "remove it; `/compact` is obeyed, and the header `x-compaction: off` leaves a request alone",
    "retry_statuses": "remove it; refusals reach the client, which retries by itself",
    "compact_tool": "remove it; a tool `Compact` of the client, `/compact`, the header and the endpoint stay",
    "clear_cold_at_least": "write `fold_cold_at_least`; it is 30,000 tokens",
    "horizon": "remove it; a history is shortened over `trigger`, or while the cache has expired",
    "max_connections": "remove it; `listen.max_in_flight` bounds the requests of a worker",
    "notes": "remove it; no notes are asked for before results are shortened",
    "users": "remove it; the one key of `admin.key` opens the pages",
    "working_memory": "write `keep: {tokens: NUMBER}`, and a higher `target` if more than two thirds of it shall stay",
}
"""Advice for settings of version 0.3."""
REMOVED_POLICIES = {
    "gentle": " after version 0.3: use `default`, whose newest 15,000 tokens stay, or raise `keep.tokens` and `target`",
    "notes": " after version 0.3: use `default`",
}
"""Advice for shipped policies of version 0.3."""


class Fault(Struct, frozen=True):
    path: str
    origin: str
    message: str

    def __str__(self) -> str:
        if not self.path:
            return f"{self.origin}: {self.message}"
        return f"{self.origin}: {self.path}: {self.message}"


class InvalidConfig(Exception):
    def __init__(self, faults: Iterable[Fault]) -> None:
        hide = redaction().of_text
        # A key may also have been written instead of a name, which is a part of the path.
        self.faults = tuple(Fault(hide(fault.path)[0], fault.origin, hide(fault.message)[0]) for fault in faults)
        super().__init__("\n".join(map(str, self.faults)))


def parse_place(text: str, separator: str) -> Place:
    return tuple(int(part) if part.isdecimal() else part for part in text.split(separator))


def describe_errors(invalid: ValidationError, model: type[BaseModel]) -> Iterator[tuple[Place, str]]:
    for error in invalid.errors(include_url=False):
        place: Place = error["loc"]
        message = error["msg"].removeprefix("Value error, ")
        if not place:  # a validator of the whole has found contradictions, one a line, each after its place
            for line in message.splitlines():
                path, _, why = line.partition(": ")
                yield parse_place(path, "."), why
        elif error["type"] == "extra_forbidden":  # pydantic does not say which settings there are
            yield place, f"there is no such setting{_suggest_setting(place, model)}"
        else:
            context = error.get("ctx", {})
            if error["type"] in _KINDS:
                examples: dict[str | int, str] = {
                    "teams": ": `teams: {research: {policy: default}}`",
                    "policies": ": `policies: {mine: {trigger: 0.8}}`",
                }
                example = examples.get(place[-1], ", such as `{name: value}`")
                message = _KINDS[error["type"]].format(**context, example=example)
            if error["type"] == "string_type" and error.get("input") is None:
                message = "is empty: leave it out, or write '' if that is meant"
            value, expected = error.get("input"), context.get("expected")
            if isinstance(value, str) and isinstance(expected, str):
                message += suggest(value, re.findall(r"'([^']*)'", expected))
            if value == "auto" and place[-1] == "clear_at_least":
                message = "must be a number after version 0.3: remove it, for a history is shortened over `trigger`, or"
                message += " while the cache has expired"
            yield place, message + _quote(place, value)


def describe_first_error(fault: ValueError, model: type[BaseModel]) -> str:
    if not isinstance(fault, ValidationError):
        return str(fault)
    place, message = next(describe_errors(fault, model))
    return f"{'.'.join(map(str, place))}: {message}"


def _quote(place: Place, value: object) -> str:
    """Return ` (it says 'x')` if the value is short and no secret."""
    # These settings may hold a secret of any form.
    if {"key", "secret", "token", "url", "headers", "query", "base_url", "command", "patterns"} & set(place):
        return ""
    if isinstance(value, bool):
        return f" (it says {str(value).lower()})"
    # Python refuses to write out an integer of thousands of digits.
    if isinstance(value, float) or (isinstance(value, int) and abs(value) < 10**30):
        return f" (it says {value})"
    # Only words without digits and short figures are quoted: a good key or password is neither.
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z_ -]{1,24}|[\d.,_]{1,10} ?[A-Za-z%]{0,4}", value):
        return f" (it says {value!r})"
    return ""


def _suggest_setting(place: Place, model: type[BaseModel]) -> str:
    name = str(place[-1])
    if name in _REMOVED_IN_3:
        return " after version 0.2: remove it, or see `Removed settings` in CHANGELOG.md for what took its place"
    if name in _REMOVED:
        return f" after version 0.3: {_REMOVED[name]}"
    here, homes = list[str](), list[str]()
    for path, group in _list_groups(model):
        steps = zip(path, place[:-1], strict=False)
        if len(path) == len(place) - 1 and all(known in ("0", "NAME", step) for known, step in steps):
            here += group.model_fields
        elif name in group.model_fields:
            homes.append(".".join((*path, name)))
    if suggestion := suggest(name, here):
        return suggestion
    # `transcripts` is a group, and a setting of policies. In a team, the setting is meant.
    homes = [home for home in homes if "." in home] or homes
    text = f" here; there are {', '.join(dict.fromkeys(here))}" if here and len(place) > 1 else ""
    if homes:
        text += f"; did you mean {homes[0]!r}?"
    return text


def _list_groups(annotation: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], type[BaseModel]]]:  # noqa: ANN401 (any type a setting has)
    origin = get_origin(annotation)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield path, annotation
        for name, field in annotation.model_fields.items():
            yield from _list_groups(field.annotation, (*path, name))
    elif origin is tuple:
        path = (*path, "0")
    elif isinstance(origin, type) and issubclass(origin, Mapping):
        path = (*path, "NAME")
    for argument in get_args(annotation):
        yield from _list_groups(argument, path)


# PyYAML raises these for a tag that does not fit its value, a value within itself, and a number of too many digits.
_PARSER_FAULTS = (ValueError, TypeError, AttributeError, RecursionError)


class YamlReader(yaml.SafeLoader):
    """A reader of YAML 1.2 (https://yaml.org/spec/1.2.2/#core-schema); PyYAML's own reads version 1.1.

    So `off` and `yes` are text (`mode: off`), and so are a date (`api-version`) and `1:30` (1.1: ninety); `010` is ten
    (1.1: eight).
    """

    yaml_implicit_resolvers = {}  # noqa: RUF012 (PyYAML's own name; filled below)


for _first, _kinds in yaml.SafeLoader.yaml_implicit_resolvers.items():
    for _tag, _expression in _kinds:
        if not _tag.endswith((":timestamp", ":bool", ":int", ":float")):
            YamlReader.add_implicit_resolver(_tag, _expression, [_first])
for _tag, _pattern, _first in (
    ("int", r"^(?:[-+]?(?:0|[1-9][0-9_]*)|0x[0-9a-fA-F_]+|0b[01_]+)$", "-+0123456789"),
    (
        "float",
        r"^(?:[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$",
        "-+0123456789.",
    ),
    ("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", "tTfF"),
):
    YamlReader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(_pattern), list(_first))


class FileContent(Struct):
    file: Path
    values: dict[str, Any] = {}
    origins: dict[Place, str] = {}
    faults: list[Fault] = []
    warnings: list[tuple[str, str]] = []

    def note_lines(self, node: yaml.Node, path: Place) -> None:
        """Note the line of each value. Report keys that are set twice: YAML takes the last one silently."""
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                place = (*path, str(key.value))
                origin = f"{self.file}:{key.start_mark.line + 1}"
                if place in self.origins:
                    line = self.origins[place].rpartition(":")[2]
                    message = f"is set a second time (first in line {line}): remove one"
                    self.faults.append(Fault(".".join(map(str, place)), origin, message))
                self.origins[place] = origin
                self.note_lines(value, place)
        elif isinstance(node, yaml.SequenceNode):
            for index, value in enumerate(node.value):
                self.origins[(*path, index)] = f"{self.file}:{value.start_mark.line + 1}"
                self.note_lines(value, (*path, index))


def read_file(file: Path) -> FileContent:
    content = FileContent(file)
    origin = str(file)
    try:
        reader = YamlReader(file.read_bytes().decode("utf-8"))
        node = reader.get_single_node()
        values = None if node is None else reader.construct_document(node)
        if node is not None and values is not None:
            if not isinstance(node, yaml.MappingNode):
                raise InvalidConfig([Fault("", origin, "the file must be a mapping of settings")])
            content.note_lines(node, ())
            content.values = {key: value for key, value in values.items() if value is not None}
    except OSError as fault:
        why = f"cannot be read: {fault.strerror}"
    except UnicodeDecodeError as fault:
        why = f"cannot be read: {fault}"
    except yaml.MarkedYAMLError as fault:
        origin = f"{file}:{fault.problem_mark.line + 1 if fault.problem_mark else 0}"
        # Up to the first word that PyYAML quotes from the file: an alias or a tag may be a secret that begins with `*`
        # or `!`. Single characters and its own words, such as '<block end>', are not secret.
        match = re.match(r"(?:[^'\"]|'(?:\\?.|<[a-z ]+>)')*", fault.problem or "it cannot be read")
        problem = match[0].rstrip(" ,:") if match else ""
        why = f"not YAML: {problem}: check indentation, quotes and brackets here and in the line before"
    except yaml.YAMLError:
        why = "not YAML: it holds characters that no text has"
    except _PARSER_FAULTS:
        why = "not YAML: a value is not what its tag says, or stands within itself"
    else:
        return content
    raise InvalidConfig([Fault("", origin, why)])


def parse_variable(text: str) -> object:
    """Parse the value of a variable. A number stays text: a setting that is a number or a boolean reads `1` itself."""
    try:
        value = YamlReader(text).get_single_data()
    except (yaml.YAMLError, *_PARSER_FAULTS):
        return text
    if isinstance(value, int | float) and not isinstance(value, bool):
        return text.strip()
    return value
