"""What a client says about compaction, and what it asks beside the work."""

import pytest
from chat import call, request, says, system, user

from proxy.core.asides import ASIDES, called, command, is_aside, was_asked


@pytest.mark.parametrize(
    ("said", "focus"),
    [
        ("/compact", ""),
        ("  /compact\n", ""),
        ("/compact the failing tests ", "the failing tests"),
        ("/compaction", None),
        ("please /compact", None),
        ("/compact\nand then go on", None),
        ("/compact " + "x" * 3_000, None),
    ],
)
def test_a_command_as_the_last_message_asks_for_compaction_and_says_what_matters(said, focus):
    assert command(request(user("hi"), says("hello"), user(said))) == focus


def test_a_command_counts_at_the_end_and_in_the_users_mouth_only():
    assert command(request(user("/compact"), says("done"))) is None
    assert command(request(user("hi"), system("/compact"))) is None


@pytest.mark.parametrize(
    ("arguments", "focus"),
    [({"focus": "paths"}, "paths"), ({}, ""), ({"focus": 3}, ""), ("[1]", ""), ("{not json", "")],
)
def test_a_call_of_compact_was_the_models_own_wish(arguments, focus):
    asked = call("Compact")
    asked[0]["tool_calls"][0]["function"]["arguments"] = arguments if isinstance(arguments, str) else ""
    if not isinstance(arguments, str):
        asked = call("compact", **arguments)
    assert called(request(user("hi"), asked)) == focus


def test_only_the_newest_answer_can_wish():
    assert called(request(user("hi"), call("Compact"), says("Thanks."), user("more"))) is None
    assert called(request(user("hi"), call("Read"))) is None
    assert called(request(user("hi"))) is None


def test_a_history_shows_whether_compaction_was_ever_asked_for_by_name():
    assert was_asked(request(user("/compact"), says("Done."), user("Go on.")))
    assert was_asked(request(user("hi"), call("Compact")))
    assert not was_asked(request(user("What does /compact do?"), call("Read", path="compact.py")))


@pytest.mark.parametrize(
    "said",
    [
        "Summarize the conversation so far.",
        "Please write a 5-word title for this conversation.",
        "CONTEXT CHECKPOINT: hand over.",
        "Compact this history.",
        "Generate a commit message for these changes.",
        "x" * 5_000 + "\nNow write a summary of this session.",
    ],
)
def test_a_question_about_the_conversation_is_put_from_outside(said):
    assert is_aside(request(user("Mend it."), says("Done."), user(said)).body, ASIDES)


def test_work_is_no_aside():
    assert not is_aside(request(user("Mend the title page."), says("Done."), user("Now the footer.")).body, ASIDES)
    assert not is_aside(request(user("Summarize the conversation."), call("Read")).body, ASIDES)
    assert not is_aside(request(user("Summarize the conversation.")).body, ())
    assert not is_aside((), ASIDES)
