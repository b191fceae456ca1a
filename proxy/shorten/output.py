"""The output of a call, without the frames that harnesses and servers of tools put around it.

A frame is a line above or below the output (`Wall time: 0.1 seconds`, `[Current working directory: /w]`) or JSON around
it (`{"stdout": ..., "exit_code": 1}`, `{"content": [{"text": ...}]}`). Frames are nested: Codex writes lines above the
JSON of a server, and a text within JSON may be JSON again.

A program may print an exit code, too. If there are different codes, the outermost counts; of several outermost codes,
one in a form that only harnesses write, or next to such a form; else one that is not 0:

    Exit code: 0                                  printed by a program
    3 assertions broke
    [The command completed with exit code 2.]     written by OpenHands: it counts
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from msgspec import Struct, field

from proxy.history.messages import remove_reminders
from proxy.tools.tool_call import render_value

FRAMES: Mapping[str, Mapping[str, str]] = {
    "Codex": {
        r"(?:chunk id|wall time|original token count|total output lines): [^\n]{1,80}": "Wall time: 0.1 seconds",
        r"warning: truncated output \(.{1,80}\)": "Warning: truncated output (original token count: 9)",
        r"process running with session id \d+": "Process running with session ID 4",
        r"output:": "Output:",
    },
    "Claude Code": {
        r"<(?:status|exit_code)>(?=[^<\n]{1,40}<)(?:[^<\n]*?code)?[^\w\n-]{0,4}(-?\d+)[^<\n]*</\w+>": (
            "<status>completed, exit code 1</status>"
        ),
        r"<(?:status|exit_code|timestamp|retrieval_status|task_id|task_type)>[^<\n]{1,80}</\w+>": (
            "<task_id>a1</task_id>"
        ),
        r"</?(?:stdout|stderr)>": "<stdout>",
        r"shell cwd was reset to \S[^\n]*": "Shell cwd was reset to /w",
        r"here's the result of running `cat -n` on [^\n]+:": "Here's the result of running `cat -n` on a.py:",
        r"(?:<usage>)?(?:\w+_tokens|tool_uses|duration_ms): \d+(?:</usage>)?": "<usage>total_tokens: 86060",
    },
    "Copilot CLI": {
        r"<(?:shellid: )?[\w-]{1,40} completed with exit code (-?\d+)>": "<shellId: 1 completed with exit code 1>"
    },
    "OpenHands": {
        r"\[the command completed with exit code (-?\d+)[^\n]*\]": "[The command completed with exit code 1.]",
        r"\[(?:the command completed|current working directory|python interpreter)[^\n]*\]": (
            "[Current working directory: /w]"
        ),
    },
    "agents that speak in text": {r"observation:": "Observation:"},
    "SWE-agent": {r"\((?:open file|current directory): [^\n]*\)": "(Open file: /w/a.py)", r"bash-\$": "bash-$"},
    "mini-swe-agent": {r"<returncode>(-?\d+)</returncode>": "<returncode>1</returncode>", r"</?output>": "<output>"},
    "Gemini CLI": {
        r"(?:directory|stderr|error|signal|process group pgid|background pids): \(?(?:none|root|empty|\d+)\)?": (
            "Directory: (root)"
        ),
        r"command: [^\n]{1,190}": "Command: ls",
        r"(?:output|stdout): \(empty\)": "Output: (empty)",
    },
    # Last, because it also fits lines that only harnesses write.
    "any program": {
        r"\W{0,3}(?:error: )?(?:(?:the )?(?:command|process|script)[a-z ,]{0,30} )?"
        r"(?:exit(?:ed)?(?: with)?[ _](?:code|status)|returncode)[^\w\n-]{1,4}(-?\d+)\W{0,3}": "Exited with code 1"
    },
}
"""Expressions for whole lines by the harness that writes them, each with such a line. A group is the exit code."""
_FRAME_LINE = re.compile("|".join(chain.from_iterable(FRAMES.values())), re.IGNORECASE)
_HARNESS_LINE = re.compile("|".join(chain.from_iterable([*FRAMES.values()][:-1])), re.IGNORECASE)
_LONG_CHARACTERS = 200
"""Texts in JSON that are longer, or have several lines, are output; shorter ones are members."""
_CONTROLS = bytes({*range(32)} - {*b"\t\n"})
_ESCAPES = re.compile(r"\x1b\[[0-9;?]{0,16}[A-Za-z]|\x1b\][^\x07\n]{0,200}\x07?|[\x00-\x08\x0b\x0c\x0e-\x1f]")
CODES = ("exit_code", "exitCode", "exit_status", "returncode", "return_code")
_PRINTED = ("stdout", "stderr", "output", "output_head", "output_tail", "logs", "text")
_ERROR_FLAGS = ("isError", "is_error")
_AROUND = frozenset({*CODES, "command", "kind", "metadata", "type", "timeout", "interrupted", "isImage"})


class ExitCode(Struct, frozen=True):
    depth: int
    """How deep frames may still be nested: the outermost has the greatest depth."""
    is_harness: bool
    number: int
    line: str
    is_below: bool = False
    """Below the output, where a command may have printed it."""


class Output(Struct):
    text: str = ""
    members: list[str] = field(default_factory=list)
    """Short values of JSON, and the lengths of its lists: `status: succeeded`, `orders: 25 entries`."""
    exit_codes: list[ExitCode] = field(default_factory=list)
    has_failed: bool = False
    """JSON says that the call failed, by a member such as `isError`."""
    is_report: bool = False
    """A sub-agent that ran in the background wrote the output."""
    is_refused: bool = False
    """A tag of Claude Code says that the call was refused."""
    reason: str = ""
    is_wrapped: bool = False
    """A harness has put the output into JSON."""
    is_json: bool = False
    is_cut_json: bool = False
    """The output begins as JSON, but a harness has cut it."""
    shows_command: bool = False
    """JSON has the members of a command's result."""

    @property
    def exit_code(self) -> int | None:
        if not self.exit_codes:
            return None
        return max(self.exit_codes, key=lambda code: (code.depth, code.is_harness, code.number != 0)).number

    @property
    def other_codes(self) -> list[str]:
        """The lines with an exit code that does not count."""
        lines = [code.line for code in self.exit_codes if code.number != self.exit_code]
        return [line for line in lines if line not in self.members]

    def take_for_printed(self, codes: Iterable[ExitCode]) -> None:
        """Take these codes for words of the program, if neither their form nor a line next to them is a harness's."""
        bare_form = re.compile(r"(?:exit|return)[ _]?(?:code|status)", re.IGNORECASE)
        printed_codes = [code for code in codes if not code.is_harness and bare_form.match(code.line)]
        self.exit_codes = [code for code in self.exit_codes if code not in printed_codes]
        self.text = "\n".join([self.text, *(code.line for code in printed_codes)]).strip("\n")

    def note_failure(self) -> None:
        """An API marks the call as failed: an exit code of 0 is not that of the call."""
        self.has_failed = True
        if self.exit_code == 0:
            self.exit_codes = []

    @property
    def message(self) -> str:
        """The printed text, or if there is none, the reason why the call failed."""
        if self.has_failed and not self.text:
            return self.reason
        return self.text

    def list_lines(self) -> list[str]:
        return [*self.members, *self.text.split("\n")]

    @property
    def lengths(self) -> list[str]:
        """The members that tell how long lists are, in one line: they quote nothing. Empty if there are none."""
        lengths = [member for member in self.members if member.endswith((" entry", " entries"))]
        return [", ".join(lengths)] if lengths else []

    def join_members(self) -> str:
        """Write the members in one line: if that is too long, only those of the outer objects, cut in their middle."""
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
    if output.text.startswith("<tool_use_error>"):
        output.is_refused = True
        output.text = output.text.removeprefix("<tool_use_error>").removesuffix("</tool_use_error>").strip()
    return output


def remove_frames(text: str) -> list[str]:
    """Return the lines of a text but those that are written by harnesses only."""
    return [line for line in text.split("\n") if not _HARNESS_LINE.fullmatch(line.strip()[: _LONG_CHARACTERS + 1])]


def _read_text(text: str, output: Output, depth: int) -> list[str]:
    lines, frames_max = remove_reminders(text).split("\n"), 12
    del lines[: _read_frames(lines[:frames_max], output, depth)]
    del lines[len(lines) - _read_frames(reversed(lines[-frames_max:]), output, depth, is_below=True) :]
    value, rest = None, "\n".join(lines)
    if depth:
        value = parse_json(rest)
    if not isinstance(value, dict | list):
        begins_as_json = re.match(r"\s*(?:\{\s*\"|\[\s*[\[{\"])", "\n".join(lines[:2]))
        if begins_as_json and parse_json(lines[0]) is None:
            output.is_cut_json = True  # a log with an object in each line is not cut
        return [line.rstrip() for line in show_as_terminal(rest).split("\n")]
    output.is_json = True
    if isinstance(value, dict):
        _read_flags(value, output, depth)
    return list(_read_value("", value, output, depth))


def _read_frames(lines: Iterable[str], output: Output, depth: int, *, is_below: bool = False) -> int:
    """Note the exit codes of the frames with which *lines* begin, and return the number of these."""
    codes = list[tuple[int, str]]()
    is_harness, number = False, 0
    tells_code = any(code.depth == depth and code.is_harness for code in output.exit_codes)
    for line in lines:
        line = line.strip()  # noqa: PLW2901
        frame = _FRAME_LINE.fullmatch(line) if len(line) <= _LONG_CHARACTERS else None
        is_printed = frame is not None and frame.lastindex == _FRAME_LINE.groups  # also programs write the last form
        if (line and frame is None) or (is_printed and (codes or tells_code)):
            break
        number += 1
        if frame is None:
            continue
        output.is_report = output.is_report or line == "<task_type>local_agent</task_type>"
        is_harness = is_harness or not is_printed
        if frame.lastindex:
            codes.append((int(frame[frame.lastindex]), line))
    output.exit_codes += [ExitCode(depth, is_harness, code, line, is_below) for code, line in codes]
    return number


def _read_flags(value: dict[str, Any], output: Output, depth: int) -> None:
    output.shows_command = output.shows_command or not value.keys().isdisjoint(("command", *CODES))
    # The JSON of a program or a file may have such members, too. A harness writes them next to the output.
    is_harness = not value.keys().isdisjoint((*_PRINTED, *_ERROR_FLAGS))
    output.is_wrapped = output.is_wrapped or is_harness
    for container in (value, value.get("metadata")):
        for name in CODES:
            if is_harness and isinstance(container, dict) and isinstance(container.get(name), int):
                code = int(container[name])
                output.exit_codes.append(ExitCode(depth, is_harness=True, number=code, line=f"{name}: {code}"))
    state, error = value.get("status"), value.get("error")
    output.has_failed = (
        output.has_failed
        or value.get("success") is False
        or value.get("ok") is False
        or any(value.get(flag) is True for flag in _ERROR_FLAGS)
        or (isinstance(state, str) and state.lower() in ("error", "failed", "failure", "fail"))
        or (isinstance(error, str | dict) and bool(error))
    )
    for name in ("error", "message", "detail", "reason", "stderr"):
        words = value.get(name)
        if isinstance(words, dict):
            words = words.get("message")
        if isinstance(words, str) and words.strip() and not output.reason:
            output.reason = words


def _read_value(name: str, value: Any, output: Output, depth: int) -> Iterator[str]:  # noqa: ANN401 - JSON
    """Yield the lines of long texts, and note short values as members."""
    levels_max = 40
    if name.count(".") > levels_max or value in ("", None, []):
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
        texts = [part["text"] for part in value if isinstance(part, dict) and isinstance(part.get("text"), str)]
        for text in texts:
            yield from _read_text(text, output, depth - 1)
        if not texts:
            _note_member(name, "1 entry" if len(value) == 1 else f"{len(value):,} entries", output)
    elif not name.endswith(("type", *_ERROR_FLAGS)):
        _note_member(name, render_value(value), output)


def _note_member(name: str, value: str, output: Output) -> None:
    characters_max = 120
    line = f"{name}: {value}".removeprefix(": ")
    if name.count(".") <= 1 and len(line) <= characters_max:
        output.members.append(line)


def parse_json(text: str) -> Any:  # noqa: ANN401 - JSON
    """Return None for other texts, and for more than a million characters."""
    if len(text) > 1_000_000:  # noqa: PLR2004 (as said)
        return None
    text = text.strip()
    if text[:1] not in ("{", "[") or text[-1:] not in ("}", "]"):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def show_as_terminal(text: str) -> str:
    """Remove escapes and overwritten text from each line, as a terminal does."""
    raw = text.encode("utf-8", "surrogatepass")
    if len(raw.translate(None, _CONTROLS)) == len(raw):  # an expression takes five times as long
        return text
    lines = [_ESCAPES.sub("", line.rstrip("\r").rpartition("\r")[2]) for line in text.split("\n")]
    return "\n".join(lines)
