"""The file, and the lines of it, that a call reads if it does nothing else."""

import posixpath
import re

from msgspec import Struct

from proxy.tools.command_line import find_command_line, remove_folder_change
from proxy.tools.tool_call import PATHS, ToolCall, find_requested_lines, find_value
from proxy.tools.tool_kinds import find_kind, is_read

Lines = tuple[int, int] | None
"""The first and the last line, 0 for the end of the file; None for all lines."""


class ReadRange(Struct, frozen=True):
    path: str
    lines: Lines = None


class ReadingCommand(Struct, frozen=True):
    pattern: re.Pattern[str]
    """Named groups: `path`, and `first` and `last` if it reads only some lines."""
    example: str


_PATH = r"(?P<quote>[\"']?)(?P<path>[\w./~@%+,:-]+)(?P=quote)\s*\Z"
READING_COMMANDS = (
    ReadingCommand(re.compile(rf"(?:cat|bat|less|more|nl)(?:\s+-\w+)*\s+{_PATH}"), "cat -n src/app.py"),
    ReadingCommand(
        re.compile(rf"(?:nl\s+-ba\s+)?sed\s+-n\s+[\"']?(?P<first>\d+),(?P<last>\d+)p[\"']?\s+{_PATH}"),
        "sed -n '1,200p' src/app.py",
    ),
    ReadingCommand(re.compile(rf"head\s+(?:-n\s*|-)(?P<last>\d+)\s+{_PATH}"), "head -n 80 src/app.py"),
    ReadingCommand(
        re.compile(
            r"(?:nl\s+-ba|cat\s+-n|cat)\s+(?P<path>[\w./~@%+,:-]+)\s*\|"
            r"\s*sed\s+-n\s+[\"']?(?P<first>\d+),(?P<last>\d+)p[\"']?\s*\Z"
        ),
        "nl -ba src/app.py | sed -n '1,200p'",
    ),
)


def find_read_range(call: ToolCall) -> ReadRange | None:
    """Return the file and lines that a call reads. Return None if it may do more than that."""
    values = call.named
    if is_read(call):
        path = find_value(values, PATHS)
        if isinstance(path, str):
            return ReadRange(posixpath.normpath(path), find_requested_lines(values))
        return None
    if find_kind(call) != "run":
        return None
    command = remove_folder_change(find_command_line(values)).strip()
    for reading in READING_COMMANDS:
        match = reading.pattern.match(command)
        if match is not None:
            groups = match.groupdict()
            lines = None
            if groups.get("last"):
                lines = int(groups.get("first") or 1), int(groups["last"])
            return ReadRange(posixpath.normpath(groups["path"]), lines)
    return None
