"""The gauge of a client: true by default, and its own history's where a policy says so. Also a probe of the size."""

import asyncio
import json

import pytest

from tests.support.agent import Agent, reading, turns
from tests.support.compacting_proxy import WORK, metric, settings
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


async def test_by_default_the_figures_are_the_upstreams_own(stack):
    _, agent = stack
    assert gauge_of(await grown(agent)) == 2_000


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


@pytest.mark.seconds
async def test_an_upstream_without_a_cache_is_not_taken_for_one_with_a_cache(stack):
    """The cost of the history as it came: what is not read from a cache now would not have been read from one."""
    up, agent = stack
    up.script = text_turn("Go on.").using(2_000, 20, cached=0)
    applied = [step for step in [await agent.send(each) for each in turns(WORK)] if step.compaction == "applied"]
    await asyncio.sleep(1)  # the report of a request follows its answer
    read = await metric(agent.proxy, "prompt_tokens_total", kind="read")
    paid, plain = [await metric(agent.proxy, "prompt_dollars_total", kind=kind) for kind in ("paid", "plain")]
    assert plain > sum(step.tokens[0] for step in applied) * paid / read


def usage_only_when_short(request):
    """Reports its usage only for a whole answer of a few tokens."""
    turn = text_turn("Go on.").using(len(request.body) // 4)
    if request.json.get("max_tokens") == 16:
        return turn
    return answer({key: value for key, value in turn.completion().items() if key != "usage"})


async def test_a_policy_can_have_a_shortened_history_counted_by_a_probe(serve):
    async with Upstream(usage_only_when_short) as up:
        config = settings(default={"recount": "probe"})
        config["upstreams"][-1] = {**config["upstreams"][-1], "base_url": up.url}
        async with serve(None, config=config) as proxy:
            agent = Agent(proxy, up, "sk-a")
            step = await agent.send(WORK)
            probe = await up.wait_for_request(2)
            await probe.end()
            await asyncio.sleep(0.1)
            again = await agent.send(WORK)
    assert step.compaction == "created"
    assert probe.json["messages"] == json.loads(step.forwarded)["messages"]
    assert again.tokens[1] == len(probe.body) // 4
    assert len(up.requests) == 3
