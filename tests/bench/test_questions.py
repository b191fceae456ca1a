"""Questions about recorded conversations: the file of questions, and the judge on made-up views."""

import pytest
from questions.judge import KINDS, Question, has_words, judge, read_checkpoints

from proxy.shorten.fold import make_note
from tests.support.messages import assistant, call, request, user

FAILED_RUN = Question(
    kind="outcome",
    text="Which test failed?",
    about=("make test",),
    messages=(),
    answer=(("test_login", "test_log_in"), ("KeyError",)),
    false=("passed",),
)
WORK = (
    user("Mend the tests."),
    call("Bash", command="make test", out="FAILED test_login: KeyError: 'name'\n1 failed"),
    call("Bash", command="make lint", out="test_login: KeyError is not handled"),
    assistant("One of them fails."),
)
WHOLE = request(*WORK).messages


def shorten(text):
    """A view in which the result of the test run says this instead, and no other result is left."""
    view = [message.with_text("[Shortened]", "clear_results") if message.is_bulk else message for message in WHOLE]
    view[2] = WHOLE[2].with_text(text, "clear_results")
    return view


def test_the_file_of_questions_is_well_formed():
    checkpoints = read_checkpoints()
    questions = [question for checkpoint in checkpoints for question in checkpoint.questions]
    assert len(checkpoints) == 30
    assert 50 <= len(questions) <= 75
    assert {question.kind for question in questions} == set(KINDS)
    for question in questions:
        assert question.text.endswith("?")
        assert question.about
        assert all(question.answer)
        words = [*question.about, *question.false, *(words for group in question.answer for words in group)]
        assert all(len(each) >= 2 for each in words)


@pytest.mark.parametrize(
    ("text", "is_answered", "is_false"),
    [
        ("[Shortened: make test, failed]\nFAILED test_login: KeyError", True, False),
        ("[Shortened: make test, 1 failed: test_login]", False, False),
        ("[Shortened: make test, passed]", False, True),
    ],
)
def test_a_view_answers_by_what_it_says_and_is_false_by_the_opposite(text, is_answered, is_false):
    verdict = judge(FAILED_RUN, WHOLE, shorten(text))
    assert (verdict.is_answered, verdict.is_shortened, verdict.is_false) == (is_answered, True, is_false)


def test_the_same_words_in_another_result_do_not_answer():
    view = shorten("[Shortened: make test]")
    view[4] = WHOLE[4]
    assert not judge(FAILED_RUN, WHOLE, view).is_answered


def test_the_words_of_the_model_answer():
    told = request(*WORK, assistant("test_log_in fails with a KeyError.")).messages
    view = [message for message in told if not message.is_bulk]
    assert judge(FAILED_RUN, told, view).is_answered


def test_a_note_is_false_only_in_the_line_that_names_the_call():
    note = make_note("user", "- make lint => passed\n- make test => failed", 0, 6)
    assert not judge(FAILED_RUN, WHOLE, [note]).is_false
    note = make_note("user", "- make test => passed", 0, 6)
    assert judge(FAILED_RUN, WHOLE, [note]).is_false


def test_words_are_whole_in_any_case_and_over_line_breaks():
    assert has_words("12 Passed,\n 3 failed", "12 passed, 3 failed")
    assert not has_words("112 passed", "12 passed")
    assert has_words("in src/a.py:12", "a.py:12")
    assert not has_words("in src/data.py:12", "a.py:12")
