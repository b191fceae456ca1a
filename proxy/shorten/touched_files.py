"""Files that a call reads and changes: by the arguments of a tool, or by the words of a command line.

    Read(file_path: lib/a.py)         reads lib/a.py
    sed -n 1,200p lib/a.py            reads lib/a.py
    cd lib && sed -i s/a/b/ a.py      changes lib/a.py
    cat > a.py <<'EOF'                changes a.py
    rm ./c                            deletes c

Command lines are read without running them: the work of a script is unknown.
"""

import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from proxy.history import agents
from proxy.history.agents import find_value, render_value
from proxy.history.messages import ToolCall

COMMAND_CHARACTERS = 2_000
_HEREDOC = re.compile(r"<<-?\s*([\"']?)(\w+)\1")
_REDIRECTION = re.compile(r"<|(?<![=-])\d?>>?(?:&\d|\s*[^\s<>&]*)")
_WRITTEN = re.compile(r"(?<![=\d>-])1?>>?\s*([^\s<>&]+)")
_NO_PATH = re.compile(r"[$`(){}*?]|^/dev/|://|^-|^[\d.,]*$")
LOG_ENDINGS = (".log", ".out", ".err")
_PATCHED = re.compile(
    r"^(?:\*\*\* (Update|Add|Delete) File: |\*\*\* Move to: |\+\+\+ (?:b/)?)(\S[^\n\t]*)", re.MULTILINE
)
PATCH = "*** Begin Patch"


@dataclass(frozen=True, slots=True)
class FileUse:
    """One use of a file by a call."""

    path: str
    change: str = ""
    """What was done to it, as `edited`; empty if it was only read."""


@dataclass(frozen=True, slots=True)
class FileProgram:
    """Programs that read or change the files among their arguments."""

    names: frozenset[str]
    change: str = ""
    options: tuple[str, ...] = ()
    """If there are any: only a command with one of them (or a word that begins so)."""
    first: int = 0
    """The place of the first file among the words that are no options; -1: only the last word is meant."""


FILE_PROGRAMS = (
    FileProgram(frozenset(("cat", "head", "tail", "less", "more", "nl", "bat", "open"))),
    FileProgram(frozenset(("sed", "perl")), "edited", ("-i", "-pi", "-p"), 1),
    FileProgram(frozenset(("sed",)), "", ("-n",), 1),
    FileProgram(frozenset(("tee", "touch", "create")), "written"),
    FileProgram(frozenset(("rm", "unlink", "git-rm")), "deleted"),
    FileProgram(frozenset(("mv", "git-mv")), "moved here", (), -1),
    FileProgram(frozenset(("cp",)), "copied", (), -1),
    FileProgram(frozenset(("git-restore",)), "restored"),
    FileProgram(frozenset(("git-checkout",)), "restored", ("--",)),
)
IDLE_PROGRAMS = frozenset(("head", "tail", "sed", "echo", "pwd", "true"))
"""Programs that, without a file, only filter or print."""
CHANGES = {
    "deleted": ("delete", "remove"),
    "moved": ("move", "rename"),
    "written": ("write", "create", "save"),
    "added to": ("append", "insert"),
}
"""The change that a tool makes to its file, by a word in its name."""


def list_file_uses(call: ToolCall) -> tuple[list[FileUse], bool]:
    """The files that a call reads and changes, and whether the call does nothing else."""
    values = call.named
    match agents.find_kind(call.name, values):
        case "read":
            return [FileUse(path) for path in _list_argument_paths(values)], True
        case "change":
            change = _name_change(call)
            return [FileUse(path, change) for path in _list_argument_paths(values)], True
        case "patch":
            texts = [value for value in values.values() if isinstance(value, str)] or [call.arguments]
            return [use for text in texts for use in list_patched_files(text)], True
        case "run":
            return _read_command(agents.find_command_line(values))
    return [], False


def list_read_paths(call: ToolCall) -> list[str]:
    """The files that a call reads."""
    if agents.is_read(call):
        return _list_argument_paths(call.named)
    return [use.path for use in list_file_uses(call)[0] if not use.change]


def is_file_text(call: ToolCall) -> bool:
    """Whether the result of a call is the text of files: of a tool that reads, or of a command that only prints files.

    Agents that have a shell and no other tool (Codex) read by `sed -n 1,200p FILE`. A log is output, however it is
    read: no edit quotes it.
    """
    paths = list_read_paths(call)
    if any(path.endswith(LOG_ENDINGS) for path in paths):
        return False
    if agents.is_read(call):
        return True
    uses, is_complete = list_file_uses(call)
    return is_complete and bool(paths) and len(paths) == len(uses)


def list_patched_files(text: str) -> list[FileUse]:
    """The files that a patch changes, in any of the forms that agents write."""
    return [
        FileUse(path.strip(), "deleted" if kind == "Delete" else "edited")
        for kind, path in _PATCHED.findall(text)
        if path != "/dev/null"
    ]


def _list_argument_paths(values: dict[str, Any]) -> list[str]:
    """The paths among the arguments, also of `files: [{"path": "a.py"}]`."""
    value = find_value(values, agents.PATHS)
    paths = []
    for item in value if isinstance(value, list) else [value]:
        path = item.get("path") if isinstance(item, dict) else item
        if isinstance(path, str):
            paths.append(path)
    return paths


def _name_change(call: ToolCall) -> str:
    command = render_value(call.named.get("command") or "")[:20]
    name = f"{agents.remove_server_name(call.name)} {command}".lower()
    for change, words in CHANGES.items():
        if any(word in name for word in words):
            return change
    return "edited"


def _read_command(command: str) -> tuple[list[FileUse], bool]:
    if PATCH in command:
        return list_patched_files(command), command.lstrip().startswith("apply_patch")
    uses = list[FileUse]()
    folder, is_complete = "", True
    for simple_command in agents.split_commands(_remove_heredocs(command)[:COMMAND_CHARACTERS]):
        words = agents.skip_words_before_command(_REDIRECTION.sub(" ", simple_command).split())
        if not words:
            continue
        if words[0] == "cd":
            folder = words[1] if len(words) > 1 else ""
            continue
        touched = _find_arguments(words)
        touched += [FileUse(path, "written") for path in _WRITTEN.findall(simple_command) if not _NO_PATH.search(path)]
        is_complete = is_complete and (bool(touched) or words[0] in IDLE_PROGRAMS)
        uses += [FileUse(_join_folder(folder, use.path), use.change) for use in touched]
    return uses, is_complete and bool(uses)


def _find_arguments(words: Sequence[str]) -> list[FileUse]:
    """The files among the words of a simple command."""
    program = posixpath.basename(words[0])
    arguments = words[1:]
    if program == "git" and arguments:
        program, arguments = f"git-{arguments[0]}", arguments[1:]
    for entry in FILE_PROGRAMS:
        if program not in entry.names:
            continue
        if entry.options and not any(word.startswith(entry.options) for word in arguments):
            continue
        names = [word for word in arguments if word and not word.startswith("-")][entry.first :]
        return [FileUse(name, entry.change) for name in names if not _NO_PATH.search(name)]
    return []


def _join_folder(folder: str, path: str) -> str:
    """The path as seen from the folder in which the command line began."""
    return path if path.startswith("~") else posixpath.normpath(posixpath.join(folder, path))


def _remove_heredocs(command: str) -> str:
    """The command line without the bodies of its here-documents, which are no commands."""
    if "<<" not in command:
        return command
    lines = list[str]()
    end = ""
    for line in command.split("\n"):
        if end:
            if line.startswith(end):
                end = ""
            continue
        lines.append(_HEREDOC.sub("", line))
        heredoc = _HEREDOC.search(line)
        if heredoc:
            end = heredoc[2]
    return "\n".join(lines)
