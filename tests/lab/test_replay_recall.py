"""What was in a history and still is in the view."""

from proxy.history.observations import OBSERVATIONS
from proxy.history.pins import Pins
from proxy.lab.replay.kept_words import measure_recall
from proxy.lab.replay.replay_values import Recall
from tests.support.messages import assistant, call, history, mark_output, system, user
from tests.support.replay_cases import view_of

TRACE = "collected 3 items\nTraceback (most recent call last):\n  File a.py\nValueError: 1284.50 is no berth\n"
WORK = history(
    system("Be brief."),
    user("Mend src/a.py, ticket HB-20417.\nNever push."),
    call("Bash", command="pytest tests/test_a.py", out=TRACE),
    system("From now on: no floats."),
    call("Look", out="src/b.py is gone"),
    assistant("I see."),
    user("And HB-20417 again?"),
)


def recall(view, pins=None, messages=WORK):
    body = view_of(messages)
    marked = body[:1] + mark_output(body[1:], OBSERVATIONS)
    return measure_recall(marked, view_of(view), Pins() if pins is None else pins)


def test_all_terms_are_found_in_an_unchanged_history():
    assert recall(WORK) == {
        "user messages": Recall(2, 2),
        "pins": Recall(1, 1),
    }


def test_words_that_were_cut_are_not_recalled():
    cut = [WORK[0], {**WORK[1], "content": "Mend src/a.py"}, *WORK[2:]]
    assert recall(cut)["user messages"] == Recall(2, 1)


def test_words_found_elsewhere_are_recalled():
    text = history(user(f"Earlier: {WORK[1]['content']}"), assistant("Yes."), user(f"> {WORK[-1]['content']}"))
    assert recall(text)["user messages"] == Recall(2, 2)
    assert recall(text)["pins"] == Recall(1, 0)


def test_pinned_text_is_asked_for_word_by_word():
    pins = Pins(markers=("Never",))
    assert recall(WORK, pins)["pins"] == Recall(2, 2)
    assert recall(history(user("Never push.")), pins)["pins"] == Recall(2, 1)


def test_the_same_thing_twice_is_one_thing():
    assert recall(WORK, messages=[*WORK, *assistant("Well."), *user("And HB-20417 again?")])["user messages"] == Recall(
        2, 2
    )
