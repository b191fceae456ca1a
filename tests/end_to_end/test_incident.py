"""Switches in an incident: a session of eighty turns outgrows the window while its operator has turned one."""

import asyncio
import json

import pytest

from tests.support.admin_client import AdminClient
from tests.support.agent import Agent, compactions, reading
from tests.support.apis import CHAT
from tests.support.commands import run_command
from tests.support.compacting_proxy import SMALL
from tests.support.messages import assistant, user
from tests.support.proxy_client import log_of, until
from tests.support.scripted_upstream import Upstream, answer, in_turn, text_turn

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.seconds]

WINDOW_TOKENS = 40_000
REAL_WINDOW_TOKENS = 24_000
"""The upstream refuses more, and its operator has configured a larger window."""
SESSION = reading(80, size=2_600)


def answer_within_window(request):
    tokens = len(request.body) // 3
    return text_turn("Go on.") if tokens <= REAL_WINDOW_TOKENS else CHAT.refuse_long(tokens, REAL_WINDOW_TOKENS)


@pytest.fixture
def open_proxy(serve):
    def start(up, *words):
        config = {
            "upstreams": [{"base_url": up.url, "window": WINDOW_TOKENS, "retries": 0}],
            "policies": {"default": {**SMALL, "summary": {"enabled": False}}},
            "log": {"format": "json"},
        }
        return serve(None, *words, config=config)

    return start


async def turn_switch(proxy, *words):
    where = ("--config", str(proxy.place / "proxy.yaml"), "--state", str(proxy.state), "--yes")
    ended = await run_command("switch", *words, *where, place=proxy.place)
    assert ended.code == 0, ended.complaint
    await until(lambda: log_of(proxy, "switch-lifted" if words[0] == "on" else "switch-set"))
    return ended.out


@pytest.mark.parametrize("words", [("off", "--still-fit"), ("bypass",)])
async def test_a_session_that_outgrows_the_window_has_no_refusal(open_proxy, words):
    async with Upstream(answer_within_window) as up, open_proxy(up) as proxy:
        await turn_switch(proxy, *words)
        steps = await Agent(proxy, up, "sk-a").work(SESSION)
    assert {step.answer.status for step in steps} == {200}
    assert len(steps[-1].sent) > 6 * REAL_WINDOW_TOKENS
    first = compactions(steps).index("created")
    assert all(step.is_verbatim for step in steps[:first])
    assert compactions(steps).count("created") < 12
    assert len(up.requests) > len(steps), "the upstream refused some, which the proxy then shortened"


async def test_switched_off_alone_a_session_that_outgrows_the_window_is_refused(open_proxy):
    async with Upstream(answer_within_window) as up, open_proxy(up) as proxy:
        await turn_switch(proxy, "off")
        steps = await Agent(proxy, up, "sk-a").work(SESSION)
    assert {step.answer.status for step in steps[-10:]} == {400}
    assert all(step.is_verbatim for step in steps)


async def test_bypass_forwards_own_bytes_that_fit_or_else_the_last_block_and_is_lifted_with_an_all_clear(open_proxy):
    async with Upstream(text_turn("Go on.")) as up, open_proxy(up) as proxy:
        agent = Agent(proxy, up, "sk-a")
        before = await agent.work(SESSION[:42])
        assert before[-1].compaction == "applied"
        shown = await turn_switch(proxy, "bypass")
        assert shown == "all teams: bypass\n"
        bypassed = await agent.send(SESSION[:42])
        assert (bypassed.compaction, bypassed.header("x-compaction-reason")) == ("bypassed", "switched-off")
        assert bypassed.is_verbatim
        steps = [await agent.send(SESSION[:length]) for length in range(44, len(SESSION), 6)]
        outcomes = compactions(steps)
        assert outcomes == ["bypassed"] * outcomes.count("bypassed") + outcomes[outcomes.count("bypassed") :]
        grown = steps[outcomes.count("bypassed")]
        assert grown.compaction == "applied", "it does not fit any more, and the last block is still there"
        assert grown.extends(before[-1])
        assert outcomes.count("created") < 4
        await turn_switch(proxy, "on")
        assert (await agent.send(SESSION[:42])).forwarded == before[-1].forwarded
        (lifted,) = log_of(proxy, "switch-lifted")
        assert (lifted["team"], lifted["state"]) == ("everybody", "on")


async def test_each_request_is_rebuilt_from_its_original_as_it_was_forwarded_itself(open_proxy):
    async with Upstream(text_turn("Go on.")) as up, open_proxy(up) as proxy:
        admin, equal = AdminClient(proxy), Agent(proxy, up, "sk-b")
        worked = await Agent(proxy, up, "sk-a").work(SESSION[:62])
        steps = [step for step in worked if step.compaction in ("applied", "created")]
        assert len(steps) > 4
        modes = ("observe", "auto", "auto", "observe")
        steps += [await equal.send(SESSION[:62], {"x-compaction": mode}) for mode in modes]
        await turn_switch(proxy, "bypass")
        steps.append(await equal.send(SESSION[:42]))
        assert compactions(steps[-5:]) == ["observed", "created", "applied", "applied", "bypassed"]
        await asyncio.sleep(1.0)  # the activity log is written in batches
        for step in steps:
            request_id = step.header("x-compaction-request-id")
            told = await admin.read(f"/requests/{request_id}/forwarded")
            assert told["forwarded"] == step.messages, step.compaction
            assert told["sent"] == json.loads(step.sent)["messages"]
            assert len(told["differences"]) == 1, "the other members of the body"
        where = ("--config", str(proxy.place / "proxy.yaml"), "--state", str(proxy.state))
        exported = await run_command("transcripts", "export", "--forwarded", request_id, *where, place=proxy.place)
        assert exported.code == 0, exported.complaint
        assert json.loads(exported.out) == told


async def test_of_a_shortened_request_that_the_upstream_refused_it_is_not_said_that_it_was_forwarded_as_it_came(
    open_proxy,
):
    refusal = answer({"error": {"message": "Your prompt was filtered", "code": "content_filter"}}, 400)
    async with Upstream(text_turn("Go on.")) as up, open_proxy(up) as proxy:
        agent = Agent(proxy, up, "sk-a")
        await agent.work(SESSION[:42])
        up.script = refusal
        refused = await agent.send(SESSION[:42])
        assert (refused.answer.status, refused.compaction) == (400, "applied")
        await asyncio.sleep(1.0)
        path = f"/requests/{refused.header('x-compaction-request-id')}/forwarded"
        why = await AdminClient(proxy).read_error(404, "GET", path)
        assert "it was forwarded shortened" in str(why)


async def test_reasoning_that_was_removed_is_a_difference_between_a_request_and_its_original(open_proxy):
    detail = {"type": "reasoning.text", "text": "x", "signature": "c2ln"}
    signed = [*SESSION[:42], *assistant("Yes.", reasoning_details=[detail]), *user("Go on.")]
    refusal = answer({"error": {"message": "Invalid `signature` in `thinking` block"}}, 400)
    async with Upstream(text_turn("Go on.")) as up, open_proxy(up) as proxy:
        agent = Agent(proxy, up, "sk-a")
        await agent.work(SESSION[:42])
        await turn_switch(proxy, "bypass")
        up.script = in_turn(refusal, text_turn("Go on."))
        step = await agent.send(signed)
        assert step.header("x-compaction-reason") == "reasoning-removed"
        assert b"c2ln" not in up.requests[-1].body
        await asyncio.sleep(1.0)
        told = await AdminClient(proxy).read(f"/requests/{step.header('x-compaction-request-id')}/forwarded")
        assert any("reasoning was removed" in difference for difference in told["differences"])
