"""Cancelled, or failing, at every single await of the path: nothing stays open, nothing is counted twice."""

import asyncio
import json
from contextlib import suppress
from itertools import count

import pytest

from proxy.config.settings import Upstream as Settings
from proxy.events import RequestFinished
from proxy.foundation.errors import ProxyError
from proxy.store.contract import StoreLimits
from proxy.store.sqlite import SqliteStore
from proxy.upstream.client import Call, Client
from tests.support import http_client
from tests.support.agent import reading
from tests.support.gateway_in_process import GatewayInProcess, Interruption, Listening, cancel, connections_closed, fail
from tests.support.messages import body
from tests.support.proxy_client import open_line, request, until
from tests.support.scripted_upstream import DONE, delta, finish, pause, stream

PACED = stream(delta(content="one"), pause(0.01), delta(content="two"), pause(0.01), finish(), DONE)
LONG = reading(12, size=3_000)
FEW = 4  # suspensions that each path has more of; fewer would mean that the test interrupts nothing


def store_in(place):
    """A store whose answers have to be awaited."""
    return SqliteStore(place / "promises.sqlite", StoreLimits(), lambda why: None)


async def interrupt_everywhere(interrupt, run):
    """Runs something again and again, interrupted one suspension later each time, until it is done before that."""
    for number in count(1):
        interruption = Interruption(number, interrupt)
        await run(interruption)
        if not interruption.happened:
            return number - 1
    return 0


@pytest.mark.parametrize("interrupt", [cancel, fail])
async def test_a_call_interrupted_anywhere_leaves_no_connection_and_no_lease(up, interrupt):
    call = Call("POST", "/chat/completions", "", (), b"{}")

    async def send(client):
        async with client.send(call, None) as reply:
            return b"".join([chunk async for chunk in reply.chunks()])

    async def run(interruption):
        up.script = PACED
        settings = Settings(base_url=up.url)
        async with asyncio.timeout(60):
            async with Client(settings, lambda _: None) as client:
                task = asyncio.ensure_future(interruption.run(send(client)))
                with suppress(asyncio.CancelledError, ProxyError, OSError):
                    sent = await task
                    assert DONE in sent, "a whole answer"
        await connections_closed(up)

    assert await interrupt_everywhere(interrupt, run) > FEW


async def ask_slowly(proxy, key):
    """A chat whose body comes in three pieces; None where the connection ends without an answer."""
    sent = request(headers={"authorization": f"Bearer {key}"}, body=body(LONG, stream=True))
    with suppress(OSError, http_client.Malformed, asyncio.IncompleteReadError, AttributeError):
        async with open_line(proxy) as line:
            for piece in (sent[:-20], sent[-20:-10], sent[-10:]):
                await line.write(piece)
                await asyncio.sleep(0.01)
            return await line.answer()
    return None


@pytest.mark.seconds
@pytest.mark.parametrize("interrupt", [cancel, fail])
async def test_a_request_interrupted_anywhere_ends_once_and_the_next_one_is_served(up, tmp_path, interrupt):
    up.script = PACED
    async with GatewayInProcess(up, tmp_path, store_in(tmp_path), window=8_000) as served:
        listening = Listening(served)
        async with listening.listening():

            async def run(interruption):
                served.events.clear()
                gateway = listening.app.gateway = served.new_gateway()
                listening.interruption = interruption
                reply = await ask_slowly(listening, f"sk-{interruption.number}")
                async with asyncio.timeout(60):
                    await listening.app.wait_idle()
                await served.retire(gateway)
                await connections_closed(up)
                assert len([event for event in served.events if isinstance(event, RequestFinished)]) == 1
                assert len(served.turns) <= 1
                # What fails before the call is sent makes it fail open: there is nothing to account for.
                if reply is not None and reply.status == 200:
                    assert not reply.body.whole or DONE in reply.body.data
                    assert len(served.turns) == 1 or not reply.body.data or served.faults
                if not interruption.happened:
                    assert (reply.status, [turn.action for turn in served.turns]) == (200, ["created"])

            assert await interrupt_everywhere(interrupt, run) > FEW


async def test_a_body_that_breaks_off_reaches_no_upstream_and_leaves_no_lease(up, tmp_path):
    async with GatewayInProcess(up, tmp_path) as served:
        listening = Listening(served)
        listening.app.gateway = served.new_gateway()
        async with listening.listening(), open_line(listening) as line:
            await line.write(request(body=json.dumps({"model": "m", "messages": []}).encode())[:-5])
            await until(lambda: listening.app.in_flight)
            line.leave()
            await asyncio.wait_for(listening.app.wait_idle(), 60)
            await served.retire(listening.app.gateway)
    assert up.requests == []
    assert [event.outcome for event in served.events if isinstance(event, RequestFinished)] == ["client-left"]
