"""Tools by name: globs that select them, the kinds of their calls, and the definitions that a request offers."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, Literal

from proxy.core.model import splice

EXEMPT = ("*skill*", "*todo*", "task", "ask*", "*memory*", "update_plan", "*plan_mode", "exitplanmode", "compact")
"""Skills carry instructions, todos and plans carry state, questions carry a person's answer."""

PATHS = (
    *("file_path", "path", "filePath", "filename", "file_name", "absolute_path", "target_file", "notebook_path"),
    *("file", "paths", "files", "filepath", "source", "destination"),
)
"""Arguments that name files, in the agents' own spellings."""
COMMANDS = ("command", "cmd", "commands", "script")
PLANS = ("todos", "plan", "task_list", "todoList", "todo_list", "tasks", "items")
IDS = ("task_id", "taskId", "agent_id", "bash_id", "shell_id", "session_id", "process_id", "id", "ids", "target")
"""Arguments that name something still going on."""
RANGES = ("view_range", "read_range")
"""Arguments that say from which line to which."""
LINES = (
    *(("start_line", "end_line"), ("startLine", "endLine"), ("line_start", "line_end")),
    ("start_line_one_indexed", "end_line_one_indexed_inclusive"),
)
"""The same as two arguments."""

Kind = Literal["plan", "task", "step", "agent", "wait", "ask", "read", "change", "patch", "run", "silent", "other"]


@dataclass(frozen=True, slots=True)
class Pattern:
    """Calls of one kind: by globs of the tool's name, one of the arguments they have, and what its `command` is."""

    kind: Kind
    tools: str
    by: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()


_EDITORS = "*str_replace_editor *str_replace_based_edit_tool *text_editor *file_editor fs_read fs_write"
_READERS = "read* *read_file* *readfile* *read_text* *read_multiple* *get_file* view* cat open open_file"
_WRITERS = (
    "write* *write_file* *writefile* edit* *edit *edit_file* *replace* create* *create_file* *create_or_update* "
    "insert* *insert* append* save* delete* *delete_file* remove* move* *move_file* rename* *modify* *patch* *diff*"
)
_SEEING = ("view", "read", "Line")
_EDITING = ("create", "str_replace", "insert", "write", "append", "edit", "undo_edit", "delete", "rename")

PATTERNS = (
    Pattern("silent", "think* *thinking* todoread *todo_read tasklist taskget toolsearch"),
    Pattern("plan", "*todo* update_plan task_tracker *task_list* *plan_update*", PLANS),
    Pattern("silent", "*todo* task_tracker"),
    Pattern("task", "taskcreate", ("subject",)),
    Pattern("step", "taskupdate", ("taskId",)),
    Pattern("wait", "*output wait* kill* taskstop write_stdin close_agent send_input", IDS),
    Pattern("agent", "task agent *subagent* *sub_agent* *spawn_agent* new_task delegate*"),
    Pattern("ask", "ask* *_ask_* request_user_input"),
    Pattern("read", _EDITORS, PATHS, _SEEING),
    Pattern("change", _EDITORS, PATHS, _EDITING),
    Pattern("read", _READERS, PATHS),
    Pattern("change", _WRITERS, PATHS),
    Pattern("patch", "*patch* *diff*"),
    Pattern("run", "*", COMMANDS),
    Pattern("run", "*exec* *run* *python* *interpreter* *jupyter* *eval*", ("code",)),
    Pattern("change", "edit insert"),
)
"""The first that fits says what a call does. A name alone says little (`create_issue`, `modify_order`): most patterns
ask for an argument as well.
"""


# APIs allow 64 to 128 characters. A client may send a megabyte, and what is remembered by name must stay small.
_NAME_CHARACTERS = 256


def meaning(tool: str, values: Mapping[str, Any]) -> Kind:
    """The kind of a call with these arguments; `other` where no pattern matches, as for most tools."""
    for pattern in _patterns_of(tool[:_NAME_CHARACTERS]):
        fits = not pattern.by or any(values.get(key) for key in pattern.by)
        if fits and (not pattern.commands or values.get("command") in pattern.commands):
            return pattern.kind
    return "other"


@lru_cache(maxsize=4_096)
def _patterns_of(tool: str) -> tuple[Pattern, ...]:
    """The patterns that match this tool, whichever server (`mcp__fs__read_file`, `fs.read_file`) it comes from."""
    name = re.split(r"__|[./:]", tool)[-1]
    return tuple(pattern for pattern in PATTERNS if matches_any(name, tuple(pattern.tools.split())))


def matches_any(tool: str, globs: tuple[str, ...]) -> bool:
    """True where one of the globs matches this tool."""
    return _is_listed(tool[:_NAME_CHARACTERS], globs)


@lru_cache(maxsize=4_096)
def _is_listed(tool: str, globs: tuple[str, ...]) -> bool:
    return any(fnmatchcase(tool.lower(), glob.lower()) for glob in globs)


def without_pruned(tools: bytes | None, pruned: Sequence[str]) -> bytes | None:
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
