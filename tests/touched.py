"""Prints the tests of what was changed, for `make quick`: `python -m tests.touched`.

Changed is what differs from the last commit; if nothing does, what the last commit changed. A module of `proxy/` is
judged by the folder of `tests/` with the name of its room, or by the test with its own name.
"""

import subprocess
import sys
from pathlib import Path

from tests import ROOT

ALWAYS = ["tests/test_architecture.py"]
JUDGED_WITH = {"designs": "shorten"}
"""Rooms without a folder of their own in `tests/`, and the room with whose tests they are judged."""


def list_changes() -> list[str]:
    """Paths that differ from HEAD, untracked ones too; else those of the last commit."""
    status = _git("status", "--porcelain", "--untracked-files=all")
    if status:
        return [line[3:].rpartition(" -> ")[2] for line in status]
    return _git("diff", "--name-only", "HEAD~1")


def find_tests(path: str) -> str | None:
    """Return the test file or folder that judges *path*, or None if there is none.

    >>> find_tests("proxy/wire/refusals.py")
    'tests/wire'
    """
    parts = Path(path).parts
    if parts[0] == "tests":
        return path if Path(path).name.startswith("test_") else None
    if parts[0] not in {"proxy", "bench"} or len(parts) < 2:
        return None
    room = "tests/bench"
    if parts[0] == "proxy":
        room = f"tests/{JUDGED_WITH.get(parts[1], parts[1])}"
    for candidate in (room, f"tests/test_{Path(path).stem}.py"):
        if (ROOT / candidate).exists():
            return candidate
    return None


def _git(*arguments: str) -> list[str]:
    done = subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.splitlines()


if __name__ == "__main__":
    tests = {find_tests(path) for path in list_changes()} - {None}
    sys.stdout.write(" ".join([*ALWAYS, *sorted(test for test in tests if test and (ROOT / test).exists())]))
