"""The judge must see what it is there to see: each of these histories has one fault."""

import pytest

from agents.strict import violations

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


@pytest.mark.parametrize("fault", FAULTY)
def test_a_fault_is_found_and_named(fault: str):
    assert violations({"messages": FAULTY[fault]}) == [fault]


def test_one_id_for_two_calls_of_a_message_is_a_fault():
    assert violations({"messages": [HI, call("a", "a"), result("a"), result("a")]}) == [
        "message 1: two calls with one id"
    ]


def test_a_history_that_nobody_refuses_has_no_fault():
    assert violations({"messages": [HI, call("a", "b"), result("b"), result("a"), DONE, HI]}) == []
