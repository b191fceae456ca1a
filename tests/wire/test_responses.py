"""OpenAI Responses: which requests hold their whole history."""

import json

import pytest

from proxy.history.grouping import repair
from proxy.history.messages import change_arguments, make_literal
from proxy.wire import responses_api
from proxy.wire.api_format import Try
from proxy.wire.event_streams import StreamOpening, write_event
from proxy.wire.responses_api import RESPONSES_FORMAT
from tests.support.cost_growth import assert_grows_in_proportion
from tests.support.messages import user
from tests.support.responses_api import request


def test_a_question_is_bounded_by_the_name_that_the_api_has_for_it():
    read = RESPONSES_FORMAT.parse(request(user("Mend it."), max_output_tokens=7))
    bounds = dict.fromkeys(RESPONSES_FORMAT.find_bounds(read.source, read.model), 9)
    question = RESPONSES_FORMAT.render_question(read, Try(read.messages, read.tools, aligned=True), bounds)
    assert json.loads(question) == {**json.loads(read.source), "max_output_tokens": 9}


def test_a_text_that_quotes_a_reference_costs_no_reading(monkeypatch):
    monkeypatch.setattr(responses_api, "find_values", lambda _: pytest.fail("the values were read"))
    assert RESPONSES_FORMAT.why_relayed(request(user('It said "item_reference" and "conversation".'))) == ""


def test_an_input_that_is_only_a_text_is_one_message_of_the_user():
    source = b'{"model": "gpt-5.1", "instructions": "Be brief.", "input":  "Mend \\"it\\"." , "stream": true}'
    found = RESPONSES_FORMAT.parse(source)
    assert [(message.role, message.text) for message in found.messages] == [
        ("system", "Be brief."),
        ("user", 'Mend "it".'),
    ]
    assert (found.model, found.stream, found.head_size) == ("gpt-5.1", True, 1)
    assert RESPONSES_FORMAT.render(found, found.messages) == source


def test_an_input_that_is_only_a_text_becomes_a_list_where_more_is_added():
    found = RESPONSES_FORMAT.parse(b'{"input": "Mend it.", "stream": true}')
    more = make_literal(b'{"role":"user","content":"And this."}', 1, 1, "note")
    written = json.loads(RESPONSES_FORMAT.render(found, (*found.messages, more)))
    assert written["stream"] is True
    assert [item["role"] for item in written["input"]] == ["user", "user"]
    assert written["input"][0]["content"] == "Mend it."
    assert json.loads(RESPONSES_FORMAT.render(found, ())) == {"input": [], "stream": True}


@pytest.mark.parametrize("kind", [[], {}, 5, None])
def test_an_event_of_no_known_type_is_no_trap(kind):
    """An answer is looked at before its first byte reaches the client: a fault there would lose it."""
    value = {"type": kind, "choices": []}
    assert StreamOpening(RESPONSES_FORMAT.stream.outputs).find_refusal(write_event(value)) is None
    assert RESPONSES_FORMAT.read_event(value)["choices"] == []
    text = {"object": "response", "output": [{"type": "message", "content": kind}]}
    assert json.loads(RESPONSES_FORMAT.read_body(json.dumps(text).encode()))["choices"][0]["message"]["content"] == []


def items_request(*items):
    return json.dumps({"model": "gpt-5.1", "input": [{"role": "user", "content": "Mend it."}, *items]}).encode()


CALLS = {
    "shell_call": (
        {"type": "shell_call", "call_id": "c", "action": {"commands": ["ls", "false"]}},
        {
            "type": "shell_call_output",
            "call_id": "c",
            "output": [
                {"stdout": "a.py", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}},
                {"stdout": "", "stderr": "no luck", "outcome": {"type": "exit", "exit_code": 1}},
            ],
        },
        "a.py\nno luck",
    ),
    "apply_patch_call": (
        {"type": "apply_patch_call", "call_id": "c", "operation": {"type": "update_file", "path": "a.py"}},
        {"type": "apply_patch_call_output", "call_id": "c", "status": "completed", "output": "patched"},
        "patched",
    ),
    "custom_tool_call": (
        {"type": "custom_tool_call", "call_id": "c", "name": "Run", "input": "ls"},
        {"type": "custom_tool_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "a.py"}]},
        "a.py",
    ),
}


@pytest.mark.parametrize(("called", "answered", "text"), CALLS.values(), ids=CALLS)
def test_the_output_of_each_kind_of_call_is_a_result_and_is_written_back_in_its_kind(called, answered, text):
    found = RESPONSES_FORMAT.parse(items_request(called, answered))
    *_, asking, result = found.messages
    assert [call.answered_by for call in asking.calls] == [result.answers]
    assert result.text == text
    shortened = result.with_text("[Shortened.]", "clear_results")
    written = json.loads(RESPONSES_FORMAT.render(found, (*found.messages[:-1], shortened)))["input"][-1]
    assert (written["type"], written["call_id"]) == (answered["type"], "c")
    assert "[Shortened.]" in json.dumps(written["output"])
    if called["type"] == "shell_call":
        assert written["output"][-1]["outcome"] == {"type": "exit", "exit_code": 1}


def test_an_output_of_shell_commands_that_is_no_list_is_an_empty_result():
    called, answered, _ = CALLS["shell_call"]
    found = RESPONSES_FORMAT.parse(items_request(called, {**answered, "output": {}}))
    assert found.messages[-1].text == ""


def test_a_head_of_thousands_of_messages_costs_in_proportion():
    def make(size):
        instructions = [{"role": "developer", "content": "x"}] * size
        parsed = RESPONSES_FORMAT.parse(
            json.dumps({"input": [*instructions, {"role": "user", "content": "Go."}]}).encode()
        )
        assert parsed.head_size == size
        return parsed

    assert_grows_in_proportion(lambda parsed: [parsed.measure(message) for message in parsed.messages], make, 1_000)


def test_an_answer_of_many_items_is_written_anew_in_proportion():
    def make(size):
        reasoning = [{"type": "reasoning", "summary": [{"text": f"word {number}"}]} for number in range(size)]
        called = {"type": "function_call", "call_id": "a", "name": "Write", "arguments": "{}"}
        output = {"type": "function_call_output", "call_id": "a", "output": "Done."}
        read = RESPONSES_FORMAT.parse(json.dumps({"input": [*reasoning, called, output]}).encode())
        changed = change_arguments(read.messages[0], lambda _: '{"path":"a.py"}', "shorten_arguments")
        return read, (changed, read.messages[1])

    assert_grows_in_proportion(lambda value: RESPONSES_FORMAT.render(*value), make, 1_000)


def test_outputs_that_are_missing_are_written_in_proportion():
    def make(size):
        calls = [
            {"type": "function_call", "call_id": f"c{number}", "name": "Read", "arguments": "{}"}
            for number in range(size)
        ]
        read = RESPONSES_FORMAT.parse(json.dumps({"input": [*calls, {"role": "user", "content": "And?"}]}).encode())
        return read, repair(read.messages, takes_late_results=True)

    assert_grows_in_proportion(lambda value: RESPONSES_FORMAT.render(*value), make, 300)
