"""OpenAI Responses through the running proxy: what an upstream gets, and what the client sees."""

import asyncio
import json

import pytest

from tests.support.agent import reading
from tests.support.apis import KEY, RESPONSES, ApiAgent
from tests.support.compacting_proxy import settings
from tests.support.proxy_client import ask, log_of, until
from tests.support.responses_api import answer_events, answer_whole, find_faults, refused_events, render
from tests.support.responses_api import request as as_request
from tests.support.scripted_upstream import answer, pause, stream
from tests.support.summary_model import ASKED, NEAR, OVER, SEEN, account

pytestmark = pytest.mark.asyncio(loop_scope="module")


def reply_to(asked, text="All is well."):
    size = len(asked.body) // 4
    return stream(*answer_events(text, size)) if asked.json.get("stream") else answer(answer_whole(text, size))


def asks_for_summary(request):
    return ASKED in json.dumps(request.json["input"][-1])


@pytest.mark.parametrize("streams", [False, True])
async def test_summaries_are_asked_for_in_this_api(small_window_stack, streams):
    def script(request):
        text = account() if asks_for_summary(request) else "Go on."
        return stream(*answer_events(text, 0)) if request.json.get("stream") else answer(answer_whole(text, 0))

    async with small_window_stack(script) as (up, _, proxy):
        tools = [{"type": "function", "name": "Read", "parameters": {"type": "object"}}]
        agent = ApiAgent(RESPONSES, proxy, up, {"stream": streams, "tools": tools, "tool_choice": "auto"})
        await agent.send(SEEN)
        await agent.send(NEAR)
        await until(lambda: any(each.body and asks_for_summary(each) and each.ended.is_set() for each in up.requests))
        await asyncio.sleep(0.1)
        _, forwarded, words = await agent.send(OVER)
    (question,) = [each for each in up.requests if each.body and asks_for_summary(each)]
    assert question.path == "/v1/responses"
    assert find_faults(question.body) == []
    assert question.json["tools"] == tools
    assert words.head.first("x-compaction") == "created"
    left = json.loads(forwarded[-1])
    assert find_faults(forwarded[-1]) == []
    assert "## Active work" in json.dumps(left["input"])


LIMIT = 9_000
TOO_LONG = "Your input exceeds the context window of this model. Please adjust your input and try again."


def refuse_behind_repeated_instructions(asked):
    """As OpenAI does: each of the first two events repeats the instructions and the tools."""
    events = [json.loads(frame.partition(b"data: ")[2]) for frame in refused_events(TOO_LONG)]
    for number in (0, 1):
        events[number]["response"] |= {"instructions": asked.json["instructions"], "tools": []}
    begun, in_progress, *refusal = (render(event, event["sequence_number"]) for event in events)
    return stream(begun, in_progress, pause(0.1), *refusal)


def refuse_behind_other_events(_):
    limits = render({"type": "codex.rate_limits", "plan_type": "plus"}, 0)
    metadata = render({"type": "codex.response.metadata", "headers": {}}, 1)
    return stream(limits, pause(0.05), metadata, pause(0.05), *refused_events(TOO_LONG))


def refuse_in_two_packets(_):
    events = b"".join(refused_events(TOO_LONG))
    at = events.index(b"},", events.index(b'"type": "error"')) + 1
    return stream(events[:at], pause(0.1), events[at:])


@pytest.mark.parametrize(
    "refuse", [refuse_behind_repeated_instructions, refuse_behind_other_events, refuse_in_two_packets]
)
async def test_an_overflow_is_recovered_from_whatever_comes_before_it(serve, fresh, refuse):
    fresh.script = lambda asked: reply_to(asked) if len(asked.body) // 4 <= 2 * LIMIT else refuse(asked)
    instructions = {"role": "system", "content": "You are an agent. " * 2_000}
    async with serve(fresh.url, config=settings(default={"clear_at_least": 1_000_000})) as proxy:
        _, forwarded, reply = await ApiAgent(RESPONSES, proxy, fresh, {"stream": True}).send(
            [instructions, *reading(60)[1:]]
        )
    assert len(forwarded) == 2
    assert b"context_length_exceeded" not in reply.body.data
    assert reply.body.data == b"".join(answer_events("All is well.", prompt=len(forwarded[-1]) // 4))


async def test_a_refusal_that_nothing_helps_reaches_the_client_as_it_came(serve, fresh):
    fresh.script = stream(*refused_events("The prompt breaks a rule.", code="invalid_prompt"))
    async with serve(fresh.url, config=settings()) as proxy:
        _, _, reply = await ApiAgent(RESPONSES, proxy, fresh, {"stream": True}).send(reading(24))
    assert reply.body.data == b"".join(refused_events("The prompt breaks a rule.", code="invalid_prompt"))


@pytest.mark.parametrize("begun", [1, 4], ids=["at once", "in the middle"])
async def test_the_documented_flat_error_reaches_the_client_as_it_came(serve, fresh, begun):
    flat = {"type": "error", "code": "server_error", "message": "No.", "param": None, "sequence_number": begun}
    events = [*answer_events("All is well.")[:begun], f"event: error\ndata: {json.dumps(flat)}\n\n".encode()]
    fresh.script = stream(*events)
    async with serve(fresh.url, config=settings()) as proxy:
        _, _, reply = await ApiAgent(RESPONSES, proxy, fresh, {"stream": True}).send(reading(1))
    assert reply.body.data == b"".join(events)
    assert reply.body.whole


async def test_a_block_that_was_refused_within_a_stream_is_not_remembered(serve, fresh):
    fresh.script = stream(*refused_events("The prompt breaks a rule.", code="invalid_prompt"))
    async with serve(fresh.url, config=settings()) as proxy:
        agent = ApiAgent(RESPONSES, proxy, fresh, {"stream": True})
        _, _, refused = await agent.send(reading(24))
        fresh.script = reply_to
        _, _, accepted = await agent.send(reading(24))
        _, _, later = await agent.send(reading(24))
    outcomes = [reply.head.first("x-compaction") for reply in (refused, accepted, later)]
    assert outcomes == ["created", "created", "applied"]


@pytest.mark.parametrize("more", [{}, {"input": "hi " * 20_000}, {"instructions": "Be brief."}])
@pytest.mark.parametrize("stream", [True, False])
async def test_an_input_that_is_only_a_text_is_forwarded_as_it_came(serve, fresh, more, stream):
    fresh.script = reply_to
    sent = json.dumps({"model": "gpt-5", "input": "hi", "stream": stream, **more}).encode()
    async with serve(fresh.url, config=settings()) as proxy:
        reply = await ask(proxy, sent, "/responses", headers=KEY)
        (line,) = await until(lambda: log_of(proxy, "request"))
    assert [each.body for each in fresh.requests] == [sent]
    assert (reply.status, reply.head.first("x-compaction")) == (200, "none")
    assert reply.head.first("x-compaction-reason") is None
    assert line["model"] == "gpt-5"


async def test_a_websocket_is_refused_so_that_its_client_takes_http(serve, fresh):
    async with serve(fresh.url, config=settings()) as proxy:
        headers = {**KEY, "connection": "upgrade", "upgrade": "websocket"}
        reply = await ask(proxy, None, "/responses", headers=headers, method="GET")
    assert reply.status == 426
    assert fresh.requests == []


OF_THE_PROVIDER = [
    {"type": "reasoning", "id": "rs_7", "summary": [], "encrypted_content": "Z0FB" * 40},
    {"type": "computer_call", "id": "cu_7", "call_id": "call_a", "action": {"type": "screenshot"}},
    {
        "type": "computer_call_output",
        "call_id": "call_a",
        "output": {"type": "computer_screenshot", "image_url": "data:image/png;base64,iVBORw0KGgo="},
    },
    {"type": "mcp_approval_request", "id": "ap_7", "name": "send", "server_label": "mail", "arguments": "{}"},
    {"type": "mcp_approval_response", "approval_request_id": "ap_7", "approve": True},
    {"type": "program", "call_id": "call_b", "code": "print(1)", "fingerprint": "f"},
    {"type": "program_output", "call_id": "call_b", "result": "1\n" * 400, "status": "completed"},
]


@pytest.mark.parametrize("ahead", [True, False], ids=["before what is shortened", "within it"])
async def test_computer_use_approvals_and_programs_stay_whole_with_their_answers(serve, fresh, ahead):
    fresh.script = reply_to
    written = json.dumps(OF_THE_PROVIDER)[1:-1].encode()
    value = json.loads(as_request(reading(24)))
    place = 2 if ahead else 20
    value["input"][place:place] = ["HERE"]
    sent = json.dumps(value).encode().replace(b'"HERE"', written)
    assert find_faults(sent) == []
    async with serve(fresh.url, config=settings()) as proxy:
        reply = await ask(proxy, sent, "/responses", headers={"authorization": "Bearer sk-a"})
    left = [element for element in json.loads(fresh.requests[-1].body)["input"] if element in OF_THE_PROVIDER]
    assert reply.head.first("x-compaction") == "created"
    assert len(fresh.requests[-1].body) < 0.8 * len(sent)
    assert left == OF_THE_PROVIDER
    assert all(json.dumps(element).encode() in fresh.requests[-1].body for element in OF_THE_PROVIDER)
    assert find_faults(fresh.requests[-1].body) == []
