"""`make quick` runs the tests of what was changed."""

import pytest

from tests import ROOT
from tests.reach import choose_tests
from tests.touched import ALWAYS, MOST_SECONDS, choose, find_tests


@pytest.mark.parametrize(
    ("path", "tests"),
    [
        ("proxy/wire/refusals.py", "tests/wire"),
        ("proxy/events.py", "tests/test_events.py"),
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


EVENTS = "tests/test_events.py"
REACHED_BY = {
    "proxy/wire/refusals.py": ["tests/wire/test_refusals.py", EVENTS, "tests/wire/test_rounds.py"],
    "proxy/events.py": [EVENTS],
}
SECONDS = {"tests/wire/test_refusals.py": 1.0, EVENTS: 0.5, "tests/wire/test_rounds.py": MOST_SECONDS - 1.5}


@pytest.mark.parametrize(
    ("changes", "tests"),
    [
        (["proxy/events.py"], [EVENTS]),
        (["proxy/wire/refusals.py"], [EVENTS, "tests/wire/test_refusals.py", "tests/wire/test_rounds.py"]),
        (["proxy/server/worker.py", "README.md"], ["tests/server"]),
        (["proxy/events.py", "tests/store/test_memory.py"], ["tests/store/test_memory.py", EVENTS]),
    ],
)
def test_a_module_is_judged_by_the_tests_that_reach_it_and_else_by_those_of_its_room(changes, tests):
    assert choose(changes, REACHED_BY, SECONDS) == [*ALWAYS, *tests]


def test_the_most_specific_tests_come_first_and_those_that_cost_too_much_are_left_out():
    dear = {**SECONDS, "tests/wire/test_rounds.py": MOST_SECONDS - 1.4}
    assert choose(["proxy/wire/refusals.py"], REACHED_BY, dear) == [
        *ALWAYS,
        *(EVENTS, "tests/wire/test_refusals.py"),
    ]


@pytest.mark.parametrize(("times", "tests_of_a"), [(1, ["test_of_a.py"]), (2, ["test_of_a.py", "test_of_all.py"])])
def test_the_map_has_the_tests_that_call_little_else_until_each_function_is_called_often_enough(times, tests_of_a):
    called = {
        "test_of_a.py": {("a.py", "one"), ("a.py", "two")},
        "test_of_b.py": {("b.py", "one")},
        "test_of_all.py": {("a.py", "one"), ("a.py", "two"), ("b.py", "one"), ("c.py", "one"), ("c.py", "two")},
    }
    chosen = choose_tests(called, dict.fromkeys(called, 0.25), times)
    assert chosen["seconds"] == {"test_of_a.py": 0.2, "test_of_all.py": 0.2, "test_of_b.py": 0.2}
    assert chosen["tests"]["a.py"] == tests_of_a
    assert chosen["tests"]["c.py"] == ["test_of_all.py"]
