"""Recall by the model on chat completions: what an upstream gets, round by round, and what its client sees."""

import asyncio
import json
import re

import pytest

from tests.support.agent import Agent, reading, turns
from tests.support.apis import CHAT
from tests.support.client_answers import read_completion
from tests.support.messages import assistant, tool, user
from tests.support.proxy_client import data_of
from tests.support.scripted_upstream import answer, call_turn, cut, delta, hang, in_turn, stream, text_turn

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOOL = "recall_earlier_output"
TOOLS = [tool("Read", path="string")]
WORK = reading(24, size=2_000)
HANDLE = re.compile(rf'{TOOL} with messages \\"([\d-]+)\\"')


def recalls(**arguments):
    return call_turn(TOOL, **arguments)


@pytest.fixture
def ask(stack, up, request):
    """Ask for an answer to a history: what came back, and the requests that the upstream got."""
    agent = Agent(stack.proxy, up, f"sk-{request.node.name}")

    async def send(*turns, streams, messages=WORK, **more):
        up.script, before = in_turn(*turns), len(up.requests)
        if streams:
            more = {"stream": True, "stream_options": {"include_usage": True}, **more}
        step = await agent.send(messages, **{"tools": TOOLS, **more})
        return step, [request.json for request in up.requests[before:]]

    return send


def client_view(answer):
    """Text, calls, finish and usage, as a client puts them together."""
    assert TOOL.encode() not in answer.body.data
    assert answer.body.whole
    completion = read_completion(answer.body.data)
    (choice,) = completion["choices"]
    calls = [(call["id"], call["function"]["arguments"]) for call in choice["message"].get("tool_calls", ())]
    return choice["message"]["content"], calls, choice["finish_reason"], completion["usage"]


each_way = pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])


@each_way
async def test_a_recall_is_answered_within_the_request_and_the_client_sees_one_message(ask, streams):
    first = text_turn("Let me look that up.") + recalls(messages="3")
    step, (asked, again) = await ask(first.using(900, 10), text_turn("It is there.").using(1000, 5), streams=streams)
    assert [each["function"]["name"] for each in asked["tools"]] == ["Read", TOOL]
    assert 'with messages \\"3\\"' in json.dumps(asked["messages"])
    assert again["tools"] == asked["tools"]
    assert again["messages"][: len(asked["messages"])] == asked["messages"]
    words, result = again["messages"][len(asked["messages"]) :]
    assert words["content"] == "Let me look that up."
    assert result["tool_call_id"] == words["tool_calls"][0]["id"]
    assert result["content"] == WORK[3]["content"]
    text, made, ended, usage = client_view(step.answer)
    assert text == "Let me look that up.\n\nIt is there."
    assert (made, ended) == ([], "stop")
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (1900, 15, 1915)


async def test_a_later_round_that_breaks_off_is_not_taken_for_an_end(ask):
    broken = stream(delta(role="assistant", content=""), delta(content="So"), cut())
    step, _ = await ask(text_turn("Let me see.") + recalls(messages="3"), broken, streams=True)
    (*_, before, last) = data_of(step.answer.body.data)
    assert before["choices"][0]["delta"]["content"] == "\n\nSo"
    assert "closed the connection" in last["error"]["message"]


async def test_a_client_that_leaves_in_a_later_round_stops_the_upstream(ask, up):
    asking = asyncio.ensure_future(ask(recalls(messages="3"), hang(), streams=True))
    request = await up.wait_for_request(2)
    asking.cancel()
    await request.end()
    await asyncio.wait([asking])
    assert request.departure is not None


async def test_a_server_that_answers_a_stream_with_one_body_is_understood(ask):
    first = json.dumps((text_turn("Hm.") + recalls(messages="3")).completion(), indent=1).replace("{", "{\n\n", 1)
    last = json.dumps(text_turn("So.").completion(), indent=1)
    json_type = [("content-type", "application/json")]
    replies = [answer(text.encode(), headers=json_type) for text in (first, last)]
    step, asked = await ask(*replies, streams=True)
    assert len(asked) == 2
    assert client_view(step.answer)[0] == "Hm.\n\nSo."


async def test_a_stream_that_goes_on_as_one_body_ends_in_an_error(ask):
    whole = text_turn("So.").completion()
    step, asked = await ask(text_turn("Hm.") + recalls(messages="3"), answer(whole), streams=True)
    (*_, last) = data_of(step.answer.body.data)
    assert len(asked) == 2
    assert "an answer that is none" in last["error"]["message"]
    assert b'"So."' not in step.answer.body.data


@pytest.mark.parametrize("encoding", ["gzip", "br", "zstd", "deflate", "identity"])
@each_way
async def test_answers_that_are_compressed_unasked_are_read_too(ask, streams, encoding):
    first = (text_turn("Let me see.") + recalls(messages="3")).using(900, 10)
    last = text_turn("It is there.").using(1000, 5)
    replies = [stream(*turn.frames(usage=True)) if streams else answer(turn.completion()) for turn in (first, last)]
    step, (_, again) = await ask(*[each.with_compression(encoding) for each in replies], streams=streams)
    assert again["messages"][-1]["content"] == WORK[3]["content"]
    assert step.header("content-encoding") in (None, "identity")
    text, made, ended, usage = client_view(step.answer)
    assert (text, made, ended) == ("Let me see.\n\nIt is there.", [], "stop")
    assert usage["prompt_tokens"] == 1900


async def test_the_tool_is_offered_from_the_first_block_on_and_what_was_forwarded_is_forwarded_again(ask):
    before = None
    offered = []
    for messages in turns(WORK):
        step, (asked, *_) = await ask(recalls(search="part_0_"), text_turn("On."), streams=False, messages=messages)
        offered.append(TOOL in json.dumps(asked["tools"]))
        assert offered[-1] == (step.compaction in ("created", "applied"))
        assert len(asked["messages"]) <= len(messages)
        if before is not None and step.compaction != "created":
            assert asked["tools"] == before["tools"]
            assert asked["messages"][: len(before["messages"])] == before["messages"]
        before = asked
    assert offered == sorted(offered)
    assert offered[-1]


async def test_a_model_that_recalls_every_shortened_result_gets_each_byte_for_byte(ask, up):
    _, (asked,) = await ask(text_turn("On."), streams=False)
    handles = HANDLE.findall(json.dumps(asked["messages"]))
    assert len(handles) > 10
    everything = recalls(messages=handles[0])
    for handle in handles[1:]:
        everything += recalls(messages=handle)
    _, (_, again) = await ask(everything, text_turn("I know it all."), streams=True)
    results = [message["content"] for message in again["messages"][-len(handles) :]]
    assert results == [WORK[int(handle)]["content"] for handle in handles]


@pytest.mark.parametrize("more", [{"model": "off"}, {"tools": None}, {"n": 2}], ids=["off", "no tools", "two answers"])
async def test_without_recall_nothing_mentions_the_tool(ask, more):
    step, (asked,) = await ask(text_turn("On."), streams=False, **more)
    assert step.compaction == "created"
    assert TOOL not in json.dumps(asked)
    assert "Call the tool again for its current text." in json.dumps(asked)


async def test_sizes_go_by_what_the_first_round_took(ask):
    """The sum of two rounds is no size of a history: another block would be made because of it."""
    await ask(recalls(messages="3").using(4_500), text_turn("On.").using(5_000), streams=False)
    longer = [*WORK, *assistant("On."), *user("And now?")]
    step, _ = await ask(text_turn("Done."), streams=False, messages=longer)
    assert step.compaction == "applied"
    assert 4_500 <= step.tokens[1] < 5_000


@each_way
async def test_a_history_that_is_shortened_after_a_refusal_is_recalled_too(ask, streams):
    turns = CHAT.refuse_long(5_000, 4_000), recalls(messages="3"), text_turn("I see.")
    step, (refused, again, last) = await ask(*turns, streams=streams, messages=WORK[:12])
    assert TOOL not in json.dumps(refused["tools"])
    assert TOOL in json.dumps(again["tools"])
    assert last["messages"][-1]["content"] == WORK[3]["content"]
    assert client_view(step.answer)[0] == "I see."
