"""Summaries by a model, seen from outside: a real proxy, an agent, and an upstream that is asked for them."""

import asyncio
import json

import pytest

from tests.support.agent import Agent, compactions
from tests.support.compacting_proxy import metric
from tests.support.messages import user
from tests.support.scripted_upstream import answer, hang
from tests.support.scripted_upstream import says as tells
from tests.support.summary_model import (
    BEYOND,
    NEAR,
    OVER,
    SEEN,
    WORK,
    account,
    asked,
    asks_for_summary,
    fills,
    model,
    slowly,
    summary_calls,
    told_body,
    told_in,
)

# --- ready before it is needed ---------------------------------------------------------------------------------------


async def test_a_summary_is_prepared_near_the_trigger_and_swapped_in_over_it(told):
    async with told(model()) as (up, agent, _):
        first, near = await agent.sends(SEEN), await agent.sends(NEAR)
        await asked(up)
        over, next_one = await agent.sends(OVER), await agent.sends(WORK[:40])
    assert compactions([first, near, over, next_one]) == ["none", "none", "created", "applied"]
    assert told_in(over)
    assert next_one.goes_on(over)
    assert len(summary_calls(up)) == 1
    before, after = over.tokens
    assert after < before / 2


async def test_f9_a_summary_is_asked_at_the_end_of_the_conversation_as_last_forwarded(told):
    async with told(model()) as (up, agent, _):
        tools = [{"type": "function", "function": {"name": "Read", "parameters": {"type": "object"}}}]
        await agent.sends(SEEN, tools=tools)
        near = await agent.sends(NEAR, tools=tools)
        await asked(up)
    (asked_for,) = summary_calls(up)
    forwarded = json.loads(near.forwarded)
    assert asked_for.json["messages"][:-1] == forwarded["messages"]
    assert asked_for.json["tools"] == forwarded["tools"]
    assert asked_for.json["model"] == forwarded["model"]
    assert asked_for.body.startswith(near.forwarded[: near.forwarded.rindex(b"]")])
    assert asked_for.header("authorization") == "Bearer sk-a"


async def test_the_question_asks_for_one_text_and_nothing_else(told):
    more = {
        "response_format": {"type": "json_object"},
        "n": 2,
        "stop": ["x"],
        "max_tokens": 4_000,
        "tool_choice": "auto",
    }
    async with told(model()) as (up, agent, _):
        await agent.sends(SEEN, **more)
        await agent.sends(NEAR, **more)
        await asked(up)
    (asked_for,) = summary_calls(up)
    assert asked_for.json.keys() == {"model", "messages", "max_tokens"}
    assert asked_for.json["max_tokens"] == 600


async def test_the_users_words_stay_and_the_ledger_follows_the_summary(told):
    async with told(model()) as (up, agent, _):
        over = await fills(up, agent)
    system_prompt, task, _, summary, *_ = over.messages
    assert (system_prompt, task) == (WORK[0], WORK[1])
    assert "## Next step" in summary["content"]
    assert "part_3.py" in summary["content"].split("Taken from the calls themselves:")[1]


async def test_a_summary_that_is_cut_off_each_time_is_never_asked_for_with_more_room_than_the_window_has(told):
    cut_off = tells(account()).ending("length")
    async with told(model(cut_off), summary={"max_tokens": 4_000}) as (up, agent, _):
        await agent.sends(SEEN)
        await agent.sends(NEAR)
        await asked(up, 3)
    bounds = [request.json["max_tokens"] for request in summary_calls(up)]
    assert bounds == [4_000, 8_000, 8_000]


async def test_a_streamed_answer_is_a_summary_too(told):
    async with told(model()) as (up, agent, _):
        await agent.sends(SEEN, stream=True)
        await agent.sends(NEAR, stream=True)
        await asked(up)
        over = await agent.sends(OVER, stream=True)
    assert summary_calls(up)[0].json["stream"] is True
    assert told_in(over)


async def test_a_streamed_summary_is_asked_for_its_usage_and_the_metrics_have_what_it_cost(told):
    script = model(tells(account()).using(9_000, 300), tells("Go on."))
    async with told(script) as (up, agent, proxy):
        await agent.sends(SEEN, stream=True)
        await agent.sends(NEAR, stream=True)
        await asked(up)
        assert summary_calls(up)[0].json["stream_options"] == {"include_usage": True}
        assert await metric(proxy, "summary_tokens_total", kind="read") == 9_000
        assert await metric(proxy, "summary_tokens_total", kind="written") == 300


REFUSED_OPTION = {"detail": [{"loc": ["body", "stream_options"], "msg": "Extra inputs are not permitted"}]}


def refuses_option(script, *, only_summaries=False):
    """A server that knows no `stream_options`."""

    def reply(request):
        refuses = b"stream_options" in request.body and (asks_for_summary(request) or not only_summaries)
        return answer(REFUSED_OPTION, 422) if refuses else script(request)

    return reply


@pytest.mark.parametrize(("only_summaries", "calls"), [(False, [False]), (True, [True, False])])
async def test_a_server_that_refuses_the_usage_option_is_asked_without_and_then_not_again(told, only_summaries, calls):
    script = refuses_option(model(), only_summaries=only_summaries)
    async with told(script) as (up, agent, proxy):
        await agent.sends(SEEN, stream=True)
        near = await agent.sends(NEAR, stream=True)
        await asked(up, len(calls))
        over = await agent.sends(OVER, stream=True)
        following = await agent.sends(WORK[:40], stream=True)
        assert await metric(proxy, "summaries_total", outcome="made") == 1
        assert await metric(proxy, "refused_for_size_total") == 0
    assert [b"stream_options" in request.body for request in summary_calls(up)] == calls
    assert [step.answer.status for step in (near, over, following)] == [200, 200, 200]
    assert told_in(over)
    assert b"stream_options" not in over.forwarded + following.forwarded


async def test_a_shortened_stream_is_sent_again_without_the_option_that_its_server_refuses(told):
    async with told(refuses_option(model()), summary={"enabled": False}) as (up, agent, proxy):
        await agent.sends(SEEN, stream=True)
        over = await agent.sends(OVER, stream=True)
        sent = len(up.requests)
        following = await agent.sends(WORK[:40], stream=True)
        assert await metric(proxy, "upstream_retries_total", why="usage-option") == 1
    assert (over.answer.status, over.compaction) == (200, "created")
    assert following.answer.status == 200
    assert len(up.requests) == sent + 1


async def test_the_next_summary_goes_on_from_the_one_before(told):
    async with told(model()) as (up, agent, _):
        await fills(up, agent)
        for size in range(40, 56, 2):
            await agent.sends(WORK[:size])
        await asked(up, 2)
        for size in range(56, 66, 2):
            last = await agent.sends(WORK[:size])
    second = summary_calls(up)[1]
    assert "Summary of the conversation so far" in json.dumps(second.json["messages"])
    assert told_in(last)
    assert json.dumps(last.messages).count("Summary of the conversation so far") == 1


async def test_a_prompt_that_is_sent_once_never_pays_for_a_summary(told):
    async with told(model()) as (up, agent, _):
        over = await agent.sends(OVER)
        await asyncio.sleep(0.3)
    assert over.compaction == "created"
    assert not told_in(over)
    assert summary_calls(up) == []


async def test_no_turn_waits_for_a_slow_summary_while_the_history_fits(told):
    slow = slowly(tells(account()), 1.5)
    async with told(model(slow)) as (up, agent, _):
        await agent.sends(SEEN)
        began = asyncio.get_running_loop().time()
        for size in (32, 34, 36):
            await agent.sends(WORK[:size])
        pending = await agent.sends(OVER)
        assert asyncio.get_running_loop().time() - began < 1.4
        assert pending.says("x-compaction-reason") == "summary-pending"
        await asked(up)
        ready = await agent.sends(WORK[:40])
    assert told_in(ready)
    assert len(summary_calls(up)) == 1


async def test_when_it_must_wait_it_waits_no_longer_than_the_policy_says(told):
    never = hang()
    async with told(model(never), summary={"wait": 0.5}) as (up, agent, _):
        await agent.sends(SEEN)
        began = asyncio.get_running_loop().time()
        beyond = await agent.sends(BEYOND)
        waited = asyncio.get_running_loop().time() - began
    assert beyond.compaction == "created"
    assert len(up.requests) == 3
    assert not told_body(up.requests[-1])
    assert 0.4 < waited < 10


async def test_when_it_must_wait_and_the_answer_comes_in_time_it_is_used(told):
    async with told(model(slowly(tells(account()), 0.3))) as (up, agent, _):
        await agent.sends(SEEN)
        await agent.sends(BEYOND)
    assert told_body(up.requests[-1])


@pytest.mark.slow
async def test_the_same_history_gets_the_same_bytes_from_every_worker_and_one_summary_is_made(told):
    async with told(model(), workers=2) as (up, agent, _):
        await agent.sends(SEEN)
        await asyncio.gather(*(agent.sends(NEAR) for _ in range(6)))
        await asked(up)
        steps = await asyncio.gather(*(agent.sends(OVER) for _ in range(6)))
    assert len(summary_calls(up)) == 1
    assert len({json.dumps(step.answer.head.first("x-compaction-tokens-after")) for step in steps}) == 1
    forwarded = {request.body for request in up.requests if len(request.body) and told_body(request)}
    assert len(forwarded) == 1


async def test_f25_an_edited_history_does_not_get_the_summary_of_another(told):
    async with told(model()) as (up, agent, _):
        await agent.sends(SEEN)
        await agent.sends(NEAR)
        await asked(up)
        other = [*OVER[:3], {**OVER[3], "content": "Something else."}, *OVER[4:]]
        edited = await agent.sends(other)
        stranger = await Agent(agent.proxy, up, "sk-b").sends(OVER)
    assert not told_in(edited)
    assert not told_in(stranger)


async def test_whoever_waits_and_leaves_calls_the_summary_off(told):
    async with told(model(hang())) as (up, agent, _):
        await agent.sends(SEEN)
        waiting = asyncio.create_task(agent.sends(BEYOND))
        async with asyncio.timeout(5):
            while not summary_calls(up):  # noqa: ASYNC110 (the upstream signals nothing)
                await asyncio.sleep(0.02)
        waiting.cancel()
        (asked_for,) = summary_calls(up)
        await asked_for.end(2)
    assert asked_for.departure is not None


# --- what is seen of it ----------------------------------------------------------------------------------------------


async def test_a_summary_is_told_in_the_log_and_the_metrics_with_what_it_cost(told):
    async with told(model(tells(account()).using(9_000, 300, cached=8_000))) as (up, agent, proxy):
        await fills(up, agent)
        assert await metric(proxy, "summaries_total", outcome="made") == 1
        assert await metric(proxy, "summary_tokens_total", kind="cached") == 8_000
    (line,) = [json.loads(line) for line in proxy.output.splitlines() if '"summary-ended"' in line]
    assert (line["outcome"], line["tokens_read"], line["tokens_written"]) == ("made", 9_000, 300)


async def test_a_client_that_summarises_by_itself_gets_what_stands_and_nothing_new(told):
    async with told(model()) as (up, agent, _):
        await agent.sends(SEEN)
        aside = await agent.sends([*OVER, *user("Summarise this conversation so that another agent can go on.")])
        await asyncio.sleep(0.2)
    assert aside.compaction == "none"
    assert summary_calls(up) == []
