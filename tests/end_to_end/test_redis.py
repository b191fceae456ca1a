"""Three replicas that share nothing but a Redis: the bytes of one process, one summary, and no trouble with its own.

Real proxies, a real server that is paused, emptied, killed and started again while agents work.
"""

import asyncio
import json
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise

import pytest
import pytest_asyncio

from tests.support.agent import Agent, compactions, reading, turns
from tests.support.compacting_proxy import WORK, settings
from tests.support.proxy_client import until
from tests.support.redis_server import RedisServer, needs_redis, running
from tests.support.running_proxy import Proxy
from tests.support.scripted_upstream import Upstream, answer, text_turn
from tests.support.summary_model import (
    NEAR,
    OVER,
    SEEN,
    SMALL_WINDOW_SETTINGS,
    WINDOW,
    model,
    summary_calls,
    wait_until_asked,
)

pytestmark = [
    needs_redis,
    pytest.mark.seconds,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.xdist_group("redis"),
]
REPLICAS = 3
SMALL_WINDOW = {**settings(default=SMALL_WINDOW_SETTINGS), "upstreams": [{"window": WINDOW, "retries": 0}]}


def counting(request):
    """An upstream that counts about as the proxy does."""
    return text_turn("Go on.").using(prompt=len(request.body) // 4)


@dataclass(frozen=True, slots=True)
class Replicas:
    """Replicas, what they share, and the upstream before them."""

    proxies: list[Proxy]
    redis: RedisServer
    up: Upstream

    def agents(self, key):
        """The same one, as each admits it."""
        return [Agent(proxy, self.up, key) for proxy in self.proxies]


@asynccontextmanager
async def replicas(serve, redis, up, number=REPLICAS, *, fresh=True, **config):
    """With `fresh` each has a hash seed of its own, as replicas on several machines have."""
    own_config = {**(config or settings()), "state": {"url": redis.url}}
    async with AsyncExitStack() as replica_set:
        proxies = [
            await replica_set.enter_async_context(serve(up.url, config=own_config, fresh=fresh)) for _ in range(number)
        ]
        yield Replicas(proxies, redis, up)


@pytest.fixture(scope="module")
def redis(tmp_path_factory):
    with running(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def upstream():
    async with Upstream() as up:
        yield up


@pytest.fixture
def up(upstream):
    upstream.forget()
    upstream.script = counting
    return upstream


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_replicas(serve, redis, upstream):
    async with replicas(serve, redis, upstream) as replica_set:
        yield replica_set


@pytest.fixture
def replica_set(shared_replicas, up, redis):
    """Three replicas, after whatever the last test did to their Redis."""
    redis.flush()
    return shared_replicas


async def take_turns_over_replicas(replica_set, messages, key="sk-a"):
    """One agent whose turns go through one replica after the other, each once the last one has noted its own."""
    steps, noticed, agents = [], 0, replica_set.agents(key)
    for number, history in enumerate(turns(messages)):
        steps.append(await agents[number % REPLICAS].send(history))
        noticed += steps[-1].header("x-compaction-tokens-after") is not None
        await until(lambda seen=noticed: len(replica_set.redis.keys("cp/1/fact/*/anchor/*")) >= seen)
    return steps


async def test_replicas_that_serve_one_conversation_in_turn_forward_the_bytes_of_one_process(serve, replica_set):
    """Each needs what another one noted: the upstream's count, how it counts, the block."""
    async with serve(replica_set.up.url, config=settings(), fresh=True) as alone:
        plain = await Agent(alone, replica_set.up, "sk-turn").work(WORK)
    steps = await take_turns_over_replicas(replica_set, WORK, "sk-turn")
    assert [step.forwarded for step in steps] == [step.forwarded for step in plain]
    assert [step.tokens for step in steps[5:]] == [step.tokens for step in plain[5:]]
    assert compactions(steps) == compactions(plain)
    assert compactions(steps).count("created") >= 2


async def test_the_same_turn_at_once_on_every_replica_makes_one_summary(serve, redis, up):
    redis.flush()
    async with replicas(serve, redis, up, fresh=False, **SMALL_WINDOW) as replica_set:
        agents = replica_set.agents("sk-a")
        up.script = model()
        await agents[0].send(SEEN)
        await asyncio.gather(*(agent.send(NEAR) for agent in agents * 3))
        await wait_until_asked(up)
        assert len(summary_calls(up)) == 1
        up.forget()
        await asyncio.gather(*(agent.send(OVER) for agent in agents * 3))
    assert summary_calls(up) == []
    assert len({request.body for request in up.requests}) == 1


MODEL = "gpt-4o"
"""A name with a large window, behind which there is a server with a small one."""


def modest(request):
    """A server of one's own that tells how small its window is when it is asked."""
    if request.path != "/v1/models":
        return counting(request)
    return answer(json.dumps({"data": [{"id": MODEL, "max_model_len": WINDOW}]}).encode())


def forwarded_bodies(up):
    return [request.body for request in up.requests if request.path == "/v1/chat/completions"]


@pytest.mark.parametrize("state", ["shared", "of one machine"])
async def test_a_window_reported_by_a_server_counts_for_the_replica_of_the_next_turn(serve, redis, up, state):
    """Also for a process that was started just now: else its block would not count, and too much would go out."""
    up.script = modest
    folder = ("--state", str(redis.folder / "state"))
    config = settings(default={**SMALL_WINDOW_SETTINGS, "clear_at_least": 3_000, "summary": {"enabled": False}})
    config |= {"upstreams": [], "state": {"url": redis.url if state == "shared" else ""}}
    history = list(turns(reading(40, size=2_400)))
    async with serve(up.url, *folder, config=config) as first:
        for turn in history[:-1]:
            step = await Agent(first, up, "sk-window").send(turn, model=MODEL)
    assert step.compaction == "applied"
    async with serve(up.url, *folder, config=config) as second:
        later = await Agent(second, up, "sk-window").send(history[-1], model=MODEL)
    assert later.compaction == "applied"
    assert forwarded_bodies(up)[-1].startswith(forwarded_bodies(up)[-2].removesuffix(b"]}"))


async def test_stored_blocks_apply_on_every_replica_and_after_redis_returns(serve, replica_set):
    """A Redis that hangs, or is emptied, is among the troubles of the fleet."""
    key, history, redis = "sk-kill", list(turns(reading(30))), replica_set.redis
    steps, agents = await take_turns_over_replicas(replica_set, history[9], key), replica_set.agents(key)
    assert compactions(steps)[-REPLICAS:] == ["created", "applied", "applied"], "each replica has seen the block"
    redis.kill()
    steps += [await agents[replica].send(history[turn]) for replica, turn in ((1, 10), (2, 10), (0, 10))]
    redis.start()
    await asyncio.sleep(1.5)
    steps += [await agents[replica].send(history[10]) for replica in (1, 2)]
    async with replicas(serve, redis, replica_set.up, 1, fresh=False) as late:
        steps.append(await late.agents(key)[0].send(history[10]))
    assert set(compactions(steps[-6:])) == {"applied"}
    assert all(later.extends(earlier) for earlier, later in pairwise(steps[-7:]))
