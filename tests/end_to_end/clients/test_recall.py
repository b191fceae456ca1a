"""Unmodified clients while their model recalls: they see one message, and nothing of the tool."""

import asyncio
import functools
import json
import re

import pytest
import pytest_asyncio

from tests.end_to_end.clients.client import PROGRAMS, Client, missing
from tests.support.agent import reading
from tests.support.compacting_proxy import settings
from tests.support.messages import tool
from tests.support.running_proxy import QUIET
from tests.support.scripted_upstream import Upstream, call_turn, in_turn, text_turn

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]

TOOL = "recall_earlier_output"
READ = {**tool("Read", path="string")}
WORK = reading(24)
HANDLE = re.compile(rf'{TOOL} with messages \\"(\d+)\\"')


@pytest.fixture(scope="module", params=sorted(PROGRAMS))
def client(request):
    if reason := missing(request.param):
        pytest.skip(reason)
    with Client(request.param) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def upstream_and_proxy(serve):
    config = settings(default={"recall": "on"})
    async with Upstream() as up:
        config["upstreams"] = [{**QUIET, "base_url": up.url}]
        async with serve(None, config=config) as proxy:
            yield up, proxy


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_a_model_that_recalls_every_shortened_result_gets_it_and_the_client_sees_nothing_of_it(
    upstream_and_proxy, client, *, streamed: bool
):
    up, proxy = upstream_and_proxy
    up.forget()

    async def ask(*turns, **more):
        up.script = in_turn(*turns)
        args = {"model": "scripted-1", "messages": WORK, "tools": [READ], "stream": streamed, **more}
        if streamed:
            args["stream_options"] = {"include_usage": True}
        return await asyncio.to_thread(functools.partial(client.ask, proxy.url, **args))

    await ask(text_turn("Go on."))
    originals = {message["tool_call_id"]: message["content"] for message in WORK if message["role"] == "tool"}
    handles = {
        found[1]: message["tool_call_id"]
        for message in up.requests[0].json["messages"]
        if (found := HANDLE.search(json.dumps(message)))
    }
    assert len(handles) > 10
    everything = functools.reduce(
        lambda turn, handle: turn + call_turn(TOOL, messages=handle), handles, text_turn("Let me see.")
    )
    seen = await ask(everything.using(1000, 7), (text_turn("I know.") + call_turn("Read", path="a.py")).using(2000, 3))
    first, asked, again = (request.json for request in up.requests)
    assert asked["messages"] == first["messages"]
    assert again["messages"][: len(asked["messages"])] == asked["messages"]
    recalled = [message["content"] for message in again["messages"][-len(handles) :]]
    assert recalled == [originals[id_] for id_ in handles.values()]
    assert (seen.text, seen.calls) == ("Let me see.\n\nI know.", [("Read", {"path": "a.py"})])
    assert (seen.raised, seen.usage) == (None, 3010)
    assert seen.finish in ("tool_calls", "tool-calls")
