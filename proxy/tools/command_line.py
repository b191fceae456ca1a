"""Command lines that agents run, read into simple commands."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from proxy.tools.tool_call import COMMANDS, find_value, render_value

_QUOTED = re.compile(r"'[^']*(?:'|\Z)|\"(?:[^\"\\]|\\.)*+(?:\"|\Z)", re.DOTALL)
_PLAIN_WORD = re.compile(r"[\w./~@%+,:=\[\]-]*")
HEREDOC = re.compile(r"<<-?\s*([\"']?)(\w+)\1")
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


def remove_heredocs(command: str) -> str:
    if "<<" not in command:
        return command
    lines = list[str]()
    end = ""
    for line in command.split("\n"):
        if end:
            if line.startswith(end):
                end = ""
            continue
        lines.append(HEREDOC.sub("", line))
        heredoc = HEREDOC.search(line)
        if heredoc:
            end = heredoc[2]
    return "\n".join(lines)
