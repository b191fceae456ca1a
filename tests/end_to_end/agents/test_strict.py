"""The judge must see what it is there to see: each of these histories has one fault."""

from collections.abc import Sequence

import pytest

from tests.end_to_end.agents.strict import ALTERNATING, ANTHROPIC, DIALECTS, Rule, violations

HI = {"role": "user", "content": "hi"}
DONE = {"role": "assistant", "content": "done"}


def call(*names: str, arguments: str = '{"path": "a.py"}') -> dict[str, object]:
    function = {"name": "Read", "arguments": arguments}
    calls = [{"id": name, "type": "function", "function": function} for name in names]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def result(name: str) -> dict[str, object]:
    return {"role": "tool", "tool_call_id": name, "content": "text"}


FAULTY = {
    "there is no user message": [{"role": "system", "content": "x"}, call("a"), result("a")],
    "the history ends with the assistant": [HI, DONE],
    "message 0: no such role as 'narrator'": [{"role": "narrator", "content": "x"}, HI],
    "message 1: the assistant says nothing": [HI, {"role": "assistant", "content": ""}, HI],
    "message 2: a result without content": [HI, call("a"), {"role": "tool", "tool_call_id": "a"}],
    "message 1: a result that answers no call of the message before it": [HI, result("a")],
    "message 2: call a before it was not answered": [HI, call("a"), HI],
    "call b at the end was not answered": [HI, call("a", "b"), result("a")],
    "message 3: a result that answers no call of the message before it": [HI, call("a"), result("a"), result("a")],
    "message 1: arguments of Read are no JSON object": [HI, call("a", arguments='{"path": "a'), result("a")],
}


NOT_ALTERNATING = {
    "message 1: the user speaks twice in a row": [HI, HI],
    "message 4: the user speaks twice in a row": [HI, call("a"), result("a"), call("b"), HI],
    "message 2: the assistant speaks twice in a row": [HI, DONE, DONE, HI],
    "message 0: the assistant speaks twice in a row": [DONE, HI],
    "message 1: calls before the user spoke": [{"role": "system", "content": "x"}, call("a"), result("a"), DONE, HI],
    "message 3: the user speaks directly after a result": [HI, call("a"), result("a"), HI],
    "message 1: instructions that are not the first message": [HI, {"role": "system", "content": "x"}, DONE, HI],
}
NOT_FOR_ANTHROPIC = {
    "the user does not begin": [{"role": "system", "content": "x"}, DONE, HI],
    "message 1: a blank text": [HI, {"role": "assistant", "content": " \n"}, HI],
    "message 0: a blank text": [{"role": "user", "content": [{"type": "text", "text": ""}]}],
    "call a b: not an id": [HI, call("a b"), result("a b")],
    "call a: an id that was used before": [HI, call("a"), result("a"), call("a"), result("a")],
}


@pytest.mark.parametrize("fault", FAULTY)
def test_a_fault_is_found_and_named(fault: str):
    assert violations({"messages": FAULTY[fault]}) == [fault]


@pytest.mark.parametrize("fault", NOT_ALTERNATING)
def test_speakers_out_of_turn_are_found(fault: str):
    assert fault in violations({"messages": NOT_ALTERNATING[fault]}, ALTERNATING)


@pytest.mark.parametrize("fault", NOT_FOR_ANTHROPIC)
def test_histories_that_an_adapter_to_anthropic_refuses_are_found(fault: str):
    assert violations({"messages": NOT_FOR_ANTHROPIC[fault]}, ANTHROPIC) == [fault]


def test_one_id_for_two_calls_of_a_message_is_a_fault():
    assert violations({"messages": [HI, call("a", "a"), result("a"), result("a")]}) == [
        "message 1: two calls with one id"
    ]


@pytest.mark.parametrize("rules", DIALECTS.values(), ids=DIALECTS)
def test_a_history_accepted_by_all_servers_has_no_fault(rules: Sequence[Rule]):
    calls = call("a", "b"), result("b"), result("a"), {**call("c"), "content": ""}, result("c")

    assert violations({"messages": [{"role": "system", "content": "x"}, HI, *calls, DONE, HI]}, rules) == []
