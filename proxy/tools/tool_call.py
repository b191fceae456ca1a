"""A call as an agent makes it, and the values of its arguments."""

import json
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any, Literal, TypeVar

from msgspec import Struct

PATHS = (
    *("file_path", "path", "filePath", "filename", "file_name", "absolute_path", "target_file", "notebook_path"),
    *("file", "paths", "files", "filepath", "source", "destination"),
)
V = TypeVar("V")
COMMANDS = ("command", "cmd", "commands", "script")


class ToolCall(Struct, frozen=True, dict=True):  # with a dict: its arguments are parsed once
    """A call. `arguments` is the model's text: JSON for functions, anything for custom tools."""

    id: str
    name: str
    arguments: str
    kind: Literal["function", "custom", "legacy"] = "function"

    @property
    def answered_by(self) -> str:
        return self.id or self.name

    @cached_property
    def value(self) -> Any:  # noqa: ANN401 - JSON
        """The arguments as a JSON value; None if they are not JSON."""
        try:
            return json.loads(self.arguments)
        except (ValueError, RecursionError):
            return None

    @cached_property
    def _answers(self) -> dict[str, Any]:
        return {}

    def recall(self, question: str, read: Callable[["ToolCall"], V]) -> V:
        """Return the result of *read*, and remember it under *question*: dozens of functions ask about each call.

        Results for long calls are not remembered: these may be read into thousands of commands.
        """
        answer: V | None = self._answers.get(question)
        if answer is None:
            answer, remembered_characters = read(self), 4_000
            if len(self.arguments) <= remembered_characters:
                self._answers[question] = answer
        return answer

    @property
    def named(self) -> dict[str, Any]:
        """The arguments by name; empty if they are not a JSON object."""
        value = self.value
        return value if isinstance(value, dict) else {}


def find_value(values: Mapping[str, Any], names: Iterable[str]) -> Any:  # noqa: ANN401 - JSON
    """Return the first value under these names that is not empty, or None."""
    for name in names:
        value = values.get(name)
        if value:
            return value
    return None


def render_value(value: Any) -> str:  # noqa: ANN401 - JSON
    """Return a JSON value as text; a string without its quotes."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return "…"


def find_requested_lines(values: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return the first and the last line, 0 for the end of the file; None for all lines."""
    match values:
        case {"view_range": [int(first), int(last)]} | {"read_range": [int(first), int(last)]}:
            return first, max(0, last)
    first = _find_number(values, ("start_line", "startLine", "line_start", "start_line_one_indexed", "offset"))
    last = _find_number(values, ("end_line", "endLine", "line_end", "end_line_one_indexed_inclusive"))
    count = _find_number(values, ("limit",))
    if count > 0:
        first = max(first, 1)
        last = first + count - 1
    if first <= 0:
        return None
    return first, max(0, last)


def _find_number(values: Mapping[str, Any], names: Iterable[str]) -> int:
    value = find_value(values, names)
    return value if isinstance(value, int) else 0
