"""The agent's tools, working on files in memory: what it reads, finds and changes hangs together as in a real run."""

import difflib
import re
from collections.abc import Mapping

_MOST_FOUND = 120
_AROUND = 4


class Workshop:
    """A repository that exists only here. Each tool gives the text that an agent would be shown."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self.files = dict(files)
        self._before = dict(files)

    def read(self, path: str, offset: int = 1, limit: int = 2_000) -> str:
        """Lines with their numbers, as editors and agents show them."""
        if path not in self.files:
            return f"Error: File does not exist: {path}"
        lines = self.files[path].split("\n")[offset - 1 : offset - 1 + limit]
        return _numbered(lines, offset)

    def grep(self, pattern: str, under: str = "") -> str:
        """Every line in which the pattern is found."""
        sought = re.compile(pattern)
        found = [
            f"{path}:{number}:{line}"
            for path, text in sorted(self.files.items())
            if path.startswith(under)
            for number, line in enumerate(text.split("\n"), 1)
            if sought.search(line)
        ]
        rest = [f"... {len(found) - _MOST_FOUND} more lines"] if len(found) > _MOST_FOUND else []
        return "\n".join(found[:_MOST_FOUND] + rest) or "No matches found"

    def glob(self, ending: str) -> str:
        return "\n".join(path for path in sorted(self.files) if path.endswith(ending)) or "No files found"

    def edit(self, path: str, old: str, new: str) -> str:
        text = self.files[path]
        if text.count(old) != 1:
            return f"Error: String to replace was found {text.count(old)} times in {path}; it must be found once."
        self.files[path] = text.replace(old, new)
        first = max(1, text[: text.index(old)].count("\n") + 1 - _AROUND)
        shown = self.files[path].split("\n")[first - 1 : first + new.count("\n") + 2 * _AROUND]
        return f"The file {path} has been updated. The lines around the change:\n{_numbered(shown, first)}"

    def write(self, path: str, text: str) -> str:
        verb = "updated" if path in self.files else "created"
        self.files[path] = text
        return f"File {verb} successfully at: {path}"

    def diff(self) -> str:
        """Everything that was changed since the beginning, as `git diff` tells it."""
        parts = []
        for path in sorted(self.files):
            old, new = self._before.get(path, ""), self.files[path]
            if old != new:
                lines = difflib.unified_diff(old.split("\n"), new.split("\n"), f"a/{path}", f"b/{path}", lineterm="")
                parts.append("\n".join([f"diff --git a/{path} b/{path}", *lines]))
        return "\n".join(parts)

    def stat(self) -> str:
        """The same as `git status --short` tells it."""
        changed = sorted(path for path, text in self.files.items() if self._before.get(path) != text)
        return "\n".join(f" M {path}" if path in self._before else f"?? {path}" for path in changed)


def _numbered(lines: list[str], first: int) -> str:
    return "\n".join(f"{number:6}\t{line}" for number, line in enumerate(lines, first))
