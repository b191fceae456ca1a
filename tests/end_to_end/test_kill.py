"""Killed at any moment, started again, going on: nothing that was acknowledged is lost and nothing invalid is sent.

A history counts as acknowledged once the upstream has received a request from which something of it was folded away
(`transcripts.required`: by then it was written). Right after each kill, before anybody could send anything again, all
that was acknowledged must be in the files. What was only handed over may be lost with the process; the client sends
it again with its next turn, so that in the end every conversation is there, whole.

`python tests/end_to_end/test_kill.py --points 200` kills as often.
"""
# ruff: noqa: T201 - started as a script, it tells how far it is

import argparse
import asyncio
import json
import os
import random
import signal
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from proxy.lab.replay.validity import find_breaches
from tests.support import http_client
from tests.support.agent import reading, turns
from tests.support.messages import body
from tests.support.proxy_client import ask
from tests.support.running_proxy import Proxy, _ready, _written, free_port
from tests.support.scripted_upstream import Request, Upstream, paced, says
from tests.support.transcripts import texts, transcripts
from tests.support.verification import verify

AGENTS = 3
SETTINGS = {
    "upstreams": [{"window": 1_000_000, "retries": 0}],
    "policies": {"default": {"clear_at_least": 3_000, "keep": {"tokens": 1_000}}},
    "transcripts": {"required": True, "keep": "all", "rotate_mib": 0.05},
    "log": {"format": "json"},
}


@dataclass
class World:
    """What all clients did, and what was seen of it."""

    place: Path
    up: Upstream
    dice: random.Random
    alive: asyncio.Event = field(default_factory=asyncio.Event)
    over: bool = False
    sent: dict[str, list] = field(default_factory=dict)
    acknowledged: dict[str, list] = field(default_factory=dict)
    finished: dict[str, list] = field(default_factory=dict)
    seen: Counter = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    proxy: Proxy | None = None

    def hears(self, request: Request):
        """The upstream: strict, and with a memory for what it got of which history."""
        name, got = request.header("x-turn"), request.json["messages"]
        self.wrong += [f"{name}: {breach}" for breach in find_breaches(got) - find_breaches(self.sent[name])]
        lossy = got != self.sent[name]
        self.seen["lossy" if lossy else "verbatim"] += 1
        if lossy:
            self.acknowledged[name.partition("/")[0]] = self.sent[name]
        return paced(says("Go on, and mind the tests."), 0.001)(request)

    def missing(self, histories: dict[str, list]) -> list[str]:
        """Messages of these histories that are in no file."""
        kept = {}
        for one in transcripts(self.place / "state" / "originals"):
            kept.update(dict.fromkeys(texts(said for said in one.messages.values() if said.tenant), one))
        lost = []
        for name, messages in histories.items():
            found = kept.get(messages[1]["content"])
            said = [json.loads(line.message) for line in found.messages.values()] if found else []
            heads = [json.loads(line.message) for line in found.heads.values()] if found else []
            lost += [f"{name}: {message}" for message in messages[1:] if message not in said]
            lost += [f"{name}: the head"] if messages[0] not in heads else []
        return lost


@asynccontextmanager
async def living(world: World, port: int) -> AsyncIterator[None]:
    """A proxy in a process group of its own, and at the end the whole group is killed."""
    place, workers = world.place, world.dice.choice([1, 1, 2])
    fsync = world.dice.choice(["never", "rotate", "always"])
    config = {**SETTINGS, "transcripts": {**SETTINGS["transcripts"], "fsync": fsync}}
    command = [sys.executable, "-m", "proxy", "serve", "--port", str(port), "--workers", str(workers)]
    command += ["--state", str(place / "state"), "--upstream", world.up.url, "--config", _written(config, place)]
    with (place / "stdout").open("ab") as out, (place / "stderr").open("ab") as err:
        process = await asyncio.create_subprocess_exec(
            *command, cwd=place, env={}, stdout=out, stderr=err, start_new_session=True
        )
    world.proxy = Proxy(f"http://127.0.0.1:{port}", process, place)
    try:
        await _ready(world.proxy)
        world.alive.set()
        yield
    finally:
        world.alive.clear()
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def works(world: World, number: int) -> None:
    """An agent: one conversation after the other, each turn again until it is answered."""
    for task in range(10_000):
        if world.over:
            return
        name = f"agent {number} task {task}"
        history = reading(12, size=world.dice.randrange(1_000, 6_000), task=f"{name}: make the tests pass.")
        for turn, messages in enumerate(turns(history)):
            world.sent[f"{name}/{turn}"] = messages
            while not await answered(world, f"{name}/{turn}", messages):
                world.seen["again"] += 1
                await asyncio.sleep(0.02)
        world.finished[name] = history


async def answered(world: World, name: str, messages: list) -> bool:
    await world.alive.wait()
    headers = {"authorization": f"Bearer {name.partition('/')[0]}", "x-turn": name}
    try:
        reply = await ask(world.proxy, body(messages, stream=len(messages) % 4 == 0), headers=headers)
    except (OSError, EOFError, AttributeError, http_client.Malformed):
        return False
    return reply.status == 200 and reply.body.whole


async def outlives(points: int, seed: int, place: Path, tell=lambda _: None) -> World:
    """Kills it as often as this, at random moments, and then lets it finish."""
    async with Upstream() as up:
        world = World(place, up, random.Random(seed))
        up.script = world.hears
        port = free_port()
        agents = [asyncio.ensure_future(works(world, number)) for number in range(AGENTS)]
        for point in range(points):
            async with living(world, port):
                await asyncio.sleep(world.dice.uniform(0.01, 1.5))
            lost = world.missing(world.acknowledged)
            assert not lost, f"after kill {point}: {lost[0][:200]}"
            tell(f"kill {point + 1}: {len(world.acknowledged)} histories acknowledged, {dict(world.seen)}")
            up.forget()
        world.over = True
        async with living(world, port):
            await asyncio.gather(*agents)
            await asyncio.sleep(0.2)
        assert world.missing(world.finished) == []
    return world


def verdict(world: World) -> None:
    assert world.wrong == []
    with sqlite3.connect(world.place / "state" / "promises.sqlite") as db:
        (key,) = db.execute("select value from secret_1").fetchone()
    db.close()
    reports = [verify(one, key) for one in transcripts(world.place / "state" / "originals")]
    assert [fault for report in reports for fault in report.faults] == []
    assert sum(report.derived for report in reports) > 0
    assert not any(report.other_key for report in reports)
    assert world.seen["lossy"] > 0
    assert world.seen["again"] > 0, "no kill hit anybody"


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_twenty_kills_lose_nothing_and_break_nothing(tmp_path):
    verdict(await outlives(20, seed=1, place=tmp_path))


@pytest.mark.slow
async def test_two_kills_lose_nothing_and_break_nothing(tmp_path):
    verdict(await outlives(2, seed=7, place=tmp_path))


def main() -> None:
    parser = argparse.ArgumentParser(description="Kill the proxy at random moments; nothing may be lost.")
    parser.add_argument("--points", type=int, default=200)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    told = parser.parse_args()
    print(f"seed {told.seed}")
    with tempfile.TemporaryDirectory() as place:
        world = asyncio.run(outlives(told.points, told.seed, Path(place), print))
        verdict(world)
    print(f"{told.points} kills, {len(world.finished)} conversations whole, {dict(world.seen)}: nothing lost")


if __name__ == "__main__":
    main()
