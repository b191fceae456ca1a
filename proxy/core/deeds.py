"""Deeds, the entries of a ledger: things that were done, found or said, and the sections that list them."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from proxy.core.agents import COMMANDS, IDS, LINES, PATHS, PLANS, RANGES, Kind, meaning
from proxy.core.messages import ToolCall
from proxy.core.outcome import ResultOutcome, find_outcome

# --- deeds ------------------------------------------------------------------------------------------------------------

_EXCERPT_CHARACTERS = 160
_WORD_AT_END = re.compile(r"[A-Za-z0-9_+/=.~:@%-]+\Z")


@dataclass(frozen=True, slots=True)
class Section:
    """Entries of one sort: how one is rendered, and which of them are left out first."""

    title: str
    ended: str = " ({})"
    before: str = "\n- "
    weight: int = 1
    """Its share of the room where there is not enough for all."""
    open: frozenset[str] | None = None
    """What is in one of these states stays before what is over."""


SAID = Section("The user said", ended=" => {}", weight=2)
PLAN = Section("Plan", weight=2, open=frozenset({"to do", "doing", ""}))
TASKS = Section("Sub-agents and background tasks", open=frozenset({"running"}))
CHANGED = Section("Files changed", weight=3)
READ = Section("Files read")
RAN = Section("Commands", ended=" => {}", weight=2)
ERRORS = Section("Errors", ended=": {}")
OTHER = Section("Other calls", ended=" => {}")
NAMED = Section("Identifiers", before=" ")
SECTIONS = (SAID, PLAN, TASKS, CHANGED, READ, RAN, ERRORS, OTHER, NAMED)

Span = tuple[int, int]
"""The first and the last of some lines; 0 is the last there is."""


@dataclass(frozen=True, slots=True)
class Deed:
    """One entry of a ledger. In its section it takes the place of an earlier one with the same key."""

    section: Section
    key: str
    what: str = ""
    """How it is called; what it was called before, where this is empty."""
    how: str = ""
    """How it ended."""
    lines: Span | None = None
    failed: bool = False
    """It ended badly: of its section it is left out last."""
    clears_section: bool = False
    """What stood in its section before does not count any more."""


def excerpt(text: str, limit: int = _EXCERPT_CHARACTERS) -> str:
    """The first line, or as much of it as there is room for.

    A word that would be cut is left out whole, so that no secret is cut to a piece that no rule recognises. Of
    a path the end says more than the beginning.
    """
    line = text[: 4 * limit].strip().split("\n", 1)[0].strip()
    if len(line) <= limit:
        return line
    if line.startswith("/") and " " not in line:
        return "…" + line[1 - limit :]
    return _WORD_AT_END.sub("", line[: limit - 1]) + "…"


def render_value(value: Any) -> str:  # noqa: ANN401 - JSON
    """A JSON value as text; a string without its quotes."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return "…"


# --- identifiers ------------------------------------------------------------------------------------------------------
# Identifiers that an agent may need again: URLs, commits, tickets, orders.
#
# They are looked for in what was said and called, and in short results: a short result is an answer, a long one is
# material, and its names are kept elsewhere (`placeholder.py`).

_RESULT_CHARACTERS = 400
"""A result up to this many characters is an answer."""
_TEXT_CHARACTERS = 2_000
_SHORTEST, _LONGEST = 3, 120
_WORD = re.compile(r"[\w#:/.?&=%~+@-]{5,}")
_ID = re.compile(
    r"https?://[\w.-]+\.\w.*|https?://localhost\S*"
    r"|[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"
    r"|(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{7,40}"
    r"|(?!(?:SHA|UTF|ISO|TV|HTTP)-)[A-Z][A-Z0-9]{1,9}-\d+"
    r"|#\d{2,5}|#\d{7,}|#[A-Z]\d{4,}"
)
_IN_ARGUMENTS = re.compile(r"(?:^|_)(?:ids?|number|sha|ref|branch|url|uri)$|(?:Ids?|Number|Branch|Url)$")


def find_identifiers(text: str, *, result: bool = False) -> Iterator[Deed]:
    """Words that look like identifiers."""
    if result and len(text) > _RESULT_CHARACTERS:
        return
    # Longer words are data, and each one that is looked at is remembered.
    words = dict.fromkeys(word for word in _WORD.findall(text[:_TEXT_CHARACTERS]) if len(word) <= 2 * _LONGEST)
    yield from (Deed(NAMED, word, word) for word in map(_identifier, words) if word)


def find_argument_identifiers(values: dict[str, Any]) -> Iterator[Deed]:
    """Identifiers in the arguments of a call that are made for them (`id`, `url`, ...), whatever they look like."""
    for key, value in values.items():
        short = isinstance(value, str) and _SHORTEST <= len(value) <= _LONGEST and "\n" not in value
        if short and _IN_ARGUMENTS.search(key):
            yield Deed(NAMED, value, value)


@lru_cache(maxsize=16_384)
def _identifier(word: str) -> str:
    """The word without trailing punctuation; empty where it is no identifier. Cached: most words come again."""
    bare = word.rstrip(".,:;?")
    return bare if len(bare) <= _LONGEST and _ID.fullmatch(bare) else ""


# --- plans ------------------------------------------------------------------------------------------------------------
# The state of an agent's plan, from the tools with which it keeps one.
#
# Most agents write the whole list each time, so the last one counts. Some make each task once and then only set
# its state.

_TEXTS = ("content", "step", "title", "subject", "description", "text", "task", "name")
_STATES = ("status", "state", "completed", "done")
_WORDS = {
    **dict.fromkeys(("completed", "complete", "done", "finished", "x", "true"), "done"),
    **dict.fromkeys(("in_progress", "in-progress", "active", "doing", "started", "-", "~"), "doing"),
    **dict.fromkeys(("pending", "todo", "open", "not-started", "not_started", "false", ""), "to do"),
    **dict.fromkeys(("cancelled", "canceled", "deleted", "skipped"), "dropped"),
}
_BOX = re.compile(r"^[ \t]*(?:[-*]|\d{1,4}\.)?[ \t]*\[([ xX~-])\][ \t]*(\S.*)$", re.MULTILINE)
_ITEMS_MAX = 200
_ITEM_NUMBER = re.compile(r"#(\d+)")


def find_plan(values: dict[str, Any]) -> Iterator[Deed]:
    """The items of a plan that was written as one list."""
    items: Any = next((values[key] for key in PLANS if values.get(key)), [])
    if isinstance(items, str):
        items = [{"text": text, "status": mark} for mark, text in _BOX.findall(items)] or [items]
    told = map(_read_text, items[:_ITEMS_MAX] if isinstance(items, list) else [items])
    for place, (text, state) in enumerate(told):
        yield Deed(PLAN, f"{place}", text, state, clears_section=place == 0)


def find_new_task(values: dict[str, Any], result: str) -> Iterator[Deed]:
    """The task that a call made; its number is in the result."""
    number, subject = _ITEM_NUMBER.search(result), excerpt(render_value(values["subject"]))
    key = f"#{number[1]}" if number else subject
    yield Deed(PLAN, key, f"{key} {subject}" if number else subject, "to do")


def find_task_update(values: dict[str, Any]) -> Iterator[Deed]:
    """The new state of a task, if the call sets one."""
    if values.get("status"):
        yield Deed(PLAN, f"#{render_value(values['taskId'])}", how=_state(values["status"]))


def _read_text(item: Any) -> tuple[str, str]:  # noqa: ANN401 - JSON
    if not isinstance(item, dict):
        return excerpt(render_value(item)), ""
    text = next((item[key] for key in _TEXTS if isinstance(item.get(key), str)), "")
    state = next((item[key] for key in _STATES if key in item), None)
    return excerpt(text), "" if state is None else _state(state)


def _state(value: Any) -> str:  # noqa: ANN401 - JSON
    word = render_value(value).strip().lower()
    return _WORDS.get(word, excerpt(word, 20))


# --- shell ------------------------------------------------------------------------------------------------------------
# Files that a command line reads and changes, as far as that can be seen without running it.
#
# Agents edit with `sed -i`, `cat > file <<EOF` and `apply_patch` as often as with tools made for it. This reads words,
# quotes, redirections and the bodies of here-documents; what a script does inside is unknown.

_COMMAND_LINE_CHARACTERS = 2_000
_HEREDOC = re.compile(r"<<-?\s*([\"']?)(\w+)\1")
_TOKEN = re.compile(
    r"""'[^']*(?:'|\Z)|"(?:[^"\\]|\\.)*+(?:"|\Z)|&&|\|\||[;|\n]|(?<![=-])\d?>>?(?:&\d)?|[^\s'";|&<>]+""", re.DOTALL
)
_FILTERS = frozenset({"head", "tail", "sed"})
_IDLE = _FILTERS | {"echo", "pwd", "true"}
_ENDS = frozenset({"&&", "||", ";", "|", "\n"})
_BEFORE = frozenset({"sudo", "time", "env", "do", "then", "else", "!", "(", "{", "exec", "nohup", "command"})
_ABROAD = re.compile(r"[$`(){}*?]|/dev/|://|^-|^[\d.,]*$")
_RANGE = re.compile(r"(\d{1,9})(?:,(\d{1,9}))?p")
_COUNT_ARGUMENT = re.compile(r"(?:-n?)?\d{1,9}")
_PATCH = "*** Begin Patch"
_PATCHED = re.compile(
    r"^(?:\*\*\* (Update|Add|Delete) File: |\*\*\* Move to: |\+\+\+ (?:b/)?)(\S[^\n\t]*)", re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Verb:
    """Effect of a program on the files in its arguments."""

    section: Section
    how: str = ""
    option: str = ""
    """It does so only with an option that begins like this."""
    skip: int = 0
    """How many words stand before the files."""
    last: bool = False
    """Only the last word is meant."""


VERBS = {
    **dict.fromkeys(("cat", "head", "tail", "less", "more", "nl", "bat", "open"), (Verb(READ),)),
    "sed": (Verb(CHANGED, option="-i", skip=1), Verb(READ, option="-n", skip=1)),
    "perl": (Verb(CHANGED, option="-pi", skip=1), Verb(CHANGED, option="-i", skip=1)),
    **dict.fromkeys(("tee", "touch", "create"), (Verb(CHANGED),)),
    **dict.fromkeys(("rm", "unlink", "git rm"), (Verb(CHANGED, "deleted"),)),
    **dict.fromkeys(("mv", "git mv"), (Verb(CHANGED, "moved here", last=True),)),
    "cp": (Verb(CHANGED, "copied", last=True),),
    **dict.fromkeys(("git checkout --", "git restore"), (Verb(CHANGED, "restored"),)),
}


def find_touched_files(command: str) -> tuple[list[Deed], bool]:
    """The files it reads and changes, and whether that is all it does."""
    if _PATCH in command:
        return list(find_patched_files(command)), command.lstrip().startswith("apply_patch")
    found: list[Deed] = []
    folder, plain = "", True
    for words, written in _segments(
        _without_bodies(command) if "<<" in command else command[:_COMMAND_LINE_CHARACTERS]
    ):
        if words[:1] == ["cd"]:
            folder = words[1] if len(words) > 1 else ""
            continue
        deeds = [*_read_or_changed(words), *(Deed(CHANGED, path) for path in written if not _ABROAD.search(path))]
        if not deeds and words[0] in _FILTERS:
            found[-1:] = [replace(deed, lines=deed.lines or _line_span(words)) for deed in found[-1:]]
        plain = plain and (bool(deeds) or words[0] in _IDLE)
        found += [_within(folder, deed) for deed in deeds]
    return found, plain and bool(found)


def find_patched_files(text: str) -> Iterator[Deed]:
    """The files that a patch changes, in any of the forms that agents write."""
    for kind, path in _PATCHED.findall(text):
        if path != "/dev/null":
            yield Deed(CHANGED, path.strip(), how="deleted" if kind == "Delete" else "")


def _without_bodies(command: str) -> str:
    """The command line without the bodies of its here-documents, which are no commands."""
    pieces, at = [], 0
    while found := _HEREDOC.search(command, at):
        line_end = command.find("\n", found.end())
        body_end = command.find(f"\n{found[2]}", line_end) if line_end >= 0 else -1
        pieces.append(command[at : found.start()])
        pieces.append(command[found.end() : line_end] if line_end >= 0 else command[found.end() :])
        at = len(command) if body_end < 0 else body_end + 1 + len(found[2])
    return "".join([*pieces, command[at:]])[:_COMMAND_LINE_CHARACTERS]


def _segments(command: str) -> Iterator[tuple[list[str], list[str]]]:
    """Each simple command: its words, and the files that its output is written to."""
    words: list[str] = []
    written: list[str] = []
    redirected = ""
    for token in (*_TOKEN.findall(command), ";"):
        if token in _ENDS:
            if words:
                yield words, written
            words, written, redirected = [], [], ""
        elif ">" in token and token[0] not in "'\"":
            redirected = "" if "&" in token else token
        elif redirected:
            written += [_plain(token)] if redirected in (">", ">>", "1>") else []
            redirected = ""
        elif words or (token not in _BEFORE and "=" not in token):
            words.append(_plain(token))


def _plain(token: str) -> str:
    return token.strip(token[0]) if token[0] in "'\"" else token


def _read_or_changed(words: Sequence[str]) -> Iterator[Deed]:
    given, verbs = _split_known_command(words)
    options = [word for word in given if word.startswith("-")]
    named = [word for word in given if word and not word.startswith("-")]
    for verb in verbs:
        if verb.option and not any(option.startswith(verb.option) for option in options):
            continue
        files = [word for word in named[verb.skip :] if not _ABROAD.search(word)]
        lines = _line_span(words) if verb.section is READ else None
        yield from (Deed(verb.section, path, how=verb.how, lines=lines) for path in files[-1 if verb.last else 0 :])
        return


def _split_known_command(words: Sequence[str]) -> tuple[Sequence[str], Sequence[Verb]]:
    """The words after the longest known command name (such as `git mv`), and the effects of that command."""
    for size in (3, 2, 1):
        name = " ".join(words[:size]).rpartition("/")[2] if size == 1 else " ".join(words[:size])
        if len(words) >= size and name in VERBS:
            return words[size:], VERBS[name]
    return (), ()


def _line_span(words: Sequence[str]) -> Span | None:
    """The lines that `sed -n 10,20p` or `head -20` reads; None where the command does not say."""
    if words[0] == "sed":
        found = next(filter(None, map(_RANGE.fullmatch, words)), None)
        return (int(found[1]), int(found[2] or found[1])) if found else None
    if words[0] == "head":
        number = next((word.lstrip("-n") for word in words[1:] if _COUNT_ARGUMENT.fullmatch(word)), "10")
        return 1, int(number)
    return None


def _within(folder: str, deed: Deed) -> Deed:
    """The deed with its path relative to the folder in which the command line began."""
    path = deed.key.removeprefix("./")
    if folder and not path.startswith(("/", "~")):
        path = f"{folder.rstrip('/')}/{path}"
    return replace(deed, key=path)


# --- prose ------------------------------------------------------------------------------------------------------------
# Deeds of agents without tool calls, which write blocks of commands, edits and tags in their text.
#
# SWE-agent and mini-swe-agent write a fenced block and are answered with what it printed; aider writes search and
# replace blocks; Cline and its kin write calls as XML.

_FENCE = "```"
_EDIT = re.compile(r"^([^\s<>`*=][^\n<>`*]{0,200})\n(?:```[^\n]*\n)?<{5,9} ?SEARCH", re.MULTILINE)
_TAG = re.compile(r"<([a-z_]{3,40})>\s{0,4}<(path|command|url|todos|result|question)>")
_ARGUMENT = re.compile(r"<(path|command|url|todos|start_line|end_line)>([^<]*)</")
_REACH_CHARACTERS = 2_000
_RAN = re.compile(r"\s*I ran this command:\s*\n+([^\n]+)")


def edits(text: str) -> Iterator[Deed]:
    """The files that search and replace blocks change."""
    if "SEARCH" in text:
        yield from (Deed(CHANGED, path.strip()) for path in _EDIT.findall(text))


def find_spoken_call(text: str, *, answered: bool) -> ToolCall | None:
    """The call that a message makes in its text: a tag of a tool, or, where output follows, the last fenced block."""
    if found := _TAG.search(text):
        arguments = dict(_ARGUMENT.findall(text, found.end(1), found.end(1) + _REACH_CHARACTERS))
        return ToolCall("", found[1], json.dumps(arguments))
    block = text.rsplit(_FENCE, 2) if answered else []
    command = block[1].partition("\n")[2].strip() if len(block) > 2 else ""  # noqa: PLR2004 (before, in it, behind)
    return ToolCall("", "shell", json.dumps({"command": command})) if command else None


def find_reported_call(text: str) -> ToolCall | None:
    """The command of a message in which a user shows a command and its output."""
    found = _RAN.match(text)
    return None if found is None else ToolCall("", "shell", json.dumps({"command": found[1]}))


# --- calls ------------------------------------------------------------------------------------------------------------
# Deeds of tool calls, found by the pattern of the tool (`tools.py`), the arguments and the result.

_ARGUMENTS_MAX = 6
_ARGUMENT_CHARACTERS = 80
_ANSWER_CHARACTERS = 80
"""A result up to this many characters is told as it is."""
_END_CHARACTERS = 600
_COMMAND_CHARACTERS = 1_000
_NOTICES_CHARACTERS = 8_000
_FILE_IN_RESULT = re.compile(r"\[File: (\S+) \(|\(Open file: ([^)\n]+)\)")
_CHANGE_OF_FOLDER = re.compile(r"\s*cd \S+ *(?:&&|;|\n)\s*")
_STARTED = re.compile(r"(?:agentId|agent_id|task_id|with ID|session ID)\"?:? ?\"?([\w-]+)")
_GOING_ON = ("launched", "in background", "in the background", "running with session", "<status>running")
_STATUS = re.compile(r"<status>(\w+)</status>")
_NOTICE = "<task-notification>"
_NOTICED = re.compile(r"<task-id>([\w-]+)</task-id>")


@dataclass(frozen=True, slots=True)
class Act:
    """A call with its result, parsed."""

    call: ToolCall
    values: dict[str, Any]
    result: str
    outcome: ResultOutcome

    @property
    def failed(self) -> bool:
        return self.outcome.has_failed

    @property
    def going_on(self) -> bool:
        """The work was only started, and goes on in the background."""
        return any(words in self.result[:_END_CHARACTERS] for words in _GOING_ON)

    @property
    def label(self) -> str:
        """The tool and its arguments, in a line."""
        pairs = list(self.values.items())[:_ARGUMENTS_MAX]
        told = [f"{key}: {excerpt(render_value(value), _ARGUMENT_CHARACTERS)}" for key, value in pairs]
        return f"{self.call.name}({', '.join(told) or excerpt(self.call.arguments.strip('{} '), _ARGUMENT_CHARACTERS)})"


def find_call_deeds(call: ToolCall, result: str) -> Iterator[Deed]:
    """All deeds of one call."""
    act = Act(call, call.named, result, find_outcome(result, call))
    yield from _FIND_DEEDS[meaning(call.name, act.values)](act)
    yield from find_argument_identifiers(act.values)
    yield from find_identifiers(result, result=True)


def find_notice_deeds(text: str) -> Iterator[Deed]:
    """Deeds in notices that an agent gets, between two turns, of work that ran in the background."""
    for notice in text[:_NOTICES_CHARACTERS].split(_NOTICE)[1:]:
        key, status = _NOTICED.search(notice), _STATUS.search(notice)
        if key and status:
            yield Deed(TASKS, key[1], how=_render_status(status[1]))


def _find_read_deeds(act: Act) -> Iterator[Deed]:
    yield from _find_file_deeds(act, READ)


def _find_change_deeds(act: Act) -> Iterator[Deed]:
    yield from _find_file_deeds(act, CHANGED)


def _find_file_deeds(act: Act, section: Section) -> Iterator[Deed]:
    paths = list(_paths(act.values)) or _find_path_in_result(act.result)
    for path in paths:
        if act.failed:
            yield _error(act, path, f"{act.call.name} {excerpt(path)}")
        else:
            yield Deed(section, path, lines=_lines(act.values))
    if not paths:
        yield from _find_other_deeds(act)


def _find_patch_deeds(act: Act) -> Iterator[Deed]:
    texts = [value for value in act.values.values() if isinstance(value, str)] or [act.call.arguments]
    deeds = [deed for text in texts for deed in find_patched_files(text)]
    for deed in deeds:
        yield _error(act, deed.key, f"{act.call.name} {excerpt(deed.key)}") if act.failed else deed
    if not deeds:
        yield from _find_other_deeds(act)


def _find_command_deeds(act: Act) -> Iterator[Deed]:
    command = _command(act.values)
    if act.going_on and (started := _STARTED.search(act.result[:_END_CHARACTERS])):
        yield Deed(TASKS, started[1], f"{_in_short(command)} [{started[1]}]", "running")
        return
    deeds, all_of_it = find_touched_files(command)
    # Where only the output tells of an error, what stands before the failing program has most likely been done.
    if not act.failed or (act.outcome.exit_code is None and not all_of_it):
        yield from deeds
        edited = _find_path_in_result(act.result) if command.startswith(("edit ", "insert ")) else []
        yield from (Deed(CHANGED, path) for path in edited)
        all_of_it = all_of_it or bool(edited)
    if act.failed or not all_of_it:
        yield Deed(RAN, command, _in_short(command), act.outcome.render(), failed=act.failed)


def _in_short(command: str) -> str:
    """The beginning of a command in one line, without changes of the folder and comments."""
    moved = _CHANGE_OF_FOLDER.match(command)
    rows = command[moved.end() if moved else 0 :][:_COMMAND_CHARACTERS].split("\n")
    return excerpt(" ".join(row.strip() for row in rows if row.strip() and not row.startswith("#")))


def _find_question_deeds(act: Act) -> Iterator[Deed]:
    yield Deed(SAID, act.result, excerpt(" ".join(act.result[:1_000].split()), 400))


def _find_agent_deeds(act: Act) -> Iterator[Deed]:
    label = next((act.values[key] for key in ("description", "name", "prompt", "message") if act.values.get(key)), "")
    started = _STARTED.search(act.result[-_END_CHARACTERS:]) or _STARTED.search(act.result[:_END_CHARACTERS])
    what = f"{excerpt(render_value(label))} [{started[1]}]" if started else excerpt(render_value(label))
    state = "running" if act.going_on else "failed" if act.failed else "done"
    yield Deed(TASKS, started[1] if started else what, what, state)


def _find_wait_deeds(act: Act) -> Iterator[Deed]:
    key = next(render_value(act.values[name]) for name in IDS if act.values.get(name))
    status = _STATUS.search(act.result)
    if status or act.outcome.exit_code is not None:
        yield Deed(TASKS, key, how=_render_status(status[1]) if status else f"exit code {act.outcome.exit_code}")


def _render_status(status: str) -> str:
    return "done" if status == "completed" else status


def _find_other_deeds(act: Act) -> Iterator[Deed]:
    label = act.label
    if act.failed:
        yield _error(act, label, label)
        return
    answer = act.result[: 2 * _ANSWER_CHARACTERS].strip()
    yield Deed(OTHER, label, label, answer if len(answer) <= _ANSWER_CHARACTERS and "\n" not in answer else "")


def _error(act: Act, key: str, what: str) -> Deed:
    return Deed(ERRORS, key, what, excerpt(act.outcome.error or act.outcome.render()))


def _silent(_: Act) -> Iterator[Deed]:
    yield from ()


_FIND_DEEDS: Mapping[Kind, Callable[[Act], Iterable[Deed]]] = {
    "plan": lambda act: find_plan(act.values),
    "task": lambda act: find_new_task(act.values, act.result),
    "step": lambda act: find_task_update(act.values),
    "agent": _find_agent_deeds,
    "wait": _find_wait_deeds,
    "ask": _find_question_deeds,
    "read": _find_read_deeds,
    "change": _find_change_deeds,
    "patch": _find_patch_deeds,
    "run": _find_command_deeds,
    "silent": _silent,
    "other": _find_other_deeds,
}


def _paths(values: dict[str, Any]) -> Iterator[str]:
    value = next((values[key] for key in PATHS if values.get(key)), None)
    for each in value if isinstance(value, list) else [value]:
        path = each.get("path") if isinstance(each, dict) else each
        if isinstance(path, str):
            yield path


def _find_path_in_result(result: str) -> list[str]:
    """The path in a result: some tools say there which file is open."""
    found = _FILE_IN_RESULT.search(result[:_END_CHARACTERS]) or _FILE_IN_RESULT.search(result[-_END_CHARACTERS:])
    return [found[1] or found[2]] if found else []


def _lines(values: dict[str, Any]) -> Span | None:
    for key in RANGES:
        match values.get(key):
            case [int(first), int(last)]:
                return first, max(0, last)
    for begins, ends in LINES:
        if start := _int(values.get(begins)):
            return start, _int(values.get(ends))
    start, number = _int(values.get("offset")), _int(values.get("limit"))
    if not start and not number:
        return None
    start = max(1, start)
    return start, start + number - 1 if number else 0


def _int(value: Any) -> int:  # noqa: ANN401 - JSON
    return value if isinstance(value, int) and value > 0 else 0


def _command(values: dict[str, Any]) -> str:
    value = next((values[key] for key in (*COMMANDS, "code") if values.get(key)), "")
    if isinstance(value, list):
        return (
            render_value(value[-1])
            if len(value) > 1 and value[1] in ("-c", "-lc")
            else " ".join(map(render_value, value))
        )
    return render_value(value)
