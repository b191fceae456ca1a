"""Just enough of a message is understood, and the rest is carried; calls change inside the bytes of their message."""

import json
import tracemalloc

import pytest

from proxy.history.messages import change_arguments, extract_text, make_literal, read_message, remove_calls
from proxy.tools.tool_call import ToolCall
from tests.support.cost_growth import assert_grows_in_proportion
from tests.support.messages import call, calls, parse_request, request, system, user


def message(value):
    raw = json.dumps(value).encode()
    return read_message(value, raw)


def test_the_head_is_what_leads_with_instructions():
    made = request(system("a"), [{"role": "developer", "content": "b"}], user("c"), system("d"))
    assert [each.role for each in made.head] == ["system", "developer"]
    assert [each.role for each in made.body] == ["user", "system"]
    assert parse_request(b'{"messages": [{"role": "system", "content": "only"}]}').body == ()


def test_a_message_is_an_object_with_a_role():
    for value in ({"content": "x"}, {"role": 1}, ["role"]):
        with pytest.raises(ValueError, match="a role"):
            read_message(value, b"{}")


def test_calls_of_every_kind_are_distinguished():
    made = message(
        {
            "role": "assistant",
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "Read", "arguments": "{}"}},
                {"id": "b", "type": "custom", "custom": {"name": "patch", "input": "free"}},
                {"id": 3, "function": "odd"},
                "odd",
            ],
            "function_call": {"name": "old", "arguments": "{}"},
        }
    )
    assert made.calls == (
        ToolCall("a", "Read", "{}"),
        ToolCall("b", "patch", "free", "custom"),
        ToolCall("", "", ""),
        ToolCall("", "", ""),
        ToolCall("", "old", "{}", "legacy"),
    )
    assert message({"role": "assistant", "tool_calls": "odd"}).calls == ()
    assert message({"role": "user", "tool_calls": [{}]}).calls == ()


def test_a_result_says_which_call_it_answers():
    assert message({"role": "tool", "tool_call_id": "a", "content": ""}).answers == "a"
    assert message({"role": "function", "name": "old", "content": ""}).answers == "old"
    assert message({"role": "tool", "tool_call_id": None, "content": ""}).answers == ""


def test_the_text_of_parts_is_the_text_of_each():
    assert extract_text("a") == "a"
    parts = [{"type": "text", "text": "a"}, {"type": "refusal", "refusal": "b"}, {"type": "image_url"}, 3]
    assert extract_text(parts) == "a\nb"
    assert extract_text(None) == extract_text({"odd": 1}) == ""


def test_another_text_for_a_message_changes_its_content_only():
    made = message({"role": "tool", "x": 1, "content": [1], "tool_call_id": "a"})
    text = made.with_text("less", "some_step")
    assert text.raw == b'{"role": "tool", "x": 1, "content": "less", "tool_call_id": "a"}'
    assert (text.text, text.made, text.literal) == ("less", "some_step", True)
    bare = message({"role": "tool"})
    assert bare.with_text("less", "some_step") is bare


def test_signatures_and_attachments_are_seen():
    assert message({"role": "assistant", "content": "", "x": {"thought_signature": "a"}}).signed
    assert message({"role": "assistant", "content": "", "reasoning_details": [{"type": "reasoning.encrypted"}]}).signed
    assert not message({"role": "assistant", "content": ""}).signed
    assert message({"role": "user", "content": [{"type": "image_url"}]}).attached
    assert not message({"role": "user", "content": '"image_url"'}).attached


def test_a_message_of_the_proxy_knows_what_it_replaces():
    note = make_literal(b'{"role": "user", "content": "x"}', 2, 5, "note")
    words = make_literal(b'{"role": "user", "content": "x"}', 2, 3, "strip_attachments")
    cleared = make_literal(b'{"role": "user", "content": "x"}', 2, 3, "clear_observations")
    assert (note.start, note.stop, note.literal) == (2, 5, True)
    assert [each.is_user for each in (note, words, cleared)] == [False, True, False]
    assert [each.is_bulk for each in (note, words, cleared)] == [False, False, True]


def test_messages_of_our_own_are_not_remembered():
    big = 100_000
    make_literal(b'{"role": "user", "content": "x"}', 0, 1, "note")
    tracemalloc.start()
    for number in range(100):
        make_literal(json.dumps({"role": "user", "content": f"{number} " + "x" * big}).encode(), 0, 1, "note")
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 5 * big


def test_a_text_that_names_a_kind_of_part_is_no_such_part():
    texts = [{"type": "text", "text": "tool_reference"}, {"type": "text", "text": "many words"}]
    assert not message({"role": "tool", "tool_call_id": "a", "content": texts}).declares_tools
    found = [{"type": "tool_reference", "tool_name": "send_mail"}]
    assert message({"role": "tool", "tool_call_id": "a", "content": found}).declares_tools


def test_equal_names_of_messages_are_one_text():
    """Of a long history, a copy in each message would be kept for as long as the history is known."""
    first, result, second, _ = request(call("Read", path="a.py"), call("Read", path="b.py")).body
    assert first.calls[0].name is second.calls[0].name
    assert first.role is second.role
    assert first.calls[0].id is result.answers


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
    without = first({"role": "assistant", "tool_calls": None, "function_call": None})
    assert change_arguments(without, shout, "x").calls == ()


def test_a_call_goes_and_its_neighbour_keeps_its_bytes():
    left = remove_calls(TWO, {0}, "x")
    assert [each.name for each in left.calls] == ["Bash"]
    assert TWO.raw[TWO.raw.index(b'{"type"', 80) : TWO.raw.rindex(b"}]")] in left.raw


def test_without_calls_a_message_is_kept_if_it_has_text():
    left = remove_calls(TWO, {0, 1}, "x")
    assert b"tool_calls" not in left.raw
    assert left.text == "hm"
    assert remove_calls(request(call("Read")).body[0], {0}, "x") is None
    legacy = first({"role": "assistant", "content": None, "function_call": {"name": "p", "arguments": ""}})
    assert remove_calls(legacy, {0}, "x") is None


def test_the_cost_of_changed_arguments_grows_with_the_number_of_calls():
    def many(count):
        return request(calls(*[("Write", {"content": "x" * 50}, "ok")] * count)).body[0]

    assert_grows_in_proportion(lambda message: change_arguments(message, lambda _: "{}", "x"), many, 1_500)
