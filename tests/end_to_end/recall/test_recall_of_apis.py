"""Recall by the model on Anthropic Messages and OpenAI Responses, streamed and not."""

import json

import pytest

from tests.support import messages_api, responses_api
from tests.support.agent import Agent, reading
from tests.support.apis import MESSAGES, RESPONSES, each_other_api
from tests.support.client_answers import read_message, read_response
from tests.support.scripted_upstream import answer, in_turn, stream

pytestmark = pytest.mark.asyncio(loop_scope="module")
TOOL = "recall_earlier_output"
TOOLS = {
    "messages": [{"name": "Read", "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}}}],
    "responses": [{"type": "function", "name": "Read", "parameters": {"type": "object", "properties": {}}}],
}
RECALL = {"id": "call_1", "function": {"name": TOOL, "arguments": '{"messages": "3"}'}}
THOUGHTS = {
    "messages": {"type": "thinking", "thinking": "I should look.", "signature": "signed"},
    "responses": {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "sealed"},
}
MODULES = {"messages": messages_api, "responses": responses_api}
READERS = {"messages": read_message, "responses": read_response}
PARTS = {"messages": "content", "responses": "output"}
"""The member of an answer that holds what the model says."""
KINDS = {"messages": ["thinking", "text", "text"], "responses": ["reasoning", "message", "message"]}
USAGE = {
    "messages": {"input_tokens": 20, "cache_read_input_tokens": 180, "output_tokens": 10},
    "responses": {"input_tokens": 200, "output_tokens": 10, "total_tokens": 210},
}
"""Of two answers."""
WORK = reading(24)
each_way = pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])


@pytest.fixture
def ask(stack, up, request):
    """Send a history that the upstream answers by these replies in turn: the answer, and what the upstream got."""

    async def send(api, *replies, streams, **more):
        following = in_turn(*replies)

        def script(asked):
            reply = following(asked)
            return reply(asked) if callable(reply) else reply

        up.script = script
        agent = Agent(stack.proxy, up, f"sk-{request.node.name}", api=api, sees_marks=True)
        step = await agent.send(WORK, **{"tools": TOOLS[api.name], "stream": streams, **more})
        return step.answer, [json.loads(body) for body in step.bodies]

    return send


def reply_with(api, text, *calls, thought=None):
    """An answer, whole or as events, as it is asked for."""
    whole = api.whole(text, 100, calls)
    if thought is not None:
        whole[PARTS[api.name]].insert(0, thought)

    def script(asked):
        return stream(*MODULES[api.name].events_of(whole)) if asked.json.get("stream") else answer(whole)

    return script


@each_other_api
@each_way
async def test_a_recall_is_answered_within_the_request_and_thoughts_go_back_unchanged(ask, api, streams):
    opening = reply_with(api, "Let me look.", RECALL, thought=THOUGHTS[api.name])
    answer, (asked, again) = await ask(api, opening, reply_with(api, "It is there."), streams=streams)
    assert [tool["name"] for tool in asked["tools"]] == ["Read", TOOL]
    assert again["tools"] == asked["tools"]
    known = len(asked[api.items])
    assert again[api.items][:known] == asked[api.items]
    assert json.dumps(THOUGHTS[api.name]) in json.dumps(again[api.items][known:])
    assert json.dumps(WORK[3]["content"]) in json.dumps(again[api.items][-1])
    assert api.find_faults(json.dumps(again)) == []
    assert TOOL not in json.dumps(answer.body.data.decode())
    seen = READERS[api.name](answer.body.data)
    assert [part["type"] for part in seen[PARTS[api.name]]] == KINDS[api.name]
    assert seen[PARTS[api.name]][0] == THOUGHTS[api.name]
    assert USAGE[api.name].items() <= seen["usage"].items()
    assert seen.get("stop_reason", "end_turn") == "end_turn"


async def test_a_later_round_that_is_refused_within_its_stream_ends_in_the_upstreams_own_error(ask):
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    begun = b'event: message_start\ndata: {"type": "message_start", "message": {"usage": {"input_tokens": 1}}}\n\n'
    refused = stream(begun, b"event: error\ndata: %b\n\n" % json.dumps(error).encode())
    found, _ = await ask(MESSAGES, reply_with(MESSAGES, "", RECALL), refused, streams=True)
    *_, name, data = found.body.data.strip().splitlines()
    assert (name, json.loads(data[5:])) == (b"event: error", error)


@pytest.mark.parametrize("status", [204, 307])
async def test_a_later_round_that_is_refused_without_a_word_ends_in_an_error_that_says_so(ask, status):
    found, _ = await ask(MESSAGES, reply_with(MESSAGES, "", RECALL), answer(b"", status), streams=True)
    *_, data = found.body.data.strip().splitlines()
    assert json.loads(data[5:])["error"]["message"].endswith(f"refused to go on with its answer: status {status}")


async def test_cache_marks_of_the_proxy_stay_where_they_are_and_four_at_most(ask):
    replies = reply_with(MESSAGES, "", RECALL), reply_with(MESSAGES, "So.")
    _, (asked, again) = await ask(MESSAGES, *replies, streams=False, model="marked")
    assert 0 < json.dumps(asked).count('"cache_control"') <= 4
    assert again["messages"][:-2] == asked["messages"]
    assert json.dumps(again).count('"cache_control"') <= 4


@each_way
async def test_unsaved_reasoning_is_not_sent_back(ask, streams):
    opening = reply_with(RESPONSES, "", RECALL, thought={**THOUGHTS["responses"], "encrypted_content": None})
    _, (asked, again) = await ask(RESPONSES, opening, reply_with(RESPONSES, "So."), streams=streams)
    call, _ = again["input"][len(asked["input"]) :]
    assert call["type"] == "function_call"
    assert "id" not in call
