"""Just enough of a message is understood, and the rest is carried."""

import json
import tracemalloc

import pytest

from proxy.history.messages import extract_text, make_literal, read_message
from proxy.tools.tool_call import ToolCall
from tests.support.messages import call, parse_request, request, system, user


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
    assert (
        extract_text([{"type": "text", "text": "a"}, {"type": "refusal", "refusal": "b"}, {"type": "image_url"}, 3])
        == "a\nb"
    )
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
