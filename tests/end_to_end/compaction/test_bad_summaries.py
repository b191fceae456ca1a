"""A model that does not help: what is no summary is never used, no question is put twice, and the request goes on."""

import json

import pytest
import pytest_asyncio

from tests.support.agent import Agent
from tests.support.compacting_proxy import metric, settings
from tests.support.messages import call, history, system, user
from tests.support.scripted_upstream import Upstream, answer, call_turn, cut, overflow, text_turn
from tests.support.summary_model import (
    NEAR,
    OVER,
    SEEN,
    SMALL_WINDOW_SETTINGS,
    WINDOW,
    WORK,
    account,
    asks_for_summary,
    body_has_summary,
    fill_window,
    has_summary,
    model,
    summary_calls,
    summary_ended,
    wait_until_asked,
)

BAD = {
    "f13 empty": text_turn(""),
    "f13 null": text_turn("null"),
    "f14 cut off": text_turn(account()).ending("length"),
    "f15 thoughts only": text_turn("<think>I should say what was done, and then I will do it.</think>"),
    "f16 tool call": call_turn("Read", path="x"),
    "f17 too long": text_turn(account(words="word " * 4_000)),
    "f23 another language": text_turn(account(words="Тесты проходят, осталось проверить вторую часть и закончить.")),
    "no sections": text_turn("Everything went well so far and there is nothing more to tell about it, really."),
    "down": answer(b"oops", status=503),
    "auth": answer(b'{"error": {"message": "no"}}', status=401),
    "quota": answer(b'{"error": {"message": "slow down"}}', status=429),
    "refused": answer(b'{"error": {"message": "bad"}}', status=400),
    "an error in a good answer": answer(b'{"error": {"message": "bad"}}'),
    "broken off": cut(),
    "nonsense": answer(b"<html>"),
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


async def test_f2_a_question_that_is_too_long_is_put_smaller_and_never_twice(small_window_stack):
    """The proxy does not know that the model reads so little; what was refused is retold, at last with less of it."""

    def small(request):
        if asks_for_summary(request):
            return text_turn(account()) if b"characters left out" in request.body else overflow("openai")
        return text_turn("Go on.")

    async with small_window_stack(small) as (up, agent, _):
        await agent.send(SEEN)
        await agent.send(NEAR)
        await wait_until_asked(up, 3)
        over = await agent.send(OVER)
    bodies = [request.body for request in summary_calls(up)]
    assert len(bodies) == len(set(bodies)) == 3
    assert has_summary(over)


async def test_f16_after_a_tool_call_the_question_is_put_as_a_plain_transcript(small_window_stack):
    def reply_with_tool_call(request):
        if not asks_for_summary(request):
            return text_turn("Go on.")
        return text_turn(account()) if len(request.json["messages"]) == 1 else call_turn("Read", path="x")

    async with small_window_stack(reply_with_tool_call) as (up, agent, _):
        over = await fill_window(up, agent, asking=2)
    aligned, plain = summary_calls(up)
    assert len(aligned.json["messages"]) > 1
    assert "tools" not in plain.json
    assert "<transcript>" in plain.json["messages"][0]["content"]
    assert has_summary(over)


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


async def test_another_upstream_makes_the_summary_with_its_own_key_and_gets_no_client_credential(serve):
    names = "ocp-apim-subscription-key x-litellm-api-key cf-aig-authorization x-goog-api-key cookie openai-organization"
    shown_in_headers = {name: f"CANARY={name}" for name in (*names.split(), "x-forwarded-for", "x-any-header")}
    shown_in_body = {"user": "CANARY", "api_key": "CANARY", "metadata": {"team": "CANARY"}, "temperature": 0.5}
    async with Upstream(text_turn("Go on.")) as up, Upstream(text_turn(account())) as teller:
        summary = {**SMALL_WINDOW_SETTINGS["summary"], "upstream": "teller", "model": "small-model"}
        config = settings(default={**SMALL_WINDOW_SETTINGS, "summary": summary})
        config["upstreams"] = [
            {
                "name": "teller",
                "models": ["none-of-these"],
                "base_url": teller.url,
                "key": "env:TELLER",
                "window": 32_000,
            },
            {"base_url": up.url, "window": WINDOW},
        ]
        async with serve(None, config=config, environment={"TELLER": "sk-teller"}) as proxy:
            agent = Agent(proxy, up, "sk-a", shown_in_headers, query="?key=CANARY-query&api-version=1")
            await agent.send(SEEN, **shown_in_body)
            await agent.send(NEAR, **shown_in_body)
            await wait_until_asked(teller)
            over = await agent.send(OVER, **shown_in_body)
    (asked_for,) = teller.requests
    assert asked_for.json["model"] == "small-model"
    assert asked_for.json["temperature"] == 0.5
    assert asked_for.header("authorization") == "Bearer sk-teller"
    assert asked_for.target == "/v1/chat/completions"
    assert "CANARY" not in str((asked_for.headers, asked_for.body))
    assert "sk-a" not in str((asked_for.headers, asked_for.body))
    assert has_summary(over)


async def test_a_summary_that_an_upstream_calls_invalid_is_dropped(small_window_stack):
    def reply_invalid_to_summaries(request):
        if asks_for_summary(request):
            return text_turn(account())
        return (
            answer(b'{"error": {"message": "invalid"}}', status=400)
            if body_has_summary(request)
            else text_turn("Go on.")
        )

    async with small_window_stack(reply_invalid_to_summaries) as (up, agent, _):
        refused = await fill_window(up, agent)
        after = await agent.send(WORK[:40])
    assert (refused.answer.status, refused.header("x-compaction-reason")) == (200, "shortened-refused")
    assert after.answer.status == 200
    assert not has_summary(after)
    assert len(summary_calls(up)) == 1


async def test_f1_where_nothing_helps_the_breaker_opens_and_is_seen(small_window_stack):
    """The upstream puts so much before every prompt that no block helps for long: after two there are no more
    until something has helped."""

    def heavy(request):
        headers = text_turn(account()) if asks_for_summary(request) else text_turn("Go on.")
        return headers.using(len(request.body) // 4 + 9_000)

    async with small_window_stack(heavy) as (up, agent, proxy):
        steps = [await agent.send(WORK[:size]) for size in range(20, 80, 2)]
        opened = await metric(proxy, "breakers_opened_total")
    reasons = [step.header("x-compaction-reason") for step in steps]
    assert "breaker-open" in reasons
    assert opened >= 1
    # Two until it opens, and two more each time a block that had to be made brought the history far down: without the
    # breaker there would be one for every third request.
    assert len(summary_calls(up)) <= 7
    after = reasons[reasons.index("breaker-open") :]
    assert after.count("window") <= len(after) / 4  # only when it would not fit any more
