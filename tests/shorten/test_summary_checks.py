"""What counts as a summary, and by which word it is turned away otherwise."""
# ruff: noqa: RUF001 (the letters of other scripts are the point)

import json
from pathlib import Path

import pytest

from proxy.shorten.pipeline import estimate_tokens
from proxy.shorten.summary import SummaryReply, SummaryRules, judge_answer
from tests.support.cost_growth import assert_grows_in_proportion
from tests.support.written_steps import assert_case, list_cases, list_given, read_result

GOLDEN = Path(__file__).parent / "golden" / "answers"
GOOD = "## Goal\nMend src/main.py.\n## State\nTwo of its three tests pass; the last one needs the new flag."
HEADINGS = ("Goal", "State", "Next")
ENGLISH = "Please mend the tests in src/main.py, and tell me what you did."
RUSSIAN = "Пожалуйста, почини тесты; потом расскажи, что сделал."
TOLD_IN_RUSSIAN = "## Goal\nПочинить тесты.\n## State\nДва теста из трёх проходят, последнему нужен новый флаг."
MIXED = "Look at the test named «проверка входа» in src/main.py and mend it, please, as I told you before."


def judge(text, words=ENGLISH, *, weight=1_000, max_tokens=500, headings=HEADINGS, **said):
    rules = SummaryRules(max_tokens=max_tokens, headings=headings)
    return judge_answer(SummaryReply(text, **said), rules, weight=weight, words=words, count=estimate_tokens)


def why(text, words=ENGLISH, **more):
    verdict = judge(text, words, **more)
    assert (verdict.text == "") == (verdict.why != "")
    return verdict.why


def judge_case(case):
    """The answer, and the word by which it is turned away, or its text as it is taken."""
    head, *lines = given = list_given(case)
    said = json.loads(head.removeprefix("answer") or "{}")
    verdict = judge(read_result(lines), **said)
    taken = ["= taken", *(f"| {line}" for line in verdict.text.split("\n"))]
    return "\n".join([*given, *([f"= {verdict.why}"] if verdict.why else taken)])


@pytest.mark.parametrize(("sentence", "case"), list_cases(GOLDEN))
def test_an_answer_is_judged_as_its_golden_file_shows(sentence, case):
    assert_case(GOLDEN, case, judge_case(case))


def test_f15_thoughts_without_end_are_read_once():
    assert why("<think>\n" * 1_000) == "empty"
    assert why(f"x\n{'<think>' * 9}\n" * 1_000, max_tokens=10**6, weight=10**7) == "no-sections"
    assert_grows_in_proportion(why, lambda count: "<think>\n" * count, 10_000)
    assert_grows_in_proportion(why, lambda count: f"x\n{'<think>' * 9}\n" * count, 2_000)


def test_f17_a_summary_no_shorter_than_its_messages_is_rejected():
    assert why(GOOD, weight=estimate_tokens(GOOD.encode())) == "too-long"
    assert why(GOOD, weight=estimate_tokens(GOOD.encode()) + 1) == ""


def test_a_summary_much_longer_than_requested_is_rejected():
    assert why(GOOD, max_tokens=estimate_tokens(GOOD.encode()) // 2 - 1) == "too-long"


def test_half_of_its_sections_make_a_summary_and_fewer_do_not():
    assert why(GOOD.replace("## State", ""), headings=("Goal", "State")) == ""
    assert why(GOOD, headings=()) == ""


def test_a_heading_may_hold_what_a_pattern_would_misread():
    assert why("## Goal (x+y)?\n" + GOOD[8:], headings=("Goal (x+y)?",)) == ""


LOG = "ERROR worker could not connect to the server, it will try again later\n" * 90


@pytest.mark.parametrize("words", ["", "ok", "42 :-)", MIXED, f"{RUSSIAN}\n{LOG}"])
def test_with_too_few_words_of_the_user_or_with_two_languages_either_is_accepted(words):
    assert why(TOLD_IN_RUSSIAN, words) == why(GOOD, words) == ""
