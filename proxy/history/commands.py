"""Command lines that agents run."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from proxy.history.agents import COMMANDS, find_value, render_value

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
    """Return the command line that a call runs; of a shell with a script as its argument, the script."""
    value = find_value(values, (*COMMANDS, "code")) or ""
    if not isinstance(value, list):
        return render_value(value)
    if len(value) > 1 and value[1] in ("-c", "-lc"):
        return render_value(value[-1])
    return " ".join(map(render_value, value))


def split_commands(line: str, ends: re.Pattern[str] = _COMMAND_ENDS) -> list[str]:
    """Split a command line into simple commands, without comments. A quoted text that is no single word becomes `?`."""
    if "#" in line:
        line = _COMMENT.sub("", line)
    return [command for command in ends.split(_QUOTED.sub(_unquote, line)) if command.strip()]


def skip_words_before_command(words: Sequence[str]) -> list[str]:
    """Return the words of a simple command from its program on: `make` of `sudo CC=gcc make`."""
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
    """Return the command line without a `cd` at its beginning."""
    change = _CHANGE_OF_FOLDER.match(command)
    if change is None or change.end() == len(command):
        return command
    return command[change.end() :]
