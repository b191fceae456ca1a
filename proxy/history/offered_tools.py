"""The tools that a request offers."""

import json
from collections.abc import Iterable
from typing import Any

from proxy.history import splice


def find_pruned_tools(tools: bytes | None, remaining_tools: bytes | None) -> tuple[str, ...]:
    """Return the names of the tools on offer that are not among the remaining ones, in the order of the offer."""
    if tools == remaining_tools:
        return ()
    remaining_names = set(list_tool_names(remaining_tools))
    return tuple(name for name in list_tool_names(tools) if name not in remaining_names)


def remove_pruned_tools(tools: bytes | None, pruned: Iterable[str]) -> bytes | None:
    """The tools without the pruned ones, the others byte for byte; never none at all."""
    pruned_names = frozenset(pruned)
    if tools is None or not pruned_names:
        return tools
    pieces = [tools[start:stop] for start, stop in splice.iterate_elements(tools)]
    kept = [piece for piece, name in zip(pieces, list_tool_names(tools), strict=True) if name not in pruned_names]
    return b"[" + b",".join(kept) + b"]" if kept and len(kept) < len(pieces) else tools


def list_tool_names(tools: bytes | None) -> list[str]:
    """The names of the tools on offer, function or custom or legacy."""
    return [] if tools is None else [_find_tool_name(definition) for definition in json.loads(tools) or ()]


def _find_tool_name(definition: Any) -> str:  # noqa: ANN401 - JSON
    inner = definition.get(definition.get("type"), definition) if isinstance(definition, dict) else {}
    name = inner.get("name") if isinstance(inner, dict) else None
    return name if isinstance(name, str) else ""
