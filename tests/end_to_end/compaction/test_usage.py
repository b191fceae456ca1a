"""The gauge of a client: true by default, and its own history's where a policy says so. Also a probe of the size."""

import json

import pytest

from tests.support.agent import Agent, reading, turns
from tests.support.compacting_proxy import WORK, settings
from tests.support.messages import assistant, user
from tests.support.scripted_upstream import Upstream, answer, text_turn


@pytest.fixture
async def stack(serve):
    async with Upstream(text_turn("Go on.").using(2_000, 20)) as up:
        config = settings(client={"inherit": "default", "usage": "client_view"})
        last = {**config["upstreams"][-1], "base_url": up.url}
        config["upstreams"] = [{**last, "name": "client", "models": ["client"], "policy": "client"}, last]
        async with serve(None, config=config) as proxy:
            yield up, Agent(proxy, up, "sk-a")


async def grown(agent, **more):
    """The first turn of a work that was shortened."""
    for each in turns(WORK):
        step = await agent.send(each, **more)
        if step.compaction == "created":
            return step
    raise AssertionError("it was never shortened")


async def test_a_stream_that_was_shortened_is_asked_for_its_usage_and_the_client_sees_nothing_of_it(stack):
    up, agent = stack
    step = await grown(agent, stream=True)
    assert json.loads(step.forwarded)["stream_options"] == {"include_usage": True}
    assert b"usage" not in step.answer.body.data
    assert step.answer.body.data == b"".join(up.script.frames(model="gpt-4o"))


def gauge_of(step):
    return json.loads(step.answer.body.data)["usage"]["prompt_tokens"]


async def test_a_client_view_shows_what_the_history_would_have_taken(stack):
    _, agent = stack
    step = await grown(agent, model="client")
    before, after = step.tokens
    assert gauge_of(step) == 2_000 + before - after


async def test_f1_a_client_with_a_gauge_of_its_own_compacts_when_its_history_is_long_and_not_with_every_turn(stack):
    """The client sums itself up when its gauge says 12,000. Behind an honest gauge it never would."""
    up, agent = stack
    up.script = lambda request: text_turn("Go on.").using(len(request.body) // 4)
    work, compacted, history = reading(40), 0, reading(0)
    for at in range(2, len(work), 2):
        history = [*history, *work[at : at + 2]]
        step = await agent.send(history, model="client")
        if gauge_of(step) > 12_000:
            compacted += 1
            history = [*reading(0), *assistant("I have read some files."), *user("Go on.")]
    assert 1 <= compacted <= 3


async def test_a_policy_can_have_a_shortened_history_counted_by_a_probe(serve):
    silent = answer({**text_turn("Go on.").completion(), "usage": None})
    async with Upstream(silent) as up, serve(up.url, config=settings(default={"recount": "probe"})) as proxy:
        step = await Agent(proxy, up, "sk-a").send(WORK)
        probe = await up.wait_for_request(2)
    assert step.compaction == "created"
    assert probe.json["messages"] == step.messages
