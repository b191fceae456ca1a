"""Prints the tests of what was changed, for `make quick`: `python -m tests.touched`.

Changed is what differs from the last commit; if nothing does, what the last commit changed. A module of `proxy/` is
judged by the tests that reach it most specifically (`tests/reach.json`, written by `python -m tests.reach`), or by the
folder of `tests/` with the name of its room if hardly a test calls it within its own process. Whatever was changed, the
architecture is checked, and twenty requests and answers have to pass the proxy byte for byte.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from itertools import chain, zip_longest
from pathlib import Path

from tests import ROOT

ALWAYS = (
    "tests/test_architecture.py",
    "tests/end_to_end/fidelity/test_fidelity.py::test_twenty_of_all_cases_pass_byte_for_byte",
)
JUDGED_WITH = {"decide": "path", "serve": "path"}
"""Rooms without a folder of their own in `tests/`, and the room with whose tests they are judged."""
MOST_SECONDS = 12.0
"""CPU time of the tests that are chosen by the map."""
LEAST_FILES = 2
"""A module that fewer files of tests call within their own process is looked at from outside by those of its room."""


def list_changes() -> list[str]:
    """Paths that differ from HEAD, untracked ones too; else those of the last commit."""
    status = _git("status", "--porcelain", "--untracked-files=all")
    if status:
        return [line[3:].rpartition(" -> ")[2] for line in status]
    return _git("diff", "--name-only", "HEAD~1")


def find_tests(path: str) -> str | None:
    """Return the test file or folder that is named after *path*, or None if there is none.

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


def choose(changes: list[str], reached_by: Mapping[str, list[str]], seconds: Mapping[str, float]) -> list[str]:
    """Return the tests to run. Of several changed modules each in turn has its most specific file of tests chosen.

    *reached_by*: the files of tests for each module, the most specific first. *seconds*: what each of them costs.
    """
    unreached = [path for path in changes if len(reached_by.get(path, ())) < LEAST_FILES]
    tests = {test for test in map(find_tests, unreached) if test is not None}
    remaining_seconds = MOST_SECONDS
    for test in chain.from_iterable(zip_longest(*(reached_by.get(path, ()) for path in changes))):
        is_new = test is not None and test not in tests
        if is_new and seconds[test] <= remaining_seconds and (ROOT / test).exists():
            tests.add(test)
            remaining_seconds -= seconds[test]
    return [*ALWAYS, *sorted(tests - {*ALWAYS})]


def _git(*arguments: str) -> list[str]:
    done = subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.splitlines()


if __name__ == "__main__":
    reach = json.loads((ROOT / "tests" / "reach.json").read_text(encoding="utf-8"))
    sys.stdout.write(" ".join(choose(list_changes(), reach["tests"], reach["seconds"])))
