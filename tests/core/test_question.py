"""A summary is asked for where it is worth its price, and put so that it fits."""

import json
from dataclasses import replace

import pytest
from chat import call, history, request, says, user
from heart import Heart

from proxy.core import retelling
from proxy.core.messages import literal, observed
from proxy.core.pipeline import quarter
from proxy.core.plan import NeedSummary
from proxy.core.question import AGAIN, CLIPPED, tries
from proxy.core.rules import OBSERVATIONS, Facts, Keep, Rules
from proxy.core.steps import ClearResults
from proxy.core.summary import Summaries, Summary

BIG = "\n".join(f"{number} line_{number} told" for number in range(130))
SHORT = Summaries(prompt="Sum it up.", max_tokens=100, ledger=400)
RULES = Rules(trigger_tokens=6_000, clear_at_least=10**9, when_full=(), summary=SHORT)


def work(steps, task="Mend the tests."):
    """Each step weighs about 600 tokens."""
    return history(user(task), *[call("Read", path=f"{step}.py", out=f"{step}\n{BIG}") for step in range(steps)])


SEEN, NEAR, OVER, BEYOND = work(7), work(9), work(10), work(12)


def need(messages, rules=RULES, **facts):
    """What is asked about this history, where anything is."""
    made = Heart(rules, Facts(**facts)).considers(messages)
    return made if isinstance(made, NeedSummary) else None


def asked_ahead(messages, rules=RULES, **facts):
    return Heart(rules, Facts(**facts)).asks(messages)


# --- when ------------------------------------------------------------------------------------------------------------


def test_over_the_trigger_a_model_is_asked_about_all_but_the_newest():
    question = need(OVER).question
    assert question.instruction == "Sum it up."
    assert question.words == "Mend the tests."
    assert 0 < question.covers < len(OVER) - 2
    assert [message.start for message in question.old] == list(range(question.covers))
    assert question.weight == sum(quarter(message.raw) for message in question.old[1:])  # the task stays
    assert len(question.view) == len(OVER)


def test_who_asks_may_say_what_matters():
    asked = need(OVER, force=True, focus="the flags").question
    assert asked.instruction == "Sum it up.\n\nAbove all, keep what concerns this: the flags"


@pytest.mark.parametrize(
    ("rules", "facts"),
    [
        (replace(RULES, summary=replace(SHORT, enabled=False)), {}),
        (RULES, {"may_ask": False}),
        (RULES, {"seen": False}),
        (replace(RULES, summary=replace(SHORT, max_tokens=10_000)), {}),
        (replace(RULES, new_blocks=False), {}),
    ],
    ids=["switched off", "nobody to ask", "sent only once", "longer than what it replaces", "no new blocks"],
)
def test_where_it_would_not_pay_nobody_is_asked(rules, facts):
    assert need(OVER, rules, **facts) is None
    assert asked_ahead(OVER, rules, **facts) is None


def test_after_a_question_that_came_to_nothing_there_must_be_more_to_tell():
    covers = need(OVER).question.covers
    assert need(OVER, failed=covers) is None
    assert need(work(20), failed=covers).question.covers > covers


def test_while_a_model_is_at_it_the_same_is_not_asked_again():
    covers = need(OVER).question.covers
    waiting = need(OVER, making=covers)
    assert waiting.question is None
    assert asked_ahead(OVER, making=covers) is None


def test_nobody_waits_while_the_history_still_fits():
    assert not need(OVER, usable=20_000).urgent
    assert need(OVER, usable=6_100).urgent
    assert not need(OVER).urgent
    assert need(BEYOND).urgent
    assert need(BEYOND).standing.action == "none"


# --- ahead -----------------------------------------------------------------------------------------------------------


def test_near_the_trigger_a_model_is_asked_ahead():
    assert asked_ahead(SEEN) is None
    assert asked_ahead(NEAR).covers > 0
    assert need(NEAR) is None


def test_what_is_known_or_beside_the_work_or_in_vain_is_not_asked_ahead():
    covers = asked_ahead(NEAR).covers
    assert asked_ahead(NEAR, summary=Summary(covers, "Known.")) is None
    assert asked_ahead(NEAR, vain=2) is None
    assert asked_ahead([*NEAR, *says("Done."), *user("Summarize this conversation.")]) is None


def test_where_clearing_will_be_enough_nobody_is_asked_ahead():
    assert (
        asked_ahead(NEAR, replace(RULES, when_full=(ClearResults(outline=0, names=0),), keep=Keep(tokens=1_000)))
        is None
    )


def test_without_any_limit_there_is_nothing_to_be_near_to():
    assert asked_ahead(NEAR, replace(RULES, trigger_tokens=0)) is None


# --- how -------------------------------------------------------------------------------------------------------------


def put(room, **summary):
    question = need(OVER, replace(RULES, summary=replace(SHORT, **summary)), focus="").question
    return question, list(tries(question, room, quarter))


def told(each):
    return json.loads(each.messages[-1].raw)["content"]


def weight(each):
    return sum(quarter(message.raw) for message in each.messages)


def test_it_is_put_to_the_conversation_as_last_forwarded_then_with_more_room_and_then_retold():
    question, (first, again, *others) = put(None)
    assert [each.aligned for each in (first, again)] == [True] * 2
    assert first.messages[:-1] == again.messages[:-1] == question.view
    assert told(first) == "Sum it up."
    assert told(again) == f"Sum it up.{AGAIN}"
    assert [each.again for each in (first, again)] == [False, True]
    assert [each.aligned for each in others] == [False] * 3
    assert all(len(each.messages) == 1 and each.tools is None for each in others)
    assert [each.answer for each in (first, again, *others)] == [100, 200, 200, 200, 200]


def test_whatever_is_retold_fits():
    _, asked = put(2_500)
    assert not any(each.aligned for each in asked)
    assert [weight(each) <= 2_500 - each.answer for each in asked] == [True] * 3
    assert weight(asked[2]) < weight(asked[1]) / 2


def test_who_wants_a_transcript_gets_one():
    assert [each.aligned for each in put(None, call="transcript")[1]] == [False] * 3


def test_of_long_results_the_beginning_and_the_end_are_retold():
    _, (*_, whole, clipped, more) = put(None)
    assert BIG in told(whole)
    assert BIG not in told(clipped)
    assert "characters left out …]" in told(clipped)
    assert len(told(whole)) > len(told(clipped)) > len(told(more))
    assert len(told(clipped)) < 12 * (CLIPPED + 300)


def test_what_has_no_room_goes_the_oldest_first_and_that_is_said():
    _, (whole, *_) = put(2_500)
    assert "steps are left out.)" in told(whole)
    assert '[call] Read({"path": "0.py"})' not in told(whole)
    assert told(whole).index("(The oldest") < told(whole).index("[call] Read")
    assert told(put(1_000)[1][0]).count("[call]") == 1


def test_what_does_not_fit_at_all_is_not_put():
    assert put(80)[1] == []


# --- retold ----------------------------------------------------------------------------------------------------------


def test_a_transcript_says_who_said_what_and_what_was_called():
    body = request(user("Do it."), call("Read", path="a", out="text", says="I look."), says("Done.")).body
    note = literal(b'{"role": "user", "content": "Earlier."}', 0, 1, "note")
    assert retelling.told((note, *body)).split("\n") == [
        "[background] Earlier.",
        "[user] Do it.",
        "[assistant] I look.",
        '[call] Read({"path": "a"})',
        "[result] text",
        "[assistant] Done.",
    ]


def test_an_observation_is_a_result_whatever_its_role():
    body = observed(request(user("x"), says("ls"), user("Observation: " + BIG)).body, OBSERVATIONS)
    assert "[result] Observation: 0 line_0" in retelling.told(body, clip=100)
    assert len(retelling.told(body, clip=100)) < 250


def test_nothing_inside_can_close_the_frame():
    text = retelling.whole("Sum up.", "Earlier</earlier-summary>.", ["a </transcript> b"])
    assert text.count("</transcript>") == 1
    assert text.count("</earlier-summary>") == 1
    assert text.startswith("Sum up.\n\n<earlier-summary>")
    assert text.endswith(retelling.NOW)
    assert "earlier-summary" not in retelling.whole("Sum up.", "", ["a"])
