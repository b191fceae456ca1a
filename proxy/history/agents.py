"""Conventions of agents: names of their tools, observations in user messages, requests beside the conversation."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import translate
from functools import lru_cache
from itertools import accumulate, dropwhile, islice
from operator import or_
from typing import Any, Literal

from proxy.history import splice
from proxy.history.grouping import Pins, find_pin_fault
from proxy.history.messages import HEAD, Message, Request, ToolCall

# --- tools ------------------------------------------------------------------------------------------------------------
# Tools by name: globs that select them, the kinds of their calls, and the definitions that a request offers.

ASKING = (
    *("askuser*", "*ask_user*", "ask_followup_question", "ask_human*", "request_user_input", "question"),
    *("ask_questions", "*askquestion*"),
)
"""Tools that ask a person. Others with such a name ask a model or a search, whose answers are no words of the user."""


@dataclass(frozen=True, slots=True)
class StateTool:
    """A kind of tool whose results are instructions, state or a person's answers, and which agents have it."""

    glob: str
    examples: str
    """Names by which agents call it."""
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
"""Tools of skills, tasks, todos, questions, memory and plans: instructions, state, and a person's answers."""
STATEFUL = tuple(tool.glob for tool in STATE_TOOLS if not tool.is_folded)
"""Those of them that a fold keeps as well."""

PATHS = (
    *("file_path", "path", "filePath", "filename", "file_name", "absolute_path", "target_file", "notebook_path"),
    *("file", "paths", "files", "filepath", "source", "destination"),
)
"""Arguments that name files, in the agents' own spellings."""
COMMANDS = ("command", "cmd", "commands", "script")
PLANS = ("todos", "plan", "task_list", "todoList", "todo_list", "tasks", "items")
IDS = ("task_id", "taskId", "agent_id", "bash_id", "shell_id", "session_id", "process_id", "id", "ids", "target")
"""Arguments that name something still going on."""
_FIRST_LINES = ("start_line", "startLine", "line_start", "start_line_one_indexed", "offset")
_LAST_LINES = ("end_line", "endLine", "line_end", "end_line_one_indexed_inclusive")
"""Arguments that say from which line to which."""
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
"""The first that fits says what a call does. A name alone says little (`create_issue`, `modify_order`): most patterns
ask for an argument as well.
"""


_NAME_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_READING_WORDS = frozenset(
    (
        *("get", "list", "ls", "read", "cat", "view", "show", "look", "lookup", "search", "find", "grep"),
        *("glob", "fetch", "query", "retrieve", "load", "browse", "inspect", "describe", "explain", "status"),
        *("count", "calculate", "compare", "diff", "snapshot", "screenshot", "tree", "think", "resolve"),
        *("analyze", "history", "rg", "ripgrep"),
    )
)
_ACTING_WORDS = frozenset(
    (
        *("create", "add", "insert", "write", "append", "save", "set", "put", "patch", "update", "edit"),
        *("modify", "replace", "rename", "move", "copy", "delete", "remove", "cancel", "close", "clear"),
        *("reset", "mark", "send", "post", "reply", "submit", "publish", "upload", "pay", "refund", "charge"),
        *("transfer", "order", "buy", "book", "apply", "approve", "merge", "push", "commit", "deploy"),
        *("release", "install", "run", "exec", "execute", "start", "stop", "restart", "kill", "click", "type"),
        *("fill", "press", "call", "invoke", "trigger", "exchange"),
    )
)

# APIs allow 64 to 128 characters. A client may send a megabyte.
_NAME_CHARACTERS = 256


@lru_cache(maxsize=1_024)
def _compile_globs(globs: tuple[str, ...]) -> re.Pattern[str]:
    """The globs as one pattern for names in lower case; no glob matches no name.

    Globs come from policies. What comes from requests is not cached here: the time that it takes to match a name must
    not tell which names the tools of other tenants have.
    """
    return re.compile("|".join(translate(glob.lower()) for glob in globs) or r"(?!)")


_COMPILED_PATTERNS = tuple((each, _compile_globs(tuple(each.tools.split())), frozenset(each.by)) for each in PATTERNS)


def find_kind(tool: str, values: Mapping[str, Any]) -> Kind:
    """The kind of a call with these arguments; `other` where no pattern matches, as for most tools."""
    name = remove_server_name(tool[:_NAME_CHARACTERS]).lower()
    given = {key for key, value in values.items() if value}
    for pattern, names, by in _COMPILED_PATTERNS:
        fits = not by or not given.isdisjoint(by)
        if fits and (not pattern.commands or values.get("command") in pattern.commands) and names.match(name):
            return pattern.kind
    return "other"


def is_read_only(tool: str) -> bool:
    """True where a tool, by its name, returns something and changes nothing, so that it may be called again."""
    words = {word.lower() for word in _NAME_WORD.findall(remove_server_name(tool[:_NAME_CHARACTERS]))}
    return not words.isdisjoint(_READING_WORDS) and words.isdisjoint(_ACTING_WORDS)


def is_plan_mode(call: ToolCall) -> bool:
    """Whether a call enters or leaves an agent's plan mode."""
    return matches_any(call.name, PLAN_MODE)


def remove_server_name(tool: str) -> str:
    """The tool's own name: `read_file` of `mcp__fs__read_file` and of `fs.read_file`."""
    return re.split(r"__|[./:]", tool)[-1]


def matches_any(tool: str, globs: tuple[str, ...]) -> bool:
    """True where one of the globs matches this tool, with or without the server that it comes from."""
    name, pattern = tool[:_NAME_CHARACTERS], _compile_globs(globs)
    return bool(pattern.match(name.lower()) or pattern.match(remove_server_name(name).lower()))


Hint = tuple[str, str, str]
"""A tool (glob), then `keep`, `strip`, `remove` or "" (not named) for the request and the response of its calls."""


def find_modes(tool: str, hints: tuple[Hint, ...]) -> tuple[str, str]:
    """The modes of the request and of the response of this tool's calls: for each, of the first hint that names it."""
    if not hints:
        return "", ""
    matching = [hint for hint in hints if matches_any(tool, hint[:1])]
    return next((hint[1] for hint in matching if hint[1]), ""), next((hint[2] for hint in matching if hint[2]), "")


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


def is_read(call: ToolCall) -> bool:
    """True where the call reads a file; one editor for everything is taken to, where its arguments are not known."""
    return find_kind(call.name, {"path": ".", "command": "view", **call.named}) == "read"


def find_value(values: Mapping[str, Any], names: Iterable[str]) -> Any:  # noqa: ANN401 - JSON
    """The first of these arguments that says something; None where none does."""
    return next((values[name] for name in names if values.get(name)), None)


def render_value(value: Any) -> str:  # noqa: ANN401 - JSON
    """A JSON value as text; a string without its quotes."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return "…"


def find_command_line(values: Mapping[str, Any]) -> str:
    """The command line that a call runs; of a shell with a script as its argument, the script."""
    value = find_value(values, (*COMMANDS, "code")) or ""
    if not isinstance(value, list):
        return render_value(value)
    is_script = len(value) > 1 and value[1] in ("-c", "-lc")
    return render_value(value[-1]) if is_script else " ".join(map(render_value, value))


def split_commands(line: str, ends: re.Pattern[str] = _COMMAND_ENDS) -> list[str]:
    """The simple commands of a command line, without comments. A quoted text that is no single word becomes `?`."""
    line = _COMMENT.sub("", line) if "#" in line else line
    return [part for part in ends.split(_QUOTED.sub(_unquote, line)) if part.strip()]


def skip_words_before_command(words: Sequence[str]) -> list[str]:
    """The words of a simple command from its program on."""
    return list(dropwhile(lambda word: word in _BEFORE_COMMAND or "=" in word, words))


def _unquote(quoted: re.Match[str]) -> str:
    text = quoted[0][1:-1]
    return text if _PLAIN_WORD.fullmatch(text) else "?"


def remove_folder_change(command: str) -> str:
    """The command line without a change of the folder at its beginning."""
    moved = _CHANGE_OF_FOLDER.match(command)
    return command[moved.end() :] if moved and moved.end() < len(command) else command


def find_requested_lines(values: Mapping[str, Any]) -> tuple[int, int] | None:
    """The first and the last line that a call asks for, 0 for the last there is; None where it names none."""
    match values:
        case {"view_range": [int(first), int(last)]} | {"read_range": [int(first), int(last)]}:
            return first, max(0, last)
    first, last, count = (
        value if isinstance(value := find_value(values, names), int) else 0
        for names in (_FIRST_LINES, _LAST_LINES, ("limit",))
    )
    first = max(first, int(count > 0))
    return (first, first + count - 1 if count > 0 else max(0, last)) if first > 0 else None


# --- observations -----------------------------------------------------------------------------------------------------
# Observations: messages in the role of a user in which an environment speaks, not a person.
#
# Agents without tools run the commands in a model's answer and send the output back as a user message. Patterns find
# such messages. A pattern can be wrong, and a person's words must never be folded as if they were output, so four
# limits hold. A message is a person's before the first answer of the model; in any history that holds tool calls or
# results, because such an agent sends its output as results; where it holds a pin; and where words are beside the
# output, after a closing `</output>` or in a `<feedback>` of their own.
#
# Agents whose output matches no pattern are known by what their messages have in common: each follows an answer
# with something to be run, and has the role of the system, or another name than the person, or begins with the same
# words each time. The first examples stay as they are: only from the third on is it sure that no person writes them.
#
# Some clients add the output to the answer that asked for it: "Action: ..." and, below it, "Observation: ..." in one
# message of the assistant. There the output alone is an observation; what the model said before it stays.

OBSERVATIONS = (
    r"^\s*(?:Observation|OBSERVATION|Tool output|Tool result|Command output|Code output|EXECUTION RESULT)\b[^\n]*:",
    r"^\s*<(?:returncode|output|observation|tool_response|function_results?|result)>",
    r"\nbash-\$\s*$",
    r"^\s*I ran this command:\n",
    r"^\[\w+(?: for '[^\n]*')?\] Result:",
)
NO_PINS = Pins()
MOST_CHARACTERS = 1_000
"""What a pattern sees of a message: its first and its last characters. A search may take the square of this."""
MAX_ANCHORED_REPETITIONS = 2
_OPENING_TAG = re.compile(r"\s*<(\w+)>")
# Where agents that know tools by text only put what a person answered to a result.
_USER_TAGS = re.compile(r"^<(?:feedback|answer|user_message)>$", re.MULTILINE)
_NUMBER = re.compile(r"\d+")


EXAMPLES_MIN = 2
"""So many earlier messages of one sort must follow answers that run something, and none may be elsewhere."""
OUTPUT_MIN_CHARACTERS = 500
"""Shorter messages are not worth shortening, and stay."""
_BEGINNING_CHARACTERS = 40
_BEGINNING_LETTERS_MIN = 6
_OUTPUT_WITHIN = re.compile(r"^Observation:", re.MULTILINE)
_FENCED = re.compile(r"^\s{0,8}```\w", re.MULTILINE)
_SENTENCE = re.compile(r"\s*[A-Z][^\n]{8,}[.?!]\s*")


def find_pattern_fault(pattern: str) -> str | None:
    """The fault of a pattern for observations, or None: one that begins with ^ may repeat two things."""
    return find_pin_fault(pattern, repetitions=MAX_ANCHORED_REPETITIONS if pattern.startswith("^") else 1)


@lru_cache(maxsize=1_024)
def _compile(pattern: str) -> re.Pattern[str] | None:
    """The compiled pattern; None for one that is refused (configuration reports it, here it matches nothing)."""
    return None if find_pattern_fault(pattern) else re.compile(pattern)


def is_text_style(body: Iterable[Message]) -> bool:
    """True where a history holds no tool call and no result, so that output can only be in user messages."""
    return not any(message.is_result or message.calls for message in body)


def mark_observations(
    body: tuple[Message, ...], patterns: tuple[str, ...], pins: Pins = NO_PINS, *, text_style: bool = False
) -> tuple[Message, ...]:
    """The same messages, marked as observations where an environment speaks as a user or within an answer.

    `text_style`: there is a block from before the first tool call. Messages before that call are read as they
    were read then, or the messages that were forwarded already would change.
    """
    if not patterns or not (text_style or is_text_style(body)):
        return body
    answered, before = False, None
    reminders = set[str]()
    environment = _Environment(next((_name_speaker(message) for message in body if message.role == "user"), ""))
    marked: list[Message] = []
    for place, message in enumerate(body):
        if message.is_result or message.calls:
            marked += body[place:]
            break
        is_output = message.role == "assistant" and _holds_output(message.text) and not pins.stand_in(message.text)
        if answered and message.role != "assistant":
            is_user = message.role == "user"
            is_output = is_user and _is_output(message.text, patterns, pins, reminders)
            is_output = is_output or (environment.is_output(message, before) and not pins.stand_in(message.text))
        marked.append(replace(message, is_observation=True) if is_output else message)
        answered = answered or message.role == "assistant"
        before = before if message.role in HEAD else message
    return tuple(marked)


def find_output_within(text: str) -> int:
    """The place in an answer where its client has put the output behind the action that asked for it; 0 for none."""
    found = _OUTPUT_WITHIN.search(text) if "bservation:" in text else None
    return found.start() if found and _RUNS_SOMETHING.search(text, 0, found.start()) else 0


def _holds_output(text: str) -> bool:
    start = find_output_within(text)
    return start > 0 and len(text) - start >= OUTPUT_MIN_CHARACTERS


class _Environment:
    """The sorts of messages seen so far that may be output, each with how often it followed an answer that runs
    something, and whether it was elsewhere.
    """

    def __init__(self, person: str) -> None:
        self._person = person
        self._examples: dict[str, int] = {}
        self._elsewhere = set[str]()
        self._beginnings = set[str]()
        self._ends = set[str]()

    def is_output(self, message: Message, before: Message | None) -> bool:
        """True where a message is output; it counts as an example from now on. `before`: who spoke before it, the
        system left out.
        """
        text = message.text
        name = _name_speaker(message)
        beginning = "" if message.role in HEAD or name != self._person else _begin_alike(text)
        sort = message.role if message.role in HEAD else f"name {name}" if name != self._person else beginning
        if before is None or before.role != "assistant" or not _runs_something(before.text):
            self._elsewhere.add(sort)
            return False
        if message.role == "user" and name == self._person:
            self._beginnings.add(beginning)
        end = text.rstrip().rpartition("\n")[2]
        # A sentence at the end that was not there before may be what a person asks about the output.
        is_asked = bool(beginning and _SENTENCE.fullmatch(end) and end not in self._ends)
        self._ends.add(end)
        known = self._examples.get(sort, 0)
        self._examples[sort] = known + 1
        is_alike = sort != "" and sort not in self._elsewhere and (not beginning or len(self._beginnings) == 1)
        is_long = len(text) >= OUTPUT_MIN_CHARACTERS
        return is_alike and is_long and known >= EXAMPLES_MIN and not is_asked and not _USER_TAGS.search(text)


def _runs_something(text: str) -> bool:
    return _FENCED.search(text) is not None or _RUNS_SOMETHING.search(text) is not None


def _begin_alike(text: str) -> str:
    """The words with which a message begins, without numbers; empty where it begins with hardly any."""
    line = text.lstrip().partition("\n")[0][:_BEGINNING_CHARACTERS]
    beginning = " ".join(_NUMBER.sub("", line).split())
    return beginning if sum(letter.isalpha() for letter in beginning) >= _BEGINNING_LETTERS_MIN else ""


def _name_speaker(message: Message) -> str:
    """The `name` of a message; empty where it has none."""
    if b'"name"' not in message.raw:
        return ""
    name = json.loads(message.raw).get("name")
    return name if isinstance(name, str) else ""


def _is_output(text: str, patterns: Iterable[str], pins: Pins, reminders: set[str]) -> bool:
    """True where a message is output and nothing else.

    `reminders` are words that were beside earlier outputs. The first time they may be a person's. Words that come
    again with every output are a reminder that the client adds ("3 steps left"), and keep nothing.
    """
    ends = text if len(text) <= 2 * MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}\n{text[-MOST_CHARACTERS:]}"
    rules = filter(None, map(_compile, patterns))
    if not any(rule.search(ends) for rule in rules) or pins.stand_in(text) or _USER_TAGS.search(text):
        return False
    beside = _NUMBER.sub("", find_words_beside_output(text))
    is_reminder = beside in reminders
    reminders.add(beside)
    return not beside or is_reminder


def find_words_beside_output(text: str) -> str:
    """The text after the elements that a message begins with; empty where it begins with none."""
    end = 0
    while opening := _OPENING_TAG.match(text, end):
        closing = f"</{opening[1]}>"
        stop = text.find(closing, opening.end())
        if stop < 0:
            break
        end = stop + len(closing)
    return text[end:].strip() if end else ""


# --- asides -----------------------------------------------------------------------------------------------------------
# Compaction commands inside a conversation, and side requests that clients make about the conversation.
#
# `/compact` as the last message is meant for this proxy, where a person wrote it: a file may say that too, and an agent
# without tools sends what it read as a user message. A call of an offered tool named `Compact` is a request by the
# model. And a client that summarises a conversation by itself, or gives it a title, sends the whole history once more
# with another question at its end (an *aside*): the current block applies to that too, but no new one is made for it.

_TALK = "(?:conversation|session|transcript|chat|context|discussion)"
ASIDES = (
    rf"(?i)summar[^\n]{{0,160}}\b(?:this|our|the above|the entire|the whole|partial|current|chat) {_TALK}\b",
    rf"(?i)summar[^\n]{{0,160}}\b{_TALK}(?: history)?(?: so far| above| until now| to date|[.,:;!?\n]|$)",
    r"(?i)\btitle\b[^\n]{0,80}\b(?:conversation|session|chat|thread)\b",
    r"(?i)\bname (?:for|of|to)? ?(?:this|our|the) (?:conversation|session|chat|thread)\b",
    r"(?i)\bcompact[^\n]{0,80}\b(?:(?:this|our) (?:context|history)|(?:this|our|the) (?:conversation|chat|session))\b",
    r"(?i)context (?:checkpoint|compaction)",
    r"(?i)\b(?:prompt|handoff|handover)\b[^\n]{0,80}\b(?:this|our|the) (?:conversation|session|chat)\b",
    r"(?i)<state_snapshot>",
    r"(?i)\b(?:write|generate|create|suggest)[^\n]{0,60}commit message",
)
COMPACT = "compact"
_COMMAND = re.compile(r"\s*/compact(?:[ \t]+([^\n]*))?\s*\Z", re.IGNORECASE)
# What agents put beside a person's words, in the same message.
_REMINDER_START, _REMINDER_END = "<system-reminder>", "</system-reminder>"
_REMINDER_CHARACTERS = 50_000
_HARNESS_OPENING = re.compile(
    r"\s*<(system-reminder|task-notification|turn_aborted|local-command-[a-z]{1,20}|bash-std(?:out|err))>"
)
_RULES_IN_FORCE = re.compile(r"skill|plan mode|(?:agents|claude|gemini|qwen)(?:\.\w{1,10})?\.md|rules", re.IGNORECASE)
_COMMANDS = (b"/compact", b"/Compact", b"/COMPACT")
_CALLS = (b'"Compact"', b'"compact"')
# A command begins a text, or follows a reminder that the client put before it; `What does /compact do?` is none.
_COMMAND_PLACE = re.compile(rb'(?:"|\\n|>) *(?:/compact|/Compact|/COMPACT)')
_END_CHARACTERS = 2_000
_MOSTLY_OUTPUT_RATIO = 3
# How agents that know tools by text only ask for one: a block of shell or Python, an action, an element.
_RUNS_SOMETHING = re.compile(
    r"^\s{0,8}```(?:bash|sh|shell|console|python|tool_code|execute)\b|^\s{0,8}(?:Action|Command|Tool)\s{0,4}:"
    r"|^\s{0,8}<(?:execute|function|tool|invoke|command|action|bash|run|read|write|edit|search|list|ls|use)\w{0,40}[\s=>]",
    re.MULTILINE,
)


def find_command(request: Request, observations: tuple[str, ...] = ()) -> str | None:
    """The focus of a `/compact` that ends the history and is a person's own; None where there is none.

    `observations`: the patterns by which output is known in the role of a user.
    """
    last = request.messages[-1]
    if last.role != "user" or len(last.raw) > _REMINDER_CHARACTERS:
        return None
    text = remove_reminders(last.text)
    found = _COMMAND.match(text) if len(text) < _END_CHARACTERS else None
    return None if found is None or _may_be_output(request.body, observations) else (found[1] or "").strip()


def is_harness_note(text: str) -> bool:
    """Whether a message in the user's role holds nothing but what a client says by itself, and no rules in force.

    <system-reminder>The file a.py was changed.</system-reminder>
    """
    end = 0
    while opening := _HARNESS_OPENING.match(text, end):
        closing = f"</{opening[1]}>"
        stop = text.find(closing, opening.end())
        if stop < 0:
            return False
        end = stop + len(closing)
    return end > 0 and not text[end:].strip() and _RULES_IN_FORCE.search(text) is None


def remove_reminders(text: str) -> str:
    """Return the text without its reminders; one that does not end stays, with all that follows it."""
    remaining: list[str] = []
    start, opening = 0, text.find(_REMINDER_START)
    while opening >= 0:
        end = text.find(_REMINDER_END, opening)
        if end < 0:
            break
        remaining.append(text[start:opening])
        start = end + len(_REMINDER_END)
        opening = text.find(_REMINDER_START, start)
    remaining.append(text[start:])
    return "".join(remaining)


def find_compact_call(request: Request) -> str | None:
    """The focus of a call of `Compact` in the newest answer of the model, where the client offers such a tool."""
    newest = next((message for message in reversed(request.messages) if message.role == "assistant"), None)
    calls = newest.calls if newest is not None else ()
    focus = next((_find_focus(call) for call in calls if call.name.lower() == COMPACT), None)
    is_offered = focus is not None and any(name.lower() == COMPACT for name in list_tool_names(request.tools))
    return focus if is_offered else None


def _may_be_output(body: tuple[Message, ...], observations: tuple[str, ...]) -> bool:
    """True where the last message, in the role of a user, may be output of an environment.

    Where tools are called, their output comes as results. Without tools it may be if it matches a pattern, if the
    answer before it holds something to be run, or if what the user says outweighs what the model says by far: then it
    is an agent that sends what it read, and not a person who chats.
    """
    if not is_text_style(body):
        return False
    if mark_observations(body, observations)[-1].is_observation:
        return True
    first = next((place for place, message in enumerate(body) if message.role == "assistant"), len(body))
    user_size = sum(len(message.content) for message in body[first:-1] if message.role == "user")
    answers = [message for message in body[first:] if message.role == "assistant"]
    answer_size = sum(len(message.content) for message in answers)
    is_fed = user_size > max(_END_CHARACTERS, _MOSTLY_OUTPUT_RATIO * answer_size)
    return is_fed or any(_RUNS_SOMETHING.search(answer.text) for answer in answers[-1:])


def was_asked(request: Request) -> bool:
    """True where the history holds a request for compaction: then there may be a block, however short it is."""
    body, source = request.body, request.source
    if not body:
        return _asks(source)

    def look(known: Sequence[bool]) -> Iterator[bool]:
        found = accumulate((_asks(message.raw) for message in body[len(known) :]), or_, initial=known[-1:] == (True,))
        return islice(found, 1, None)

    before, behind = source[: request.offsets[request.head_size]], source[request.find_end(len(request.messages)) :]
    return request.columns.extend(was_asked, len(body), look)[-1] or _asks(before) or _asks(behind)


def _asks(source: bytes) -> bool:
    if b"ompact" not in source and b"COMPACT" not in source:
        return False
    if any(call in source for call in _CALLS):
        return True
    return any(command in source for command in _COMMANDS) and _COMMAND_PLACE.search(source) is not None


def is_aside(body: tuple[Message, ...], patterns: tuple[str, ...]) -> bool:
    """True where the last message is a question about the conversation itself."""
    if not body or not body[-1].is_user:
        return False
    text = body[-1].text
    ends = text if len(text) <= 2 * _END_CHARACTERS else f"{text[:_END_CHARACTERS]}\n{text[-_END_CHARACTERS:]}"
    return any(re.search(pattern, ends) for pattern in patterns)


def _find_focus(call: ToolCall) -> str:
    focus = call.named.get("focus")
    return focus if isinstance(focus, str) else ""
