"""What an upstream would refuse: a history for each rule, in three dialects."""

import pytest

from proxy.lab.replay.history import encode
from proxy.lab.replay.validity import BY_DIALECT, find_breaches, shape_of
from tests.support.messages import call, calls, history, says, system, user

GOOD = history(system("Be brief."), user("hi"), call("Read", path="a.py"), says("It is read."), user("Go on."))


def found(dialect, messages):
    return dict(BY_DIALECT[dialect]([shape_of(encode(message)) for message in messages]))


def without(place, messages=GOOD):
    return [*messages[:place], *messages[place + 1 :]]


def changed(place, messages=GOOD, **more):
    return [*messages[:place], {**messages[place], **more}, *messages[place + 1 :]]


def asking(arguments, **more):
    function = {"name": "Read", "arguments": arguments}
    return changed(2, tool_calls=[{"id": "call_1", "type": "function", "function": function, **more}])


@pytest.mark.parametrize("dialect", BY_DIALECT)
def test_a_good_history_breaks_no_rule(dialect):
    assert found(dialect, GOOD) == {}


@pytest.mark.parametrize(
    ("messages", "breach"),
    [
        (GOOD[:1], "nobody asks anything"),
        (GOOD[2:], "it does not begin with a user"),
        (GOOD[:-1], "it ends with an answer"),
        (without(2), "a result without its call"),
        (without(3), "a call without its result"),
        (changed(3, tool_call_id="call_9"), "a result without its call"),
        (changed(1, role="person"), "no such role"),
        (changed(4, content=None), "an answer that says nothing"),
        (changed(4, tool_calls=[]), "an empty list of calls"),
        (changed(1, content=None), "a message without content"),
        (changed(1, content=7), "content of another kind"),
        (asking('{"path": '), "arguments are no JSON"),
    ],
)
def test_openai_refuses(messages, breach):
    assert breach in found("openai", messages)
    assert breach in find_breaches(messages)


def test_arguments_may_be_any_json_and_a_custom_tool_is_given_any_text():
    assert found("openai", asking("null")) == {}
    custom = {"id": "call_1", "type": "custom", "custom": {"input": "a {"}}
    assert found("openai", changed(2, tool_calls=[custom])) == {}


@pytest.mark.parametrize(
    ("messages", "breach"),
    [
        (history(user("a"), user("b")), "user after user"),
        (history(user("a"), says("b"), says("c")), "assistant after assistant"),
        (history(user("a"), call("Read"), user("b")), "user after tool"),
        (history(user("a"), system("b"), says("c")), "an instruction in the midst"),
        (history(says("a"), user("b")), "it does not begin with a user"),
    ],
)
def test_speakers_alternate(messages, breach):
    assert found("alternating", messages) == {breach: 1}


def test_several_results_follow_their_calls():
    assert found("alternating", history(user("a"), calls(("Read", {}, "x"), ("Grep", {}, "y")), says("b"))) == {}


@pytest.mark.parametrize(
    ("messages", "breach"),
    [
        (GOOD[2:], "it does not begin with a user"),
        (without(3), "a call without its result"),
        (changed(1, content=" \n"), "a text that says nothing"),
        (changed(1, content=[{"type": "text", "text": ""}]), "a text that says nothing"),
        (asking("[1]"), "arguments are no JSON object"),
        (asking("{"), "arguments are no JSON object"),
        (asking("{}", id="call.1"), "a call's id has other letters"),
        ([*GOOD, *GOOD[2:]], "a call's id stands there twice"),
    ],
)
def test_a_translation_to_anthropic_would_fail(messages, breach):
    assert breach in found("anthropic", messages)
