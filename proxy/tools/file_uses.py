"""What a call does: the files that it reads or changes, whether it acts on the world, whether its result quotes others.

    sed -n 1,40p src/app.py             reads a file, these lines of it, and does nothing else
    shopctl charge-card --order 1042    acts: the table has no entry, and `charge` is an acting verb
    git push origin main                acts: an entry of the table
    git log --grep push                 looks, and quotes

A placeholder must not invite the model to act twice. Tests, builds and writing files may be done again.
"""

import posixpath
import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from msgspec import Struct

from proxy.tools.command_line import (
    SimpleCommand,
    find_command_line,
    list_commands_of,
)
from proxy.tools.program_table import UNKNOWN, find_program
from proxy.tools.programs import has_option
from proxy.tools.requests import is_acting_request
from proxy.tools.tool_call import (
    PATHS,
    Lines,
    ToolCall,
    find_kind,
    find_requested_lines,
    find_value,
    is_acting_tool,
    is_read,
    matches_any,
    remove_server_name,
    render_value,
)
from proxy.tools.verbs import is_acting_task, is_acting_verb

_PATCHED = re.compile(
    r"^(?:\*\*\* (Update|Add|Delete) File: |\*\*\* Move to: |\+\+\+ (?:b/)?)(\S[^\n\t]*)", re.MULTILINE
)
PATCH = "*** Begin Patch"
_CHANGES = {
    "deleted": ("delete", "remove"),
    "moved": ("move", "rename"),
    "written": ("write", "create", "save"),
    "added to": ("append", "insert"),
}
"""Changes of files, by words in the name of a tool or in its command. The first that fits counts."""


GONE = ("deleted", "moved away")
PERHAPS_GONE = "perhaps gone"
"""The change of a file that a command may have deleted or moved: `[ -d build ] && rm -r build`."""
PERHAPS_THERE = "perhaps there"
"""The change of a file that a command may have changed in another way. What was deleted before may be there again."""
REPLACED = {
    "edited if anything matched": (
        *GONE,
        PERHAPS_GONE,
        PERHAPS_THERE,
        "made if it was not there",
        "restored if it differed",
    ),
    "made if it was not there": (*GONE, PERHAPS_GONE, PERHAPS_THERE),
}
"""By a change that may have changed nothing, the changes before that are not told any more. Others are."""


class FileUse(Struct, frozen=True):
    """A file that a call uses."""

    path: str
    change: str = ""
    """The change in a word, such as `edited`; empty if the file was only read."""


def doubt(uses: Iterable[FileUse]) -> list[FileUse]:
    """Return the changes among the uses as those of a command that may not have run."""
    changes = [use for use in uses if use.change]
    return [
        FileUse(use.path, PERHAPS_GONE if use.change in (*GONE, PERHAPS_GONE) else PERHAPS_THERE) for use in changes
    ]


def list_file_uses(call: ToolCall) -> tuple[Sequence[FileUse], bool]:
    """Return the files that a call uses, and whether it does nothing else."""
    return call.recall("file uses", _list_uses)


def _list_uses(call: ToolCall) -> tuple[list[FileUse], bool]:
    values = call.named
    match find_kind(call):
        case "read":
            return [FileUse(path) for path in _list_argument_paths(values)], True
        case "change":
            command = render_value(values.get("command") or "")[:20]
            name = f"{remove_server_name(call.name)} {command}".lower()
            changes = [change for change, words in _CHANGES.items() if any(word in name for word in words)]
            change = (*changes, "edited")[0]
            return [FileUse(path, change) for path in _list_argument_paths(values)], True
        case "patch":
            texts = [text for text in values.values() or [call.arguments] if isinstance(text, str)]
            return list_patched_files("\n".join(texts)), True
        case "run":
            return _read_command(call)
    return [], False


def list_read_paths(call: ToolCall) -> list[str]:
    if is_read(call):
        return _list_argument_paths(call.named)
    return [use.path for use in list_file_uses(call)[0] if not use.change]


def list_changed_paths(call: ToolCall) -> list[str]:
    return [use.path for use in list_file_uses(call)[0] if use.change]


def list_undone_changes(call: ToolCall, *, failed: bool) -> set[str]:
    """Return the changes which a command may have undone, of any file: `git checkout main` puts deleted files back.

    *failed*: the last of its commands has failed. A merge with conflicts has put files back.
    """
    undone = set[str]()
    commands = list_commands_of(call)
    for command in commands:
        words, program = command.words, find_program(command.words[0])
        if _is_harmless(words):
            continue
        if program.has_verb(words, program.restores):
            undone.update(GONE)
        if program.discards_files(words) and not (failed and len(commands) == 1):
            undone.update(("written", "made", "made if it was not there", "copied", "moved here"))
    return undone


def is_file_text(call: ToolCall) -> bool:
    """Return whether the result is only the text of files. A log is output, because no edit quotes it."""
    paths = list_read_paths(call)
    if any(path.endswith((".log", ".out", ".err")) for path in paths):
        return False
    if is_read(call):
        return True
    uses, is_complete = list_file_uses(call)
    return is_complete and bool(paths) and len(paths) == len(uses)


def list_patched_files(text: str) -> list[FileUse]:
    uses = []
    for kind, path in _PATCHED.findall(text):
        change = "deleted" if kind == "Delete" else "edited"
        if path != "/dev/null":
            uses.append(FileUse(path.strip(), change))
    return uses


def _list_argument_paths(values: dict[str, Any]) -> list[str]:
    """Return the paths among the arguments, also `a.py` of `files: [{"path": "a.py"}]`."""
    paths = find_value(values, PATHS)
    if not isinstance(paths, list):
        paths = [paths]
    texts = []
    for path in paths:
        if isinstance(path, dict):
            path = path.get("path")  # noqa: PLW2901
        if isinstance(path, str):
            texts.append(path)
    return texts


def _read_command(call: ToolCall) -> tuple[list[FileUse], bool]:
    command = find_command_line(call.named)
    if PATCH in command:
        return list_patched_files(command), command.lstrip().startswith("apply_patch")
    uses: list[FileUse] = []
    is_complete = True
    for simple_command in list_commands_of(call):
        words = simple_command.words
        if words[0] == "cd":
            continue
        uses_here: list[FileUse] = []
        if not simple_command.is_elsewhere:
            uses_here = _find_uses(simple_command)
        if simple_command.may_not_run:
            uses_here = doubt(uses_here)
        # Without a file these only filter or print, so that the command still does nothing but use files.
        is_idle = words[0] in ("head", "tail", "sed", "echo", "pwd", "true")
        is_sure = not (simple_command.is_inner or simple_command.may_not_run)
        is_complete = is_complete and is_sure and (bool(uses_here) or is_idle)
        for use in uses_here:
            path = use.path
            if not path.startswith("~"):
                path = posixpath.normpath(posixpath.join(simple_command.folder, path))
            uses.append(FileUse(path, use.change))
    return uses, is_complete and bool(uses)


def _find_uses(command: SimpleCommand) -> list[FileUse]:
    uses: list[FileUse] = []
    program = find_program(command.words[0])
    options = command.words[1:]
    rules = program.files
    if _is_harmless(command.words):
        rules = ()
    for rule in rules:
        names = [word for word in program.list_operands(command.words, rule.valued) if word]
        first = rule.first
        if rule.verb and rule.verb != "".join(names[:1]):
            continue
        if rule.verb and first >= 0:
            first += 1
        if rule.options and not any(word.startswith(rule.options) for word in options):
            continue
        if any(word.startswith(rule.unless) for word in options) or (rule.behind and rule.behind not in options):
            continue
        paths = [*names[first:], *command.input_files]
        if rule.behind:
            paths = list(options[options.index(rule.behind) + 1 :])
        if rule.change == "moved here":
            sources = names[bool(rule.verb) : -1]
            uses += [FileUse(path, "moved away") for path in sources if _is_path(path)]
        uses += [FileUse(path, rule.change) for path in paths if _is_path(path)]
        break
    uses += [FileUse(path, "written") for path in command.output_files if _is_path(path)]
    return uses


def _is_path(word: str) -> bool:
    if word.startswith(("/dev/", "-")) or "://" in word or not set("$`(){}*?").isdisjoint(word):
        return False
    return word.strip("+0123456789.,") != ""


def acts_on_world(call: ToolCall) -> bool:
    if find_kind(call) != "run":
        return is_acting_tool(call)
    return any(map(is_act, list_commands_of(call)))


def has_acted(call: ToolCall) -> bool:
    """Return whether a call that worked has acted for sure: `make test || git push` may not."""
    if find_kind(call) != "run":
        return is_acting_tool(call)
    acts = [command for command in list_commands_of(call) if is_act(command)]
    return acts != [] and not any(command.may_not_run for command in acts)


def is_act(command: SimpleCommand) -> bool:
    """Return whether a simple command acts on the world."""
    words = command.words
    program = find_program(words[0])
    operands = program.list_operands(words)
    verb, acts = program.find_verb(operands), program.acts.split()
    asks_for_help = "help" in operands[:1] or _is_harmless(words)
    if asks_for_help or has_option(words, program.harmless_with) or verb in program.harmless.split():
        return False
    if program is UNKNOWN:
        # Such a program is judged by its name, then by the next two words: the first that tells counts.
        answers = [is_acting_task(posixpath.basename(words[0])), *map(is_acting_verb, operands[:2])]
        return next((answer for answer in answers if answer is not None), False)
    if verb in acts or "*" in acts:
        return True
    if operands and (program.copies == "*" or verb in program.copies.split()):
        # A file on another machine: `web1:/srv`, `s3://shop`.
        return re.match(r"[\w.@-]{2,}:", operands[-1]) is not None
    if program.language:
        return is_acting_request(program, command, operands)
    tasks = [posixpath.basename(word) for word in operands if "=" not in word] if program.runs_tasks else []
    return any(map(is_acting_task, tasks)) or has_option(words, program.acts_with)


def _is_harmless(words: Sequence[str]) -> bool:
    # Before a value it names the version that is meant: `helm upgrade shop ./chart --version 1.2.3`.
    if words[1:] == ("-h",) or words[-1] == "--version":
        return True
    dry_runs = ("--dry-run", "--dryrun", "--dry_run", "--what-if", "--whatif", "--noop")
    for word in words:
        option, _, value = word.partition("=")
        if option in ("--help", "-help", *dry_runs) and value not in ("none", "false"):
            return True
    return False


def find_quoting_kind(call: ToolCall | None) -> Literal["", "tool", "command"]:
    """A tool that reads, searches or reports, and a command that only reads, quote other texts."""
    if call is None:
        return ""
    kind = find_kind(call)
    if kind == "run":
        commands = _list_outer_commands(call)
        for command in commands:
            program = find_program(command.words[0])
            if is_act(command) or not program.has_verb(command.words, program.quotes):
                return ""
        return "command" if commands else ""
    searches = ("*grep*", "*search*", "*glob*", "*find*", "*list*", "ls", "*fetch*", "*browse*", "*context7*")
    if kind in ("read", "agent") or matches_any(call.name, searches):
        return "tool"
    return ""


def _list_outer_commands(call: ToolCall) -> list[SimpleCommand]:
    return [command for command in list_commands_of(call) if not command.is_inner]


def list_own_beginnings(call: ToolCall) -> tuple[str, ...]:
    """Return the beginnings of lines in which the programs of a command speak for themselves, each once."""
    beginnings = set[str]()
    for command in list_commands_of(call):
        beginnings.update((f"{posixpath.basename(command.words[0])}: ", *find_program(command.words[0]).speaks))
    return tuple(beginnings)


def reads_log(call: ToolCall) -> bool:
    """Whether a command prints a log: `kubectl logs shop`, `tail -n 40 /var/log/shop.log`."""
    for command in list_commands_of(call):
        program = find_program(command.words[0])
        if command.words[0] in ("journalctl", "dmesg") or any(word.endswith(".log") for word in command.words[1:]):
            return True
        if "logs" in program.quotes.split() and program.has_verb(command.words, "logs"):
            return True
    return False


def explains_exit(call: ToolCall, exit_code: int) -> bool:
    """Return whether an exit code is an answer: of `grep`, 1 says that nothing matched, of `diff`, a difference."""
    words = _list_outer_commands(call)[-1].words
    program = find_program(words[0])
    return exit_code == 1 and program.has_verb(words, program.answers)


_LINES = re.compile(r"(?:head -(?:n ?)?|sed -n (?P<first>\d+),)(?P<last>\d+)p?(?: |\Z)")


def find_read_range(call: ToolCall) -> tuple[str, Lines] | None:
    """Return the file and the lines that a call reads. Return None if it may do more, or does not tell the lines."""
    path = find_value(call.named, PATHS)
    if isinstance(path, str) and is_read(call):
        return path, find_requested_lines(call.named)
    # A long command does more, and would be read into its commands anew, because they are not remembered.
    if find_kind(call) != "run" or call.arguments[4_000:]:
        return None
    uses, is_complete = list_file_uses(call)
    # In `cat a.py | head` both programs read it. A patch may name no file.
    if not is_complete or not uses or {*uses} != {FileUse(uses[0].path)}:
        return None
    readers = [command for command in list_commands_of(call) if command.words[0] != "cd"]
    if find_command_line(call.named).count("|") != len(readers) - 1:  # `cat a.py; head -5 a.py` shows the whole file
        return None
    lines: Lines = None
    for command in readers:
        match = _LINES.match(" ".join(command.words))
        if match is not None and lines is None:
            lines = int(match["first"] or 1), int(match["last"])
        elif command.words[0] not in ("cat", "nl"):
            return None
    return uses[0].path, lines
