"""`make quick` runs the tests of what was changed."""

import pytest

from tests import ROOT
from tests.touched import find_tests


@pytest.mark.parametrize(
    ("path", "tests"),
    [
        ("proxy/wire/refusals.py", "tests/wire"),
        ("proxy/lru.py", "tests/test_lru.py"),
        ("proxy/lab/replay/scoring.py", "tests/lab"),
        ("bench/evidence.py", "tests/bench"),
        ("tests/store/test_memory.py", "tests/store/test_memory.py"),
        ("tests/support/messages.py", None),
        ("README.md", None),
    ],
)
def test_a_changed_file_has_its_tests(path, tests):
    assert find_tests(path) == tests


def test_every_room_has_tests():
    rooms = [folder for folder in (ROOT / "proxy").iterdir() if (folder / "__init__.py").exists()]
    assert rooms
    without = [room.name for room in rooms if find_tests(f"proxy/{room.name}/x.py") is None]
    assert without == []
