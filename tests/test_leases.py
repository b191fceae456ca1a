"""Leases on a client: it closes after the last one, whatever happens to whoever holds it."""

import asyncio

import pytest
from upstream import answer, hang, says

from proxy.config import Upstream as Settings
from proxy.errors import UpstreamUnreachable
from proxy.upstream import Call, Client, Leases

CALL = Call("GET", "/models", "", (), None)


def client_for(url, **more):
    return Client(Settings(base_url=url, **more), lambda _: None)


async def is_closed(client):
    """Whether it closes now."""
    try:
        await asyncio.wait_for(client.closed(), 0.1)
    except TimeoutError:
        return False
    return True


def test_the_last_lease_closes_and_each_counts_once():
    closed = []
    leases = Leases(lambda: closed.append(True))
    first, second = leases.take(), leases.take()
    first.release()
    first.release()
    assert not closed
    with second:
        assert not leases.is_closed
    assert closed == [True]
    with pytest.raises(RuntimeError, match="closed"):
        leases.take()


async def test_an_answer_keeps_its_connections_open(up):
    up.script = says("Hi")
    client = client_for(up.url)
    lease = client.lease()
    reply = await client.send(CALL, None)
    lease.release()
    assert not await is_closed(client)
    assert [chunk async for chunk in reply.chunks()]
    await reply.close()
    assert await is_closed(client)


async def test_a_call_that_is_cancelled_or_fails_keeps_nothing_open(up):
    up.script = hang()
    client = client_for(up.url)
    with client.lease():
        sending = asyncio.create_task(client.send(CALL, None))
        await up.received()
        sending.cancel()
        await asyncio.wait({sending})
    assert await is_closed(client)
    async with client_for("http://127.0.0.1:9/v1", retries=0) as client:
        with pytest.raises(UpstreamUnreachable):
            await client.send(CALL, None)
    assert await is_closed(client)


async def test_an_answer_that_is_tried_again_keeps_nothing_open(up):
    up.script = answer({"error": {}}, 503)
    async with client_for(up.url, retry_statuses=(503,), retries=2, retry_wait_seconds=1) as client:
        reply = await client.send(CALL, None)
        await reply.close()
        await reply.close()
    assert await is_closed(client)
    assert len(up.requests) == 3
    async with asyncio.timeout(2):
        while up.connections:  # noqa: ASYNC110 (the other side tells nobody)
            await asyncio.sleep(0.01)
