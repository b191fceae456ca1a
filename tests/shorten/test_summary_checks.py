"""What counts as a summary, and by which word it is turned away otherwise."""
# ruff: noqa: RUF001 (the letters of other scripts are the point)

import pytest

from proxy.shorten.pipeline import estimate_tokens
from proxy.shorten.summary import SummaryReply, Verdict, judge_answer
from tests.support.cost_growth import assert_grows_in_proportion

GOOD = "## Goal\nMend src/main.py.\n## State\nTwo of its three tests pass; the last one needs the new flag."
HEADINGS = ("Goal", "State", "Next")
ENGLISH = "Please mend the tests in src/main.py, and tell me what you did."
RUSSIAN = "Пожалуйста, почини тесты; потом расскажи, что сделал."
TOLD_IN_RUSSIAN = "## Goal\nПочинить тесты.\n## State\nДва теста из трёх проходят, последнему нужен новый флаг."
TOLD_IN_CHINESE = (
    "## Goal\n修复测试。\n## State\n三个测试中有两个通过。最后一个需要新的标志。请继续修复它。然后运行全部测试。"
)
MIXED = "Look at the test named «проверка входа» in src/main.py and mend it, please, as I told you before."


def judge(text, words=ENGLISH, *, weight=1_000, most=500, headings=HEADINGS, **said):
    return judge_answer(
        SummaryReply(text, **said), weight=weight, most=most, headings=headings, words=words, count=estimate_tokens
    )


def why(text, words=ENGLISH, **more):
    verdict = judge(text, words, **more)
    assert (verdict.text == "") == (verdict.why != "")
    return verdict.why


def test_a_good_summary_is_taken_as_it_is():
    assert judge(f"\n{GOOD}\n") == Verdict(GOOD)


@pytest.mark.parametrize("text", ["", "  \n", "null", "None", '""', "{}", "I can't do that."])
def test_f13_a_summary_without_content_is_rejected(text):
    assert why(text, headings=()) == "empty"


@pytest.mark.parametrize("finish", ["length", "max_tokens", "MAX_TOKENS", "model_length"])
def test_f14_a_cut_summary_is_rejected_whatever_its_length(finish):
    assert why(GOOD, finish=finish) == "cut-off"


def test_f14_a_summary_refused_half_way_is_rejected():
    assert why(GOOD, finish="content_filter") == "refused"


@pytest.mark.parametrize("finish", ["stop", "STOP", "", "end_turn", "eos", "eos_token", "stop_sequence"])
def test_each_way_to_say_that_an_answer_is_whole_is_known(finish):
    assert why(GOOD, finish=finish) == ""


@pytest.mark.parametrize("tag", ["think", "Thinking", "thought", "reasoning"])
def test_f15_thoughts_are_left_out_and_thoughts_alone_are_none(tag):
    thought = f"<{tag}>The user wants me to summarise everything that happened so far.\n</{tag}>"
    assert judge(f"{thought}\n{GOOD}") == Verdict(GOOD)
    assert why(thought) == "empty"
    assert why(f"<{tag}>It goes on and on and on and on and on and on and on") == "empty"


THOUGHT = "I look at what was done, and then I tell it: src/main.py, two tests of three."


@pytest.mark.parametrize(
    "said",
    [
        f"<think>{THOUGHT}</think>{GOOD}",
        f"  <think>\n{THOUGHT}\n</think>\n<think>And again.</think>\n{GOOD}",
        f"{THOUGHT}\n</think>\n\n{GOOD}",
        f"<think></think>\n{GOOD}",
        GOOD.replace("## State", "<thinking>Now the state.</thinking>\n## State"),
    ],
    ids=["before it", "twice", "opened by the template", "none", "between two sections"],
)
def test_f15_reasoning_is_removed_from_a_summary_wherever_it_is(said):
    assert judge(said).text.replace("\n\n", "\n") == GOOD


def test_f15_a_draft_within_thoughts_that_never_end_is_none():
    assert why(f"<think>\nI might write:\n{GOOD}") == "empty"


@pytest.mark.parametrize("tag", ["`<think>`", "</think>", "`<thinking>` and `</thinking>`", "List<Thought>"])
def test_a_tag_mentioned_in_the_text_is_not_reasoning(tag):
    text = GOOD.replace("two", f"The parser of {tag} is mended; two").replace("Two", f"The parser of {tag} works. Two")
    assert judge(text) == Verdict(text)


def test_a_tag_that_is_opened_in_the_midst_and_never_closed_takes_nothing_with_it():
    text = f"{GOOD}\n## Next\nMend the parser, which reads\n<think>\nand never an end."
    assert judge(text) == Verdict(text)


def test_f15_thoughts_without_end_are_read_once():
    assert why("<think>\n" * 1_000) == "empty"
    assert why(f"x\n{'<think>' * 9}\n" * 1_000, most=10**6, weight=10**7) == "no-sections"
    assert_grows_in_proportion(why, lambda count: "<think>\n" * count, 10_000)
    assert_grows_in_proportion(why, lambda count: f"x\n{'<think>' * 9}\n" * count, 2_000)


@pytest.mark.parametrize("finish", ["tool_calls", "function_call", "tool_use"])
def test_f16_a_tool_call_is_none(finish):
    assert why(GOOD, calls=True) == why(GOOD, finish=finish) == why("", calls=True) == "tool-call"


def test_f17_a_summary_no_shorter_than_its_messages_is_rejected():
    assert why(GOOD, weight=estimate_tokens(GOOD.encode())) == "too-long"
    assert why(GOOD, weight=estimate_tokens(GOOD.encode()) + 1) == ""


def test_a_summary_much_longer_than_requested_is_rejected():
    assert why(GOOD, most=estimate_tokens(GOOD.encode()) // 2 - 1) == "too-long"


def test_half_of_its_sections_make_a_summary_and_fewer_do_not():
    assert why(GOOD.replace("## State", "")) == "no-sections"
    assert why(GOOD.replace("## State", ""), headings=("Goal", "State")) == ""
    assert why(GOOD, headings=()) == ""


@pytest.mark.parametrize(
    "form",
    ["# {}", "### {}", "##{}", "## **{}**", "**{}**", "**{}:**", "{}", "{}:", "1. {}", "## 2. {}", "__{}__", "- {}: "],
)
def test_a_heading_counts_as_models_write_it_in_any_case(form):
    text = GOOD.replace("## Goal", form.format("GOAL")).replace("## State", form.format("state"))
    assert judge(text) == Verdict(text)


@pytest.mark.parametrize("form", ["{} is all that counts.", "The {} was told.", "- {} and more", "({})s"])
def test_a_word_in_a_sentence_is_no_heading(form):
    text = GOOD.replace("## Goal", form.format("Goal")).replace("## State", form.format("State"))
    assert why(text) == "no-sections"


def test_a_heading_may_say_more_and_may_hold_what_a_pattern_would_misread():
    assert why(GOOD.replace("## Goal", "## Goal of the user (as told)")) == ""
    assert why("## Goal (x+y)?\n" + GOOD[8:], headings=("Goal (x+y)?",)) == ""


@pytest.mark.parametrize("text", [TOLD_IN_RUSSIAN, TOLD_IN_CHINESE])
def test_f23_a_summary_in_letters_that_the_user_does_not_use_is_none(text):
    assert why(text) == "language"


LOG = "ERROR worker could not connect to the server, it will try again later\n" * 90


@pytest.mark.parametrize("words", ["", "ok", "42 :-)", MIXED, f"{RUSSIAN}\n{LOG}"])
def test_with_too_few_words_of_the_user_or_with_two_languages_either_is_accepted(words):
    assert why(TOLD_IN_RUSSIAN, words) == why(GOOD, words) == ""
