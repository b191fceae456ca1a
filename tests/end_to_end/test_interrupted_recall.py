"""Rounds of a recall that the configuration changes under, and workers that are killed in one of them."""

import asyncio
import os
import signal
from contextlib import suppress

import pytest

from tests.support import http_client
from tests.support.agent import Agent, reading
from tests.support.compacting_proxy import WIDE, settings
from tests.support.messages import body, tool
from tests.support.proxy_client import data_of, faults_of, log_of, reload, request, streaming, until
from tests.support.scripted_upstream import call_turn, hang, in_turn, stream, text_turn, wait_for

TOOLS = [tool("Read", path="string")]
WORK = reading(24)
KEY = {"authorization": "Bearer sk-a"}
RECALL = text_turn("Let me see.") + call_turn("recall_earlier_output", messages="3")


def config_of(up, **listen):
    config = settings(default={"recall": "on"})
    config["upstreams"][-1] = {**WIDE, "base_url": up.url, "retries": 0}
    return {**config, "listen": listen} if listen else config


CHANGES = {
    "recall is switched off": {"policies": settings(default={"recall": "off"})["policies"]},
    "the policy is replaced": {"policies": {"default": {"mode": "observe"}}},
    "the upstream moves": {"upstreams": [{"name": "other", "base_url": "http://127.0.0.1:9/v1", "window": 1_000_000}]},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_rounds_end_on_the_configuration_that_they_began_with(up, serve, change):
    """Changed once while the first round is under way, and once more while the second is."""
    goes_on = [asyncio.Event(), asyncio.Event()]

    def hold(turn, event):
        """The answer of which only the beginning comes before the event."""
        begun, *rest = turn.frames(usage=True)
        return stream(begun, wait_for(event), *rest)

    up.script = in_turn(hold(RECALL, goes_on[0]), hold(text_turn("It is there."), goes_on[1]))
    async with serve(None, config=config_of(up)) as proxy:
        asking = asyncio.create_task(Agent(proxy, up, "sk-a").send(WORK, tools=TOOLS, stream=True))
        await up.wait_for_request()
        await reload(proxy, {**proxy.config, **change})
        goes_on[0].set()
        await up.wait_for_request(2)
        await reload(proxy, {**proxy.config, "transcripts": {"days": 3}})
        goes_on[1].set()
        step = await asking
        assert step.answer.status == 200
        assert step.answer.body.whole
        assert b"recall_earlier_output" not in step.answer.body.data
        assert b"there." in step.answer.body.data
        await until(lambda: log_of(proxy, "recall-answered"))
        assert await faults_of(proxy) == []
        await until(lambda: up.connections <= 1)


async def ask_until_served(proxy, sent):
    """The answer of the first worker that is there again."""
    while True:
        with suppress(OSError):
            return await http_client.send(proxy.origin, sent)
        await asyncio.sleep(0.05)


@pytest.mark.seconds
async def test_a_history_goes_on_as_before_after_its_worker_was_killed_in_a_later_round(up, serve):
    up.script = in_turn(RECALL, hang(), RECALL, text_turn("It is there."))
    sent = body(WORK, tools=TOOLS, stream=True)
    async with serve(None, config=config_of(up, workers=2)) as proxy:
        async with streaming(proxy, sent, headers=KEY) as line:
            await line.until(b"see.")
            second = await up.wait_for_request(2)
            for pid in proxy.workers:
                os.kill(pid, signal.SIGKILL)
            rest = await line.reader.read()
            assert b"[DONE]" not in rest
            assert b'finish_reason":"' not in rest.replace(b" ", b"")
            await second.end()
        assert second.departure is not None
        answered = await ask_until_served(proxy, request(target="/v1/chat/completions", headers=KEY, body=sent))
        first, _, again, last = up.requests
        assert again.body == first.body, "the block that the upstream had accepted is applied"
        assert last.json["messages"][-1]["content"] == WORK[3]["content"]
        *_, end = data_of(answered.body.data)
        assert end == "[DONE]"
        assert b"there." in answered.body.data
        assert await faults_of(proxy) == []
