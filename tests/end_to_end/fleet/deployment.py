"""The fleet: its parts, the half hour itself, and the search for every original at its end."""

import asyncio
import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proxy.lab.replay.validity import find_breaches
from tests.end_to_end.fleet.clients import FleetClients
from tests.end_to_end.fleet.faults import Faults
from tests.end_to_end.fleet.replicas import Replica
from tests.support.object_store.faulty_relay import FaultyRelay, faulty_relay
from tests.support.object_store.server import BUCKET, S3, s3_server
from tests.support.redis_server import RedisServer, running
from tests.support.running_proxy import write_config
from tests.support.scripted_upstream import Answerable, Request, Upstream, answer, pace_turn, text_turn

REPLICAS = 3
AGENTS = 200
TEAMS = ("red", "green", "blue")
SECRETS = {"key": "env:S3_KEY", "secret": "env:S3_SECRET"}


USAGE_BYTES = 4
TALK = "I have read it; next comes the following file, for the test still fails there, and so on and so on."
PAUSE_SECONDS = 0.03


@dataclass
class Model:
    """`seen`: per conversation (its task), the last messages forwarded."""

    tally: Counter[str] = field(default_factory=Counter)
    """Of requests that only extend the one before, and of those that do not."""
    invalid: Counter[str] = field(default_factory=Counter)
    seen: dict[str, list[str]] = field(default_factory=dict)

    def __call__(self, request: Request) -> Answerable:
        if request.method != "POST":
            return answer({"object": "list", "data": [{"id": "fleet-1", "object": "model"}]})
        self._record(request.json["messages"])
        return pace_turn(text_turn(TALK).using(len(request.body) // USAGE_BYTES), PAUSE_SECONDS)(request)

    def _record(self, messages: list[dict[str, object]]) -> None:
        self.invalid += find_breaches(messages)
        task = next(str(message["content"]) for message in messages if message["role"] == "user")
        shown = [json.dumps(message) for message in messages]
        before = self.seen.get(task)
        if before is not None and len(shown) >= len(before) and shown[: len(before)] == before:
            self.tally["extending"] += 1
        elif before is not None:
            self.tally["rewritten"] += 1
        self.seen[task] = shown


@dataclass(frozen=True, slots=True)
class FleetRun:
    """Who took part, and what was seen at the end."""

    clients: FleetClients
    troubles: Faults
    model: Model
    faults: Counter[str]
    """Of the proxies, by their logs."""
    kept: int
    """Conversations of which something was folded away, and all of it is saved."""


def configuration(up: Upstream, redis: RedisServer, relay: FaultyRelay) -> dict[str, Any]:
    return {
        "upstreams": [{"base_url": up.url, "window": 1_000_000, "key": "env:UPSTREAM_KEY"}],
        "policies": {"default": {"clear_at_least": 3_000, "keep": {"tokens": 1_000}}},
        "teams": {team: {} for team in TEAMS},
        "state": {"url": redis.url},
        "transcripts": {
            "dir": f"s3://{BUCKET}/fleet",
            "endpoint": relay.url,
            "required": True,  # written to the replica's disk before it is folded: so a kill loses none of it
            **SECRETS,
        },
        "listen": {"drain_seconds": 20},
        "log": {"format": "json"},
    }


async def run_fleet(place: Path, seconds: float, agents: int, pause: float) -> FleetRun:
    async with AsyncExitStack() as stack:
        model = Model()
        up = await stack.enter_async_context(Upstream(model))
        redis = stack.enter_context(running(place))
        s3 = stack.enter_context(s3_server(place))
        relay = stack.enter_context(faulty_relay(s3.url))
        config = configuration(up, redis, relay)
        secrets = {"UPSTREAM_KEY": "sk-fleet", "S3_KEY": s3.key, "S3_SECRET": s3.secret}
        replicas = [Replica(place / f"replica-{n}", secrets) for n in range(REPLICAS)]
        for replica in replicas:
            replica.place.mkdir()
            write_config(config, replica.place)
            await replica.start()
        keys = {team: await replicas[0].create_key(team) for team in TEAMS}
        await asyncio.sleep(2)  # until every replica has heard of them
        clients = FleetClients([replica.proxy.origin for replica in replicas], keys, random.Random(7), pause)
        troubles = Faults(replicas, redis, relay, config, seconds)
        async with asyncio.TaskGroup() as beside:
            beside.create_task(clients.work(agents))
            beside.create_task(troubles.run())
            beside.create_task(_forget_requests(clients, up, relay))
            await asyncio.sleep(seconds)
            clients.over = True
        for replica in replicas:
            await replica.leave()
        faults = sum((replica.faults() for replica in replicas), start=Counter())
        kept = await asyncio.to_thread(_count_kept, clients, s3, replicas)
    return FleetRun(clients, troubles, model, faults, kept)


async def _forget_requests(clients: FleetClients, up: Upstream, relay: FaultyRelay) -> None:
    """Half an hour of what the relay and the upstream remember would fill the memory."""
    while not clients.over:
        relay.asked.clear()
        up.forget()
        await asyncio.sleep(5)


def _count_kept(clients: FleetClients, s3: S3, replicas: list[Replica]) -> int:
    """Every history of which something was folded away and accepted must be saved under one name, whole."""
    saved: dict[tuple[str, str], set[str]] = defaultdict(set)
    for tenant, conversation, line in [*_in_bucket(s3), *_in_spools(replicas)]:
        if "message" in (data := json.loads(line)):
            saved[tenant, conversation].add(_same(data["message"]))
    kept = 0
    for team, history in clients.folded.values():
        wanted = {_same(each) for each in history if each["role"] != "system"}
        kept += any(wanted <= lines for (tenant, _), lines in saved.items() if tenant == f"team.{team}")
    return kept


def _in_bucket(s3: S3) -> Iterator[tuple[str, str, bytes]]:
    bucket = s3.bucket(prefix="fleet")
    for found in list(bucket.list_objects()):
        tenant, conversation, *_ = found.name.split("/")
        yield from ((tenant, conversation, line) for line in bucket.get(found.name).splitlines())


def _in_spools(replicas: list[Replica]) -> Iterator[tuple[str, str, bytes]]:
    """What is still on a disk, for the next process."""
    for replica in replicas:
        for file in (replica.place / "state" / "spool").glob("*/*/*.jsonl"):
            lines = file.read_bytes().splitlines(keepends=True)
            yield from ((file.parts[-3], file.parts[-2], line) for line in lines if line.endswith(b"\n"))


def _same(message: dict[str, Any]) -> str:
    return json.dumps(message, sort_keys=True)
