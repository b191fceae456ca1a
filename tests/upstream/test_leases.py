"""Leases on a client: it closes after the last one, whatever happens to its holders."""

import asyncio

import pytest

from proxy.config.settings import Upstream as Settings
from proxy.foundation.errors import UpstreamUnreachable
from proxy.foundation.lifetime import BackgroundTasks, Leases
from proxy.upstream.client import Call, Client
from tests.support.scripted_upstream import DONE, delta, hang, in_turn, pause, stream, text_turn

CALL = Call("GET", "/models", "", (), None)


def client_for(url, **more):
    return Client(Settings(base_url=url, **more), lambda _: None)


async def send_call(client):
    async with client.send(CALL, None) as reply:
        return [chunk async for chunk in reply.chunks()]


async def is_closed(client, within=60):
    try:
        await asyncio.wait_for(client.wait_closed(), within)
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
    up.script = text_turn("Hi")
    client = client_for(up.url)
    lease = client.lease()
    async with client.send(CALL, None) as reply:
        lease.release()
        assert not await is_closed(client, within=0.1)
        assert [chunk async for chunk in reply.chunks()]
    assert await is_closed(client)


async def test_a_call_that_is_cancelled_or_fails_keeps_nothing_open(up):
    up.script = hang()
    client = client_for(up.url)
    with client.lease():
        sending = asyncio.create_task(send_call(client))
        await up.wait_for_request()
        sending.cancel()
        await asyncio.wait({sending})
    assert await is_closed(client)
    async with client_for("http://127.0.0.1:9/v1", retries=0) as client:
        with pytest.raises(UpstreamUnreachable):
            await send_call(client)
    assert await is_closed(client)


def take_lease():
    leases = Leases(lambda: None)
    return leases.take(), lambda: leases.is_closed


async def test_a_task_holds_its_lease_until_it_ends():
    tasks, going = BackgroundTasks(2), asyncio.Event()
    lease, is_released = take_lease()
    tasks.start(going.wait, lease)
    await asyncio.sleep(0)
    assert (len(tasks), is_released()) == (1, False)
    going.set()
    await tasks.wait_idle()
    assert (len(tasks), is_released()) == (0, True)


async def test_no_more_tasks_start_than_are_allowed():
    tasks = BackgroundTasks(1)
    tasks.start(asyncio.Event().wait, take_lease()[0])
    lease, is_released = take_lease()
    assert tasks.start(asyncio.Event().wait, lease) is None
    assert is_released()
    assert await tasks.close(0) == 1


async def test_closing_waits_for_what_is_under_way_and_for_what_that_starts():
    tasks, done = BackgroundTasks(10), []

    async def second():
        await asyncio.sleep(0.02)
        done.append(2)

    async def first():
        await asyncio.sleep(0.02)
        tasks.start(second, take_lease()[0])
        done.append(1)

    tasks.start(first, take_lease()[0])
    assert await tasks.close(5) == 0
    assert done == [1, 2]


async def test_closing_cancels_what_takes_too_long_and_starts_nothing_more():
    tasks = BackgroundTasks(10)
    lease, is_released = take_lease()
    tasks.start(asyncio.Event().wait, lease)  # cancelled before its first step
    assert await tasks.close(0) == 1
    assert is_released()
    lease, is_released = take_lease()
    assert tasks.start(asyncio.Event().wait, lease) is None
    assert is_released()


async def test_over_plain_http_a_stream_is_the_last_answer_on_its_connection(up):
    up.script = in_turn(stream(delta(content="Hi"), pause(0.05), DONE), text_turn("Hi"), text_turn("Hi"))
    async with client_for(up.url) as client:
        for _ in range(3):
            assert await send_call(client)
    assert up.accepted == 2
