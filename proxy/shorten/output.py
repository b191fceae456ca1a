"""The output of a call, without the frames that harnesses and servers of tools put around it.

A frame is a line above or below the output (`Wall time: 0.1 seconds`, `[Current working directory: /w]`) or JSON around
it (`{"stdout": ..., "exit_code": 1}`, `{"content": [{"text": ...}]}`). Frames are nested: Codex writes lines above the
JSON of a server, and a text within JSON may be JSON again.
"""

import json
import re
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from msgspec import Struct, field

from proxy.history.messages import remove_reminders
from proxy.tools.tool_call import render_value

FRAMES: Mapping[str, tuple[str, ...]] = {
    "any shell": (
        (
            r"\W{0,3}(?:error: )?(?:(?:the )?(?:command|process|script)[a-z ,]{0,30} )?"
            r"(?:exit(?:ed)?(?: with)?[ _](?:code|status)|returncode)\W{1,4}-?(\d+)\W{0,3}"
        ),
    ),
    "Codex": (
        r"(?:chunk id|wall time|original token count|total output lines): [^\n]{1,80}",
        r"process running with session id \d+",
        r"output:",
    ),
    "Claude Code": (
        r"<(?:status|exit_code)>(?=[^<\n]{1,40}<)(?:[^<\n]*?code)?\W{0,4}(\d+)[^<\n]*</\w+>",
        r"<(?:status|exit_code|timestamp)>[^<\n]{1,40}</\w+>",
        r"</?(?:stdout|stderr|tool_use_error)>",
        r"shell cwd was reset to \S[^\n]*",
        r"here's the result of running `cat -n` on [^\n]+:",
    ),
    "Copilot CLI": (r"<(?:shellid: )?[\w-]{1,40} completed with exit code -?(\d+)>",),
    "OpenHands": (
        r"\[the command completed with exit code -?(\d+)[^\n]*\]",
        r"\[(?:the command completed|current working directory|python interpreter)[^\n]*\]",
    ),
    "SWE-agent": (r"\((?:open file|current directory): [^\n]*\)", r"bash-\$"),
    "mini-swe-agent": (r"<returncode>-?(\d+)</returncode>", r"</?output>"),
    "Gemini CLI": (
        r"(?:directory|stderr|error|signal|process group pgid|background pids): \(?(?:none|root|empty|\d+)\)?",
    ),
}
"""Expressions for whole lines, by the harness that writes them. A group is the exit code."""
_FRAME_LINE = re.compile("|".join(chain(*FRAMES.values())), re.IGNORECASE)
_LONG_CHARACTERS = 200
"""Texts in JSON that are longer, or have several lines, are output; shorter ones are members."""
_ESCAPES = re.compile(r"\x1b\[[0-9;?]{0,16}[A-Za-z]|\x1b\][^\x07\n]{0,200}\x07?|[\x00-\x08\x0b\x0c\x0e-\x1f]")
CODES = ("exit_code", "exitCode", "exit_status", "returncode", "return_code")
_PRINTED = ("stdout", "stderr", "output", "logs")
_AROUND = frozenset({*CODES, "command", "kind", "metadata", "type", "timeout", "interrupted", "isImage"})


class Output(Struct):
    text: str = ""
    members: list[str] = field(default_factory=list)
    data: list[str] = field(default_factory=list)
    exit_code: int | None = None
    has_failed: bool = False
    """By a member such as `isError`."""
    reason: str = ""
    is_framed: bool = False
    """An exit code, or JSON around the output, shows that a command ran."""

    def list_lines(self) -> list[str]:
        return [*self.members, *self.data, *self.text.split("\n")]

    def join_members(self) -> str:
        """In one line; of too many those of the answer itself, of these the first and the last."""
        line = ", ".join(self.members)
        if line[400:]:
            line = ", ".join(member for member in self.members if "." not in member.partition(":")[0])
        if not line[400:]:
            return line
        beginning, end = line[:199], line[-199:]
        return f"{beginning[: beginning.rfind(', ')]}…{end[end.find(', ') :]}"


def read_output(text: str) -> Output:
    output = Output()
    output.text = "\n".join(_read_text(text, output, 2)).strip("\n")
    return output


def _read_text(text: str, output: Output, depth: int) -> list[str]:
    lines = _remove_frames(remove_reminders(text), output)
    value = None
    if depth:
        value = parse_json("\n".join(lines))
    if not isinstance(value, dict | list):
        return list(map(clean_line, lines))
    if isinstance(value, dict):
        _read_flags(value, output)
    return list(_read_value("", value, output, depth))


def _remove_frames(text: str, output: Output) -> list[str]:
    lines = text.split("\n")
    start, stop = 0, len(lines)
    while start < min(stop, 8) and _is_frame(lines[start], output):
        start += 1
    last = max(start, stop - 8)
    while stop > last and _is_frame(lines[stop - 1], output):
        stop -= 1
    return lines[start:stop]


def _is_frame(line: str, output: Output) -> bool:
    line = line.strip()
    if not line:
        return True
    if len(line) > _LONG_CHARACTERS:
        return False
    frame = _FRAME_LINE.fullmatch(line)
    if frame is None:
        return False
    if frame.lastindex and output.exit_code is None:
        output.exit_code = int(frame[frame.lastindex])
        output.is_framed = True
    return True


def _read_flags(value: dict[str, Any], output: Output) -> None:
    output.is_framed = output.is_framed or not value.keys().isdisjoint(("command", *CODES))
    for container in (value, value.get("metadata")):
        for name in CODES:
            if isinstance(container, dict) and isinstance(container.get(name), int) and output.exit_code is None:
                output.exit_code = int(container[name])
    if _says_failed(value):
        output.has_failed = True
    for name in ("error", "message", "detail", "reason", "stderr"):
        words = value.get(name)
        if isinstance(words, dict):
            words = words.get("message")
        if isinstance(words, str) and words.strip() and not output.reason:
            output.reason = words


def _says_failed(value: dict[str, Any]) -> bool:
    if value.get("success") is False or value.get("ok") is False:
        return True
    if value.get("isError") is True or value.get("is_error") is True:
        return True
    state, error = value.get("status"), value.get("error")
    if isinstance(state, str) and state.lower() in ("error", "failed", "failure", "fail"):
        return True
    return isinstance(error, str | dict) and bool(error)


def _read_value(name: str, value: Any, output: Output, depth: int) -> Iterator[str]:  # noqa: ANN401 - JSON
    levels_max = 40
    if name.count(".") + name.count("[") > levels_max or value in ("", None):
        return
    is_printed = name.rpartition(".")[2] in _PRINTED
    if isinstance(value, str) and (is_printed or len(value) > _LONG_CHARACTERS or "\n" in value):
        yield from _read_text(value, output, depth - 1)
    elif isinstance(value, dict):
        is_command = not value.keys().isdisjoint(_PRINTED) and not _AROUND.isdisjoint(value)
        for key, inner in value.items():
            if not (is_command and key in _AROUND):
                yield from _read_value(f"{name}.{key}".lstrip("."), inner, output, depth)
    elif isinstance(value, list):
        for inner in value:
            yield from _read_value(f"{name}[]", inner, output, depth)
    elif not name.endswith("type"):
        _note_member(name, value, output)


def _note_member(name: str, value: Any, output: Output) -> None:  # noqa: ANN401 - JSON
    line = render_value(value)
    if name:
        line = f"{name}: {line}"
    max_characters = 120
    if "[" not in name and name.count(".") <= 1 and len(line) <= max_characters:
        output.members.append(line)
    else:
        output.data.append(line)


def parse_json(text: str) -> Any:  # noqa: ANN401 - JSON
    """None also for more than a million characters."""
    if len(text) > 1_000_000:  # noqa: PLR2004 (as said)
        return None
    text = text.strip()
    if text[:1] not in ("{", "[") or text[-1:] not in ("}", "]"):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def clean_line(line: str) -> str:
    """As a terminal shows it: without escapes and overwritten text."""
    if not line.isprintable():
        line = _ESCAPES.sub("", line.rstrip("\r").rpartition("\r")[2])
    return line.rstrip()
