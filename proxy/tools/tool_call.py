"""A call as an agent makes it, and the values of its arguments.

Tools of agents: tables by the names of tools and arguments.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import translate
from functools import cached_property, lru_cache
from typing import Any, Literal, TypeVar

from msgspec import Struct

from proxy.tools.verbs import acts_by_name, reads_by_name

PATHS = (
    *("file_path", "path", "filePath", "filename", "file_name", "absolute_path", "target_file", "notebook_path"),
    *("file", "paths", "files", "filepath", "source", "destination"),
)
V = TypeVar("V")
COMMANDS = ("command", "cmd", "commands", "script")


class ToolCall(Struct, frozen=True, dict=True):  # with a dict: its arguments are parsed once
    """A call. `arguments` is the model's text: JSON for functions, anything for custom tools."""

    id: str
    name: str
    arguments: str
    kind: Literal["function", "custom", "legacy"] = "function"

    @property
    def answered_by(self) -> str:
        return self.id or self.name

    @cached_property
    def value(self) -> Any:  # noqa: ANN401 - JSON
        """The arguments as a JSON value; None if they are not JSON."""
        try:
            return json.loads(self.arguments)
        except (ValueError, RecursionError):
            return None

    @cached_property
    def _answers(self) -> dict[str, Any]:
        return {}

    def recall(self, question: str, read: Callable[["ToolCall"], V]) -> V:
        """Return the result of *read*, and remember it under *question*: dozens of functions ask about each call.

        Results for long calls are not remembered: these may be read into thousands of commands.
        """
        answer: V | None = self._answers.get(question)
        if answer is None:
            answer, remembered_characters = read(self), 4_000
            if len(self.arguments) <= remembered_characters:
                self._answers[question] = answer
        return answer

    @property
    def named(self) -> dict[str, Any]:
        """The arguments by name; empty if they are not a JSON object."""
        value = self.value
        return value if isinstance(value, dict) else {}


def find_value(values: Mapping[str, Any], names: Iterable[str]) -> Any:  # noqa: ANN401 - JSON
    """Return the first value under these names that is not empty, or None."""
    for name in names:
        value = values.get(name)
        if value:
            return value
    return None


def render_value(value: Any) -> str:  # noqa: ANN401 - JSON
    """Return a JSON value as text; a string without its quotes."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return "…"


LINE_ARGUMENTS = (
    ("view_range", "read_range", "start_line", "startLine", "line_start", "start_line_one_indexed", "offset"),
    ("end_line", "endLine", "line_end", "end_line_one_indexed_inclusive"),
    ("limit",),
)
"""Names of arguments: for the first line, or both ends in a list; for the last line; for the number of lines."""


Lines = tuple[int, int] | None
"""The first and the last line, 0 for the end of the file; None for all lines."""


def find_requested_lines(values: Mapping[str, Any], names: Sequence[Sequence[str]] = LINE_ARGUMENTS) -> Lines:
    first, last, count = [find_value(values, alternatives) for alternatives in names]
    if isinstance(first, list) and len(first) == 2:  # noqa: PLR2004 (both ends)
        first, last = first
    first, last, count = map(_read_number, (first, last, count))
    if count > 0:
        first = max(first, 1)
        last = first + count - 1
    if first <= 0 and last <= 0:
        return None
    return max(1, first), max(0, last)


def _read_number(value: Any) -> int:  # noqa: ANN401 - JSON
    """Return a whole number, which may be written as `10.0`, or 0 for any other value."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) else 0


STATE_TOOLS: Mapping[str, str] = {
    "*skill*": "Skill (Claude Code), LoadSkill (j-cli)",
    "*slash_command*": "run_slash_command (Roo Code)",
    "slashcommand": "SlashCommand (Claude Code)",
    "*todo*": "TodoWrite (Claude Code, j-cli), TodoRead (j-cli), todo_write (Cursor), manage_todo_list (Copilot)",
    "task": "Task (j-cli, Claude Code)",
    "agent": "Agent (Claude Code, before: Task)",
    "taskcreate": "TaskCreate (Claude Code)",
    "taskupdate": "TaskUpdate (Claude Code)",
    "tasklist": "TaskList (Claude Code)",
    "taskget": "TaskGet (Claude Code)",
    "task_tracker": "task_tracker (OpenHands)",
    "new_task": "new_task (Cline)",
    "update_plan": "update_plan (Codex)",
    "ask": "Ask (j-cli)",
}
"""Tools whose results are instructions or state, by globs, with their names in agents."""
QUESTION_TOOLS: Mapping[str, str] = {
    "askuser*": "AskUserQuestion (Claude Code)",
    "*ask_user*": "ask_user (Gemini CLI)",
    "ask_followup_question": "ask_followup_question (Cline)",
    "ask_human*": "ask_human (LangGraph)",
    "request_user_input": "request_user_input (Codex)",
    "question": "question (opencode)",
    "*ask_questions*": "ask_questions (Copilot)",
    "*askquestion*": "vscode_askQuestions (Copilot), AskQuestion (Cursor)",
}
"""Tools that ask a person, and not a model or a search."""
FOLDED_STATE_TOOLS: Mapping[str, str] = {
    "*memory*": "save_memory (Gemini CLI)",
    "*plan_mode": "exit_plan_mode (Qwen Code)",
    "*planmode": "ExitPlanMode (Claude Code), EnterPlanMode (Claude Code)",
    "plan_mode_respond": "plan_mode_respond (Cline)",
    "create_plan": "create_plan (Cursor)",
    "compact": "Compact (j-cli)",
}
"""Tools whose results stay when old results are cleared, but not in a fold."""
STATEFUL = (*STATE_TOOLS, *QUESTION_TOOLS)
EXEMPT = (*STATEFUL, *FOLDED_STATE_TOOLS)
"""Tools whose results stay when old results are cleared. A fold keeps only those of `STATEFUL`."""

Kind = Literal["plan", "agent", "wait", "ask", "read", "change", "patch", "run", "silent", "other"]


class Pattern(Struct, frozen=True, dict=True):  # with a dict: its globs are compiled once
    """A way to recognize a kind: by globs of the tool's name, arguments of which it has one, values of `command`."""

    kind: Kind
    tools: str
    by: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()

    @cached_property
    def names(self) -> re.Pattern[str]:
        return _compile_globs(tuple(self.tools.split()))


_EDITORS = "*str_replace_editor *str_replace_based_edit_tool *text_editor *file_editor fs_read fs_write"
PATTERNS = (
    Pattern("silent", "think* *thinking* todoread *todo_read tasklist taskget toolsearch"),
    Pattern(
        "plan",
        "*todo* update_plan task_tracker *task_list* *plan_update*",
        ("todos", "plan", "task_list", "todoList", "todo_list", "tasks", "items"),
    ),
    Pattern("silent", "*todo* task_tracker"),
    Pattern(
        "wait",
        "*output wait* kill* taskstop write_stdin close_agent send_input",
        ("task_id", "taskId", "agent_id", "bash_id", "shell_id", "session_id", "process_id", "id", "ids", "target"),
    ),
    Pattern("agent", "task agent *subagent* *sub_agent* *spawn_agent* new_task delegate* *slash_command slashcommand"),
    Pattern("ask", " ".join(QUESTION_TOOLS)),
    Pattern("read", _EDITORS, PATHS, ("view", "read", "Line")),
    Pattern(
        "change",
        _EDITORS,
        PATHS,
        ("create", "str_replace", "insert", "write", "append", "edit", "undo_edit", "delete", "rename"),
    ),
    Pattern(
        "read", "read* *read_file* *readfile* *read_text* *read_multiple* *get_file* view* cat open open_file", PATHS
    ),
    Pattern(
        "change",
        "write* *write_file* *writefile* edit* *edit *edit_file* *replace* create* *create_file* *create_or_update* "
        "insert* *insert* append* save* delete* *delete_file* remove* move* *move_file* rename* *modify* *patch* "
        "*diff*",
        PATHS,
    ),
    Pattern("patch", "*patch* *diff*"),
    Pattern("run", "*", COMMANDS),
    Pattern("run", "*exec* *run* *python* *interpreter* *jupyter* *eval*", ("code",)),
    Pattern("change", "edit insert"),
    # In OpenHands an empty command asks for more output of the one that still runs.
    Pattern("wait", "*bash* *shell* *terminal* exec*", commands=("",)),
)
"""The first pattern that fits tells the kind. Most ask for an argument: names alone tell little (`create_issue`)."""
# APIs allow names of 64 to 128 characters. A client may send a megabyte.
_NAME_CHARACTERS = 256


@lru_cache(maxsize=1_024)
def _compile_globs(globs: tuple[str, ...]) -> re.Pattern[str]:
    """Compile globs of policies. Never names of requests: timing would tell one tenant which names others use."""
    return re.compile("|".join(translate(glob.lower()) for glob in globs) or r"(?!)")


def find_kind(call: ToolCall) -> Kind:
    """Return the kind of a call: `other` if no pattern matches, as for most tools."""
    return call.recall("kind", lambda call: _match_patterns(call.name, call.named))


def _match_patterns(tool: str, values: Mapping[str, Any]) -> Kind:
    name = remove_server_name(tool[:_NAME_CHARACTERS]).lower()
    arguments = {key for key, value in values.items() if value}
    for pattern in PATTERNS:
        if pattern.by and arguments.isdisjoint(pattern.by):
            continue
        if pattern.commands and values.get("command") not in pattern.commands:
            continue
        if pattern.names.match(name):
            return pattern.kind
    return "other"


def is_read_only(tool: str) -> bool:
    """Return whether a tool, by its name, may be called again without harm."""
    return reads_by_name(remove_server_name(tool[:_NAME_CHARACTERS]))


def is_acting_tool(call: ToolCall) -> bool:
    """Return whether a tool acts on the world, by its name. An agent's own state and files are not the world."""
    if find_kind(call) != "other" or matches_any(call.name, EXEMPT):
        return False
    return acts_by_name(remove_server_name(call.name[:_NAME_CHARACTERS]))


def remove_server_name(tool: str) -> str:
    """Return `read_file` for `mcp__fs__read_file` and for `fs.read_file`."""
    return re.split(r"__|[./:]", tool)[-1]


def matches_any(tool: str, globs: tuple[str, ...]) -> bool:
    name, pattern = tool[:_NAME_CHARACTERS], _compile_globs(globs)
    return bool(pattern.match(name.lower()) or pattern.match(remove_server_name(name).lower()))


Hint = tuple[str, str, str]
"""A glob, then `keep`, `strip`, `remove` or "" for the request and the response of its calls."""


def find_modes(tool: str, hints: tuple[Hint, ...]) -> tuple[str, str]:
    """Return the modes of request and response, each by the first hint that sets it."""
    request_mode, response_mode = "", ""
    for glob, hint_request_mode, hint_response_mode in hints:
        if matches_any(tool, (glob,)):
            request_mode = request_mode or hint_request_mode
            response_mode = response_mode or hint_response_mode
    return request_mode, response_mode


def keeps_result(call: ToolCall | None, hints: tuple[Hint, ...]) -> bool:
    return call is not None and find_modes(call.name, hints)[1] == "keep"


def is_read(call: ToolCall) -> bool:
    """Return whether a call reads a file. An editor that does several things reads if its call says nothing else."""
    return _match_patterns(call.name, {"path": ".", "command": "view", **call.named}) == "read"
