"""What an upstream would refuse: a history for each rule, in three dialects."""

import pytest

from proxy.lab.replay.replay_history import encode
from proxy.lab.replay.validity import BY_DIALECT, find_breaches, shape_of
from tests.support.messages import assistant, call, calls, history, system, user

GOOD = history(system("Be brief."), user("hi"), call("Read", path="a.py"), assistant("It is read."), user("Go on."))


def count_faults(dialect, messages):
    return dict(BY_DIALECT[dialect]([shape_of(encode(message)) for message in messages]))


def without(place):
    return [*GOOD[:place], *GOOD[place + 1 :]]


def change_message(place, **more):
    return [*GOOD[:place], {**GOOD[place], **more}, *GOOD[place + 1 :]]


def asking(arguments, **more):
    function = {"name": "Read", "arguments": arguments}
    return change_message(2, tool_calls=[{"id": "call_1", "type": "function", "function": function, **more}])


@pytest.mark.parametrize("dialect", BY_DIALECT)
def test_a_good_history_breaks_no_rule(dialect):
    assert count_faults(dialect, GOOD) == {}


@pytest.mark.parametrize(
    ("messages", "breach"),
    [
        (GOOD[:1], "nobody asks anything"),
        (GOOD[2:], "it does not begin with a user"),
        (GOOD[:-1], "it ends with an answer"),
        (without(2), "a result without its call"),
        (without(3), "a call without its result"),
        (change_message(3, tool_call_id="call_9"), "a result without its call"),
        (change_message(1, role="person"), "no such role"),
        (change_message(4, content=None), "an answer that says nothing"),
        (change_message(4, tool_calls=[]), "an empty list of calls"),
        (change_message(1, content=None), "a message without content"),
        (change_message(1, content=7), "content of another kind"),
        (asking('{"path": '), "arguments are no JSON"),
    ],
)
def test_openai_refuses(messages, breach):
    assert breach in count_faults("openai", messages)
    assert breach in find_breaches(messages)


def test_arguments_may_be_any_json_and_a_custom_tool_is_given_any_text():
    assert count_faults("openai", asking("null")) == {}
    custom = {"id": "call_1", "type": "custom", "custom": {"input": "a {"}}
    assert count_faults("openai", change_message(2, tool_calls=[custom])) == {}


@pytest.mark.parametrize(
    ("messages", "breach"),
    [
        (history(user("a"), user("b")), "user after user"),
        (history(user("a"), assistant("b"), assistant("c")), "assistant after assistant"),
        (history(user("a"), call("Read"), user("b")), "user after tool"),
        (history(user("a"), system("b"), assistant("c")), "an instruction in the midst"),
        (history(assistant("a"), user("b")), "it does not begin with a user"),
    ],
)
def test_speakers_alternate(messages, breach):
    assert count_faults("alternating", messages) == {breach: 1}


def test_several_results_follow_their_calls():
    assert (
        count_faults("alternating", history(user("a"), calls(("Read", {}, "x"), ("Grep", {}, "y")), assistant("b")))
        == {}
    )


@pytest.mark.parametrize(
    ("messages", "breach"),
    [
        (GOOD[2:], "it does not begin with a user"),
        (without(3), "a call without its result"),
        (change_message(1, content=" \n"), "a text that says nothing"),
        (change_message(1, content=[{"type": "text", "text": ""}]), "a text that says nothing"),
        (asking("[1]"), "arguments are no JSON object"),
        (asking("{"), "arguments are no JSON object"),
        (asking("{}", id="call.1"), "a call's id has other letters"),
        ([*GOOD, *GOOD[2:]], "a call's id stands there twice"),
    ],
)
def test_a_translation_to_anthropic_would_fail(messages, breach):
    assert breach in count_faults("anthropic", messages)
