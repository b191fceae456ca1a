"""Killed at any moment, started again, going on: nothing that was acknowledged is lost and nothing invalid is sent.

A history counts as acknowledged once the upstream has received a request from which something of it was folded away
(`transcripts.required`: by then it was written). Right after each kill, before anybody could send anything again, all
that was acknowledged must be in the files. What was only handed over may be lost with the process; the client sends
it again with its next turn, so that in the end every conversation is there, whole.

`make soak` kills it two hundred times.
"""

import asyncio
import json
import os
import random
import signal
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
from tests.support.compacting_proxy import rows
from tests.support.messages import body
from tests.support.proxy_client import ask
from tests.support.running_proxy import Proxy, free_port, start, until_ready, write_config
from tests.support.scripted_upstream import Request, Upstream, pace_turn, text_turn
from tests.support.transcripts import texts, transcripts
from tests.support.verification import verify

AGENTS = 3
SETTINGS = {
    "upstreams": [{"window": 1_000_000, "retries": 0}],
    "policies": {"default": {"clear_at_least": 3_000, "keep": {"tokens": 1_000}}},
    "transcripts": {"required": True, "keep": "all"},
    "log": {"format": "json"},
}


@dataclass
class KillRun:
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

    def receive(self, request: Request):
        """The upstream: strict, and with a memory for what it got of which history."""
        name, got = request.header("x-turn"), request.json["messages"]
        self.wrong += [f"{name}: {breach}" for breach in find_breaches(got) - find_breaches(self.sent[name])]
        lossy = got != self.sent[name]
        self.seen["lossy" if lossy else "verbatim"] += 1
        if lossy:
            self.acknowledged[name.partition("/")[0]] = self.sent[name]
        return pace_turn(text_turn("Go on, and mind the tests."), 0.001)(request)

    def missing(self, histories: dict[str, list]) -> list[str]:
        """Messages of these histories that are in no file."""
        kept = {}
        for one in transcripts(self.place / "state" / "originals"):
            kept.update(dict.fromkeys(texts(text for text in one.messages.values() if text.tenant), one))
        lost = []
        for name, messages in histories.items():
            found = kept.get(messages[1]["content"])
            text = [json.loads(line.message) for line in found.messages.values()] if found else []
            heads = [json.loads(line.message) for line in found.heads.values()] if found else []
            lost += [f"{name}: {message}" for message in messages[1:] if message not in text]
            lost += [f"{name}: the head"] if messages[0] not in heads else []
        return lost


@asynccontextmanager
async def running_proxy(run: KillRun, port: int) -> AsyncIterator[None]:
    """A proxy in a process group of its own, and at the end the whole group is killed."""
    place, workers = run.place, run.dice.choice([1, 1, 2])
    fsync = run.dice.choice(["never", "always"])
    config = {**SETTINGS, "transcripts": {**SETTINGS["transcripts"], "fsync": fsync}}
    arguments = ("--workers", str(workers), "--upstream", run.up.url, "--config", write_config(config, place))
    run.proxy = await start(place, port, *arguments, program=("-m", "proxy"), own_group=True)
    try:
        await until_ready(run.proxy)
        run.alive.set()
        yield
    finally:
        run.alive.clear()
        os.killpg(run.proxy.process.pid, signal.SIGKILL)
        await run.proxy.process.wait()


async def run_agent(run: KillRun, number: int) -> None:
    """An agent: one conversation after the other, each turn again until it is answered."""
    for task in range(10_000):
        if run.over:
            return
        name = f"agent {number} task {task}"
        history = reading(12, size=run.dice.randrange(1_000, 6_000), task=f"{name}: make the tests pass.")
        for turn, messages in enumerate(turns(history)):
            run.sent[f"{name}/{turn}"] = messages
            while not await try_turn(run, f"{name}/{turn}", messages):
                run.seen["again"] += 1
                await asyncio.sleep(0.02)
        run.finished[name] = history


async def try_turn(run: KillRun, name: str, messages: list) -> bool:
    await run.alive.wait()
    headers = {"authorization": f"Bearer {name.partition('/')[0]}", "x-turn": name}
    try:
        reply = await ask(run.proxy, body(messages, stream=len(messages) % 4 == 0), headers=headers)
    except (OSError, EOFError, AttributeError, http_client.Malformed):
        return False
    return reply.status == 200 and reply.body.whole


async def survive_kills(points: int, seed: int, place: Path) -> KillRun:
    """Kills it as often as this, at random moments, and then lets it finish."""
    async with Upstream() as up:
        run = KillRun(place, up, random.Random(seed))
        up.script = run.receive
        port = free_port()
        agents = [asyncio.ensure_future(run_agent(run, number)) for number in range(AGENTS)]
        for point in range(points):
            async with running_proxy(run, port):
                await asyncio.sleep(run.dice.uniform(0.01, 1.5))
            lost = run.missing(run.acknowledged)
            assert not lost, f"after kill {point}: {lost[0][:200]}"
            up.forget()
        run.over = True
        async with running_proxy(run, port):
            await asyncio.gather(*agents)
            # The last turn of a task may have been handed over only when the process was killed: it comes once more.
            for name, history in run.finished.items():
                run.sent[f"{name}/again"] = history
                assert await try_turn(run, f"{name}/again", history)
            for _ in range(50):  # originals that no request waits for are written a moment later, on a busy machine
                if not run.missing(run.finished):
                    break
                await asyncio.sleep(0.2)
        assert run.missing(run.finished) == []
    return run


def assert_nothing_lost(run: KillRun) -> None:
    assert run.wrong == []
    ((key,),) = rows(run.place / "state", "select value from documents_2 where key = 'secret'")
    reports = [verify(one, key) for one in transcripts(run.place / "state" / "originals")]
    assert [fault for report in reports for fault in report.faults] == []
    assert sum(report.derived for report in reports) > 0
    assert run.seen["lossy"] > 0
    assert run.seen["again"] > 0, "no kill hit anybody"


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_twelve_kills_lose_nothing_and_break_nothing(tmp_path):
    assert_nothing_lost(await survive_kills(12, seed=1, place=tmp_path))


@pytest.mark.soak
@pytest.mark.timeout(3_600)
async def test_two_hundred_kills_lose_nothing_and_break_nothing(tmp_path):
    seed = time.time_ns() % 1_000_000
    print(f"seed {seed}")  # noqa: T201
    assert_nothing_lost(await survive_kills(200, seed, place=tmp_path))
