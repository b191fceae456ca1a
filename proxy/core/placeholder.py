"""What stands where something was folded: one line that tells an agent what it was, how it ended, and which names
were in it.

A template has the words `{tool} {argument} {bytes} {rows} {outcome} {handle} {names} {lines}`; what is not known is
left out. Nothing in it may depend on a clock or a counter: the same result gets the same words every time.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

from proxy.core.messages import Call

_WORD = re.compile(r"\{(\w+)\}")
_KEYS = (
    "file_path",
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
    r"^\s*(?:\[?error\b|<tool_use_error>|traceback \(most|fatal:|failed\b|exit code:? [1-9]|panic:|exception\b)"
    r"|(?:^|\n)(?:exit code|exit status|returncode|<returncode>|Process exited with code):?\s*[1-9]",
    re.IGNORECASE,
)
_ERROR = re.compile(r"error|fail|fatal|panic|exception|denied|not found|exit (?:code|status)", re.IGNORECASE)
_LONGEST = 120
_KEY_LENGTH = 40


def words(
    template: str, text: str, call: Call | None, handle: int, *, names: Sequence[str] = (), lines: Sequence[str] = ()
) -> str:
    """The template with its words filled in."""
    known = {
        "tool": call.name if call else "tool",
        "argument": short(argument(call), _KEY_LENGTH),
        "bytes": f"{len(text.encode('utf-8', 'surrogatepass')):,}",
        "rows": f"{text.count(chr(10)) + 1:,}",
        "outcome": outcome(text),
        "names": f" Names in it: {', '.join(names)}." if names else "",
        "handle": f"#{handle}",
        "lines": "".join(("\nSome of its lines:", *(f"\n{line}" for line in lines), "\n")) if lines else "",
    }
    return _WORD.sub(lambda found: known.get(found[1], found[0]), template)


def argument(call: Call | None) -> str:
    """The one argument a person would name the call by."""
    if call is None:
        return ""
    values = arguments(call)
    for key in _KEYS:
        if isinstance(values.get(key), str):
            return short(values[key])
    first = next((value for value in values.values() if isinstance(value, str)), "" if values else call.arguments)
    return short(first)


def failed(text: str) -> bool:
    """Does this result tell of a failure?"""
    return _FAILED.search(text[:2_000]) is not None or _FAILED.search(text[-300:]) is not None


def outcome(text: str) -> str:
    """`ok`, or `failed` with the first line of the failure."""
    if not failed(text):
        return "ok"
    told = next((line for line in text.split("\n") if _ERROR.search(line)), text)
    return f"failed: {short(told)}"


def short(text: str, limit: int = _LONGEST) -> str:
    """The first line, cut with a visible mark; of a path the end says more than the beginning."""
    line = text.strip().split("\n", 1)[0].strip()
    if len(line) <= limit:
        return line
    return "…" + line[1 - limit :] if line.startswith("/") and " " not in line else line[: limit - 1] + "…"


def arguments(call: Call) -> dict[str, Any]:
    """The arguments by name; none, where they are not a JSON object."""
    try:
        value = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
