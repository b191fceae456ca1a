"""The YAML of a configuration file: read with the line of each value, or edited in place.

An edit replaces or adds one policy and keeps everything else to the byte. Only a file with one policy below the other
is edited, `policies: {a: {}, b: {}}` is not.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from proxy.config.faults import Fault, InvalidConfig, Place

# The beginning of a message of PyYAML, up to the first word that it quotes from the file: an alias or a tag may be a
# secret that begins with `*` or `!`. Single characters and its own words, such as '<block end>', are none.
_YAML_PROBLEM = re.compile(r"(?:[^'\"]|'(?:\\?.|<[a-z ]+>)')*")
# What PyYAML raises for a tag that lies, for a circle, and for a number of thousands of digits.
_PARSER_FAULTS = (ValueError, TypeError, AttributeError, RecursionError)


class YamlReader(yaml.SafeLoader):
    """A reader of YAML 1.2 (https://yaml.org/spec/1.2.2/#core-schema); PyYAML's own reads version 1.1.

    So `off` and `yes` are text (`mode: off`), and so are a date (`api-version`) and `1:30` (1.1: ninety); `010` is ten
    (1.1: eight).
    """


YamlReader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in kinds if not tag.endswith((":timestamp", ":bool", ":int", ":float"))]
    for first, kinds in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
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
        """Note the line of each value. Of keys that are set twice YAML takes the last one silently: report them."""
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


def read_file(file: Path, text: str | None) -> FileContent:
    if text is None:
        text = read_text(file)
    try:
        return _parse(text, file)
    except yaml.MarkedYAMLError as fault:
        line = fault.problem_mark.line + 1 if fault.problem_mark else 0
        match = _YAML_PROBLEM.match(fault.problem or "it cannot be read")
        why = match[0].rstrip(" ,:") if match else ""
        message = f"not YAML: {why}: check indentation, quotes and brackets here and in the line before"
        raise InvalidConfig([Fault("", f"{file}:{line}", message)]) from None
    except yaml.YAMLError:
        raise InvalidConfig([Fault("", str(file), "not YAML: it holds characters that no text has")]) from None
    except _PARSER_FAULTS:
        message = "not YAML: a value is not what its tag says, or stands within itself"
        raise InvalidConfig([Fault("", str(file), message)]) from None


def read_text(file: Path) -> str:
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


LINE_MAX_CHARACTERS = 100
INDENT_CHARACTERS = 2

NodePair = tuple[yaml.Node, yaml.Node]


class NotEditable(Exception):
    """A file in which the policy must be written by hand; the text says why."""


def write_entry(name: str, values: Mapping[str, Any], indent: int = INDENT_CHARACTERS) -> str:
    text = yaml.safe_dump({name: dict(values)}, sort_keys=False, allow_unicode=True, width=LINE_MAX_CHARACTERS)
    return "".join(f"{' ' * indent}{line}" for line in text.splitlines(keepends=True))


def replace_policy(text: str, name: str, values: Mapping[str, Any]) -> str:
    """Replace or add one policy. Comments within its own entry are lost.

    Raise NotEditable if the form of the file does not allow that.
    """
    try:
        before = _read(text) or {}
        policies = before.get("policies") or {}
        if not isinstance(policies, dict):
            raise NotEditable("`policies` is no mapping of names to policies")
        start, stop, entry = _choose_edit(text, name, values)
        if "\r\n" in text:
            entry = entry.replace("\n", "\r\n")
        changed = text[:start] + entry + text[stop:]
        after = _read(changed)
    except (yaml.YAMLError, ValueError, TypeError, AttributeError, RecursionError):
        raise NotEditable("the file is not YAML, or the policy cannot be written into it in its form") from None
    if after != {**before, "policies": {**policies, name: values}}:
        raise NotEditable("other values of the file would change: it has aliases, or a form that is not edited here")
    return changed


def _read(text: str) -> Any:  # noqa: ANN401 (any YAML)
    return YamlReader(text).get_single_data()


def _choose_edit(text: str, name: str, values: Mapping[str, Any]) -> tuple[int, int, str]:
    root = yaml.compose(text, YamlReader)
    policies = _find_member(root, "policies")
    if policies is None:
        start = len(text.rstrip("\r\n"))
        indent = 0
        if isinstance(root, yaml.MappingNode) and root.value:
            indent = root.value[0][0].start_mark.column
        blank_line = "\n\n" if start else ""
        entry = write_entry(name, values, indent + INDENT_CHARACTERS)
        return start, len(text), f"{blank_line}{' ' * indent}policies:\n{entry}"
    key, group = policies
    if not isinstance(group, yaml.MappingNode) or not group.value:
        return _fill_empty(text, policies, write_entry(name, values, key.start_mark.column + INDENT_CHARACTERS))
    if group.flow_style:
        raise NotEditable("`policies` is written in braces: write one policy below the other")
    entry = write_entry(name, values, group.value[0][0].start_mark.column)
    own = _find_member(group, name)
    if own is not None:
        start = own[0].start_mark.index - own[0].start_mark.column
        return start, _find_end(text, own), entry
    stop = _find_end(text, group.value[-1])
    if not text[:stop].endswith("\n"):
        entry = f"\n{entry}"
    return stop, stop, entry


def _fill_empty(text: str, policies: NodePair, entry: str) -> tuple[int, int, str]:
    key, group = policies
    start = text.index(":", key.end_mark.index) + 1
    value_stop = max(start, group.end_mark.index)
    if "#" in text[start:value_stop]:
        raise NotEditable("comments of the file would be lost")
    stop = _find_line_end(text, value_stop)
    comment = text[value_stop:stop].strip()
    if comment:
        comment = f"  {comment}"
    return start, stop, f"{comment}\n{entry}"


def _find_member(node: yaml.Node | None, name: str) -> NodePair | None:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == name:
                return key, value
    return None


def _find_end(text: str, entry: NodePair) -> int:
    key, value = entry
    least = key.end_mark.index
    # The end mark of a block is the beginning of the next token, so go down to its last scalar.
    while isinstance(value, yaml.CollectionNode) and not value.flow_style and value.value:
        last = value.value[-1]
        value = last
        if isinstance(last, tuple):
            least, value = last[0].end_mark.index, last[1]
    return _find_line_end(text, max(value.end_mark.index, least))


def _find_line_end(text: str, index: int) -> int:
    if index and text[index - 1] == "\n":  # the end of a literal block
        return index
    stop = text.find("\n", index)
    if stop < 0:
        return len(text)
    return stop + 1
