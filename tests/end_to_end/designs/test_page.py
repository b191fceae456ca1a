"""docs/designs.md: every row is there, and every test that it names."""

import re

from tests import ROOT

PAGE = (ROOT / "docs" / "designs.md").read_text(encoding="utf-8")
# Agents that are installed below `tests` bring tests of their own.
OURS = (path for path in (ROOT / "tests").rglob("test_*.py") if ".venv" not in path.parts)
TESTS = "\n".join(path.read_text(encoding="utf-8") for path in OURS)


def test_each_row_names_a_test_that_exists():
    rows = re.findall(r"^\| (\d+) \|.*\| `(test_\w+)` \|$", PAGE, re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(range(1, 37))
    assert [name for _, name in rows if f"def {name}(" not in TESTS] == []
