"""Calls change inside the bytes of their message."""

import json

from proxy.history.messages import change_arguments, remove_calls
from tests.support.cost_growth import assert_grows_in_proportion
from tests.support.messages import call, calls, request

TWO = request(calls(("Read", {"path": "a"}, ""), ("Bash", {"command": "b"}, ""), preamble="hm")).body[0]


def first(raw):
    return request([json.loads(raw) if isinstance(raw, bytes) else raw]).body[0]


def test_arguments_change_and_nothing_else_does():
    left = change_arguments(TWO, lambda each: '{"path": "new"}' if each.name == "Read" else each.arguments, "x")
    assert left.raw == TWO.raw.replace(b'{\\"path\\": \\"a\\"}', b'{\\"path\\": \\"new\\"}')
    assert left.calls[0].arguments == '{"path": "new"}'
    assert change_arguments(TWO, lambda each: each.arguments, "x") is TWO


def test_custom_and_legacy_calls_change_too_and_odd_ones_are_left_alone():
    custom = first(
        {"role": "assistant", "tool_calls": [{"id": "a", "type": "custom", "custom": {"name": "p", "input": "long"}}]}
    )
    legacy = first({"role": "assistant", "function_call": {"name": "p", "arguments": "long"}})
    odd = first({"role": "assistant", "tool_calls": ["odd", {"id": "x"}, {"id": "y", "function": {"name": "n"}}]})
    shout = lambda each: "new"  # noqa: E731
    assert change_arguments(custom, shout, "x").calls[0].arguments == "new"
    assert change_arguments(legacy, shout, "x").calls[0].arguments == "new"
    assert change_arguments(odd, shout, "x") is odd
    assert (
        change_arguments(first({"role": "assistant", "tool_calls": None, "function_call": None}), shout, "x").calls
        == ()
    )


def test_a_call_goes_and_its_neighbour_keeps_its_bytes():
    left = remove_calls(TWO, {0}, "x")
    assert [each.name for each in left.calls] == ["Bash"]
    assert TWO.raw[TWO.raw.index(b'{"type"', 80) : TWO.raw.rindex(b"}]")] in left.raw


def test_without_calls_a_message_is_kept_if_it_has_text():
    left = remove_calls(TWO, {0, 1}, "x")
    assert b"tool_calls" not in left.raw
    assert left.text == "hm"
    assert remove_calls(request(call("Read")).body[0], {0}, "x") is None
    assert (
        remove_calls(
            first({"role": "assistant", "content": None, "function_call": {"name": "p", "arguments": ""}}), {0}, "x"
        )
        is None
    )


def test_the_cost_of_changed_arguments_grows_with_the_number_of_calls():
    def many(count):
        return request(calls(*[("Write", {"content": "x" * 50}, "ok")] * count)).body[0]

    assert_grows_in_proportion(lambda message: change_arguments(message, lambda _: "{}", "x"), many, 1_500)
