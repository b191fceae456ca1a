"""Recall by the model on Anthropic Messages, streamed and not."""

import json

import pytest

from tests.support.agent import reading
from tests.support.client_answers import read_message
from tests.support.messages_api import events_of, find_faults
from tests.support.messages_api import request as as_request
from tests.support.scripted_upstream import answer, stream

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOOL = "recall_earlier_output"
TOOLS = [{"name": "Read", "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}}}]
WORK = reading(24)
each_way = pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])


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
    return lambda asked: stream(*events_of(whole)) if asked.json.get("stream") else answer(whole)


def put_together(answer):
    """What a client makes of an answer."""
    assert TOOL.encode() not in answer.body.data
    return read_message(answer.body.data)


@pytest.fixture
def ask(send_through, request):
    key = {"x-api-key": f"sk-{request.node.name}", "anthropic-version": "2023-06-01"}

    async def send(*replies, streams, **more):
        body = as_request(WORK, **{"tools": TOOLS, "stream": streams, **more})
        return await send_through(replies, body, "/messages", key)

    return send


@each_way
async def test_a_recall_is_answered_within_the_request_and_thinking_goes_back_unchanged(ask, streams):
    thought = thinking_block("I should look.")
    opening = blocks_reply(thought, text("Let me look."), tool_use_block(TOOL, 1, messages="3"), fresh=20, written=7)
    answer, (asked, again) = await ask(
        opening, blocks_reply(thinking_block("Now I know."), text("It is there.")), streams=streams
    )
    assert [tool["name"] for tool in asked["tools"]] == ["Read", TOOL]
    assert again["tools"] == asked["tools"]
    assert again["messages"][:-2] == asked["messages"]
    assert again["messages"][-2]["content"] == [thought, text("Let me look."), tool_use_block(TOOL, 1, messages="3")]
    (result,) = again["messages"][-1]["content"]
    assert (result["tool_use_id"], result["content"]) == ("toolu_1", WORK[3]["content"])
    assert find_faults(json.dumps(again)) == []
    message = put_together(answer)
    assert [block["type"] for block in message["content"]] == ["thinking", "text", "text"]
    assert message["content"][0] == thought
    assert message["stop_reason"] == "end_turn"
    assert message["usage"] == {"input_tokens": 30, "cache_read_input_tokens": 180, "output_tokens": 12}


async def test_a_later_round_that_is_refused_within_its_stream_ends_in_the_upstreams_own_error(ask):
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    begun = b'event: message_start\ndata: {"type": "message_start", "message": {"usage": {"input_tokens": 1}}}\n\n'
    refused = stream(begun, b"event: error\ndata: %b\n\n" % json.dumps(error).encode())
    found, _ = await ask(blocks_reply(tool_use_block(TOOL, 1, messages="3")), refused, streams=True)
    *_, name, data = found.body.data.strip().splitlines()
    assert (name, json.loads(data[5:])) == (b"event: error", error)


@pytest.mark.parametrize("status", [204, 307])
async def test_a_later_round_that_is_refused_without_a_word_ends_in_an_error_that_says_so(ask, status):
    found, _ = await ask(blocks_reply(tool_use_block(TOOL, 1, messages="3")), answer(b"", status), streams=True)
    *_, data = found.body.data.strip().splitlines()
    assert json.loads(data[5:])["error"]["message"].endswith(f"refused to go on with its answer: status {status}")


async def test_cache_marks_of_the_proxy_stay_where_they_are_and_four_at_most(ask):
    _, (asked, again) = await ask(
        blocks_reply(tool_use_block(TOOL, 1, messages="3")), blocks_reply(text("So.")), streams=False, model="marked"
    )
    assert 0 < json.dumps(asked).count('"cache_control"') <= 4
    assert again["messages"][:-2] == asked["messages"]
    assert json.dumps(again).count('"cache_control"') <= 4
