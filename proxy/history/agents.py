"""Calls as agents make them: tables of their tools by the names of tool and arguments, and their command lines."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import translate
from functools import lru_cache
from typing import Any, Literal

from proxy.history.messages import ToolCall

ASKING = (
    *("askuser*", "*ask_user*", "ask_followup_question", "ask_human*", "request_user_input", "question"),
    *("ask_questions", "*askquestion*"),
)
"""Tools that ask a person. Others with such a name ask a model or a search."""


@dataclass(frozen=True, slots=True)
class StateTool:
    """A kind of tool whose results are instructions, state or a person's answers."""

    glob: str
    examples: str
    is_folded: bool = False
    """The newest results stay when results are cleared, but not beside a fold."""


STATE_TOOLS = (
    StateTool("*skill*", "Skill (Claude Code), LoadSkill (j-cli)"),
    StateTool(
        "*todo*", "TodoWrite (Claude Code, j-cli), TodoRead (j-cli), todo_write (Cursor), manage_todo_list (Copilot)"
    ),
    StateTool("task", "Task (j-cli, Claude Code)"),
    StateTool("taskcreate", "TaskCreate (Claude Code)"),
    StateTool("taskupdate", "TaskUpdate (Claude Code)"),
    StateTool("tasklist", "TaskList (Claude Code)"),
    StateTool("taskget", "TaskGet (Claude Code)"),
    StateTool("task_tracker", "task_tracker (OpenHands)"),
    StateTool("new_task", "new_task (Cline)"),
    StateTool("update_plan", "update_plan (Codex)"),
    StateTool("askuser*", "AskUserQuestion (Claude Code)"),
    StateTool("*ask_user*", "ask_user (Gemini CLI)"),
    StateTool("ask_followup_question", "ask_followup_question (Cline)"),
    StateTool("ask_human*", "ask_human (LangGraph)"),
    StateTool("request_user_input", "request_user_input (Codex)"),
    StateTool("question", "question (opencode)"),
    StateTool("ask", "Ask (j-cli)"),
    StateTool("*ask_questions*", "ask_questions (Copilot)"),
    StateTool("*askquestion*", "vscode_askQuestions (Copilot), AskQuestion (Cursor)"),
    StateTool("*memory*", "save_memory (Gemini CLI)", is_folded=True),
    StateTool("*plan_mode", "exit_plan_mode (Qwen Code)", is_folded=True),
    StateTool("*planmode", "ExitPlanMode (Claude Code), EnterPlanMode (Claude Code)", is_folded=True),
    StateTool("plan_mode_respond", "plan_mode_respond (Cline)", is_folded=True),
    StateTool("create_plan", "create_plan (Cursor)", is_folded=True),
    StateTool("compact", "Compact (j-cli)", is_folded=True),
)
PLAN_MODE = ("*plan_mode", "*planmode", "plan_mode_respond")
EXEMPT = tuple(tool.glob for tool in STATE_TOOLS)
"""Instructions, state, and a person's answers; of `STATEFUL` a fold keeps them, too."""
STATEFUL = tuple(tool.glob for tool in STATE_TOOLS if not tool.is_folded)

PATHS = (
    *("file_path", "path", "filePath", "filename", "file_name", "absolute_path", "target_file", "notebook_path"),
    *("file", "paths", "files", "filepath", "source", "destination"),
)
COMMANDS = ("command", "cmd", "commands", "script")
PLANS = ("todos", "plan", "task_list", "todoList", "todo_list", "tasks", "items")
IDS = ("task_id", "taskId", "agent_id", "bash_id", "shell_id", "session_id", "process_id", "id", "ids", "target")
_FIRST_LINES = ("start_line", "startLine", "line_start", "start_line_one_indexed", "offset")
_LAST_LINES = ("end_line", "endLine", "line_end", "end_line_one_indexed_inclusive")

Kind = Literal["plan", "task", "step", "agent", "wait", "ask", "read", "change", "patch", "run", "silent", "other"]


@dataclass(frozen=True, slots=True)
class Pattern:
    """Globs of the tool's name, arguments of which it has one, and values of `command`."""

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
    Pattern("ask", " ".join(ASKING)),
    Pattern("read", _EDITORS, PATHS, _SEEING),
    Pattern("change", _EDITORS, PATHS, _EDITING),
    Pattern("read", _READERS, PATHS),
    Pattern("change", _WRITERS, PATHS),
    Pattern("patch", "*patch* *diff*"),
    Pattern("run", "*", COMMANDS),
    Pattern("run", "*exec* *run* *python* *interpreter* *jupyter* *eval*", ("code",)),
    Pattern("change", "edit insert"),
)
"""The first that fits tells the kind. Names alone tell little (`create_issue`, `modify_order`)."""


_NAME_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
NAME_WORDS = {
    "reads": (
        "get list ls read cat view show look lookup search find grep glob fetch query retrieve load browse inspect "
        "describe explain status count calculate compare diff snapshot screenshot tree think resolve analyze history "
        "rg ripgrep"
    ),
    "changes files or programs": (
        "create add insert write append save set put patch update edit modify replace rename move copy delete remove "
        "close clear reset mark reply upload commit install run exec execute start stop restart kill click type fill "
        "press call invoke trigger exchange"
    ),
    "acts on the world": (
        "apply approve book buy cancel charge deploy destroy invoice merge migrate order pay payout post promote "
        "provision publish purge push refund release revoke rollback rollout send submit terminate transfer withdraw"
    ),
}
"""What a tool does, by the words of its name."""
READING_WORDS, CHANGING_WORDS, ACTING_WORDS = map(frozenset, map(str.split, NAME_WORDS.values()))

# APIs allow 64 to 128 characters. A client may send a megabyte.
_NAME_CHARACTERS = 256


@lru_cache(maxsize=1_024)
def _compile_globs(globs: tuple[str, ...]) -> re.Pattern[str]:
    """Only for globs of policies: a cache of names from requests would tell other tenants by its timing."""
    return re.compile("|".join(translate(glob.lower()) for glob in globs) or r"(?!)")


_COMPILED_PATTERNS = tuple(
    (pattern, _compile_globs(tuple(pattern.tools.split())), frozenset(pattern.by)) for pattern in PATTERNS
)


def find_kind(tool: str, values: Mapping[str, Any]) -> Kind:
    """`other` if no pattern matches, as for most tools."""
    name = remove_server_name(tool[:_NAME_CHARACTERS]).lower()
    arguments = {key for key, value in values.items() if value}
    for pattern, names, by in _COMPILED_PATTERNS:
        if by and arguments.isdisjoint(by):
            continue
        if pattern.commands and values.get("command") not in pattern.commands:
            continue
        if names.match(name):
            return pattern.kind
    return "other"


def is_read_only(tool: str) -> bool:
    """Whether a tool, by its name, may be called again without harm."""
    words = list_name_words(remove_server_name(tool[:_NAME_CHARACTERS]))
    return not READING_WORDS.isdisjoint(words) and (CHANGING_WORDS | ACTING_WORDS).isdisjoint(words)


def list_name_words(name: str) -> list[str]:
    """`read` and `file` of `readFile` and of `read_file`."""
    return [word.lower() for word in _NAME_WORD.findall(name)]


def is_plan_mode(call: ToolCall) -> bool:
    return matches_any(call.name, PLAN_MODE)


def remove_server_name(tool: str) -> str:
    """`read_file` of `mcp__fs__read_file` and of `fs.read_file`."""
    return re.split(r"__|[./:]", tool)[-1]


def matches_any(tool: str, globs: tuple[str, ...]) -> bool:
    name, pattern = tool[:_NAME_CHARACTERS], _compile_globs(globs)
    return bool(pattern.match(name.lower()) or pattern.match(remove_server_name(name).lower()))


Hint = tuple[str, str, str]
"""A glob, then `keep`, `strip`, `remove` or "" (not named) for the request and the response of its calls."""


def find_modes(tool: str, hints: tuple[Hint, ...]) -> tuple[str, str]:
    """The modes of request and response, each of the first hint that sets it."""
    request_mode, response_mode = "", ""
    for glob, hint_request_mode, hint_response_mode in hints:
        if matches_any(tool, (glob,)):
            request_mode = request_mode or hint_request_mode
            response_mode = response_mode or hint_response_mode
    return request_mode, response_mode


def is_read(call: ToolCall) -> bool:
    """An editor for everything is taken for a reader if it has no arguments."""
    return find_kind(call.name, {"path": ".", "command": "view", **call.named}) == "read"


def find_value(values: Mapping[str, Any], names: Iterable[str]) -> Any:  # noqa: ANN401 - JSON
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


def find_requested_lines(values: Mapping[str, Any]) -> tuple[int, int] | None:
    """The first and the last line that a call asks for, 0 for the end of the file."""
    match values:
        case {"view_range": [int(first), int(last)]} | {"read_range": [int(first), int(last)]}:
            return first, max(0, last)
    first, last = _find_number(values, _FIRST_LINES), _find_number(values, _LAST_LINES)
    count = _find_number(values, ("limit",))
    if count > 0:
        first = max(first, 1)
        last = first + count - 1
    if first <= 0:
        return None
    return first, max(0, last)


def _find_number(values: Mapping[str, Any], names: Iterable[str]) -> int:
    value = find_value(values, names)
    if isinstance(value, int):
        return value
    return 0


_QUOTED = re.compile(r"'[^']*(?:'|\Z)|\"(?:[^\"\\]|\\.)*+(?:\"|\Z)", re.DOTALL)
# A line of its own: what is behind a command may be quoted.
_COMMENT = re.compile(r"^[ \t]{0,80}#[^\n]*$", re.MULTILINE)
_PLAIN_WORD = re.compile(r"[\w./~@%+,:=\[\]-]*")
_COMMAND_ENDS = re.compile(r"&&|\|\||[;|\n]")
_BEFORE_COMMAND = frozenset(
    (
        *("sudo", "time", "env", "if", "then", "elif", "else", "while", "until", "do", "!", "(", "{", "exec"),
        *("nohup", "command"),
    )
)
_CHANGE_OF_FOLDER = re.compile(r"\s*cd \S+ *(?:&&|;|\n)\s*")


def find_command_line(values: Mapping[str, Any]) -> str:
    """Of a shell with a script as its argument, the script."""
    value = find_value(values, (*COMMANDS, "code")) or ""
    if not isinstance(value, list):
        return render_value(value)
    if len(value) > 1 and value[1] in ("-c", "-lc"):
        return render_value(value[-1])
    return " ".join(map(render_value, value))


def split_commands(line: str, ends: re.Pattern[str] = _COMMAND_ENDS) -> list[str]:
    """Simple commands, without comments. A quoted text that is no single word becomes `?`."""
    if "#" in line:
        line = _COMMENT.sub("", line)
    return [command for command in ends.split(_QUOTED.sub(_unquote, line)) if command.strip()]


def skip_words_before_command(words: Sequence[str]) -> list[str]:
    """`make` of `sudo CC=gcc make`."""
    for place, word in enumerate(words):
        if word not in _BEFORE_COMMAND and "=" not in word:
            return list(words[place:])
    return []


def _unquote(quoted: re.Match[str]) -> str:
    text = quoted[0][1:-1]
    if _PLAIN_WORD.fullmatch(text):
        return text
    return "?"


def remove_folder_change(command: str) -> str:
    change = _CHANGE_OF_FOLDER.match(command)
    if change is None or change.end() == len(command):
        return command
    return command[change.end() :]
