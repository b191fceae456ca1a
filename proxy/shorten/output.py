"""The output of a call, without the frames that harnesses and servers of tools put around it.

A frame is a line above or below the output (`Wall time: 0.1 seconds`, `[Current working directory: /w]`) or JSON around
it (`{"stdout": ..., "exit_code": 1}`, `{"content": [{"text": ...}]}`). Frames are nested: Codex writes lines above the
JSON of a server, and a text within JSON may be JSON again.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

_EXIT = (
    r"\W{0,3}(?:error: )?(?:(?:the )?(?:command|process|script)[a-z ,]{0,30} )?"
    r"(?:exit(?:ed)?(?: with)?[ _](?:code|status)|returncode)\W{1,4}-?\d+\W{0,3}"
)
FRAMES: Mapping[str, tuple[str, ...]] = {
    "any shell": (_EXIT,),
    "Codex": (
        r"(?:chunk id|wall time|original token count|total output lines): [^\n]{1,80}",
        r"process running with session id \d+",
        r"output:",
    ),
    "Claude Code": (
        r"<(?:status|exit_code|timestamp)>[^<\n]{1,40}</\w+>",
        r"</?(?:stdout|stderr|tool_use_error)>",
        r"shell cwd was reset to \S[^\n]*",
        r"here's the result of running `cat -n` on [^\n]+:",
    ),
    "Copilot CLI": (r"<(?:shellid: )?[\w-]{1,40} completed with exit code -?\d+>",),
    "OpenHands": (r"\[(?:the command completed|current working directory|python interpreter)[^\n]*\]",),
    "SWE-agent": (r"\((?:open file|current directory): [^\n]*\)", r"bash-\$"),
    "mini-swe-agent": (r"<returncode>-?\d+</returncode>", r"</?output>"),
    "Gemini CLI": (
        r"(?:directory|stderr|error|signal|process group pgid|background pids): \(?(?:none|root|empty|\d+)\)?",
    ),
}
"""By harness, the lines that it puts above or below an output, as expressions for whole lines, case ignored."""
_FRAME_LINE = re.compile("|".join(line for lines in FRAMES.values() for line in lines), re.IGNORECASE)
_CODE = re.compile(r"(?:code|status|returncode)\W{1,4}(-?\d+)", re.IGNORECASE)
_FRAME_LINES_MAX = 8
"""At most this many lines at either end are a frame."""
_JSON_CHARACTERS = 1_000_000
_DEPTH = 2
"""A text within JSON is read as JSON once more."""
_LEVELS_MAX = 40
"""What is nested deeper in JSON is not read."""
_MEMBER_CHARACTERS = 120
_LONG_CHARACTERS = 200
"""Texts in JSON that are longer, or have several lines, are output; shorter ones are members."""
_REMINDER, _END_OF_REMINDER = "<system-reminder>", "</system-reminder>"
"""What Claude Code writes to the model below a result."""
_ESCAPES = re.compile(r"\x1b\[[0-9;?]{0,16}[A-Za-z]|\x1b\][^\x07\n]{0,200}\x07?|[\x00-\x08\x0b\x0c\x0e-\x1f]")
CODES = ("exit_code", "exitCode", "exit_status", "returncode", "return_code")
_PRINTED = ("stdout", "stderr", "output", "logs")
_AROUND = frozenset({*CODES, "command", "kind", "metadata", "type", "timeout", "interrupted", "isImage"})
"""Members that a harness writes beside the output of a command."""
_FAILED_STATES = frozenset({"error", "failed", "failure", "fail"})
_REASONS = ("error", "message", "detail", "reason", "stderr")


@dataclass(slots=True)
class Output:
    """What a call returned."""

    text: str = ""
    """What a program printed, or any other text."""
    members: list[str] = field(default_factory=list)
    """Short members of JSON, `status: live`."""
    data: list[str] = field(default_factory=list)
    """All else in JSON, a line for each value."""
    exit_code: int | None = None
    has_failed: bool = False
    """It says itself that the call failed, by a member such as `isError`."""
    reason: str = ""
    """... and why."""
    is_framed: bool = False
    """A harness says that a command ran: by its exit code, or by JSON around what it printed."""


def read_output(text: str) -> Output:
    """The output within this result."""
    output = Output()
    output.text = "\n".join(_read_text(text, output, _DEPTH)).strip("\n")
    return output


def _read_text(text: str, output: Output, depth: int) -> list[str]:
    lines = _remove_frames(_remove_reminders(text), output)
    bare = "\n".join(lines).strip()
    value = parse_json(bare) if depth else None
    if not isinstance(value, dict | list):
        return [clean_line(line) for line in lines]
    _read_flags(value, output)
    return list(_read_value("", value, output, depth))


def _remove_reminders(text: str) -> str:
    """The text without what a harness reminds the model of."""
    parts, position = list[str](), 0
    while (start := text.find(_REMINDER, position)) >= 0:
        stop = text.find(_END_OF_REMINDER, start)
        if stop < 0:
            break
        parts.append(text[position:start].rstrip())
        position = stop + len(_END_OF_REMINDER)
    return "".join((*parts, text[position:]))


def _remove_frames(text: str, output: Output) -> list[str]:
    """The lines of a text without those of frames, whose exit code is noted."""
    lines = text.split("\n")
    start, stop = 0, len(lines)
    while start < stop and start < _FRAME_LINES_MAX and _is_frame(lines[start], output):
        start += 1
    last = max(start, stop - _FRAME_LINES_MAX)
    while stop > last and _is_frame(lines[stop - 1], output):
        stop -= 1
    return lines[start:stop]


def _is_frame(line: str, output: Output) -> bool:
    line = line.strip()
    if not line:
        return True
    if len(line) > _LONG_CHARACTERS or not _FRAME_LINE.fullmatch(line):
        return False
    code = _CODE.search(line)
    if code and output.exit_code is None:
        output.exit_code = int(code[1])
        output.is_framed = True
    return True


def _read_flags(value: dict[str, Any] | list[Any], output: Output) -> None:
    """Note the exit code, and whether the JSON says that the call failed."""
    if not isinstance(value, dict):
        return
    output.is_framed = output.is_framed or any(name in value for name in ("command", *CODES))
    for place in (value, value.get("metadata")):
        code = next((place[name] for name in CODES if name in place), None) if isinstance(place, dict) else None
        if isinstance(code, int) and output.exit_code is None:
            output.exit_code = int(code)
    state, error = value.get("status"), value.get("error")
    output.has_failed = output.has_failed or (
        any(value.get(name) is False for name in ("success", "ok"))
        or any(value.get(name) is True for name in ("isError", "is_error"))
        or (isinstance(state, str) and state.lower() in _FAILED_STATES)
        or (isinstance(error, str | dict) and bool(error))
    )
    for name in _REASONS:
        words = value.get(name)
        words = words.get("message") if isinstance(words, dict) else words
        if isinstance(words, str) and words.strip() and not output.reason:
            output.reason = words


def _read_value(name: str, value: Any, output: Output, depth: int) -> Iterator[str]:  # noqa: ANN401 - JSON
    """The lines of long texts in a JSON value; shorter members and data are noted."""
    if name.count(".") + name.count("[") > _LEVELS_MAX:
        return
    is_printed = name.rpartition(".")[2] in _PRINTED
    if isinstance(value, str) and (len(value) > _LONG_CHARACTERS or "\n" in value or (is_printed and value)):
        yield from _read_text(value, output, depth - 1)
    elif isinstance(value, dict):
        is_command = any(key in value for key in _PRINTED) and any(key in value for key in _AROUND)
        for key, inner in value.items():
            if not is_command or key not in _AROUND:
                yield from _read_value(f"{name}.{key}" if name else key, inner, output, depth)
    elif isinstance(value, list):
        for inner in value:
            yield from _read_value(f"{name}[]", inner, output, depth)
    elif value not in ("", None) and not name.endswith("type"):
        line = f"{name}: {json.dumps(value) if not isinstance(value, str) else value}".removeprefix(": ")
        is_member = "[" not in name and name.count(".") < _DEPTH and len(line) <= _MEMBER_CHARACTERS
        (output.members if is_member else output.data).append(line)


def parse_json(text: str) -> Any:  # noqa: ANN401 - JSON
    """The object or list that the text is; None if it is none."""
    bare = text[: _JSON_CHARACTERS + 1].strip()
    if bare[:1] not in ("{", "[") or bare[-1:] not in ("}", "]") or len(text) > _JSON_CHARACTERS:
        return None
    try:
        return json.loads(bare)
    except (ValueError, RecursionError):
        return None


def clean_line(line: str) -> str:
    """The line as a terminal shows it: without escapes, and of what was overwritten only the last."""
    if not line.isprintable():
        line = _ESCAPES.sub("", line.rstrip("\r").rpartition("\r")[2])
    return line.rstrip()
