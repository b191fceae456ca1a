"""What operators say at one replica, as the others hear it: over one Redis, while it is away, and once it is back."""

import asyncio
import time
from dataclasses import dataclass

import pytest
import pytest_asyncio

from proxy.access.records import EVERYBODY, Records
from tests.support.admin_client import team_key
from tests.support.proxy_client import ask, chat, fault_of, until
from tests.support.redis_server import RedisServer, needs_redis, running
from tests.support.running_proxy import QUIET, Proxy
from tests.support.scripted_upstream import Upstream
from tests.support.scripted_upstream import says as tells

pytestmark = [needs_redis, pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("redis")]
# What an operator may count on, in seconds.
SWITCHED, IN_FORCE, REVOKED = 1.0, 2.0, 5.0


@dataclass(frozen=True, slots=True)
class Houses:
    """Two replicas, the first with two workers."""

    one: Proxy
    other: Proxy
    redis: RedisServer
    keys: list[str]
    """Each for one test, and known at both."""

    def say(self, change):
        """At the first."""
        Records(self.one.state).change(change)

    @property
    def both(self):
        return self.one, self.other

    def revoke(self, text):
        self.say(lambda known: known.with_key_revoked(text.split("-")[1], time.time()))

    def switch(self, *, on):
        self.say(lambda known: known.with_switch(EVERYBODY, on=on, now=time.time()))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def houses(serve, tmp_path_factory):
    with running(tmp_path_factory.mktemp("redis")) as redis:
        async with Upstream(tells("Go on.")) as up:
            config = {
                "upstreams": [{"base_url": up.url, **QUIET}],
                "teams": {"red": {}},
                "state": {"url": redis.url},
                "log": {"format": "json"},
            }
            async with serve(None, "--workers", "2", config=config) as one, serve(None, config=config) as other:
                keys = [team_key(one, "red") for _ in range(3)]
                await heard(one, keys[-1], opened, REVOKED)
                await heard(other, keys[-1], opened, REVOKED)
                yield Houses(one, other, redis, keys)


async def ask_as(proxy, text):
    return await ask(proxy, chat(), headers={"authorization": f"Bearer {text}"})


async def heard(proxy, text, seen, within):
    """Until every worker answers as it is to be: the kernel deals out the connections."""
    async with asyncio.timeout(within):
        while not all(map(seen, await asyncio.gather(*(ask_as(proxy, text) for _ in range(8))))):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def opened(answer):
    return answer.status == 200


def closed(answer):
    return answer.status == 401 and "revoked" in fault_of(answer)["message"]


def switched_off(answer):
    return answer.head.first("x-compaction") == "off"


async def test_the_switch_of_one_replica_is_that_of_every_worker_of_all(houses):
    houses.switch(on=False)
    await asyncio.gather(*(heard(each, houses.keys[-1], switched_off, SWITCHED) for each in houses.both))
    houses.switch(on=True)
    await heard(houses.other, houses.keys[-1], lambda answer: opened(answer) and not switched_off(answer), SWITCHED)


async def test_a_key_that_is_revoked_at_one_closes_everywhere_and_an_emptied_redis_does_not_give_it_back(houses):
    text = houses.keys.pop()
    houses.revoke(text)
    await asyncio.gather(*(heard(each, text, closed, REVOKED) for each in houses.both))
    houses.redis.flush()
    await asyncio.sleep(0.5)
    assert all([closed(await ask_as(proxy, text)) for proxy in houses.both])


async def test_a_shared_copy_that_is_broken_is_told_and_what_was_said_is_heard_once_it_is_gone(houses):
    text = houses.keys.pop()
    houses.redis.says("SET", "cp/1/document/registry", "{}")
    houses.revoke(text)
    await until(lambda: "the copy in the shared state" in houses.other.output)
    houses.redis.says("DEL", "cp/1/document/registry")
    await heard(houses.other, text, closed, REVOKED)


async def test_while_the_redis_is_away_what_is_said_counts_where_it_was_said_and_elsewhere_once_it_is_back(houses):
    text = houses.keys.pop()
    houses.redis.stop()
    houses.revoke(text)
    await heard(houses.one, text, closed, REVOKED)
    assert opened(await ask_as(houses.other, text)), "it cannot know, and who came in goes on"
    houses.redis.start()
    await heard(houses.other, text, closed, REVOKED)
