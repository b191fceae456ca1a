"""Edits of the text of a configuration file: one policy replaced or added, everything else to the byte.

The file is read as the loader reads it. Each edit is checked: the text must hold the same values and comments as
before, but for that policy. A text in which that cannot be done is refused.
"""

from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import yaml

from proxy.config.yaml_reader import YamlReader

LINE_MAX_CHARACTERS = 100
INDENT_CHARACTERS = 2


class NotEditable(Exception):
    """A file in which the policy must be written by hand; the text says why."""


def write_entry(name: str, values: Mapping[str, Any], indent: int = INDENT_CHARACTERS) -> str:
    """An entry of `policies` as YAML."""
    text = yaml.safe_dump({name: dict(values)}, sort_keys=False, allow_unicode=True, width=LINE_MAX_CHARACTERS)
    return "".join(f"{' ' * indent}{line}" for line in text.splitlines(keepends=True))


def replace_policy(text: str, name: str, values: Mapping[str, Any]) -> str:
    """The file with one policy replaced or added, everything else to the byte.

    Comments within the policy's own entry are lost. NotEditable: the form of the file does not allow that.
    """
    try:
        changed, found, comments = _replace_checked(text, name, values)
    except (yaml.YAMLError, ValueError, TypeError, AttributeError, RecursionError):
        raise NotEditable("the file is not YAML, or the policy cannot be written into it in its form") from None
    if comments:
        raise NotEditable("comments of the file would be lost")
    if not found:
        raise NotEditable("other values of the file would change: it has aliases, or a form that is not edited here")
    return changed


def _replace_checked(text: str, name: str, values: Mapping[str, Any]) -> tuple[str, bool, bool]:
    """The changed text, whether its values are those expected, and whether comments are lost."""
    known = _read(text) or {}
    policies = known.get("policies") or {}
    if not isinstance(policies, dict):
        raise NotEditable("`policies` is no mapping of names to policies")
    start, stop, entry = _splice(text, name, values)
    changed = f"{text[:start]}{entry}{text[stop:]}"
    own = _find_entry(text, name)
    lost = _list_comments(text, own) - _list_comments(changed)
    return changed, _read(changed) == {**known, "policies": {**policies, name: values}}, bool(lost)


def _read(text: str) -> Any:  # noqa: ANN401 (any YAML)
    return YamlReader(text).get_single_data()


def _splice(text: str, name: str, values: Mapping[str, Any]) -> tuple[int, int, str]:
    """The part of the text that is replaced, from where to where, and what takes its place."""
    line_end = "\r\n" if "\r\n" in text else "\n"
    root = yaml.compose(text, YamlReader)
    policies = _find_member(root, "policies")
    if policies is None:
        indent = root.value[0][0].start_mark.column if isinstance(root, yaml.MappingNode) and root.value else 0
        entry = f"{' ' * indent}policies:\n{write_entry(name, values, indent + INDENT_CHARACTERS)}".replace(
            "\n", line_end
        )
        kept = len(text.rstrip("\r\n"))
        return kept, len(text), f"{2 * line_end if kept else ''}{entry}"
    key, group = policies
    if not isinstance(group, yaml.MappingNode) or not group.value:
        return _fill_empty(
            text, policies, write_entry(name, values, key.start_mark.column + INDENT_CHARACTERS), line_end
        )
    known = _find_member(group, name)
    if group.flow_style:
        return _splice_flow(group, known, name, values)
    entry = write_entry(name, values, group.value[0][0].start_mark.column).replace("\n", line_end)
    if known is not None:
        start = known[0].start_mark.index - known[0].start_mark.column
        return start, _find_line_end(text, _end_of(known[1], known[0].end_mark.index)), entry
    last_key, last = group.value[-1]
    at = _find_line_end(text, _end_of(last, last_key.end_mark.index))
    return at, at, f"{'' if text[:at].endswith(chr(10)) else line_end}{entry}"


def _fill_empty(text: str, policies: tuple[yaml.Node, yaml.Node], entry: str, line_end: str) -> tuple[int, int, str]:
    """The first entry, below `policies:`. An empty value (`{}`, `null`) goes, a comment behind it stays."""
    start = policies[0].end_mark.index + text[policies[0].end_mark.index :].index(":") + 1
    stop = max(start, policies[1].end_mark.index)
    at = _find_line_end(text, stop)
    behind = text[stop:at].strip()
    comment = f"  {behind}" if behind else ""
    return start, at, f"{comment}\n{entry}".replace("\n", line_end)


def _splice_flow(
    group: yaml.MappingNode, known: tuple[yaml.Node, yaml.Node] | None, name: str, values: Mapping[str, Any]
) -> tuple[int, int, str]:
    """The same in braces: the value alone is replaced, or an entry follows the last one."""
    if known is not None:
        return known[1].start_mark.index, known[1].end_mark.index, _write_flow(values)
    at = max(group.value[-1][0].end_mark.index, group.value[-1][1].end_mark.index)
    return at, at, f", {_write_flow({name: dict(values)})[1:-1]}"


def _write_flow(values: Mapping[str, Any]) -> str:
    return yaml.safe_dump(
        dict(values), sort_keys=False, allow_unicode=True, width=float("inf"), default_flow_style=True
    ).strip()


def _find_entry(text: str, name: str) -> range:
    """The lines of a policy's own entry, as indices of the text. Empty: the file has none."""
    policies = _find_member(yaml.compose(text, YamlReader), "policies")
    known = _find_member(policies[1], name) if policies else None
    if policies is None or known is None:
        return range(0)
    if isinstance(policies[1], yaml.MappingNode) and policies[1].flow_style:
        return range(known[0].start_mark.index, known[1].end_mark.index)
    return range(known[0].start_mark.index, _find_line_end(text, _end_of(known[1], known[0].end_mark.index)))


def _list_comments(text: str, without: range = range(0)) -> Counter[str]:
    """The comments of a text: what is between the tokens of YAML and begins with `#`."""
    comments = Counter[str]()
    for before, after in pairwise(yaml.scan(text, YamlReader)):
        start = before.end_mark.index
        for line in text[start : after.start_mark.index].splitlines(keepends=True):
            at = line.find("#")
            if at >= 0 and start + at not in without:
                comments[line[at:].strip()] += 1
            start += len(line)
    return comments


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


def _find_line_end(text: str, index: int) -> int:
    """The index behind the line of this index."""
    if index and text[index - 1 : index] == "\n":  # the end of a literal block
        return index
    return (text.find("\n", index) + 1) or len(text)
