"""Command lines that agents run."""

import re
from collections.abc import Mapping, Sequence
from itertools import dropwhile
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
