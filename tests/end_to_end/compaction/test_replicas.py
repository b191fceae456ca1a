"""Decisions of operators at one replica, as the others follow them over one Redis, with and without it."""

import asyncio
import time
from functools import partial

import pytest
import pytest_asyncio

from proxy.access.registry import EVERYBODY, Records
from tests.support.admin_client import team_key
from tests.support.proxy_client import PATIENCE_SECONDS, ask, chat, fault_of, log_of, until
from tests.support.redis_server import needs_redis, running
from tests.support.running_proxy import QUIET
from tests.support.scripted_upstream import Upstream, text_turn

pytestmark = [
    needs_redis,
    pytest.mark.seconds,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.xdist_group("redis"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def replicas(serve, tmp_path_factory):
    """Two replicas, the first with two workers, their Redis, and a key that both know."""
    with running(tmp_path_factory.mktemp("redis")) as redis:
        async with Upstream(text_turn("Go on.")) as up:
            config = {
                "upstreams": [{"base_url": up.url, **QUIET}],
                "teams": {"red": {}},
                "state": {"url": redis.url},
                "log": {"format": "json"},
            }
            async with serve(None, "--workers", "2", config=config) as first, serve(None, config=config) as second:
                key = team_key(first, "red")
                await until_all(first, key, is_accepted)
                await until_all(second, key, is_accepted)
                yield first, second, redis, key


async def ask_as(proxy, text):
    return await ask(proxy, chat(), headers={"authorization": f"Bearer {text}"})


async def until_all(proxy, text, holds, within=PATIENCE_SECONDS):
    """Return once every worker answers like this: the kernel distributes the connections."""
    async with asyncio.timeout(within):
        while not all(map(holds, await asyncio.gather(*(ask_as(proxy, text) for _ in range(8))))):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def is_accepted(answer):
    return answer.status == 200


def is_refused(answer):
    return answer.status == 401 and "revoked" in fault_of(answer)["message"]


def has_compaction(outcome, answer):
    return answer.head.first("x-compaction") == outcome


async def test_a_switch_at_one_replica_counts_for_every_worker_of_all(replicas):
    first, second, _, key = replicas
    for state, outcome in (("off", "off"), ("bypass", "bypassed"), ("still-fit", "off")):
        Records(first.state).change(lambda known, state=state: known.with_switch(EVERYBODY, state, time.time()))
        has_outcome = partial(has_compaction, outcome)
        await asyncio.gather(*(until_all(each, key, has_outcome, 1.0) for each in (first, second)))
        await until(lambda state=state: all(log_of(each, "switch-set", state=state) for each in (first, second)))
    Records(first.state).change(lambda known: known.with_switch(EVERYBODY, "on", time.time()))
    await until_all(second, key, partial(has_compaction, "none"))


async def test_a_key_revoked_at_one_replica_is_refused_by_all_and_by_an_emptied_redis_not_restored(replicas):
    first, second, redis, key = replicas
    Records(first.state).change(lambda known: known.with_key_revoked(key.split("-")[1], time.time()))
    await asyncio.gather(*(until_all(each, key, is_refused) for each in (first, second)))
    redis.flush()
    await asyncio.sleep(0.5)
    assert all([is_refused(await ask_as(proxy, key)) for proxy in (first, second)])
