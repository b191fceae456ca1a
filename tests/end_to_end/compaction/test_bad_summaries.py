"""A model that does not help: what is no summary is never used, no question is put twice, and the request goes on."""

import json

import pytest
import pytest_asyncio

from tests.support.agent import Agent
from tests.support.compacting_proxy import metric
from tests.support.messages import call, history, system, user
from tests.support.scripted_upstream import answer, call_turn, cut, text_turn
from tests.support.summary_model import (
    NEAR,
    OVER,
    SEEN,
    WORK,
    account,
    has_summary,
    model,
    summary_calls,
    summary_ended,
    wait_until_asked,
)

BAD = {
    "f14 cut off": text_turn(account()).ending("length"),
    "f15 thoughts only": text_turn("<think>I should say what was done, and then I will do it.</think>"),
    "f16 tool call": call_turn("Read", path="x"),
    "down": answer(b"oops", status=503),
    "an error in a good answer": answer(b'{"error": {"message": "bad"}}'),
    "broken off": cut(),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack(small_window_stack):
    """One proxy before a model with unusable summaries, of another kind for each agent."""
    async with small_window_stack(model(BAD["down"])) as (up, _, proxy):
        yield up, proxy


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", BAD)
async def test_an_invalid_summary_is_never_used_and_the_request_continues(stack, name):
    up, proxy = stack
    up.forget()
    up.script = model(BAD[name])
    agent, before = Agent(proxy, up, f"sk-{name}"), await metric(proxy, "summaries_total")
    await agent.send(SEEN)
    await agent.send(NEAR)
    await summary_ended(proxy, before)
    over = await agent.send(OVER)
    assert over.answer.status == 200
    assert over.messages == OVER
    assert not has_summary(over)
    assert await metric(proxy, "summaries_total", outcome="made") == 0
    assert await metric(proxy, "summaries_total") > before
    bodies = [request.body for request in summary_calls(up)]
    assert len(bodies) == len(set(bodies))
    assert len(bodies) <= 3


async def test_f24_a_secret_is_neither_retold_nor_kept_in_a_summary(small_window_stack):
    canary = "ghp_" + "a1B2" * 9
    leaky = text_turn(account(words=f"The token is {canary}."))
    work = history(system("You are a coding agent."), user("Make the tests pass."), call("Bash", out=f"TOKEN={canary}"))
    work = [*work, *WORK[2:]]
    async with small_window_stack(model(leaky), summary={"call": "transcript"}) as (up, agent, proxy):
        await agent.send(work[:30])
        await agent.send(work[:34])
        await wait_until_asked(up)
        over = await agent.send(work[:40])
        kept = (proxy.state / "promises.sqlite").read_bytes()
    assert has_summary(over)
    (asked_for,) = summary_calls(up)
    assert canary not in asked_for.body.decode()
    assert canary not in json.dumps(over.messages)
    assert canary.encode() not in kept
