"""Edits of the text of a configuration file: one policy replaced or added, everything else to the byte."""

from collections.abc import Mapping
from typing import Any

import yaml

LINE_MAX_CHARACTERS = 100


def write_entry(name: str, values: Mapping[str, Any], indent: int = 2) -> str:
    """An entry of `policies` as YAML."""
    text = yaml.safe_dump({name: dict(values)}, sort_keys=False, allow_unicode=True, width=LINE_MAX_CHARACTERS)
    return "".join(f"{' ' * indent}{line}" for line in text.splitlines(keepends=True))


def replace_policy(text: str, name: str, values: Mapping[str, Any]) -> str | None:
    """The file with one policy replaced or added, everything else to the byte. None: its form does not allow that.

    Comments within the policy's own entry are lost.
    """
    try:
        changed = _splice(text, name, values)
        known, found = yaml.safe_load(text) or {}, yaml.safe_load(changed)
    except yaml.YAMLError:
        return None
    expected = {**known, "policies": {**(known.get("policies") or {}), name: values}}
    return changed if found == expected else None


def _splice(text: str, name: str, values: Mapping[str, Any]) -> str:
    root = yaml.compose(text, yaml.SafeLoader)
    policies = _find_member(root, "policies")
    if policies is None:
        return f"{text.rstrip(chr(10))}\n\npolicies:\n{write_entry(name, values)}".lstrip("\n")
    if not isinstance(policies[1], yaml.MappingNode) or policies[1].flow_style or not policies[1].value:
        held = yaml.safe_load(text)["policies"] or {}
        entries = "".join(write_entry(each, of) for each, of in {**held, name: values}.items())
        start, stop = policies[0].end_mark.index, max(_end_of(policies[1]), policies[0].end_mark.index + 1)
        return f"{text[:start]}:\n{entries}{_rest_of_line(text, stop)}"
    first = policies[1].value[0][0].start_mark
    entry = write_entry(name, values, first.column)
    known = _find_member(policies[1], name)
    if known is not None:
        start = known[0].start_mark.index - known[0].start_mark.column
        return f"{text[:start]}{entry}{_rest_of_line(text, _end_of(known[1], known[0].end_mark.index))}"
    last = policies[1].value[-1]
    return _insert(text, _end_of(last[1], last[0].end_mark.index), entry)


def _find_member(node: yaml.Node | None, name: str) -> tuple[yaml.Node, yaml.Node] | None:
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    return next(((key, value) for key, value in pairs if key.value == name), None)


def _end_of(node: yaml.Node, least: int = 0) -> int:
    """The index behind the last character of a value. The end of a block is where the next token begins."""
    if isinstance(node, yaml.MappingNode) and not node.flow_style and node.value:
        return _end_of(node.value[-1][1], node.value[-1][0].end_mark.index)
    if isinstance(node, yaml.SequenceNode) and not node.flow_style and node.value:
        return _end_of(node.value[-1])
    return max(int(node.end_mark.index), least)


def _rest_of_line(text: str, index: int) -> str:
    """The text after the line of this index."""
    if index and text[index - 1 : index] == "\n":  # the end of a literal block
        return text[index:]
    return text[index:].partition("\n")[2]


def _insert(text: str, index: int, entry: str) -> str:
    rest = _rest_of_line(text, index)
    before = text[: len(text) - len(rest)]
    return f"{before}{'' if before.endswith(chr(10)) else chr(10)}{entry}{rest}"
