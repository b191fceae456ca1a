"""Edits of the text of a configuration file: one policy replaced or added, everything else to the byte.

Only a file with one policy below the other is edited, `policies: {a: {}, b: {}}` is not. Each edit is checked: the new
text must hold the same values as before, but for that policy.
"""

from collections.abc import Mapping
from typing import Any

import yaml

from proxy.config.yaml_reader import YamlReader

LINE_MAX_CHARACTERS = 100
INDENT_CHARACTERS = 2

NodePair = tuple[yaml.Node, yaml.Node]


class NotEditable(Exception):
    """A file in which the policy must be written by hand; the text says why."""


def write_entry(name: str, values: Mapping[str, Any], indent: int = INDENT_CHARACTERS) -> str:
    """Write an entry of `policies` as YAML."""
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
    """Return the range of the text to replace, and its replacement."""
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
    """Put the first entry below `policies:` in place of `{}` or `null`. A comment after it stays."""
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
    """Return the index after the last line of an entry."""
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
    """Return the index after the line with this index."""
    if index and text[index - 1] == "\n":  # the end of a literal block
        return index
    stop = text.find("\n", index)
    if stop < 0:
        return len(text)
    return stop + 1
