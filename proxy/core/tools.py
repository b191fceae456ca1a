"""Tools by name: globs that say which are meant, the names that today's agents use, and the definitions on offer."""

import json
from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any

from proxy.core import splice

EXEMPT = ("*skill*", "*todo*", "task", "ask*", "*memory*", "update_plan", "*plan_mode", "exitplanmode", "compact")
"""Skills carry instructions, todos and plans carry state, questions carry a person's answer."""
READING = ("read*", "*read_file*", "view*", "open*", "cat", "*fetch*")
WRITING = (
    "write*",
    "*edit*",
    "*patch*",
    "*replace*",
    "create*",
    "*modify*",
    "*write_file*",
    "*create_file*",
    "*insert*",
)
RUNNING = ("*bash*", "*shell*", "*exec*", "*command*", "*terminal*", "run*", "cargo_*", "git_*")
PLANNING = ("*todo*", "update_plan", "task_tracker")


@lru_cache(maxsize=4_096)
def listed(tool: str, globs: tuple[str, ...]) -> bool:
    """Does one of the globs mean this tool?"""
    return any(fnmatchcase(tool.lower(), glob.lower()) for glob in globs)


def offered(tools: bytes | None, pruned: Sequence[str]) -> bytes | None:
    """The tools without the pruned ones, the others byte for byte; never none at all."""
    if tools is None or not pruned:
        return tools
    pieces = [tools[start:stop] for start, stop in splice.elements(tools)]
    kept = [piece for piece, name in zip(pieces, tool_names(tools), strict=True) if name not in pruned]
    return b"[" + b",".join(kept) + b"]" if kept and len(kept) < len(pieces) else tools


def tool_names(tools: bytes | None) -> list[str]:
    """The names of the tools on offer, function or custom or legacy."""
    return [] if tools is None else [_tool_name(definition) for definition in json.loads(tools)]


def _tool_name(definition: Any) -> str:  # noqa: ANN401 - JSON
    inner = definition.get(definition.get("type"), definition) if isinstance(definition, dict) else {}
    name = inner.get("name") if isinstance(inner, dict) else None
    return name if isinstance(name, str) else ""
