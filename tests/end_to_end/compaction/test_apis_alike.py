"""What is the same whichever API a client speaks."""

import json
from itertools import pairwise

import pytest

from tests.support.agent import Agent, compactions, reading, turns
from tests.support.apis import CHAT, MESSAGES, RESPONSES, each_api, each_other_api, without_placed_marks
from tests.support.client_answers import read_completion, read_message, read_response
from tests.support.compacting_proxy import metric, settings
from tests.support.messages import assistant, user
from tests.support.scripted_upstream import stream
from tests.support.summary_model import NEAR, OVER, SEEN, account, asks_for_summary, summary_calls, wait_until_asked

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOOLS = {
    "messages": [{"name": "Read", "input_schema": {"type": "object"}}],
    "responses": [{"type": "function", "name": "Read", "parameters": {"type": "object"}}],
}
READERS = {"chat": read_completion, "messages": read_message, "responses": read_response}


@each_other_api
async def test_a_long_history_is_shortened_and_stays_valid_and_stable(serve, fresh, api):
    fresh.script = api.answer
    async with serve(fresh.url, config=settings()) as proxy:
        agent = Agent(proxy, fresh, api=api, more={"stream": True}, sees_marks=True)
        steps = await agent.work(reading(24))
    done = compactions(steps)
    assert "created" in done
    assert done[-1] in ("applied", "created")
    for sent, forwarded, reply in steps:
        assert reply.status == 200
        assert api.find_faults(forwarded[0]) == []
        assert len(without_placed_marks(forwarded[0])) <= len(sent)
        events = api.events("Go on.", len(forwarded[0]) // 4)
        assert reply.body.data == b"".join(events)
    for (_, earlier, _), (_, later, reply) in pairwise(steps):
        if reply.head.first("x-compaction") != "created":
            old, new = (json.loads(without_placed_marks(sent))[api.items] for (sent,) in (earlier, later))
            assert new[: len(old)] == old
    assert len(steps[-1][1][0]) < 0.6 * len(steps[-1][0])


@each_api
@pytest.mark.parametrize("streams", [False, True])
async def test_compact_is_answered(stack, up, api, streams):
    up.script = api.answer
    history = [*reading(12), *assistant("Done."), *user("/compact")]
    _, _, reply = await Agent(stack.proxy, up, api=api).send(history, stream=streams)
    assert reply.status == 200
    assert reply.body.data.startswith(b"{") is not streams
    answer = READERS[api.name](reply.body.data)
    assert "Compacted" in json.dumps(answer) or "Nothing to compact" in json.dumps(answer)
    assert streams or answer.keys() == api.whole("").keys()


@each_other_api
async def test_another_refusal_within_a_stream_reaches_the_client_as_it_came_and_no_block_is_remembered(
    serve, fresh, api
):
    refusal = api.refused_events("The prompt breaks a rule.", "invalid_prompt")
    fresh.script = stream(*refusal)
    async with serve(fresh.url, config=settings()) as proxy:
        agent = Agent(proxy, fresh, api=api, more={"stream": True})
        refused = await agent.send(reading(24))
        fresh.script = api.answer
        later = [await agent.send(reading(24)) for _ in range(2)]
    assert len(refused.bodies) == 1
    assert refused.answer.body.data == b"".join(refusal)
    assert compactions([refused, *later]) == ["created", "created", "applied"]


@each_other_api
@pytest.mark.parametrize("streams", [False, True])
async def test_summaries_are_asked_for_in_this_api(small_window_stack, api, streams):
    def reply_to(request):
        text = account() if asks_for_summary(request) else "Go on."
        return api.reply(text, 10, streams=bool(request.json.get("stream")))

    async with small_window_stack(reply_to) as (up, _, proxy):
        agent = Agent(proxy, up, api=api, more={"stream": streams, "tools": TOOLS[api.name]})
        for history in (SEEN, NEAR):
            await agent.send(history)
        await wait_until_asked(up)
        _, (forwarded,), reply = await agent.send(OVER)
    (question,) = summary_calls(up)
    assert question.path == f"/v1{api.path}"
    assert api.find_faults(question.body) == []
    assert json.loads(without_placed_marks(question.body))["tools"] == TOOLS[api.name]
    assert reply.head.first("x-compaction") == "created"
    assert api.find_faults(forwarded) == []
    assert "## Active work" in json.dumps(json.loads(forwarded)[api.items])


@pytest.mark.parametrize(
    ("api", "more"),
    [
        (MESSAGES, {"thread": {"type": "create"}}),
        (CHAT, {"previous_response_id": "resp_1"}),
        (RESPONSES, {"previous_response_id": "resp_1"}),
        (RESPONSES, {"conversation": {"id": "conv_1"}}),
    ],
)
async def test_a_history_that_is_not_all_there_is_left_alone(stack, up, api, more):
    up.script = api.answer
    agent = Agent(stack.proxy, up, api=api)
    steps = [await agent.send(reading(24), **more)]
    await agent.send(reading(23))  # of which the next one begins with what is known
    steps.append(await agent.send(reading(24), **more))
    for sent, forwarded, reply in steps:
        assert forwarded == [sent]
        assert reply.head.first("x-compaction-reason") == "history-elsewhere"


@each_api
async def test_metrics_and_transcripts_name_the_api(serve, fresh, api):
    fresh.script = api.reply()
    async with serve(fresh.url, config=settings()) as proxy:
        for history in list(turns(reading(24)))[-4:]:
            await Agent(proxy, fresh, api=api).send(history)
        assert await metric(proxy, "compacted_requests_total", wire=api.name) == 4
        assert await metric(proxy, "compacted_requests_total") == 4
    lines = [json.loads(line) for file in proxy.state.rglob("*.jsonl") for line in file.read_bytes().splitlines()]
    named = {line.get("wire", "chat") for line in lines if line.get("tenant")}
    assert named == {api.name}
