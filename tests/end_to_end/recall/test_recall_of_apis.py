"""Recall by the model on Anthropic Messages and OpenAI Responses, streamed and not."""

import json

import pytest

from tests.support import messages_api, responses_api
from tests.support.agent import Agent, reading
from tests.support.apis import MESSAGES, RESPONSES
from tests.support.client_answers import read_message, read_response
from tests.support.scripted_upstream import answer, in_turn, stream

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOOL = "recall_earlier_output"
TOOLS = {
    "messages": [{"name": "Read", "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}}}],
    "responses": [{"type": "function", "name": "Read", "parameters": {"type": "object", "properties": {}}}],
}
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


def put_together(read, answer):
    """The message that a client makes of an answer."""
    assert TOOL.encode() not in answer.body.data
    return read(answer.body.data)


# --- Messages --------------------------------------------------------------------------------------------------------


def text(words):
    return {"type": "text", "text": words}


def thinking_block(words):
    return {"type": "thinking", "thinking": words, "signature": f"signed {words}"}


def tool_use_block(name, number, **arguments):
    return {"type": "tool_use", "id": f"toolu_{number}", "name": name, "input": arguments}


def blocks_reply(*blocks, fresh=10, written=5):
    """An answer of these blocks, whole or as events, as it is asked for."""
    used = any(block["type"] == "tool_use" for block in blocks)
    usage = {"input_tokens": fresh, "cache_read_input_tokens": 90, "output_tokens": written}
    about = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude", "stop_sequence": None}
    whole = {**about, "content": list(blocks), "stop_reason": "tool_use" if used else "end_turn", "usage": usage}
    return lambda asked: stream(*messages_api.events_of(whole)) if asked.json.get("stream") else answer(whole)


@each_way
async def test_a_recall_is_answered_within_the_request_and_thinking_goes_back_unchanged(ask, streams):
    thought = thinking_block("I should look.")
    opening = blocks_reply(thought, text("Let me look."), tool_use_block(TOOL, 1, messages="3"), fresh=20, written=7)
    answer, (asked, again) = await ask(
        MESSAGES, opening, blocks_reply(thinking_block("Now I know."), text("It is there.")), streams=streams
    )
    assert [tool["name"] for tool in asked["tools"]] == ["Read", TOOL]
    assert again["tools"] == asked["tools"]
    assert again["messages"][:-2] == asked["messages"]
    assert again["messages"][-2]["content"] == [thought, text("Let me look."), tool_use_block(TOOL, 1, messages="3")]
    (result,) = again["messages"][-1]["content"]
    assert (result["tool_use_id"], result["content"]) == ("toolu_1", WORK[3]["content"])
    assert messages_api.find_faults(json.dumps(again)) == []
    message = put_together(read_message, answer)
    assert [block["type"] for block in message["content"]] == ["thinking", "text", "text"]
    assert message["content"][0] == thought
    assert message["stop_reason"] == "end_turn"
    assert message["usage"] == {"input_tokens": 30, "cache_read_input_tokens": 180, "output_tokens": 12}


async def test_a_later_round_that_is_refused_within_its_stream_ends_in_the_upstreams_own_error(ask):
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    begun = b'event: message_start\ndata: {"type": "message_start", "message": {"usage": {"input_tokens": 1}}}\n\n'
    refused = stream(begun, b"event: error\ndata: %b\n\n" % json.dumps(error).encode())
    found, _ = await ask(MESSAGES, blocks_reply(tool_use_block(TOOL, 1, messages="3")), refused, streams=True)
    *_, name, data = found.body.data.strip().splitlines()
    assert (name, json.loads(data[5:])) == (b"event: error", error)


@pytest.mark.parametrize("status", [204, 307])
async def test_a_later_round_that_is_refused_without_a_word_ends_in_an_error_that_says_so(ask, status):
    found, _ = await ask(
        MESSAGES, blocks_reply(tool_use_block(TOOL, 1, messages="3")), answer(b"", status), streams=True
    )
    *_, data = found.body.data.strip().splitlines()
    assert json.loads(data[5:])["error"]["message"].endswith(f"refused to go on with its answer: status {status}")


async def test_cache_marks_of_the_proxy_stay_where_they_are_and_four_at_most(ask):
    _, (asked, again) = await ask(
        MESSAGES,
        blocks_reply(tool_use_block(TOOL, 1, messages="3")),
        blocks_reply(text("So.")),
        streams=False,
        model="marked",
    )
    assert 0 < json.dumps(asked).count('"cache_control"') <= 4
    assert again["messages"][:-2] == asked["messages"]
    assert json.dumps(again).count('"cache_control"') <= 4


# --- Responses -------------------------------------------------------------------------------------------------------


def words(text, number=1):
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"id": f"msg_{number}", "type": "message", "role": "assistant", "status": "completed", "content": [part]}


def reasoning_item(number):
    return {"id": f"rs_{number}", "type": "reasoning", "summary": [], "encrypted_content": f"sealed {number}"}


def calls(name, number, **arguments):
    about = {"id": f"fc_{number}", "type": "function_call", "status": "completed", "call_id": f"call_{number}"}
    return {**about, "name": name, "arguments": json.dumps(arguments)}


def items_reply(*items, prompt=100):
    def script(asked):
        usage = {"input_tokens": prompt, "input_tokens_details": {"cached_tokens": 10}, "output_tokens": 5}
        about = {"id": f"resp_{prompt}", "object": "response", "model": "gpt-5.1", "tools": asked.json.get("tools")}
        whole = {**about, "status": "completed", "output": list(items), "usage": {**usage, "total_tokens": prompt + 5}}
        return stream(*responses_api.events_of(whole)) if asked.json.get("stream") else answer(whole)

    return script


@each_way
async def test_a_recall_is_answered_within_the_request_with_the_items_as_they_were(ask, streams):
    opening = [reasoning_item(1), words("Let me look."), reasoning_item(2), calls(TOOL, 1, messages="3")]
    answer, (asked, again) = await ask(
        RESPONSES,
        items_reply(*opening),
        items_reply(reasoning_item(3), words("There.", 2), prompt=200),
        streams=streams,
    )
    assert [tool["name"] for tool in asked["tools"]] == ["Read", TOOL]
    assert again["tools"] == asked["tools"]
    assert again["input"][: len(asked["input"])] == asked["input"]
    *text, result = again["input"][len(asked["input"]) :]
    assert text == opening
    assert result == {"type": "function_call_output", "call_id": "call_1", "output": WORK[3]["content"]}
    assert responses_api.find_faults(json.dumps(again)) == []
    response = put_together(read_response, answer)
    assert [item["id"] for item in response["output"]] == ["rs_1", "msg_1", "rs_3", "msg_2"]
    assert [tool["name"] for tool in response["tools"]] == ["Read"]
    usage = response["usage"]
    assert (usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]) == (300, 10, 310)
    assert usage["input_tokens_details"] == {"cached_tokens": 20}


@each_way
async def test_unsaved_reasoning_is_not_sent_back(ask, streams):
    open_reasoning = {**reasoning_item(1), "encrypted_content": None}
    _, (asked, again) = await ask(
        RESPONSES, items_reply(open_reasoning, calls(TOOL, 1, messages="3")), items_reply(words("So.")), streams=streams
    )
    call, _ = again["input"][len(asked["input"]) :]
    assert call["type"] == "function_call"
    assert "id" not in call
