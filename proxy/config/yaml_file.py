"""The YAML of a configuration file, read with the line of each value."""

import re
from pathlib import Path
from typing import Any

import yaml

from proxy.config.faults import Fault, InvalidConfig, Place

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


class FileContent:
    def __init__(self, file: Path) -> None:
        self.file = file
        self.values: dict[str, Any] = {}
        self.origins: dict[Place, str] = {}
        self.faults: list[Fault] = []

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
    text = _read_text(file)
    try:
        return _parse(text, file)
    except yaml.MarkedYAMLError as fault:
        line = fault.problem_mark.line + 1 if fault.problem_mark else 0
        # Up to the first word that PyYAML quotes from the file: an alias or a tag may be a secret that begins with `*`
        # or `!`. Single characters and its own words, such as '<block end>', are not secret.
        match = re.match(r"(?:[^'\"]|'(?:\\?.|<[a-z ]+>)')*", fault.problem or "it cannot be read")
        why = match[0].rstrip(" ,:") if match else ""
        message = f"not YAML: {why}: check indentation, quotes and brackets here and in the line before"
        raise InvalidConfig([Fault("", f"{file}:{line}", message)]) from None
    except yaml.YAMLError:
        raise InvalidConfig([Fault("", str(file), "not YAML: it holds characters that no text has")]) from None
    except _PARSER_FAULTS:
        message = "not YAML: a value is not what its tag says, or stands within itself"
        raise InvalidConfig([Fault("", str(file), message)]) from None


def _read_text(file: Path) -> str:
    try:
        return file.read_bytes().decode("utf-8")
    except OSError as fault:
        raise InvalidConfig([Fault("", str(file), f"cannot be read: {fault.strerror}")]) from None
    except UnicodeDecodeError as fault:
        raise InvalidConfig([Fault("", str(file), f"cannot be read: {fault}")]) from None


def _parse(text: str, file: Path) -> FileContent:
    content = FileContent(file)
    reader = YamlReader(text)
    node = reader.get_single_node()
    if node is None:
        return content
    values = reader.construct_document(node)
    if values is None:
        return content
    if not isinstance(node, yaml.MappingNode):
        raise InvalidConfig([Fault("", str(file), "the file must be a mapping of settings")])
    content.note_lines(node, ())
    content.values = {key: value for key, value in values.items() if value is not None}
    return content


def parse_variable(text: str) -> object:
    """Parse the value of a variable. A number stays text: a setting that is a number or a boolean reads `1` itself."""
    try:
        value = YamlReader(text).get_single_data()
    except (yaml.YAMLError, *_PARSER_FAULTS):
        return text
    if isinstance(value, int | float) and not isinstance(value, bool):
        return text.strip()
    return value
