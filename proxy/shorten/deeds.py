"""Deeds, the entries of a ledger: things that were done, found or said, and the sections that list them."""

import json
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from proxy.history import agents, commands
from proxy.history.agents import find_value, render_value
from proxy.history.messages import ToolCall
from proxy.shorten.acts import acts_on_world
from proxy.shorten.outcome import ResultOutcome, cut_first_line, find_outcome, find_words_of_user

# --- deeds ------------------------------------------------------------------------------------------------------------

ENTRY_CHARACTERS = 400
_EXCERPT_CHARACTERS = 160


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
    lengths: tuple[int, ...] = (ENTRY_CHARACTERS,)
    """The characters of an entry: the most with which there is room for all."""
    counts: bool = False
    """An entry tells how often it was done."""


# Other agents speak in this role too, and clients put instructions there.
USER_WORDS = Section(
    "Said by the user, or by others in the user's role", ended=" => {}", weight=4, lengths=(ENTRY_CHARACTERS, 160, 80)
)
# Where no API says that a result is one of an error, any program may have printed what is in it.
REFUSED_WORDS = Section(
    "Words in the results of refused calls", ended=": {}", weight=4, lengths=(ENTRY_CHARACTERS, 160)
)
DOCUMENTS = Section(
    "Instructions and task texts that are no longer shown: read them again before relying on them", weight=4
)
PLAN = Section("Plan", weight=2, open=frozenset({"to do", "doing", ""}))
TASKS = Section("Sub-agents and background tasks", open=frozenset({"running"}))
CHANGED = Section("Files changed", weight=3)
READ = Section("Files read")
RAN = Section("Commands", ended=" => {}", weight=2)
ERRORS = Section("Errors", ended=": {}")
OTHER = Section("Other calls", ended=" => {}", counts=True)
NAMED = Section("Identifiers", before=" ")
SECTIONS = (USER_WORDS, REFUSED_WORDS, DOCUMENTS, PLAN, TASKS, CHANGED, READ, RAN, ERRORS, OTHER, NAMED)

Span = tuple[int, int]
"""The first and the last of some lines; 0 is the last there is."""
WHOLE: Span = (1, 0)


@dataclass(frozen=True, slots=True)
class Deed:
    """One entry of a ledger. In its section it takes the place of an earlier one with the same key."""

    section: Section
    key: str
    what: str = ""
    """How it is called; what it was called before, where this is empty."""
    how: str = ""
    """How it ended."""
    lines: Span = WHOLE
    failed: bool = False
    """It ended badly: of its section it is left out last."""
    times: int = 1
    """How often it was done, where its section tells."""
    clears_section: bool = False
    """The entries of its section before it do not count any more."""
    instead_of: Section | None = None
    """Of an error: the section in which there would be an entry if the call had not failed."""


def cut_excerpt(text: str, limit: int = _EXCERPT_CHARACTERS) -> str:
    """The first line of a text, short enough for an entry."""
    return cut_first_line(text, limit)


# --- identifiers ------------------------------------------------------------------------------------------------------
# Identifiers that an agent may need again: URLs, commits, tickets, orders.
#
# They are looked for in texts and calls, and in short results: a short result is an answer, a long one is
# material, and its names are kept elsewhere (`placeholder.py`).

_TEXT_CHARACTERS = 2_000
_SHORTEST, _LONGEST = 3, 120
_IN_WORD = r"\w#:/.?&=%~+@-"
_ID = re.compile(
    rf"(?<![{_IN_WORD}])(?:https?://[\w.-]+\.\w[{_IN_WORD}]*|https?://localhost[{_IN_WORD}]*"
    r"|[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"
    r"|(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{7,40}"
    r"|(?!(?:SHA|UTF|ISO|TV|HTTP)-)[A-Z][A-Z0-9]{1,9}-\d+"
    rf"|#\d{{4,5}}|#\d{{7,}}|#[A-Z]\d{{4,}})(?![.:?]*[{_IN_WORD}])"
)
_PLACE_IN_SCRIPT = re.compile(r"(://[^/]+/.*\.[a-z]{1,4})(?::\d+)+$")
_IN_ARGUMENTS = re.compile(r"(?:^|_)(?:ids?|number|sha|ref|branch|url|uri)$|(?:Ids?|Number|Branch|Url)$")


def find_identifiers(text: str) -> Iterator[Deed]:
    """Words that look like identifiers."""
    for found in _ID.findall(text[:_TEXT_CHARACTERS]):
        word = _PLACE_IN_SCRIPT.sub(r"\1", found.rstrip(".:?"))
        if len(word) <= _LONGEST:
            yield Deed(NAMED, word)


def _find_argument_identifiers(values: dict[str, Any]) -> Iterator[Deed]:
    """Identifiers in the arguments of a call that are made for them (`id`, `url`, ...), whatever they look like."""
    for key, value in values.items():
        short = isinstance(value, str) and _SHORTEST <= len(value) <= _LONGEST and "\n" not in value
        if short and _IN_ARGUMENTS.search(key):
            yield Deed(NAMED, value)


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
_BOX = re.compile(r"^[ \t]*+(?:(?:[-*]|\d{1,4}\.)[ \t]*+)?\[([ xX~-])\][ \t]*(\S.*)$", re.MULTILINE)
_ITEMS_MAX = 200
_ITEM_NUMBER = re.compile(r"#(\d+)")


def _find_plan(values: dict[str, Any]) -> Iterator[Deed]:
    """The items of a plan that was written as one list."""
    items = find_value(values, agents.PLANS) or []
    if isinstance(items, str):
        items = [{"text": text, "status": mark} for mark, text in _BOX.findall(items)] or [items]
    for place, item in enumerate(items[:_ITEMS_MAX] if isinstance(items, list) else [items]):
        known = item if isinstance(item, dict) else {"text": render_value(item)}
        text = next((known[key] for key in _TEXTS if isinstance(known.get(key), str)), "")
        state = next((_read_state(known[key]) for key in _STATES if key in known), "")
        yield Deed(PLAN, f"{place}", cut_excerpt(text), state, clears_section=place == 0)


def _find_new_task(values: dict[str, Any], result: str) -> Iterator[Deed]:
    """The task that a call made; its number is in the result."""
    number, subject = _ITEM_NUMBER.search(result), cut_excerpt(render_value(values["subject"]))
    key = f"#{number[1]}" if number else subject
    yield Deed(PLAN, key, f"{key} {subject}" if number else subject, "to do")


def _find_task_update(values: dict[str, Any]) -> Iterator[Deed]:
    """The new state of a task, if the call sets one."""
    if values.get("status"):
        yield Deed(PLAN, f"#{render_value(values['taskId'])}", how=_read_state(values["status"]))


def _read_state(value: Any) -> str:  # noqa: ANN401 - JSON
    word = render_value(value).strip().lower()
    return _WORDS.get(word, cut_excerpt(word, 20))


# --- shell ------------------------------------------------------------------------------------------------------------
# Files that a command line reads and changes, as far as that can be seen without running it.
#
# Agents edit with `sed -i`, `cat > file <<EOF` and `apply_patch` as often as with tools made for it. This reads words,
# quotes, redirections and the bodies of here-documents; what a script does inside is unknown.

_COMMAND_LINE_CHARACTERS = 2_000
_HEREDOC = re.compile(r"<<-?\s*([\"']?)(\w+)\1")
_REDIRECTION = re.compile(r"<|(?<![=-])\d?>>?(?:&\d|\s*[^\s<>&]*)")
_WRITTEN = re.compile(r"(?<![=\d>-])1?>>?\s*([^\s<>&]+)")
_FILTERS = frozenset({"head", "tail", "sed"})
_IDLE = _FILTERS | {"echo", "pwd", "true"}
_ABROAD = re.compile(r"[$`(){}*?]|^/dev/|://|^-|^[\d.,]*$")
_LINES_READ = re.compile(
    r"head(?! (?:-c|--bytes))(?: (?:-n?|--lines=?) ?(\d{1,9}))?|sed .*?\b(\d{1,9})(?:,(\d{1,9}))?p\b", re.DOTALL
)
_LOG = re.compile(r"\.(?:log|out|err)(?:\.\d+)?$")
_PATCH = "*** Begin Patch"
_PATCHED = re.compile(
    r"^(?:\*\*\* (Update|Add|Delete) File: |\*\*\* Move to: |\+\+\+ (?:b/)?)(\S[^\n\t]*)", re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Effect:
    """Effect of a program on the files in its arguments."""

    command: re.Pattern[str]
    """How a command with this effect begins."""
    section: Section
    how: str = ""
    first: int = 1
    """Where the files begin among its words, options left out; -1: only the last word is meant."""


EFFECTS = (
    Effect(re.compile("(?:cat|head|tail|less|more|nl|bat|open) "), READ),
    Effect(re.compile("sed (?:.* )?-i|perl (?:.* )?-p?i", re.DOTALL), CHANGED, first=2),
    Effect(re.compile("sed (?:.* )?-n", re.DOTALL), READ, first=2),
    Effect(re.compile("(?:tee|touch|create) "), CHANGED),
    Effect(re.compile("(?:rm|unlink) "), CHANGED, "deleted"),
    Effect(re.compile("git rm "), CHANGED, "deleted", first=2),
    Effect(re.compile("(?:git )?mv "), CHANGED, "moved here", first=-1),
    Effect(re.compile("cp "), CHANGED, "copied", first=-1),
    Effect(re.compile("git (?:checkout --|restore) "), CHANGED, "restored", first=2),
)


def find_touched_files(command: str) -> tuple[list[Deed], bool]:
    """The files it reads and changes, and whether that is all it does."""
    if _PATCH in command:
        return list(find_patched_files(command)), command.lstrip().startswith("apply_patch")
    found: list[Deed] = []
    folder, is_all = "", True
    for segment in commands.split_commands(_remove_bodies(command)[:_COMMAND_LINE_CHARACTERS]):
        written = [Deed(CHANGED, path) for path in _WRITTEN.findall(segment) if not _ABROAD.search(path)]
        bare = _REDIRECTION.sub(" ", segment).split()
        words = commands.skip_words_before_command(bare)
        if not words:
            continue
        if words[0] == "cd":
            folder = words[1] if len(words) > 1 else ""
            continue
        touched = [*_find_effects(words), *written]
        if not touched and found and words[0] in _FILTERS and found[-1].lines == WHOLE:
            found[-1] = replace(found[-1], lines=_find_lines_read(words))
        is_all = is_all and (bool(touched) or words[0] in _IDLE)
        found += [replace(deed, key=_find_path_within(folder, deed.key)) for deed in touched]
    return found, is_all and bool(found)


def is_file_text(call: ToolCall) -> bool:
    """True where the result of a call is the text of files: of a tool that reads, or a command line that only prints.

    Agents that have a shell and no other tool (Codex) read by `sed -n 1,200p FILE`. A log is output, however it is
    read: no edit quotes it.
    """
    values = call.named
    if agents.is_read(call):
        return not _LOG.search(render_value(find_value(values, agents.PATHS) or ""))
    touched, is_all = find_touched_files(commands.find_command_line(values))
    return is_all and all(deed.section is READ and not _LOG.search(deed.key) for deed in touched)


def list_read_paths(call: ToolCall) -> list[str]:
    """The files that a call reads: by a tool for that, or by a command line such as `sed -n 1,200p FILE`."""
    values = call.named
    if agents.is_read(call):
        value = find_value(values, agents.PATHS)
        paths = value if isinstance(value, list) else [value]
        return [path for path in paths if isinstance(path, str)]
    command = commands.find_command_line(values)
    if not command:
        return []
    touched, _ = find_touched_files(command)
    return [deed.key for deed in touched if deed.section is READ]


def _find_path_within(folder: str, path: str) -> str:
    """The path as seen from the folder in which the command line began."""
    return path if path.startswith("~") else posixpath.normpath(posixpath.join(folder, path))


def find_patched_files(text: str) -> Iterator[Deed]:
    """The files that a patch changes, in any of the forms that agents write."""
    for kind, path in _PATCHED.findall(text):
        if path != "/dev/null":
            yield Deed(CHANGED, path.strip(), how="deleted" if kind == "Delete" else "")


def _remove_bodies(command: str) -> str:
    """The command line without the bodies of its here-documents, which are no commands."""
    lines, end = [], ""
    for line in command.split("\n") if "<<" in command else (command,):
        if end:
            end = "" if line.startswith(end) else end
        else:
            lines.append(_HEREDOC.sub("", line))
            end = found[2] if (found := _HEREDOC.search(line)) else ""
    return "\n".join(lines)


def _find_effects(words: Sequence[str]) -> list[Deed]:
    """The files of one simple command, by the first effect that its beginning has."""
    line = " ".join((posixpath.basename(words[0]), *words[1:], ""))
    effect = next((effect for effect in EFFECTS if effect.command.match(line)), None)
    if effect is None:
        return []
    named = [word for word in words if word and not word.startswith("-")][effect.first :]
    lines = _find_lines_read(words) if effect.section is READ else WHOLE
    return [Deed(effect.section, path, how=effect.how, lines=lines) for path in named if not _ABROAD.search(path)]


def _find_lines_read(words: Sequence[str]) -> Span:
    """The lines that `sed -n 10,20p` or `head -20` reads."""
    found = _LINES_READ.match(" ".join(words))
    if found is None:
        return WHOLE
    count, first, last = found.groups()
    return (int(first), int(last or first)) if first else (1, int(count or 10))


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
_ACTION = re.compile(
    r"^Action:[ \t]*(\w[^\n:()]{0,60}?)[ \t]*$(?:\n+Action Input:[ \t]*([^\n]{0,2000}))?", re.MULTILINE
)
_RAN = re.compile(r"\s*I ran this command:\s*\n+([^\n]+)")


def find_text_edits(text: str) -> list[Deed]:
    """The files that search and replace blocks change."""
    return [Deed(CHANGED, path.strip()) for path in _EDIT.findall(text)] if "SEARCH" in text else []


def find_described_call(text: str, *, answered: bool) -> ToolCall | None:
    """The call that a message makes in its text: a tag of a tool, or, where output follows, the last fenced block."""
    if found := _TAG.search(text):
        arguments = dict(_ARGUMENT.findall(text, found.end(1), found.end(1) + _REACH_CHARACTERS))
        return ToolCall("", found[1], json.dumps(arguments))
    if answered and (action := find_action(text)):
        return action
    block = text.rsplit(_FENCE, 2)[1] if answered and text.count(_FENCE) > 1 else ""
    return _make_shell_call(block.partition("\n")[2].strip())


def find_action(text: str) -> ToolCall | None:
    """The call that an answer makes as `Action: TOOL` and `Action Input: ARGUMENTS`."""
    found = _ACTION.search(text)
    return ToolCall("", found[1], (found[2] or "").strip() or "{}") if found else None


def find_reported_call(text: str) -> ToolCall | None:
    """The command of a message in which a user shows a command and its output."""
    found = _RAN.match(text)
    return _make_shell_call(found[1]) if found else None


def _make_shell_call(command: str) -> ToolCall | None:
    return ToolCall("", "shell", json.dumps({"command": command})) if command else None


# --- calls ------------------------------------------------------------------------------------------------------------
# Deeds of tool calls, found by the kind of the call (`agents.py`), the arguments and the result.

_ARGUMENTS_MAX = 6
_ARGUMENT_CHARACTERS = 80
_ANSWER_CHARACTERS = 80
"""A result up to this many characters is listed whole."""
_IDENTIFIED_CHARACTERS = 400
"""A result up to this many characters is an answer, whose identifiers count."""
_END_CHARACTERS = 600
_COMMAND_CHARACTERS = 1_000
_NOTICES_CHARACTERS = 8_000
_FILE_IN_RESULT = re.compile(r"\[File: (\S+) \(|\(Open file: ([^)\n]+)\)")
_STARTED = re.compile(r"(?:agentId|agent_id|task_id|with ID|session ID)\"?:? ?\"?(-*\w[\w-]*)")
_GOING_ON = ("launched", "in background", "in the background", "running with session", "<status>running")
_STOPPING = ("kill*", "taskstop", "close_agent")
# How much of its output is shown makes no other command of it.
_CLIPPING = re.compile(
    r"(?:\s{1,9}2>&1)?(?:\s{0,9}\|\s{0,9}(?:head|tail)(?:\s{1,9}-[\w+-]{0,9})?(?:\s{1,9}\d{1,9})?){0,9}\Z"
)
_STATUS = re.compile(r"<status>(\w+)</status>")
_NOTICE = "<task-notification>"
# A line by which a sub-agent's report sums itself up: `**Verdict:** REQUEST CHANGES`.
_CONCLUSION = re.compile(
    r"^[-#*_> ]{0,8}((?=[A-Z])(?:(?i:(?:overall |final )?(?:verdict|assessment|conclusion|bottom line|root cause))"
    r"[*_ ]{0,3}:[*_ ]{0,3}\S[^\n]*[^\s:*_]|(?i:status)[*_ ]{0,3}:[*_ ]{0,3}[A-Z]{2,20}(?=\W*$)))",
    re.MULTILINE,
)
_CHANGES = {
    "deleted": ("delete", "remove"),
    "moved": ("move", "rename"),
    "written": ("write", "create", "save"),
    "added to": ("append", "insert"),
}
"""What is done to a file, by a word in the name of a tool."""
_NOTICED = re.compile(r"<task-id>([\w-]+)</task-id>")


@dataclass(frozen=True, slots=True)
class Act:
    """A call with its result, parsed."""

    call: ToolCall
    values: dict[str, Any]
    result: str
    outcome: ResultOutcome

    @property
    def going_on(self) -> bool:
        """The work was only started, and goes on in the background."""
        is_over = self.outcome.exit_code is not None
        return not is_over and any(words in self.result[:_END_CHARACTERS] for words in _GOING_ON)


def find_call_deeds(call: ToolCall, result: str, *, failed: bool = False) -> Iterator[Deed]:
    """All deeds of one call. `failed`: its API says that it failed."""
    act = Act(call, call.named, result, find_outcome(result, call, failed=failed))
    yield from _FIND_DEEDS[agents.find_kind(call.name, act.values)](act)
    if act.outcome.was_rejected and (words := find_words_of_user(result)):
        yield _quote_user(words) if failed else replace(_quote_user(words), section=REFUSED_WORDS)
    yield from _find_argument_identifiers(act.values)
    if len(result) <= _IDENTIFIED_CHARACTERS:
        yield from find_identifiers(result)


def find_notice_deeds(text: str) -> Iterator[Deed]:
    """Deeds in notices that an agent gets, between two turns, of work that ran in the background."""
    for notice in text[:_NOTICES_CHARACTERS].split(_NOTICE)[1:]:
        key, status = _NOTICED.search(notice), _STATUS.search(notice)
        if key and status:
            yield Deed(TASKS, key[1], how=_render_status(status[1]))


def _find_file_deeds(act: Act, section: Section) -> Iterator[Deed]:
    """The files that a call names, or that its result says are open."""
    value = find_value(act.values, agents.PATHS)
    named = [each.get("path") if isinstance(each, dict) else each for each in _as_list(value)]
    paths = [path for path in named if isinstance(path, str)] or _find_open_file(act.result)
    how = _name_change(act.call.name, act.values) if section is CHANGED else ""
    lines = agents.find_requested_lines(act.values) or WHOLE
    return _describe_failure(act, [Deed(section, path, how=how, lines=lines) for path in paths])


def _name_change(tool: str, values: Mapping[str, Any]) -> str:
    """The change that a call makes to its file, by the name of the tool or by the command of an editor."""
    name = f"{agents.remove_server_name(tool)} {render_value(values.get('command') or '')[:20]}".lower()
    return next((how for how, words in _CHANGES.items() if any(word in name for word in words)), "edited")


def _find_patch_deeds(act: Act) -> Iterator[Deed]:
    texts = [value for value in act.values.values() if isinstance(value, str)] or [act.call.arguments]
    return _describe_failure(act, [deed for text in texts for deed in find_patched_files(text)])


def _describe_failure(act: Act, files: Sequence[Deed]) -> Iterator[Deed]:
    """The files of a call; where it failed, an error for each; where it names none, the call itself."""
    if not files:
        yield from _find_other_deeds(act)
    for file in files:
        error = _make_error(act, file.key, f"{act.call.name} {cut_excerpt(file.key)}")
        yield replace(error, instead_of=file.section) if act.outcome.has_failed else file


def _find_command_deeds(act: Act) -> Iterator[Deed]:
    command, has_failed = commands.find_command_line(act.values), act.outcome.has_failed
    lines = commands.remove_folder_change(command)[:_COMMAND_CHARACTERS].split("\n")
    label = cut_excerpt(" ".join(line.strip() for line in lines if line.strip() and not line.startswith("#")))
    if act.going_on and (started := _STARTED.search(act.result[:_END_CHARACTERS])):
        yield Deed(TASKS, started[1], f"{label} [{started[1]}]", "running")
        return
    touched, is_all = find_touched_files(command)
    # Where only the output tells of an error, the programs before the failing one have most likely run.
    may_have_run = act.outcome.exit_code is None and not is_all and not act.outcome.was_rejected
    if not has_failed or may_have_run:
        edited = _find_open_file(act.result) if command.startswith(("edit ", "insert ")) else []
        yield from (*touched, *(Deed(CHANGED, path) for path in edited))
        is_all = is_all or bool(edited)
    if has_failed or not is_all:
        ended = act.outcome.render()
        if not act.outcome.report and not has_failed and acts_on_world(act.call):
            ended = ", ".join(filter(None, (ended, act.outcome.end)))
        yield Deed(RAN, _CLIPPING.sub("", command.rstrip()), label, ended, failed=has_failed)


def _find_question_deeds(act: Act) -> Iterator[Deed]:
    yield _quote_user(act.result)


def _quote_user(words: str) -> Deed:
    return Deed(USER_WORDS, words, cut_excerpt(" ".join(words[:1_000].split()), 400))


def _find_agent_deeds(act: Act) -> Iterator[Deed]:
    label = cut_excerpt(render_value(find_value(act.values, ("description", "name", "prompt", "message")) or ""))
    started = _STARTED.search(act.result[-_END_CHARACTERS:]) or _STARTED.search(act.result[:_END_CHARACTERS])
    state = "running" if act.going_on else "failed" if act.outcome.has_failed else _summarize_report(act.result)
    yield Deed(TASKS, started[1], f"{label} [{started[1]}]", state) if started else Deed(TASKS, label, how=state)


def _summarize_report(report: str) -> str:
    """The report's own conclusion, where it has just one: of several, each is of a part."""
    found = _CONCLUSION.findall(report)
    return f"done; {' '.join(found[0].replace('*', '').split())}" if len(found) == 1 else "done"


def _find_wait_deeds(act: Act) -> Iterator[Deed]:
    key = render_value(find_value(act.values, agents.IDS))
    if status := _STATUS.search(act.result):
        yield Deed(TASKS, key, how=_render_status(status[1]))
    elif act.outcome.exit_code is not None:
        yield Deed(TASKS, key, how=f"exit code {act.outcome.exit_code}")
    elif agents.matches_any(act.call.name, _STOPPING) and not act.outcome.has_failed:
        yield Deed(TASKS, key, how="stopped")


def _render_status(status: str) -> str:
    return "done" if status == "completed" else status


def _find_other_deeds(act: Act) -> Iterator[Deed]:
    pairs = list(act.values.items())[:_ARGUMENTS_MAX]
    listed = ", ".join(f"{key}: {cut_excerpt(render_value(value), _ARGUMENT_CHARACTERS)}" for key, value in pairs)
    label = f"{act.call.name}({listed or cut_excerpt(act.call.arguments.strip('{} '), _ARGUMENT_CHARACTERS)})"
    answer = act.result[: 2 * _ANSWER_CHARACTERS].strip()
    is_short = len(answer) <= _ANSWER_CHARACTERS and "\n" not in answer
    key = f"{act.call.name} {act.call.arguments}"  # two calls may differ where the label is cut
    if act.outcome.has_failed:
        yield _make_error(act, key, label)
    else:
        yield Deed(OTHER, key, label, answer if is_short else act.outcome.report or act.outcome.end)


def _make_error(act: Act, key: str, what: str) -> Deed:
    return Deed(ERRORS, key, what, cut_excerpt(act.outcome.error or act.outcome.render()))


_FIND_DEEDS: Mapping[agents.Kind, Callable[[Act], Iterable[Deed]]] = {
    "plan": lambda act: _find_plan(act.values),
    "task": lambda act: _find_new_task(act.values, act.result),
    "step": lambda act: _find_task_update(act.values),
    "agent": _find_agent_deeds,
    "wait": _find_wait_deeds,
    "ask": _find_question_deeds,
    "read": lambda act: _find_file_deeds(act, READ),
    "change": lambda act: _find_file_deeds(act, CHANGED),
    "patch": _find_patch_deeds,
    "run": _find_command_deeds,
    "silent": lambda _: (),
    "other": _find_other_deeds,
}


def _as_list(value: Any) -> list[Any]:  # noqa: ANN401 - JSON
    return value if isinstance(value, list) else [value]


def _find_open_file(result: str) -> list[str]:
    """The path in a result: some tools say there which file is open."""
    found = _FILE_IN_RESULT.search(result[:_END_CHARACTERS]) or _FILE_IN_RESULT.search(result[-_END_CHARACTERS:])
    return [found[1] or found[2]] if found else []
