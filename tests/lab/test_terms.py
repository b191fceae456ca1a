"""What an action reached for, and what of it a view still had."""

import pytest

from proxy.lab.replay.terms import Terms, age_of, find_terms, find_wanted, kind_of
from proxy.lab.replay.values import RecallCount
from tests.support.messages import assistant, call, history, user
from tests.support.replay_cases import view_of

READ = "def charge(berth):\n    return tariff_of(berth) * 2\n"


def terms_kept_by(whole, view):
    """Of the last message of a history, by the view that was forwarded for it."""
    messages = view_of(whole)
    return dict(Terms(messages).measure(len(messages) - 1, view_of(view)))


def task(*pieces, last):
    """A read, six messages of something else, and the action that is asked about."""
    return history(user("Mend it."), call("Read", path="src/a.py", out=READ), *pieces, *between(3), last)


def between(times):
    return [[*assistant("I think."), *user("Go on.")]] * times


ACTION = assistant(None, tool_calls=[{"function": {"name": "Grep", "arguments": '{"pattern": "tariff_of"}'}}])


def test_a_term_is_a_specific_word_in_the_arguments_of_a_call():
    text = 'Look at src/a.py and tariff_of(berth), not at "charge" or v1.2: HB-20417, berthFee.'
    assert [*find_terms(text)] == ["src/a.py", "tariff_of", "HB-20417", "berthFee"]


def test_the_end_of_a_sentence_makes_no_term_and_is_part_of_none():
    text = "Stop. It fails... Write berth_fee: as in tests/: and utf-8."
    assert [*find_terms(text)] == ["berth_fee", "tests/", "utf-8"]


def test_every_text_in_the_arguments_counts_once_and_names_of_arguments_do_not():
    arguments = '{"file_path": "a/b.py", "edits": [{"old_string": "x_y_z = a/b.py"}], "limit": 120000}'
    (message,) = view_of(
        assistant(None, tool_calls=[{"id": "1", "function": {"name": "Edit", "arguments": arguments}}])
    )
    assert find_wanted(message) == ["a/b.py", "x_y_z"]


@pytest.mark.parametrize(
    ("term", "what"),
    [
        ("src/a.py", "path"),
        ("C:\\temp", "path"),
        ("1284.50", "number"),
        ("2026-11-21", "number"),
        ("HB-20417", "id"),
        ("call_9f31", "id"),
        ("sha256", "id"),
        ("tariff_of", "name"),
        ("berthFee", "name"),
        ("utf-8", "name"),
    ],
)
def test_a_term_is_of_a_kind(term, what):
    assert kind_of(term) == what


@pytest.mark.parametrize(
    ("places", "age"),
    [
        ([94], "fresh"),
        ([99], "fresh"),
        ([93], "recent"),
        ([0, 80], "recent"),
        ([79], "old"),
        ([40], "old"),
        ([39], "ancient"),
        ([0], "ancient"),
        ([10, 95], ""),
    ],
)
def test_a_term_has_an_age_by_the_last_message_that_holds_it(places, age):
    assert age_of(places, 100) == age


def test_an_unchanged_message_has_its_terms_in_context():
    whole = task(last=ACTION)
    assert terms_kept_by(whole, whole[:-1]) == {"recent name": RecallCount(1, 1, 1, 1)}


def test_a_line_kept_in_a_shorter_result_is_in_context():
    whole = task(last=ACTION)
    clipped = [*whole[:2], {**whole[2], "content": "...\n    return tariff_of(berth) * 2"}, *whole[3:-1]]
    assert terms_kept_by(whole, clipped) == {"recent name": RecallCount(1, 1, 1, 1)}


def test_a_name_in_an_index_is_named_and_its_call_points_to_it():
    whole = task(last=ACTION)
    indexed = [*whole[:2], {**whole[2], "content": "[Read, names in it: tariff_of]"}, *whole[3:-1]]
    assert terms_kept_by(whole, indexed) == {"recent name": RecallCount(1, 0, 1, 1)}


def test_a_removed_result_can_be_fetched_again_while_its_call_is_left():
    whole = task(last=ACTION)
    cleared = [*whole[:2], {**whole[2], "content": "[cleared]"}, *whole[3:-1]]
    assert terms_kept_by(whole, cleared) == {"recent name": RecallCount(1, 0, 0, 1)}


def test_a_result_removed_with_its_call_is_gone():
    whole = task(last=ACTION)
    assert terms_kept_by(whole, [whole[0], *assistant("I read a file."), *whole[3:-1]]) == {
        "recent name": RecallCount(1, 0, 0, 0)
    }


def test_a_call_with_other_arguments_points_to_nothing():
    whole = task(last=ACTION)
    folded = [whole[0], *call("Read", path="[cut]", out="[cleared]")]
    folded[1]["tool_calls"][0]["id"] = folded[2]["tool_call_id"] = "call_1"
    assert terms_kept_by(whole, [*folded, *whole[3:-1]]) == {"recent name": RecallCount(1, 0, 0, 0)}


def test_a_term_only_in_the_last_six_messages_is_fresh():
    whole = history(user("Mend it."), call("Read", path="src/a.py", out=READ), ACTION)
    assert terms_kept_by(whole, whole[:-1]) == {"fresh name": RecallCount(1, 1, 1, 1)}
    assert terms_kept_by(whole, whole[:1]) == {"fresh name": RecallCount(1, 0, 0, 0)}


def test_a_term_that_is_also_in_the_last_six_messages_is_not_asked_for():
    whole = task(user("And tariff_of?"), last=ACTION)
    assert terms_kept_by(whole, whole[:1]) == {"recent name": RecallCount(1, 0, 0, 0)}
    whole = [*task(last=ACTION)[:-2], *user("And tariff_of?"), *history(ACTION)]
    assert terms_kept_by(whole, whole[:1]) == {}


def test_a_term_from_nowhere_is_not_asked_for():
    whole = history(user("Mend it."), assistant("Well."), user("Go."), ACTION)
    assert terms_kept_by(whole, whole[:-1]) == {}
