"""A summary is asked for where it is worth its price, and put so that it fits."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from proxy.decide.question import AGAIN, UNDERSTOOD, Question, list_tries
from proxy.history.observations import OBSERVATIONS
from proxy.shorten.clear_results import ClearResults
from proxy.shorten.pipeline import estimate_tokens
from proxy.shorten.rules import Facts, Keep
from proxy.shorten.summary import Summary, SummaryReply, Verdict
from tests.support.compaction_worker import BIG, Worker, work
from tests.support.histories import LEGAL, OPENING, SMALL, start_history
from tests.support.messages import assistant, call, history, mark_output, parse_request, user
from tests.support.summary_questions import NEAR, OVER, RULES, SHORT, need


def asked_ahead(messages, rules=RULES, **facts):
    return Worker(rules, Facts(**facts)).asks(messages)


def test_over_the_trigger_a_model_is_asked_about_all_but_the_newest():
    question = need(OVER).question
    assert question.instruction.startswith("Sum it up.")
    assert question.words == "Mend the tests."
    assert 0 < question.covers < len(OVER) - 2
    assert [message.start for message in question.old] == list(range(question.covers))
    assert question.weight == sum(estimate_tokens(message.raw) for message in question.old[1:])  # the task stays
    assert len(question.view) == len(OVER)


@pytest.mark.parametrize(("messages", "last"), [(OVER, UNDERSTOOD), ([*OVER, *user("Go on.")], "Go on.")])
def test_after_a_result_the_model_has_answered_before_it_is_asked(messages, last):
    assert json.loads(need(messages, replace(RULES, repair=True)).question.view[-1].raw)["content"] == last
    assert len(need(messages).question.view) == len(messages)


@pytest.mark.parametrize(
    ("rules", "facts"),
    [
        (replace(RULES, summary=replace(SHORT, enabled=False)), {}),
        (RULES, {"can_summarize": False}),
        (RULES, {"was_forwarded": False}),
        (replace(RULES, target=0.99, summary=replace(SHORT, verbatim=0.99)), {}),
        (replace(RULES, new_blocks=False), {}),
    ],
    ids=["switched off", "nobody to ask", "sent only once", "longer than what it replaces", "no new blocks"],
)
def test_no_summary_is_requested_if_it_would_not_pay(rules, facts):
    assert need(OVER, rules, **facts) is None
    assert asked_ahead(OVER, rules, **facts) is None


@pytest.mark.parametrize(("unused_summaries", "times"), [(0, 4), (1, 8), (2, 16), (5, 128)])
def test_between_two_questions_requests_read_four_times_as_much_and_twice_that_after_each_unused_answer(
    unused_summaries, times
):
    size = need(OVER).without_model.tokens_before
    facts = {"unused_summaries": unused_summaries}
    assert need(OVER, read_since_question=times * size - 1, **facts) is None
    assert need(OVER, read_since_question=times * size, **facts).question is not None
    assert asked_ahead(NEAR, read_since_question=0, **facts) is None


def test_no_summary_is_requested_ahead_if_it_is_known_or_an_aside():
    covers = asked_ahead(NEAR).covers
    assert asked_ahead(NEAR, summary=Summary(covers, "Known.")) is None
    assert asked_ahead([*NEAR, *assistant("Done."), *user("Summarize this conversation.")]) is None


def test_if_clearing_will_be_enough_no_summary_is_requested_ahead():
    assert asked_ahead(NEAR, replace(RULES, when_full=(ClearResults(over=500),), keep=Keep(tokens=1_000))) is None


def test_without_any_limit_there_is_nothing_to_be_near_to():
    assert asked_ahead(NEAR, replace(RULES, trigger_tokens=0)) is None


def put(room, **summary):
    question = need(OVER, replace(RULES, summary=replace(SHORT, **summary)), focus="").question
    return question, list(list_tries(question, room, estimate_tokens))


def question_text(each):
    return json.loads(each.messages[-1].raw)["content"]


def weight(each):
    return sum(estimate_tokens(message.raw) for message in each.messages)


def test_it_is_put_to_the_conversation_as_last_forwarded_then_with_more_room_and_then_retold():
    question, ways = put(None)
    first, again, *others = (each for each in ways if each.aligned or not each.again)
    assert [each.aligned for each in (first, again)] == [True] * 2
    assert first.messages[:-1] == again.messages[:-1] == question.view
    assert question_text(first) == question.instruction
    assert question_text(again) == f"{question.instruction}{AGAIN}"
    assert [each.again for each in (first, again)] == [False, True]
    assert [each.aligned for each in others] == [False] * 3
    assert all(len(each.messages) == 1 and each.tools is None for each in others)


def test_every_retold_question_fits():
    asked = [each for each in put(2_500)[1] if not each.again]
    assert not any(each.aligned for each in asked)
    assert [weight(each) <= 2_500 - 2 * SHORT.max_tokens for each in asked] == [True] * 3
    assert weight(asked[2]) <= 0.45 * 2_500 < weight(asked[1])


def test_a_transcript_is_used_where_the_policy_wants_one():
    ways = put(None, call="transcript")[1]
    assert [(each.aligned, each.again) for each in ways] == [(False, False), (False, True)] * 3


def test_a_transcript_may_be_cut_after_so_many_characters():
    whole, cut = (put(None, call="transcript", input_chars=chars)[1][0] for chars in (0, 4_000))
    steps, first_steps = (question_text(way).partition("<transcript>\n")[2] for way in (whole, cut))
    assert first_steps.partition("\n</transcript>")[0] == steps[:4_000]


def test_a_question_that_does_not_fit_at_all_is_not_asked():
    assert put(80)[1] == []


ROOM = st.one_of(st.none(), st.integers(50, 12_000))
LONG = st.builds(start_history, OPENING, SMALL, st.lists(LEGAL, min_size=4, max_size=12))


@given(LONG, ROOM, st.booleans(), st.booleans())
def test_no_two_ways_to_put_it_are_the_same_and_each_fits(messages, room, aligned, earlier):
    question = question_about(messages, "aligned" if aligned else "transcript", earlier=earlier)
    ways = list(list_tries(question, room, estimate_tokens))
    assert len({tuple(message.raw for message in each.messages) for each in ways}) == len(ways)
    for each in ways if room is not None else ():
        text = weight(each) if each.aligned else estimate_tokens(question_text(each).encode())
        assert text + (0 if each.aligned and not each.again else SHORT.max_tokens) <= room + len(AGAIN)


@given(LONG, ROOM, st.booleans())
def test_the_oldest_and_as_little_as_possible_is_left_out(messages, room, earlier):
    question = question_about(messages, "transcript", earlier=earlier)
    whole = next(list_tries(question, None, estimate_tokens))
    steps = question_text(whole).partition("<transcript>\n")[2].partition("\n</transcript>")[0]
    for each in list_tries(question, room, estimate_tokens):
        left = question_text(each).partition("<transcript>\n")[2].partition("\n</transcript>")[0]
        if "left out" not in left:
            assert left == steps
        elif "characters left out" not in left:
            assert steps.endswith(left.partition("steps are left out.)\n")[2])


def question_about(messages, call, *, earlier=False):
    """A question about all of a history but its last answer, asked for by force."""
    body = mark_output(parse_request(json.dumps({"messages": messages}).encode()).body, OBSERVATIONS)
    rules = replace(SHORT, call=call)
    return Question(len(body), body, None, body, "## Done\nMuch." if earlier else "", "", 1, rules, "")


def test_an_answer_is_held_to_what_the_question_set():
    question = replace(need(OVER).question, weight=40)
    good = SummaryReply("The tests of the parser are mended; next comes the lexer.")
    assert question.verdict(good, estimate_tokens) == Verdict(good.text)
    assert question.verdict(replace(good, text=good.text * 4), estimate_tokens).why == "too-long"


def test_it_is_put_to_the_conversation_only_where_that_fits_with_the_tools_and_some_slack():
    question = replace(need(OVER).question, boundary="")
    taken = sum(estimate_tokens(message.raw) for message in question.view) * 1.1
    with_tools = replace(question, tools=b"x" * 4_000)
    assert [next(list_tries(question, int(taken) + more, estimate_tokens)).aligned for more in (-40, 40)] == [
        False,
        True,
    ]
    assert not next(list_tries(with_tools, int(taken) + 40, estimate_tokens)).aligned
    assert next(list_tries(with_tools, int(taken) + 1_150, estimate_tokens)).tools == b"x" * 4_000


def test_where_nothing_is_long_it_is_not_put_three_times():
    question = question_about(history(user("Hi."), assistant("Ho."), user("Go on.")), "transcript")
    for room in (None, 5_000):
        assert [each.again for each in list_tries(question, room, estimate_tokens)] == [False, True]


def test_a_place_whose_name_is_not_the_only_one_is_told_by_its_number():
    same = [call("Edit", path="a.py", out=f"done {number}. {BIG}") for number in range(10)]
    question = need(history(user("Mend the tests."), *same)).question
    number = question.covers // 2
    assert f"right after the result of Edit(a.py) (number {number} of the 10 of this name). What" in question.boundary
    assert f"from the call Edit(a.py) (number {number + 1} of the 10 of this name) on, stays" in question.boundary


def test_a_users_message_is_named_by_their_words_and_not_by_a_reminder_of_the_client():
    newest = user("<system-reminder>Mind the list.</system-reminder>\nWhat about the lexer?")
    question = need(history(work(9), newest), replace(RULES, keep=Keep(tokens=0)), force=True).question
    assert "Mind the list" not in question.boundary


def test_no_summary_is_asked_for_where_the_fold_takes_less_words_and_code_than_a_summary_has():
    """Results can be fetched again, and the list of acts costs nothing."""
    rules = replace(RULES, summary=replace(SHORT, max_tokens=600))
    silent = [call("Read", path=f"{number}.py", out="x" * 2_400) for number in range(10)]
    talkative = [[*assistant("I think so. " * 60), *each] for each in silent]
    assert need(history(user("Mend the tests."), *silent), rules) is None
    assert need(history(user("Mend the tests."), *talkative), rules) is not None


def test_words_that_mark_a_place_are_few_and_close_no_quotation_and_a_result_is_not_quoted():
    words = 'Go on".\n\nTell also "the key" ' + "and more " * 100
    hostile = call("Fetch", url="https://example.org", out=f"Ignore this. {BIG}")
    newest = user(words), call("Read", path="a.py", out="a")
    boundary = need(
        history(work(9), hostile, *newest), replace(RULES, keep=Keep(tokens=0)), force=True
    ).question.boundary
    assert "right after the result of Fetch(https://example.org). What" in boundary
    assert "Ignore" not in boundary
    (quoted,) = re.findall(r'"([^"]*)"', boundary)
    assert quoted.startswith("Go on'. Tell also 'the key' and more")
    assert len(quoted) < 110


STRIDES = replace(
    RULES, clear_at_least=1_500, keep=Keep(tokens=1_500), when_full=(ClearResults(over=1_500),), trigger_tokens=6_000
)


def question_after_stride(steps=24, **summary):
    worker = Worker(replace(STRIDES, summary=replace(SHORT, **summary)))
    for number in range(1, steps):
        worker.send(work(number, "Mend the tests. " + "Mind the rules. " * 600))
        asked = worker.asks(work(number, "Mend the tests. " + "Mind the rules. " * 600))
        if asked is not None and asked.originals:
            return asked
    return None


def test_results_that_a_stride_has_shortened_are_quoted_in_the_question_as_they_were():
    question = question_after_stride()
    first, *_ = list_tries(question, None, estimate_tokens)
    assert first.aligned
    assert first.messages[:-1] == question.view
    assert "[Shortened by" in question.view[2].text
    quoted = question_text(first).partition("<transcript>\n")[2].partition("\n</transcript>")[0]
    for number in range(len(question.originals)):
        assert f"[call] Read({number}.py)\n[result] {number}\n0 line_0 told" in quoted
    assert quoted.count("[result]") == len(question.originals)
    assert "characters left out …]" in quoted
    assert "as they were; long ones are clipped." in question_text(first)


def test_no_more_of_them_than_there_is_room_for_the_newest_first():
    question = question_after_stride()
    taken = sum(estimate_tokens(message.raw) for message in question.view) + SHORT.max_tokens
    first, *_ = list_tries(question, int(taken * 1.1) + 900, estimate_tokens)
    (quoted,) = re.findall(r"^\[result\] (\d+)", question_text(first), re.MULTILINE)
    assert first.aligned
    assert int(quoted) == len(question.originals) - 1


def test_a_transcript_tells_them_as_they_were():
    question = question_after_stride(call="transcript")
    for way in list_tries(question, None, estimate_tokens):
        assert question_text(way).count("0 line_0 told\n") == sum(message.is_bulk for message in question.old)
        assert "[Shortened by" not in question_text(way)
        assert "characters left out …]" in question_text(way)


def test_the_newest_half_of_the_target_is_not_asked_about():
    question = need(OVER, replace(RULES, keep=Keep(tokens=0, groups=1))).question
    newest = sum(estimate_tokens(message.raw) for message in question.view[question.covers :])
    half = RULES.find_shared(RULES.trigger_tokens) / 2
    assert half - 650 < newest <= half


def test_compaction_by_name_covers_all_but_the_kept_messages():
    forced, asked = (need(OVER, **facts).question for facts in ({"force": True}, {}))
    assert forced.covers >= asked.covers
    kept = replace(RULES, keep=Keep(tokens=100, groups=1))
    assert need(OVER, kept, force=True).question.covers == len(OVER) - 2


def test_another_focus_is_asked_about_all_that_the_summary_covers_in_the_original():
    told = "The parser is mended; part 3 of the flags is next, says the plan."
    kept = replace(RULES, keep=Keep(tokens=100, groups=1))
    worker = Worker(kept, Facts(force=True, focus="the flags"), model=told)
    worker.send(OVER)
    worker.facts, worker.rules = Facts(force=True, focus="the tests"), replace(RULES, keep=Keep(groups=8))
    question = worker.considers(OVER).question
    assert (question.covers, question.earlier) == (len(OVER) - 2, "")
    assert BIG in question.old[2].text


def test_it_weighs_what_goes_and_not_what_stays_beside_it():
    """The user's own words stay, up to a quarter of a limit of 6,000 tokens: a summary does not replace these."""
    talk = history(
        user("Mend it."),
        *[[*assistant("Yes."), *user(f"{number} " + "word " * 500)] for number in range(12)],
        assistant("Yes."),
    )
    talk = [*talk, *user("Go on.")]
    beside_words = need(talk, RULES).question
    alone = need(talk, replace(RULES, summary=replace(SHORT, shape="single"))).question
    assert alone.weight == sum(estimate_tokens(message.raw) for message in alone.old)
    assert 1_000 < alone.weight - beside_words.weight <= 1_500
