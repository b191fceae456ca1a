"""Anthropic Messages: what is read from a request, what is written of it, and what it wants of a thread."""

import json

import pytest
from msgspec.structs import replace

from proxy.history.messages import change_arguments
from proxy.wire.api_format import Try
from proxy.wire.messages_api import MESSAGES_FORMAT, THREAD_CLIENTS, find_thread_client
from tests.support.cost_growth import assert_grows_in_proportion
from tests.support.messages import assistant, calls, history, system, user
from tests.support.messages_api import find_faults, request

LONG = history(
    system("You help."),
    user("Mend it."),
    *(calls(("Read", {"path": f"{n}.py"}, f"{n} é" * 50), ("Bash", {"command": "ls"}, "x")) for n in range(4)),
    assistant("Done."),
    user("And now?"),
)
MARK = {"type": "ephemeral"}


def test_a_request_is_read_as_the_chat_history_that_says_the_same():
    read = MESSAGES_FORMAT.parse(request(LONG, metadata={"user_id": "u"}, stream=True))
    assert [message.role for message in read.messages] == [each["role"] for each in LONG]
    assert [message.text for message in read.body] == [each["content"] or "" for each in LONG[1:]]
    assert [call.named for call in read.body[1].calls] == [{"path": "0.py"}, {"command": "ls"}]
    assert read.body[2].answers == read.body[1].calls[0].id
    assert (read.model, read.max_output, read.stream, read.user) == ("claude-opus-4-8", 1_000, True, "u")
    assert b"You help." in read.outside
    assert b"Mend it." not in read.outside


def test_a_removed_part_leaves_the_other_bytes_unchanged():
    source = request(LONG)
    read = MESSAGES_FORMAT.parse(source)
    view = (*read.messages[:2], *read.messages[8:])
    left = MESSAGES_FORMAT.render(read, view)
    assert find_faults(left) == []
    came = json.loads(source)["messages"]
    assert json.loads(left)["messages"] == [came[0], *came[5:]]


def test_a_shortened_result_stays_where_it_was():
    read = MESSAGES_FORMAT.parse(request(LONG))
    short = read.body[2].with_text("[short]", "clear_results")
    left = json.loads(MESSAGES_FORMAT.render(read, (*read.messages[:3], short, *read.messages[4:])))
    results = left["messages"][2]["content"]
    assert [part["content"] for part in results] == ["[short]", [{"type": "text", "text": "x"}]]
    assert [part["tool_use_id"] for part in results] == [call.id for call in read.body[1].calls]


def test_a_result_keeps_its_mark_and_its_error():
    text, [task, call, result, *_] = json.loads(request(LONG)), json.loads(request(LONG))["messages"]
    result["content"][0] |= {"is_error": True, "cache_control": MARK}
    source = json.dumps({**text, "messages": [task, call, result]}).encode()
    read = MESSAGES_FORMAT.parse(source)
    short = read.body[2].with_text("[short]", "clear_results")
    left = json.loads(MESSAGES_FORMAT.render(read, (*read.messages[:3], short, read.messages[4])))
    assert left["messages"][2]["content"][0] == {**result["content"][0], "content": "[short]"}


def test_an_instruction_that_comes_first_in_the_list_stays():
    """Not as the API wants it, but some servers take it."""
    value = json.loads(request(LONG))
    first = {"role": "system", "content": value.pop("system")}
    read = MESSAGES_FORMAT.parse(json.dumps({**value, "messages": [first, *value["messages"]]}).encode())
    assert [message.start for message in read.body] == list(range(len(read.body)))
    left = json.loads(MESSAGES_FORMAT.render(read, (*read.messages[:2], *read.messages[8:])))
    assert {"role": "user", "content": value["messages"][0]["content"]} in left["messages"]
    assert first in left["messages"]


def test_look_alikes_keep_their_bytes():
    source = request(LONG)
    read = MESSAGES_FORMAT.parse(source)
    marked = tuple(replace(message, is_observation=message.role == "user") for message in read.messages)
    assert MESSAGES_FORMAT.render(read, marked) == source
    left = MESSAGES_FORMAT.render(read, (*marked[:2], *marked[8:]))
    assert read.find_element(0) in left


def test_a_text_that_is_none_is_left_out_of_what_is_written_again():
    call = {"type": "tool_use", "id": "c", "name": "Read", "input": {"path": "a"}}
    text = {"role": "assistant", "content": [{"type": "text", "text": None}, call]}
    read = MESSAGES_FORMAT.parse(json.dumps({"messages": [{"role": "user", "content": "Go."}, text]}).encode())
    short = change_arguments(read.messages[1], lambda _: "{}", "clear_arguments")
    left = json.loads(MESSAGES_FORMAT.render(read, (read.messages[0], short)))
    assert left["messages"][1]["content"] == [{**call, "input": {}}]


TOOLSET = {"type": "mcp_toolset", "mcp_server_name": "wiki"}


@pytest.mark.parametrize(("tools", "is_sent"), [([TOOLSET], True), ([], False)])
def test_a_question_names_the_servers_of_its_toolsets_and_no_others(tools, is_sent):
    asked = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 9, "tools": tools}
    servers = [{"type": "url", "url": "https://wiki.example/mcp", "name": "wiki"}]
    request = MESSAGES_FORMAT.parse(json.dumps({**asked, "mcp_servers": servers}).encode())
    aligned = Try(request.messages, request.tools, aligned=True)
    own, foreign = (
        MESSAGES_FORMAT.render_question(request, aligned, {"max_tokens": 100}, foreign=foreign)
        for foreign in (False, True)
    )
    assert ("mcp_servers" in json.loads(own)) is is_sent
    assert "mcp_servers" not in json.loads(foreign)


def test_a_question_repeats_the_history_with_system_messages_in_its_midst():
    """The upstream has exactly these bytes in its cache."""
    asked = json.loads(request(LONG))
    asked["messages"].insert(3, {"role": "system", "content": "Skills: deploy."})
    read = MESSAGES_FORMAT.parse(json.dumps(asked).encode())
    aligned = Try(read.messages, read.tools, aligned=True)
    question = json.loads(MESSAGES_FORMAT.render_question(read, aligned, {"max_tokens": 100}))
    assert (question["system"], question["messages"]) == (asked["system"], asked["messages"])


SPOKEN = [{"role": "user", "content": 'A "thread".'}]


def write(**more):
    return json.dumps({"model": "claude-opus-5-5", "messages": SPOKEN, **more}).encode()


def render_as_read(sent):
    request = MESSAGES_FORMAT.parse(sent)
    return MESSAGES_FORMAT.render(request, request.messages)


@pytest.mark.parametrize("sent", [write(), write(metadata={"thread": 1})])
def test_a_request_without_a_thread_keeps_its_bytes(sent):
    assert render_as_read(sent) == sent


def test_without_its_thread_a_request_is_otherwise_the_same():
    assert render_as_read(write(thread={"type": "create"}, stream=True)) == write(stream=True)


EXAMPLES = [
    ("X-Stainless-Helper", "message-thread, BetaToolRunner"),
    ("User-Agent", "claude-cli/2.1.332 (external, cli)"),
]


@pytest.mark.parametrize(("client", "header"), [*zip(THREAD_CLIENTS, EXAMPLES, strict=True)])
def test_each_client_is_known_by_its_header(client, header):
    assert find_thread_client((header,)) is client


def test_other_clients_are_not_known():
    assert find_thread_client((("user-agent", "curl/8.17"), ("x-stainless-helper", "BetaToolRunner"))) is None


def test_of_equal_texts_in_an_answer_all_stay_if_another_one_is_changed():
    blocks = [{"type": "text", "text": text} for text in ("Yes.", "Yes.", "a long text")]
    read = MESSAGES_FORMAT.parse(json.dumps({"messages": [{"role": "assistant", "content": blocks}]}).encode())
    (message,) = read.messages
    changed = message.with_content(message.content.replace(b"a long text", b"..."), "clip_output")
    (sent,) = json.loads(MESSAGES_FORMAT.render(read, (changed,)))["messages"]
    assert [block["text"] for block in sent["content"]] == ["Yes.", "Yes.", "..."]


@pytest.mark.parametrize("role", ["user", "assistant"])
def test_a_message_of_many_blocks_is_written_anew_in_proportion(role):
    def make(size):
        blocks = [{"type": "text", "text": f"word {number}"} for number in range(size)]
        use = {"type": "tool_use", "id": "a", "name": "Write", "input": {"path": "a.py"}}
        message = {"role": role, "content": [*blocks, use] if role == "assistant" else blocks}
        read = MESSAGES_FORMAT.parse(json.dumps({"messages": [message]}).encode())
        if role == "assistant":
            return read, change_arguments(read.messages[0], lambda _: "{}", "shorten_arguments")
        return read, read.messages[0].with_content(b"[" + b'{"type":"text","text":"x"},' * size + b"{}]", "clip_output")

    assert_grows_in_proportion(lambda value: MESSAGES_FORMAT.render(value[0], (value[1],)), make, 6_000)
