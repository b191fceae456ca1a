"""Summaries by a model, seen from outside: a real proxy, an agent, and an upstream that is asked for them."""

import asyncio
import json
from dataclasses import replace

from tests.support.agent import Agent, compactions
from tests.support.compacting_proxy import metric
from tests.support.proxy_client import log_of, until
from tests.support.scripted_upstream import answer, text_turn, wait_for
from tests.support.summary_model import (
    NEAR,
    OVER,
    SEEN,
    WORK,
    account,
    has_summary,
    model,
    summary_calls,
    wait_until_asked,
)


async def test_a_summary_is_prepared_near_the_trigger_and_swapped_in_over_it(small_window_stack):
    async with small_window_stack(model()) as (up, agent, _):
        first, near = await agent.send(SEEN), await agent.send(NEAR)
        await wait_until_asked(up)
        over, next_one = await agent.send(OVER), await agent.send(WORK[:40])
    assert compactions([first, near, over, next_one]) == ["none", "none", "created", "applied"]
    assert has_summary(over)
    assert next_one.extends(over)
    assert len(summary_calls(up)) == 1
    before, after = over.tokens
    assert after < before / 2


async def test_f9_a_summary_is_asked_at_the_end_of_the_conversation_as_last_forwarded(small_window_stack):
    async with small_window_stack(model()) as (up, agent, _):
        tools = [{"type": "function", "function": {"name": "Read", "parameters": {"type": "object"}}}]
        await agent.send(SEEN, tools=tools)
        near = await agent.send(NEAR, tools=tools)
        await wait_until_asked(up)
    (asked_for,) = summary_calls(up)
    forwarded = json.loads(near.forwarded)
    assert asked_for.json["messages"][:-1] == forwarded["messages"]
    assert asked_for.json["tools"] == forwarded["tools"]
    assert asked_for.json["model"] == forwarded["model"]
    assert asked_for.body.startswith(near.forwarded[: near.forwarded.rindex(b"]")])
    assert asked_for.header("authorization") == "Bearer sk-a"


async def test_a_summary_is_asked_for_one_text_and_its_usage_and_its_cost_is_in_metrics_and_log(small_window_stack):
    script = model(text_turn(account()).using(9_000, 300, cached=8_000))
    choices = {"response_format": {"type": "json_object"}, "n": 2, "stop": ["x"], "tool_choice": "auto"}
    async with small_window_stack(script) as (up, agent, proxy):
        await agent.send(SEEN, stream=True, max_tokens=4_000, **choices)
        await agent.send(NEAR, stream=True, max_tokens=4_000, **choices)
        await wait_until_asked(up)
        (asked_for,) = summary_calls(up)
        assert asked_for.json.keys() == {"model", "messages", "max_tokens", "stream", "stream_options"}
        assert (asked_for.json["max_tokens"], asked_for.json["stream_options"]) == (600, {"include_usage": True})
        assert await metric(proxy, "summary_tokens_total", kind="read") == 9_000
        assert await metric(proxy, "summary_tokens_total", kind="cached") == 8_000
        assert await metric(proxy, "summary_tokens_total", kind="written") == 300
        (line,) = await until(lambda: log_of(proxy, "summary-ended"))
    assert (line["outcome"], line["tokens_read"], line["tokens_written"]) == ("made", 9_000, 300)


REFUSED_OPTION = {"detail": [{"loc": ["body", "stream_options"], "msg": "Extra inputs are not permitted"}]}


def refuse_option(request):
    """A server that knows no `stream_options`."""
    return answer(REFUSED_OPTION, 422) if b"stream_options" in request.body else text_turn("Go on.")


async def test_a_shortened_stream_is_sent_again_without_the_option_that_its_server_refuses(small_window_stack):
    async with small_window_stack(refuse_option, summary={"enabled": False}) as (up, agent, proxy):
        await agent.send(SEEN, stream=True)
        over = await agent.send(OVER, stream=True)
        sent = len(up.requests)
        following = await agent.send(WORK[:40], stream=True)
        assert await metric(proxy, "upstream_retries_total", why="usage-option") == 1
    assert (over.answer.status, over.compaction) == (200, "created")
    assert following.answer.status == 200
    assert len(up.requests) == sent + 1


async def test_a_refusal_that_only_quotes_the_option_changes_nothing_for_other_callers(small_window_stack):
    """A caller may bring any words into an error, and pretend with them that the option is refused."""

    def reply(request):
        is_spoiled = request.header("authorization") == "Bearer sk-spoiler"
        return answer(REFUSED_OPTION, 422) if is_spoiled and len(request.body) > 10_000 else text_turn("Go on.")

    async with small_window_stack(reply, summary={"enabled": False}) as (up, agent, proxy):
        spoiler = Agent(proxy, up, "sk-spoiler")
        for messages in (SEEN, OVER):
            await spoiler.send(messages, stream=True)
        await agent.send(SEEN, stream=True)
        over = await agent.send(OVER, stream=True)
    assert over.compaction == "created"
    assert b"stream_options" in over.forwarded


async def test_no_turn_waits_for_a_slow_summary_while_the_history_fits(small_window_stack):
    written = asyncio.Event()
    summary = answer(text_turn(account()).completion())
    slow = replace(summary, parts=(wait_for(written), *summary.parts))
    async with small_window_stack(model(slow)) as (up, agent, _):
        await agent.send(SEEN)
        for size in (32, 34, 36):
            await agent.send(WORK[:size])
        pending = await agent.send(OVER)
        assert pending.header("x-compaction-reason") == "summary-pending"
        written.set()
        await wait_until_asked(up)
        ready = await agent.send(WORK[:40])
    assert has_summary(ready)
    assert len(summary_calls(up)) == 1
