"""The files that a call reads or changes."""

import posixpath
import re
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from proxy.tools.command_line import Command, find_command_line
from proxy.tools.program_table import find_program
from proxy.tools.programs import list_operands
from proxy.tools.tool_call import PATHS, ToolCall, find_value, render_value
from proxy.tools.tool_kinds import find_kind, is_read, remove_server_name
from proxy.tools.wrappers import list_commands

_PATCHED = re.compile(
    r"^(?:\*\*\* (Update|Add|Delete) File: |\*\*\* Move to: |\+\+\+ (?:b/)?)(\S[^\n\t]*)", re.MULTILINE
)
PATCH = "*** Begin Patch"


class FileUse(Struct, frozen=True):
    """A file that a call uses."""

    path: str
    change: str = ""
    """The change in a word, such as `edited`; empty if the file was only read."""


def list_file_uses(call: ToolCall) -> tuple[Sequence[FileUse], bool]:
    """Return the files that a call uses, and whether it does nothing else."""
    return call.recall("file uses", _list_uses)


def _list_uses(call: ToolCall) -> tuple[list[FileUse], bool]:
    values = call.named
    uses = list[FileUse]()
    match find_kind(call):
        case "read":
            uses = list(map(FileUse, _list_argument_paths(values)))
        case "change":
            change = _name_change(call)
            uses = [FileUse(path, change) for path in _list_argument_paths(values)]
        case "patch":
            for text in values.values() or [call.arguments]:
                if isinstance(text, str):
                    uses += list_patched_files(text)
        case "run":
            return _read_command(find_command_line(values))
        case _:
            return uses, False
    return uses, True


def list_read_paths(call: ToolCall) -> list[str]:
    if is_read(call):
        return _list_argument_paths(call.named)
    return [use.path for use in list_file_uses(call)[0] if not use.change]


def list_changed_paths(call: ToolCall) -> list[str]:
    return [use.path for use in list_file_uses(call)[0] if use.change]


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


def _name_change(call: ToolCall) -> str:
    command = render_value(call.named.get("command") or "")[:20]
    name = f"{remove_server_name(call.name)} {command}".lower()
    changes = {
        "deleted": "delete remove",
        "moved": "move rename",
        "written": "write create save",
        "added to": "append insert",
    }
    for change, words in changes.items():
        for word in words.split():
            if word in name:
                return change
    return "edited"


def _read_command(command: str) -> tuple[list[FileUse], bool]:
    if PATCH in command:
        return list_patched_files(command), command.lstrip().startswith("apply_patch")
    uses = list[FileUse]()
    folder, is_complete = "", True
    for simple_command in list_commands(command):
        words = simple_command.words
        if words[0] == "cd":
            folder = "".join(words[1:2])
            continue
        uses_here = list[FileUse]()
        if not simple_command.is_elsewhere:
            uses_here = _find_uses(simple_command)
        # Without a file these only filter or print, so that the command still does nothing but use files.
        is_idle = words[0] in ("head", "tail", "sed", "echo", "pwd", "true")
        is_complete = is_complete and not simple_command.is_inner and (bool(uses_here) or is_idle)
        for use in uses_here:
            path = use.path
            if not path.startswith("~"):
                path = posixpath.normpath(posixpath.join(folder, path))
            uses.append(FileUse(path, use.change))
    return uses, is_complete and bool(uses)


def _find_uses(command: Command) -> list[FileUse]:
    uses = list[FileUse]()
    words = command.words
    program = find_program(words[0])
    if program is not None:
        names = [words[place] for place in list_operands(words, program.valued.split()) if words[place]]
        for rule in program.files:
            first = rule.first
            if rule.verb and rule.verb != "".join(names[:1]):
                continue
            if rule.verb and first >= 0:
                first += 1
            if not rule.options or any(word.startswith(rule.options) for word in words[1:]):
                paths = [*names[first:], *command.input_files]
                uses += [FileUse(path, rule.change) for path in paths if _is_path(path)]
                break
    uses += [FileUse(path, "written") for path in command.output_files if _is_path(path)]
    return uses


def _is_path(word: str) -> bool:
    if word.startswith(("/dev/", "-")) or "://" in word or not set("$`(){}*?").isdisjoint(word):
        return False
    return word.strip("0123456789.,") != ""
