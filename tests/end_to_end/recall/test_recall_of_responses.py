"""Recall by the model on OpenAI Responses, streamed and not."""

import json

import pytest

from tests.support.agent import reading
from tests.support.client_answers import read_response
from tests.support.responses_api import events_of, find_faults
from tests.support.responses_api import request as as_request
from tests.support.scripted_upstream import answer, stream

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOOL = "recall_earlier_output"
TOOLS = [{"type": "function", "name": "Read", "parameters": {"type": "object", "properties": {}}}]
WORK = reading(24)
each_way = pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])


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
        return stream(*events_of(whole)) if asked.json.get("stream") else answer(whole)

    return script


def put_together(answer):
    """What a client makes of an answer."""
    assert TOOL.encode() not in answer.body.data
    return read_response(answer.body.data)


@pytest.fixture
def ask(send_through, request):
    key = {"authorization": f"Bearer sk-{request.node.name}"}

    async def send(*replies, streams, **more):
        body = as_request(WORK, **{"tools": TOOLS, "stream": streams, **more})
        return await send_through(replies, body, "/responses", key)

    return send


@each_way
async def test_a_recall_is_answered_within_the_request_with_the_items_as_they_were(ask, streams):
    opening = [reasoning_item(1), words("Let me look."), reasoning_item(2), calls(TOOL, 1, messages="3")]
    answer, (asked, again) = await ask(
        items_reply(*opening), items_reply(reasoning_item(3), words("There.", 2), prompt=200), streams=streams
    )
    assert [tool["name"] for tool in asked["tools"]] == ["Read", TOOL]
    assert again["tools"] == asked["tools"]
    assert again["input"][: len(asked["input"])] == asked["input"]
    *text, result = again["input"][len(asked["input"]) :]
    assert text == opening
    assert result == {"type": "function_call_output", "call_id": "call_1", "output": WORK[3]["content"]}
    assert find_faults(json.dumps(again)) == []
    response = put_together(answer)
    assert [item["id"] for item in response["output"]] == ["rs_1", "msg_1", "rs_3", "msg_2"]
    assert [tool["name"] for tool in response["tools"]] == ["Read"]
    usage = response["usage"]
    assert (usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]) == (300, 10, 310)
    assert usage["input_tokens_details"] == {"cached_tokens": 20}


@each_way
async def test_unsaved_reasoning_is_not_sent_back(ask, streams):
    open_reasoning = {**reasoning_item(1), "encrypted_content": None}
    _, (asked, again) = await ask(
        items_reply(open_reasoning, calls(TOOL, 1, messages="3")), items_reply(words("So.")), streams=streams
    )
    call, _ = again["input"][len(asked["input"]) :]
    assert call["type"] == "function_call"
    assert "id" not in call
