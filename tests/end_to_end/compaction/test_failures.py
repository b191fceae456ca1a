"""Ways in which compaction has failed the users of other products, by their number, where they need a real proxy.

Those that are about the core alone are in `tests/path/test_failures.py`, which says what the numbers are; those about
summaries in `test_live_summaries.py`.
"""

import asyncio
import json
from dataclasses import dataclass

import pytest
import pytest_asyncio

from proxy.store.activity_log import ActivityLog
from tests.support.agent import Agent, reading
from tests.support.compacting_proxy import settings
from tests.support.proxy_client import log_of, streaming, until
from tests.support.running_proxy import Proxy
from tests.support.scripted_upstream import Upstream, delta, hang, stream, text_turn

pytestmark = pytest.mark.asyncio(loop_scope="module")

WINDOW = 12_000
STRIDES, TRIGGER = {"clear_at_least": 3_000}, {"clear_at_least": 100_000, "summary": {"enabled": False}}
WORK = reading(30)
GO_ON = text_turn("Go on.")


@dataclass(frozen=True)
class Stack:
    up: Upstream
    proxy: Proxy

    def agent(self, request, reply=None) -> Agent:
        """One with a key of its own, before an upstream that says the same thing to everyone."""
        self.up.script = reply or GO_ON
        self.up.forget()
        return Agent(self.proxy, self.up, f"sk-{request.node.name}")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack(serve):
    async with Upstream() as up:
        narrow = {"name": "narrow", "models": ["narrow"], "policy": "narrow", "base_url": up.url, "window": WINDOW}
        config = settings(narrow, default=STRIDES, narrow=TRIGGER)
        config["upstreams"][-1] = {"base_url": up.url}
        async with serve(None, config=config) as proxy:
            yield Stack(up, proxy)


async def test_f18_before_an_unknown_window_there_are_strides_and_a_warning_and_no_trigger(stack, request):
    steps = await stack.agent(request).work(WORK, model="nobody-knows-me")
    assert {step.header("x-compaction-reason") for step in steps if step.compaction == "created"} == {"stride"}
    noticed = [step for step in steps if step.compaction == "none" and step.header("x-compaction-reason")]
    assert noticed
    assert {step.header("x-compaction-reason") for step in noticed} == {"window-unknown"}
    await until(lambda: log_of(stack.proxy, "request", reason="window-unknown", compaction="applied"))


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
async def test_f22_the_answer_that_is_asked_for_has_its_room_in_the_window(stack, request, name):
    agent = stack.agent(request)
    modest = await agent.send(WORK[:22], model="narrow", **{name: 500})
    greedy = await agent.send(WORK[:22], model="narrow", **{name: 8_000})
    assert modest.is_verbatim
    assert (greedy.compaction, greedy.header("x-compaction-reason")) == ("created", "window")
    assert greedy.tokens[1] + 8_000 <= WINDOW


async def test_a_turn_that_ended_half_way_is_in_the_activity_log_like_any_other(stack, request):
    """A conversation shows all that was sent for it, also where the client did not wait for the end."""
    agent = stack.agent(request, stream(delta(content="Well"), hang()))
    sent = json.dumps({"model": "patient", "stream": True, "messages": WORK}).encode()
    async with streaming(stack.proxy, sent, headers={"authorization": f"Bearer {agent.key}"}) as line:
        await line.until(b"Well")
    async with asyncio.timeout(60):
        while not (turns_seen := recorded_turns(stack.proxy.state, "patient")):  # noqa: ASYNC110 (a thread of the proxy)
            await asyncio.sleep(0.05)
    assert [turn["action"] for turn in turns_seen] == ["created"]
    assert turns_seen[0]["tokens_after"] < turns_seen[0]["tokens_before"]


def recorded_turns(state, model):
    return ActivityLog(state).query("select * from turns where model = ?", [model])
