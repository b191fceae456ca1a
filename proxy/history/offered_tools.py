"""The tools that a request offers: their names, and the list without some of them."""

import json
from collections.abc import Iterable
from typing import Any

from proxy.history import splice


def list_tool_names(tools: bytes | None) -> list[str]:
    """Return the names of the tools, whether function, custom or legacy."""
    if tools is None:
        return []
    return [_find_tool_name(definition) for definition in json.loads(tools) or ()]


def find_pruned_tools(tools: bytes | None, remaining_tools: bytes | None) -> tuple[str, ...]:
    """Return the names of the tools that are not among the remaining ones, in their order."""
    if tools == remaining_tools:
        return ()
    remaining_names = set(list_tool_names(remaining_tools))
    return tuple(name for name in list_tool_names(tools) if name not in remaining_names)


def remove_pruned_tools(tools: bytes | None, pruned: Iterable[str]) -> bytes | None:
    """Return the list without the pruned tools, the others byte for byte. A list that would be empty stays."""
    pruned_names = frozenset(pruned)
    if tools is None or not pruned_names:
        return tools
    spans = list(splice.iterate_elements(tools))
    remaining = []
    for (start, stop), name in zip(spans, list_tool_names(tools), strict=True):
        if name not in pruned_names:
            remaining.append(tools[start:stop])
    if not remaining or len(remaining) == len(spans):
        return tools
    return b"[" + b",".join(remaining) + b"]"


def _find_tool_name(definition: Any) -> str:  # noqa: ANN401 - JSON
    if not isinstance(definition, dict):
        return ""
    inner = definition.get(definition.get("type"), definition)
    if not isinstance(inner, dict):
        return ""
    name = inner.get("name")
    if isinstance(name, str):
        return name
    return ""
