"""Calls as agents make them: tables of tools by the names of tool and arguments, and command lines."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import translate
from functools import cached_property, lru_cache
from typing import Any, Literal

from msgspec import Struct

from proxy.history.messages import ToolCall


class StateTool(Struct, frozen=True):
    """A kind of tool whose results are instructions, state or a person's answers."""

    glob: str
    examples: str
    is_folded: bool = False
    """The newest results stay when results are cleared, but not in a fold."""
    asks: bool = False
    """It asks a person, and not a model or a search."""


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
    StateTool("askuser*", "AskUserQuestion (Claude Code)", asks=True),
    StateTool("*ask_user*", "ask_user (Gemini CLI)", asks=True),
    StateTool("ask_followup_question", "ask_followup_question (Cline)", asks=True),
    StateTool("ask_human*", "ask_human (LangGraph)", asks=True),
    StateTool("request_user_input", "request_user_input (Codex)", asks=True),
    StateTool("question", "question (opencode)", asks=True),
    StateTool("ask", "Ask (j-cli)"),
    StateTool("*ask_questions*", "ask_questions (Copilot)", asks=True),
    StateTool("*askquestion*", "vscode_askQuestions (Copilot), AskQuestion (Cursor)", asks=True),
    StateTool("*memory*", "save_memory (Gemini CLI)", is_folded=True),
    StateTool("*plan_mode", "exit_plan_mode (Qwen Code)", is_folded=True),
    StateTool("*planmode", "ExitPlanMode (Claude Code), EnterPlanMode (Claude Code)", is_folded=True),
    StateTool("plan_mode_respond", "plan_mode_respond (Cline)", is_folded=True),
    StateTool("create_plan", "create_plan (Cursor)", is_folded=True),
    StateTool("compact", "Compact (j-cli)", is_folded=True),
)
EXEMPT = tuple(tool.glob for tool in STATE_TOOLS)
"""A fold keeps only those of `STATEFUL`."""
STATEFUL = tuple(tool.glob for tool in STATE_TOOLS if not tool.is_folded)

PATHS = (
    *("file_path", "path", "filePath", "filename", "file_name", "absolute_path", "target_file", "notebook_path"),
    *("file", "paths", "files", "filepath", "source", "destination"),
)
COMMANDS = ("command", "cmd", "commands", "script")

Kind = Literal["plan", "agent", "wait", "ask", "read", "change", "patch", "run", "silent", "other"]


class Pattern(Struct, frozen=True, dict=True):  # with a dict: its globs are compiled once
    """Globs of the tool's name, arguments of which it has one, and values of `command`."""

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
    Pattern("agent", "task agent *subagent* *sub_agent* *spawn_agent* new_task delegate*"),
    Pattern("ask", " ".join(tool.glob for tool in STATE_TOOLS if tool.asks)),
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
)
"""The first that fits tells the kind. Names alone tell little (`create_issue`, `modify_order`)."""
_NAME_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
NAME_WORDS = {
    "reads, if it is the first word": "get list read find search show view describe fetch",
    "reads": (
        "ls cat look lookup grep glob query retrieve load browse inspect explain status count calculate compare diff "
        "snapshot screenshot tree think resolve analyze history rg ripgrep"
    ),
    "changes files or programs": (
        "create add insert write append save set put patch update edit modify replace rename move copy delete remove "
        "close clear reset mark reply upload commit install run exec execute start stop restart kill click type fill "
        "press call invoke trigger exchange"
    ),
    "acts on the world": (
        "apply approve book buy cancel charge deploy merge order pay post publish push refund release send submit "
        "transfer"
    ),
    "acts on the world, or names what another word reads": (
        "destroy invoice migrate payout promote provision purge revoke rollback rollout terminate withdraw"
    ),
}
FIRST_READING_WORDS, _READING_WORDS, _CHANGING_WORDS, _ACTING_WORDS, _OTHER_ACTING_WORDS = map(
    frozenset, map(str.split, NAME_WORDS.values())
)
ACTING_WORDS = _ACTING_WORDS | _OTHER_ACTING_WORDS

# APIs allow 64 to 128 characters. A client may send a megabyte.
_NAME_CHARACTERS = 256


@lru_cache(maxsize=1_024)
def _compile_globs(globs: tuple[str, ...]) -> re.Pattern[str]:
    """Only for globs of policies: cached names of requests would tell other tenants by timing."""
    return re.compile("|".join(translate(glob.lower()) for glob in globs) or r"(?!)")


def find_kind(tool: str, values: Mapping[str, Any]) -> Kind:
    """`other` if no pattern matches, as for most tools."""
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
    """Whether a tool, by its name, may be called again without harm."""
    words = list_name_words(remove_server_name(tool[:_NAME_CHARACTERS]))
    may_harm = not (_CHANGING_WORDS | _ACTING_WORDS).isdisjoint(words)
    return not may_harm and not (FIRST_READING_WORDS | _READING_WORDS).isdisjoint(words)


def list_name_words(name: str) -> list[str]:
    """`read` and `file` of `readFile` and of `read_file`."""
    return list(map(str.lower, _NAME_WORD.findall(name)))


def is_plan_mode(call: ToolCall) -> bool:
    return matches_any(call.name, ("*plan_mode", "*planmode", "plan_mode_respond"))


def remove_server_name(tool: str) -> str:
    """`read_file` of `mcp__fs__read_file` and of `fs.read_file`."""
    return re.split(r"__|[./:]", tool)[-1]


def matches_any(tool: str, globs: tuple[str, ...]) -> bool:
    name, pattern = tool[:_NAME_CHARACTERS], _compile_globs(globs)
    return bool(pattern.match(name.lower()) or pattern.match(remove_server_name(name).lower()))


Hint = tuple[str, str, str]
"""A glob, then `keep`, `strip`, `remove` or "" for the request and the response of its calls."""


def find_modes(tool: str, hints: tuple[Hint, ...]) -> tuple[str, str]:
    """The modes of request and response, each of the first hint that sets it."""
    request_mode, response_mode = "", ""
    for glob, hint_request_mode, hint_response_mode in hints:
        if matches_any(tool, (glob,)):
            request_mode = request_mode or hint_request_mode
            response_mode = response_mode or hint_response_mode
    return request_mode, response_mode


def is_read(call: ToolCall) -> bool:
    """So is an editor for everything, without arguments."""
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
    """The first and the last line, 0 for the end of the file."""
    match values:
        case {"view_range": [int(first), int(last)]} | {"read_range": [int(first), int(last)]}:
            return first, max(0, last)
    first = _find_number(values, ("start_line", "startLine", "line_start", "start_line_one_indexed", "offset"))
    last = _find_number(values, ("end_line", "endLine", "line_end", "end_line_one_indexed_inclusive"))
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
_PLAIN_WORD = re.compile(r"[\w./~@%+,:=\[\]-]*")
_CHANGE_OF_FOLDER = re.compile(r"\s*cd \S+ *(?:&&|;|\n)\s*")


def find_command_line(values: Mapping[str, Any]) -> str:
    """Of a shell with a script as its argument, the script."""
    value = find_value(values, (*COMMANDS, "code")) or ""
    if not isinstance(value, list):
        return render_value(value)
    if len(value) > 1 and value[1] in ("-c", "-lc"):
        return render_value(value[-1])
    return " ".join(map(render_value, value))


def split_commands(line: str) -> list[str]:
    """Without comments. A quoted text that is no single word becomes `?`."""
    if "#" in line:  # only whole lines: a "#" after a command may be quoted
        line = "\n".join([text for text in line.split("\n") if not text.lstrip(" \t").startswith("#")])
    line = _QUOTED.sub(_unquote, line)
    for end in ("&&", "|", "\n"):
        line = line.replace(end, ";")
    return list(filter(str.strip, line.split(";")))


def _unquote(quoted: re.Match[str]) -> str:
    text = quoted[0][1:-1]
    if _PLAIN_WORD.fullmatch(text):
        return text
    return "?"


def skip_words_before_command(words: Sequence[str]) -> list[str]:
    """`make` of `sudo CC=gcc make`."""
    shell_words = {"if", "then", "elif", "else", "while", "until", "do", "!", "(", "{"}
    programs = {"sudo", "time", "env", "exec", "nohup", "command"}
    for place, word in enumerate(words):
        if word not in shell_words and word not in programs and "=" not in word:
            return list(words[place:])
    return []


def remove_folder_change(command: str) -> str:
    change = _CHANGE_OF_FOLDER.match(command)
    if change is None or change.end() == len(command):
        return command
    return command[change.end() :]
