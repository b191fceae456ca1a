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
    """`arguments` is the model's text, JSON for functions, anything for custom tools."""

    id: str
    name: str
    arguments: str
    kind: Literal["function", "custom", "legacy"] = "function"

    @property
    def answered_by(self) -> str:
        return self.id or self.name

    @cached_property
    def value(self) -> Any:  # noqa: ANN401 - JSON
        """None if the arguments are not JSON."""
        try:
            return json.loads(self.arguments)
        except (ValueError, RecursionError):
            return None

    @cached_property
    def _answers(self) -> dict[str, Any]:
        return {}

    def recall(self, question: str, read: Callable[["ToolCall"], V]) -> V:
        """Return what *read* finds in this call, which dozens ask.

        Answers about long ones are not remembered: they may be read into thousands of commands.
        """
        answer: V | None = self._answers.get(question)
        if answer is None:
            answer, remembered_characters = read(self), 4_000
            if len(self.arguments) <= remembered_characters:
                self._answers[question] = answer
        return answer

    @property
    def named(self) -> dict[str, Any]:
        """Empty if the arguments are not a JSON object."""
        value = self.value
        return value if isinstance(value, dict) else {}


def find_value(values: Mapping[str, Any], names: Iterable[str]) -> Any:  # noqa: ANN401 - JSON
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
    """The first and the last line, 0 for the end of the file."""
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
