"""A few lines keep every name standing."""

from hypothesis import given
from hypothesis import strategies as st

from proxy.core.placeholder import Outlines, names, texts_of
from tests.support.messages import call, calls, request

TEXT = "import os\nclass SessionState:\n    pass\n# plain words only\ndata = os.path.join(SessionState)\n"


def test_the_lines_that_bring_most_names_for_their_length_stay_in_their_order():
    assert Outlines(1.0, 1_000, 0).of(TEXT) == (["class SessionState:", "data = os.path.join(SessionState)"], [])
    assert Outlines(1.0, 30, 0).of(TEXT) == (["class SessionState:"], [])


def test_names_that_stand_elsewhere_need_no_line():
    outlines = Outlines(1.0, 1_000, 5)
    outlines.keep(["we spoke of SessionState and os.path.join here", "of SessionState: too"])
    assert outlines.of(TEXT) == ([], [])


def test_names_without_room_are_listed_once():
    outlines = Outlines(0.0, 0, 1)
    assert {outlines.of(TEXT)[1][0] for _ in range(3)} == {"SessionState:", "SessionState", "os.path.join"}
    assert outlines.of(TEXT) == ([], [])


def test_who_wants_nothing_pays_nothing():
    nothing = Outlines(0.0, 1_000, 0)
    nothing.keep([TEXT])
    assert nothing.of(TEXT) == ([], [])
    assert nothing.standing == set()


@given(st.text(alphabet="ab_./1\n ", max_size=400), st.floats(0, 1), st.integers(0, 200))
def test_an_outline_keeps_to_its_budget_and_to_the_lines_there_are(text, share, at_most):
    lines, listed = Outlines(share, at_most, 3).of(text)
    assert sum(len(line) + 1 for line in lines) <= max(0, min(at_most, int(len(text) * share)))
    assert set(lines) <= set(text.split("\n"))
    assert len(listed) <= 3


def test_a_name_has_something_specific():
    text = "plain words, getUser, a/b/c.py, x=1, v1.2.3, under_score, 12345, " + "z_" * 100
    assert list(names(text)) == ["getUser", "a/b/c.py", "v1.2.3", "under_score", "12345"]


def test_the_texts_of_a_message_are_those_inside_its_arguments_too():
    asked = request(calls(("Edit", {"edits": [{"new": "a"}, 3]}, ""), ("Raw", "{odd", ""), says="hm")).body[0]
    assert texts_of(asked) == ["hm", "a", "{odd"]
    assert texts_of(request(call("Read", out="x")).body[1]) == ["x"]
