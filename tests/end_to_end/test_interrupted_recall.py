"""Workers that are killed in a later round of a recall."""

import asyncio
import os
import signal
from contextlib import suppress

import pytest

from tests.support import http_client
from tests.support.agent import reading
from tests.support.compacting_proxy import WIDE, settings
from tests.support.messages import body, tool
from tests.support.proxy_client import data_of, faults_of, request, streaming
from tests.support.scripted_upstream import call_turn, hang, in_turn, text_turn

TOOLS = [tool("Read", path="string")]
WORK = reading(24)
KEY = {"authorization": "Bearer sk-a"}
RECALL = text_turn("Let me see.") + call_turn("recall_earlier_output", messages="3")


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
    config = settings(default={"recall": "on"}) | {"listen": {"workers": 2}}
    config["upstreams"][-1] = {**WIDE, "base_url": up.url, "retries": 0}
    async with serve(None, config=config) as proxy:
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
