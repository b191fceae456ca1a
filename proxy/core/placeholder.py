"""Placeholders for cleared results: one line that says what it was, how it ended, and which names were in it.

A template may use `{tool} {argument} {bytes} {rows} {outcome} {handle} {names} {lines}`. Nothing in it may depend on a
clock or a counter: the same result gets the same words every time.
"""

import re
from collections.abc import Sequence

from proxy.core.model.messages import ToolCall

_WORD = re.compile(r"\{(\w+)\}")
_KEYS = (
    "file_path",
    "filePath",
    "absolute_path",
    "target_file",
    "path",
    "filename",
    "notebook_path",
    "command",
    "cmd",
    "pattern",
    "query",
    "url",
    "script",
    "code",
    "name",
    "description",
)
_FAILED = re.compile(
    r"\s*(?:\[?error\b|<tool_use_error>|traceback \(most|fatal:|failed\b|panic:|exception\b|could not\b|cannot\b"
    r"|unable to\b|invalid\b|no replacement was|your proposed edit has introduced|permission denied"
    r"|(?:/bin/)?(?:ba|z)?sh: )",
    re.IGNORECASE,
)
_EXIT = re.compile(
    r"(?:^|\n)\W{0,3}(?:(?:the )?(?:command|process|script)[a-z ,]{0,30} )?"
    r"(?:exit(?:ed)?(?: with)?[ _](?:code|status)|returncode)\W{1,4}(-?\d+)|\"exit_code\": ?(-?\d+)",
    re.IGNORECASE,
)
_ERRORS = ("error", "fail", "fatal", "panic", "exception", "denied", "not found")
_NEAR_CHARACTERS = 2_000
"""Characters at either end in which a failure is looked for."""
_END_CHARACTERS = 400
"""... and in which an exit code is."""
_LINE_CHARACTERS = 120
_KEY_CHARACTERS = 40


def words(
    template: str,
    text: str,
    call: ToolCall | None,
    handle: int,
    *,
    names: Sequence[str] = (),
    lines: Sequence[str] = (),
) -> str:
    """The template with its words filled in."""
    known = {
        "tool": call.name if call else "tool",
        "argument": short(argument(call), _KEY_CHARACTERS),
        "bytes": f"{len(text.encode('utf-8', 'surrogatepass')):,}",
        "rows": rows(text),
        "outcome": outcome(text),
        "names": f" Names in it: {', '.join(names)}." if names else "",
        "handle": f"#{handle}",
        "lines": "".join(("\nSome of its lines:", *(f"\n{line}" for line in lines), "\n")) if lines else "",
    }
    return _WORD.sub(lambda found: known.get(found[1], found[0]), template)


def argument(call: ToolCall | None) -> str:
    """The one argument a person would name the call by."""
    if call is None:
        return ""
    named = {key: value for key, value in call.named.items() if isinstance(value, str)}
    first = next((named[key] for key in (*_KEYS, *named) if key in named), None)
    if first is None:
        first = "" if isinstance(call.value, dict) else call.arguments
    return short(first)


def has_failed(text: str) -> bool:
    """True where this result reports a failure."""
    code = exit_code(text)
    return _FAILED.match(text) is not None if code is None else code != 0


def exit_code(text: str) -> int | None:
    """The exit code of a command, where its result begins or ends by saying so."""
    ends = (text[:_END_CHARACTERS], text[-_END_CHARACTERS:])
    told = (_EXIT.search(end) for end in ends if "exit" in end.lower() or "returncode" in end)
    return next((int(found[1] or found[2]) for found in told if found), None)


def failure(text: str) -> str:
    """The line that says what went wrong; that of the exit code only where there is no other."""
    near = text if len(text) <= 2 * _NEAR_CHARACTERS else f"{text[:_NEAR_CHARACTERS]}\n{text[-_NEAR_CHARACTERS:]}"
    lines = near.split("\n")
    told = (line for line in lines if any(word in line.lower() for word in _ERRORS) and not _EXIT.match(line))
    return next(told, None) or next(filter(_EXIT.match, lines), text)


def outcome(text: str) -> str:
    """`ok`, or `failed` with the line that says why."""
    return f"failed: {short(failure(text))}" if has_failed(text) else "ok"


def rows(text: str) -> str:
    """How many lines it has, in words."""
    number = text.count("\n") + 1
    return f"{number:,} lines" if number > 1 else "1 line"


def short(text: str, limit: int = _LINE_CHARACTERS) -> str:
    """The first line, cut with a visible mark; of a path the end says more than the beginning."""
    line = text.strip().split("\n", 1)[0].strip()
    if len(line) <= limit:
        return line
    return "…" + line[1 - limit :] if line.startswith("/") and " " not in line else line[: limit - 1] + "…"
