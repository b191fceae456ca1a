"""What was in a history and still is in the view."""

from proxy.core.agents import OBSERVATIONS, mark_observations
from proxy.core.grouping import Pins
from proxy.lab.replay.recall import measure_recall
from proxy.lab.replay.values import Recall
from tests.support.messages import call, history, says, system, user
from tests.support.replay_cases import view_of

TRACE = "collected 3 items\nTraceback (most recent call last):\n  File a.py\nValueError: 1284.50 is no berth\n"
WORK = history(
    system("Be brief."),
    user("Mend src/a.py, ticket HB-20417.\nNever push."),
    call("Bash", command="pytest tests/test_a.py", out=TRACE),
    system("From now on: no floats."),
    call("Look", out="src/b.py is gone"),
    says("I see."),
    user("And HB-20417 again?"),
)


def recall(view, pins=None, messages=WORK):
    body = view_of(messages)
    marked = body[:1] + mark_observations(body[1:], OBSERVATIONS)
    return measure_recall(marked, view_of(view), Pins() if pins is None else pins)


def test_all_of_it_stands_in_what_was_not_touched():
    assert recall(WORK) == {
        "user messages": Recall(2, 2),
        "pins": Recall(1, 1),
        "paths": Recall(2, 2),
        "ids": Recall(1, 1),
        "errors": Recall(1, 1),
    }


def test_words_that_were_cut_are_not_recalled():
    cut = [WORK[0], {**WORK[1], "content": "Mend src/a.py"}, *WORK[2:]]
    assert recall(cut)["user messages"] == Recall(2, 1)
    assert recall(cut)["paths"] == Recall(2, 2)


def test_words_that_are_told_elsewhere_are():
    told = history(user(f"Earlier: {WORK[1]['content']}"), says("Yes."), user(f"> {WORK[-1]['content']}"))
    assert recall(told)["user messages"] == Recall(2, 2)
    assert recall(told)["pins"] == Recall(1, 0)
    assert recall(told)["paths"] == Recall(2, 1)


def test_an_id_in_one_place_is_enough():
    assert recall(WORK[-1:])["ids"] == Recall(1, 1)
    assert recall(WORK[2:-1])["ids"] == Recall(1, 0)


def test_of_a_result_the_first_line_that_names_an_error_is_asked_for():
    assert recall(history(user("Traceback (most recent call last):")))["errors"] == Recall(1, 1)
    assert recall(history(user("ValueError: 1284.50 is no berth")))["errors"] == Recall(1, 0)


def test_what_a_policy_pins_is_asked_for_word_by_word():
    pins = Pins(markers=("Never",))
    assert recall(WORK, pins)["pins"] == Recall(2, 2)
    assert recall(history(user("Never push.")), pins)["pins"] == Recall(2, 1)


def test_the_same_thing_twice_is_one_thing():
    assert recall(WORK, messages=[*WORK, *says("Well."), *user("And HB-20417 again?")])["user messages"] == Recall(2, 2)
