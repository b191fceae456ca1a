"""Everything that goes wrong, and when: a schedule in parts of the run, so that a short one has all of it too."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from tests.end_to_end.fleet.replicas import Replica
from tests.support.object_store.faulty_relay import FaultyRelay, drop_connection, pass_through
from tests.support.proxy_client import log_of, until
from tests.support.redis_server import RedisServer

KILL_EVERY = 20.0
REDIS_AWAY = 0.01
REDIS_HANGS = 5.0
STORE_AWAY = 1 / 15
GOOD_AGAIN = 4.0


@dataclass
class Faults:
    """Does all of it, and notes what came of it."""

    replicas: list[Replica]
    redis: RedisServer
    relay: FaultyRelay
    config: dict[str, Any]
    seconds: float
    kills: int = 0
    refused: bool = False
    noticed: list[float] = field(default_factory=list)
    """Seconds until every replica went by a new policy."""

    def __post_init__(self) -> None:
        self._one_at_a_time = asyncio.Lock()

    async def run(self) -> None:
        schedule: dict[float, Callable[[], Awaitable[None]]] = {
            0.1: self.bad_config,
            0.15: self.new_policy,
            0.25: self.redis_stops,
            0.4: self.redis_hangs,
            0.45: self.stop_object_store,
            0.6: self.redis_stops,
            0.7: self.redis_is_emptied,
            0.75: self.rolling_restart,
        }
        async with asyncio.TaskGroup() as beside:
            beside.create_task(self._killing())
            for share, act in schedule.items():
                beside.create_task(self._run_at(share, act))

    async def _run_at(self, share: float, act: Callable[[], Awaitable[None]]) -> None:
        await asyncio.sleep(self.seconds * share)
        await act()

    async def _killing(self) -> None:
        for number in range(int(self.seconds * 0.9 / KILL_EVERY)):
            await asyncio.sleep(KILL_EVERY)
            async with self._one_at_a_time:
                replica = self.replicas[number % len(self.replicas)]
                await replica.kill()
                self.kills += 1
                await asyncio.sleep(1)
                await replica.start()

    async def bad_config(self) -> None:
        """Write a faulty configuration to every replica, and then correct it."""
        async with self._one_at_a_time:
            for replica in self.replicas:
                replica.proxy.configure("policies: {default: {trigger: 7}}\nno_such_setting: 1\n")
            await asyncio.sleep(GOOD_AGAIN)
            self.refused = all(log_of(replica.proxy, "config-refused") for replica in self.replicas)
            for replica in self.replicas:
                replica.proxy.configure(self.config)
            await asyncio.sleep(1)

    async def new_policy(self) -> None:
        """Change a policy in the file of every replica."""
        async with self._one_at_a_time:
            self.config["policies"]["default"]["keep"] = {"tokens": 1_500}
            received = [len(log_of(replica.proxy, "config-reloaded")) for replica in self.replicas]
            began = asyncio.get_running_loop().time()
            for replica in self.replicas:
                replica.proxy.configure(self.config)
            for replica, before in zip(self.replicas, received, strict=True):
                await until(lambda proxy=replica.proxy, seen=before: len(log_of(proxy, "config-reloaded")) > seen)
                self.noticed.append(asyncio.get_running_loop().time() - began)

    async def redis_stops(self) -> None:
        """Stop Redis, and start it again, empty."""
        await asyncio.to_thread(self.redis.stop)
        await asyncio.sleep(max(self.seconds * REDIS_AWAY, 3))
        await asyncio.to_thread(self.redis.start)

    async def redis_hangs(self) -> None:
        """Let Redis hang (SIGSTOP)."""
        self.redis.pause()
        await asyncio.sleep(REDIS_HANGS)
        self.redis.resume()

    async def redis_is_emptied(self) -> None:
        """Empty Redis (FLUSHALL)."""
        await asyncio.to_thread(self.redis.flush)

    async def stop_object_store(self) -> None:
        """Take the object store down for a while."""
        self.relay.now = drop_connection
        await asyncio.sleep(self.seconds * STORE_AWAY)
        self.relay.now = pass_through

    async def rolling_restart(self) -> None:
        """Restart one replica after the other by SIGTERM."""
        for replica in self.replicas:
            async with self._one_at_a_time:
                code = await replica.leave()
                assert code == 0, f"a replica left with {code}"
                await replica.start()
