"""A model's account takes the place of what it tells, and the user's own words stay beside it."""

import pytest
from msgspec.structs import replace

from proxy.history.observations import OBSERVATIONS
from proxy.shorten.clear_results import ClearResults, StripReasoning
from proxy.shorten.fold import GO_ON
from proxy.shorten.pipeline import Draft, run
from proxy.shorten.rules import Facts, Keep, Rules
from proxy.shorten.summary import Summarize, Summary, SummaryRules
from tests.support.compaction_worker import Worker
from tests.support.messages import assistant, call, calls, history, mark_output, request, user

BIG = "\n".join(f"{number} line_{number} told" for number in range(130))
TEXT = "The user wants the tests mended; two of three pass."
WORK = (
    *user("Mend the tests."),
    *call("Read", path="a.py", out=BIG),
    *call("Bash", command="make test", out=BIG),
    *assistant(BIG),
    *user("Do not touch b.py."),
    *call("Edit", file_path="a.py", old="x", new="y", out=BIG),
)


def summarize_history(*pieces, after="assistant", fixed=(), **rules):
    """What stands for these messages, before one more of this role, once a model has told them."""
    body = mark_output(request(*pieces, [{"role": after, "content": "I go on."}]).body, OBSERVATIONS)
    draft = Draft((), body[:-1], body[-1:], fixed=frozenset(fixed), origin=body)
    left, (report,) = run((Summarize(TEXT, SummaryRules(**rules)),), draft)
    assert not report.refused
    return left.middle


def roles_and_texts(messages):
    return [(message.role, message.text) for message in messages]


TALK = (*WORK, *assistant(BIG), *user("And the docs?"), *call("Read", path="b.md", out=BIG))


def test_no_separator_where_an_upstream_has_answered_two_messages_of_the_user_in_a_row():
    parted = summarize_history(TALK)
    assert [message.text for message in parted].count(GO_ON) == 3
    left = summarize_history(user("Here is the repository."), TALK)
    assert GO_ON not in [message.text for message in left]
    assert [text for role, text in roles_and_texts(left)[:-1]] == [
        *("Here is the repository.", "Mend the tests.", "Do not touch b.py.", "And the docs?")
    ]


def test_two_messages_in_a_row_that_nothing_has_answered_yet_show_nothing_of_an_upstream():
    body = request(TALK, [{"role": "assistant", "content": "I go on."}], user("One."), user("Two.")).body
    left, _ = run((Summarize(TEXT, SummaryRules()),), Draft((), body[:-3], body[-3:], origin=body))
    assert [message.text for message in left.middle].count(GO_ON) == 3


REMINDERS = (
    "<system-reminder>\nThe file a.py was changed.\n</system-reminder>",
    "<task-notification>\n<task-id>b1</task-id>\n<status>completed</status>\n</task-notification>",
    "<local-command-caveat>Do not answer.</local-command-caveat>\n<local-command-stdout>ok</local-command-stdout>",
)
WORDS_OF_USER = (
    "<system-reminder>The file a.py was changed.</system-reminder>\nLeave it.",
    "<system-reminder>Contents of /src/AGENTS.md: never push.</system-reminder>",
    "<system-reminder>These skills are in force: release.</system-reminder>",
    "<bash-input>git push</bash-input>",
    "<system-reminder>No end",
)


@pytest.mark.parametrize(("text", "stays"), [*((e, False) for e in REMINDERS), *((e, True) for e in WORDS_OF_USER)])
def test_what_only_a_client_says_is_no_word_of_the_user(text, stays):
    left = summarize_history(WORK, user(text), call("Bash", command="ls", out=BIG), user("Go on."), assistant(BIG))
    assert (text in [message.text for message in left]) is stays
    assert "1 message" not in left[-1].text
    assert "left out here" not in left[-1].text
    newest = summarize_history(WORK, user(text), call("Bash", command="ls", out=BIG))
    assert text in [message.text for message in newest], "no later message of the user: it may still hold"


@pytest.mark.parametrize("shape", ["notes", "single", "pair"])
def test_without_removable_messages_there_is_no_summary(shape):
    assert summarize_history(shape=shape) == ()
    words = user("Mend the tests."), user("Do not touch b.py.")
    assert [message.made for message in summarize_history(*words, shape=shape, fixed=(0, 1))] == ["", ""]


def test_a_summary_longer_than_the_messages_it_covers_is_not_used():
    assert [message.made for message in summarize_history(user("Hi."), call("Read", out="ok"), assistant("Done."))] == [
        ""
    ] * 4


RULES = Rules(
    trigger_tokens=6_000,
    when_full=(),
    keep=Keep(tokens=1_000),
    summary=SummaryRules(max_tokens=100, ledger=400),
)


def work(steps, out=BIG):
    """Each step weighs about 600 tokens."""
    return history(user("Mend it."), *[call("Read", path=f"{step}.py", out=f"{step}\n{out}") for step in range(steps)])


def after(messages, covers, rules=RULES, text=TEXT, worker=None, **facts):
    """What is forwarded when a model has told the first so many messages."""
    worker = worker or Worker(rules)
    worker.facts = Facts(summary=Summary(covers, text), **facts)
    return worker.send(messages)


def count_texts(sent, text=TEXT):
    return [text in message.text for message in sent.plan.view].count(True)


def test_a_summary_at_hand_takes_the_place_of_what_it_covers_and_of_nothing_else():
    sent = after(work(12), 17)
    assert (sent.plan.action, sent.plan.reason, count_texts(sent)) == ("created", "window", 1)
    assert sent.raws[-8:] == [message.raw for message in sent.body[17:]]
    assert [report.step for report in sent.plan.reports] == ["summary"]


def test_it_is_for_the_limit_and_not_before():
    sent = after(work(8), 9)
    assert (sent.plan.action, count_texts(sent)) == ("none", 0)


def test_results_that_became_old_behind_a_summary_are_cleared_as_well():
    talk = [message for number in range(6) for message in (*assistant(f"{number}\n{BIG}"), *user("Go on."))]
    rules = replace(RULES, when_full=(StripReasoning(), ClearResults(over=1_500)))
    sent = after([*user("Mend it."), *talk, *work(8)[1:]], 9, rules)
    assert count_texts(sent) == 1
    assert [report.step for report in sent.plan.reports][:3] == ["summary", "strip_reasoning", "clear_results"]
    assert sent.plan.reports[2].messages > 0


def test_a_summary_that_ends_within_a_group_is_not_used():
    parallel = history(user("Mend it."), *[calls(("Read", {"path": "a"}, BIG), ("Read", {"path": "b"}, BIG))] * 6)
    assert count_texts(after(parallel, 11)) == 0
    assert count_texts(after(parallel, 10)) == 1


def test_a_summary_that_covers_no_more_than_the_existing_one_is_not_reused():
    worker = Worker(RULES)
    first = after(work(12), 17, worker=worker)
    again = after(work(18), 17, worker=worker, text="The same once more, in other words.")
    assert (count_texts(first), count_texts(again, "in other words")) == (1, 0)


def test_a_newer_summary_replaces_the_existing_one():
    worker = Worker(RULES)
    after(work(12), 17, worker=worker)
    newer = after(work(22), 33, worker=worker, text="Told anew, as a whole, up to here.")
    assert (count_texts(newer), count_texts(newer, "Told anew")) == (0, 1)
    assert newer.plan.block.summary == Summary(33, "Told anew, as a whole, up to here.")


def test_a_block_remembers_what_the_model_wrote_so_that_the_next_one_goes_on_from_it():
    worker = Worker(RULES)
    after(work(12), 17, worker=worker)
    worker.facts = Facts()
    assert worker.considers(work(22)).question.earlier == TEXT


def test_a_talk_of_short_messages_is_folded_whole_if_the_client_has_asked():
    talk = [piece for number in range(40) for piece in (user(f"Point {number}?"), assistant(f"Yes, {number}."))]
    body = request(*talk, user("Go on.")).body
    draft = Draft((), body[:-1], body[-1:], origin=body)
    assert Summarize(TEXT, SummaryRules())(draft).middle == draft.middle
    note, answer = Summarize(TEXT, SummaryRules(), may_fold_words=True)(draft).middle
    assert TEXT in note.text
    assert answer.text == GO_ON
