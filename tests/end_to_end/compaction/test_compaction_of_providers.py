"""Clients that have their provider compact: its calls get the history as it stands, and what it seals stays."""

import asyncio
import json
from dataclasses import replace

import pytest

from tests.support.admin_client import AdminClient
from tests.support.agent import Agent, reading, turns
from tests.support.apis import KEY, MESSAGES, OVERFLOW, RESPONSES
from tests.support.compacting_proxy import settings
from tests.support.messages import assistant, user
from tests.support.proxy_client import ask
from tests.support.scripted_upstream import answer, in_turn, stream

pytestmark = pytest.mark.asyncio(loop_scope="module")

TRIGGER = {"type": "compaction_trigger"}
SEALED = {"type": "compaction", "id": "cmp_1", "encrypted_content": "Z0FBQUFB" * 200}
SUMMARY = {"type": "compaction", "content": "The first files were read.", "signature": "c2ln"}
THRESHOLD = [{"type": "compaction", "compact_threshold": 200_000}]
EDITS = {"edits": [{"type": "compact_20260112"}]}
REFUSED_SIGNATURE = (
    "messages.3.content.0: Invalid `signature` in `thinking` block. The block is bound to a different conversation."
)
WORK = reading(24)


def with_items(body, *items):
    value = json.loads(body)
    return json.dumps({**value, "input": [*value["input"], *items]}).encode()


async def work_until_shortened(agent):
    """The last request of an agent's work, as the upstream received it."""
    (*_, last) = await agent.work(WORK)
    assert last.compaction in ("applied", "created")
    return json.loads(last.forwarded)


async def send(agent, body, path=""):
    before = len(agent.up.requests)
    reply = await ask(agent.proxy, body, path or agent.api.path, headers=KEY)
    return agent.up.requests[before:], reply


@pytest.fixture
async def agent(serve, fresh):
    fresh.script = RESPONSES.answer
    async with serve(fresh.url, config=settings()) as proxy:
        yield Agent(proxy, fresh, api=RESPONSES)


@pytest.mark.parametrize(
    ("api", "path", "items", "reason"),
    [
        (RESPONSES, "/responses", [TRIGGER], "provider-compacts"),
        (RESPONSES, "/responses/compact", [], "provider-compacts"),
        (RESPONSES, "/responses/input_tokens", [], None),
        (MESSAGES, "/messages/count_tokens", [], None),
    ],
)
async def test_a_call_for_a_compaction_or_a_count_gets_the_history_as_it_was_forwarded(agent, api, path, items, reason):
    agent, agent.up.script = replace(agent, api=api), api.answer
    forwarded = await work_until_shortened(agent)
    sent = with_items(api.write(WORK), *items) if items else api.write(WORK)
    (request,), reply = await send(agent, sent, path)
    assert request.path == f"/v1{path}"
    assert request.json[api.items] == [*forwarded[api.items], *items]
    assert (reply.head.first("x-compaction"), reply.head.first("x-compaction-reason")) == ("applied", reason)
    assert len(request.body) < 0.6 * len(sent)


@pytest.mark.parametrize("items", [[], [TRIGGER]])
async def test_a_compaction_that_does_not_fit_is_asked_for_once_more_with_less(agent, items):
    sealed = answer({"object": "response.compaction", "output": [SEALED], "usage": {"input_tokens": 9_000}})
    agent.up.script = in_turn(RESPONSES.refuse(code=OVERFLOW), sealed)
    sent = with_items(RESPONSES.write(WORK), *items)
    (first, second), reply = await send(agent, sent, "/responses" if items else "/responses/compact")
    assert first.body == sent
    assert len(second.body) < 0.9 * len(sent)
    assert second.json["input"][-len(items) :][: len(items)] == items
    assert reply.head.first("x-compaction-reason") == "overflow_retry"
    assert json.loads(reply.body.data)["output"] == [SEALED]


@pytest.mark.parametrize("kind", ["compaction", "compaction_summary", "context_compaction"])
@pytest.mark.parametrize("place", ["before", "within"])
async def test_after_a_compaction_the_history_is_shortened_as_any_other(agent, kind, place):
    sealed = {**SEALED, "type": kind}
    outcomes = []
    for history in turns(reading(40)):
        body = json.loads(RESPONSES.write(history))
        body["input"].insert(0 if place == "before" else 9, sealed)
        sent = json.dumps(body).encode()
        (request,), reply = await send(agent, sent)
        outcomes.append(reply.head.first("x-compaction"))
        assert json.dumps(sealed).encode() in request.body
        assert RESPONSES.find_faults(request.body) == []
        positions = [number for number, item in enumerate(request.json["input"]) if item == sealed]
        assert positions == ([0] if place == "before" else [min(9, len(body["input"]) - 1)])
    assert outcomes.count("created") > 1
    assert len(request.body) < 0.6 * len(sent)


@pytest.mark.seconds
async def test_what_the_provider_left_out_itself_is_told_beside_the_forwarded_messages(serve, fresh):
    edits = [{"type": "clear_tool_uses_20250919", "cleared_tool_uses": 8, "cleared_input_tokens": 5_000}]
    body = {**json.loads(MESSAGES.reply().body), "context_management": {"applied_edits": edits}}
    fresh.script = MESSAGES.answer
    async with serve(fresh.url, config=settings()) as proxy:
        agent = Agent(proxy, fresh, api=MESSAGES)
        await work_until_shortened(agent)
        fresh.script = answer(body)
        sent = json.loads(MESSAGES.write([*WORK, *assistant("Well."), *user("Go on.")], context_management=EDITS))
        sent["messages"][-2]["content"].append(SUMMARY)
        _, reply = await send(agent, json.dumps(sent).encode())
        await asyncio.sleep(1.0)  # the activity log is written in batches
        path = f"/requests/{reply.head.first('x-compaction-request-id')}/forwarded"
        told = await AdminClient(proxy).read(path)
    told_of_provider = told["compacted_by_provider"]
    assert told_of_provider == {"asked_for": True, "messages": [len(told["forwarded"]) - 2], "edits": edits}
    assert told["forwarded"][-2]["content"][-1] == SUMMARY


@pytest.mark.parametrize(
    ("api", "more"),
    [
        (RESPONSES, {"context_management": THRESHOLD}),
        (MESSAGES, {"context_management": EDITS}),
        (MESSAGES, {"compaction": {"type": "summarize"}}),
    ],
)
async def test_while_the_provider_compacts_the_block_in_force_stays_and_no_other_is_made(serve, fresh, api, more):
    fresh.script = api.answer
    async with serve(fresh.url, config=settings()) as proxy:
        agent = Agent(proxy, fresh, api=api)
        sent, (untouched,), reply = await agent.send(WORK, **more)
        assert (untouched, reply.head.first("x-compaction-reason")) == (sent, "provider-compacts")
        forwarded = await work_until_shortened(agent)
        _, (shortened,), reply = await agent.send(WORK, **more)
    assert json.loads(shortened)[api.items] == forwarded[api.items]
    assert [reply.head.first(f"x-compaction{of}") for of in ("", "-reason")] == ["applied", "provider-compacts"]


@pytest.mark.parametrize(
    ("api", "more"), [(RESPONSES, {"context_management": THRESHOLD}), (MESSAGES, {"context_management": EDITS})]
)
@pytest.mark.parametrize("streams", [False, True])
async def test_a_history_that_is_too_long_although_the_provider_compacts_is_shortened(serve, fresh, api, more, streams):
    refusal = stream(*api.refused_events()) if streams else api.refuse(code=OVERFLOW)
    fresh.script = in_turn(refusal, api.reply(streams=streams))
    async with serve(fresh.url, config=settings()) as proxy:
        sent, (first, second), reply = await Agent(proxy, fresh, api=api).send(WORK, stream=streams, **more)
    assert first == sent
    assert len(second) < 0.9 * len(sent)
    assert (reply.status, reply.head.first("x-compaction-reason")) == (200, "overflow_retry")


async def test_a_signature_that_is_refused_although_the_provider_compacts_goes_with_its_reasoning(serve, fresh):
    refusal = MESSAGES.refuse(REFUSED_SIGNATURE)
    fresh.script = in_turn(refusal, MESSAGES.reply())
    signed = {"type": "thinking", "thinking": "So.", "signature": "c2ln"}
    body = json.loads(MESSAGES.write(WORK, context_management=EDITS, thinking={"type": "adaptive"}))
    body["messages"][1]["content"].insert(0, signed)
    async with serve(fresh.url, config=settings()) as proxy:
        agent = Agent(proxy, fresh, api=MESSAGES)
        (first, second), reply = await send(agent, json.dumps(body).encode())
    assert b"c2ln" in first.body
    assert b"c2ln" not in second.body
    assert second.json["context_management"] == EDITS
    assert (reply.status, reply.head.first("x-compaction-reason")) == (200, "reasoning-removed")
