"""The fleet: its parts, the half hour itself, and the search for every original at its end."""

import asyncio
import itertools
import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.end_to_end.fleet.clients import FleetClients
from tests.end_to_end.fleet.faults import Faults
from tests.end_to_end.fleet.model import Model
from tests.end_to_end.fleet.replicas import Replica
from tests.support.object_store.faulty_relay import FaultyRelay, faulty_relay
from tests.support.object_store.server import BUCKET, S3, s3_server
from tests.support.redis_server import RedisServer, running
from tests.support.scripted_upstream import Upstream

REPLICAS = 3
AGENTS = 200
TEAMS = ("red", "green", "blue")
SECRETS = {"key": "env:S3_KEY", "secret": "env:S3_SECRET"}


@dataclass
class Fleet:
    """The parts of the fleet, and what was seen."""

    place: Path
    model: Model
    up: Upstream
    redis: RedisServer
    s3: S3
    relay: FaultyRelay
    replicas: list[Replica]
    config: dict[str, Any]
    clients: FleetClients | None = None
    faults_injected: Faults | None = None
    lost: int = 0
    kept: int = 0
    faults: Counter[str] = field(default_factory=Counter)


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


async def fleet(place: Path, seconds: float, agents: int, pause: float) -> Fleet:
    async with AsyncExitStack() as stack:
        model = Model()
        up = await stack.enter_async_context(Upstream(model))
        redis = stack.enter_context(running(place))
        s3 = stack.enter_context(s3_server(place))
        relay = stack.enter_context(faulty_relay(s3.url))
        config = configuration(up, redis, relay)
        secrets = {"UPSTREAM_KEY": "sk-fleet", "S3_KEY": s3.key, "S3_SECRET": s3.secret}
        replicas = [Replica(place / f"replica-{n}", config, secrets) for n in range(REPLICAS)]
        made = Fleet(place, model, up, redis, s3, relay, replicas, config)
        for replica in replicas:
            await replica.start()
        await _run_load(made, seconds, agents, pause)
        for replica in replicas:
            await replica.leave()
        made.faults = sum((replica.faults() for replica in replicas), start=Counter())
        await _look_for_originals(made)
    return made


async def _run_load(made: Fleet, seconds: float, agents: int, pause: float) -> None:
    keys = {team: made.replicas[0].run_command("keys", "create", "--team", team).strip() for team in TEAMS}
    await asyncio.sleep(2)  # until every replica has heard of them
    dice = random.Random(7)
    made.clients = FleetClients([replica.origin for replica in made.replicas], keys, dice, pause)
    made.faults_injected = Faults(made.replicas, made.redis, made.relay, made.config, seconds)
    async with asyncio.TaskGroup() as beside:
        beside.create_task(made.clients.work(agents))
        beside.create_task(made.faults_injected.run())
        beside.create_task(_forget_requests(made))
        await asyncio.sleep(seconds)
        made.clients.over = True


async def _forget_requests(made: Fleet) -> None:
    """Half an hour of what the relay and the upstream remember would fill the memory."""
    while not made.clients.over:
        made.relay.asked.clear()
        made.up.forget()
        await asyncio.sleep(5)


async def _look_for_originals(made: Fleet) -> None:
    """Every history of which something was folded away and accepted must be saved under one name, whole."""
    standing = await asyncio.to_thread(_saved_messages, made)
    by_task: dict[tuple[str, str], list[set[str]]] = defaultdict(list)
    for (tenant, _), lines in standing.items():
        by_task[tenant, _task_of(lines)].append(lines)
    for task, (team, history) in made.clients.folded.items():
        wanted = {_same(each) for each in history if each["role"] != "system"}
        whole = any(wanted <= lines for lines in by_task[f"team.{team}", task])
        made.lost += not whole
        made.kept += whole


def _saved_messages(made: Fleet) -> dict[tuple[str, str], set[str]]:
    """The messages of each conversation, by tenant and name: in the bucket, or on a disk for the next process."""
    kept: dict[tuple[str, str], set[str]] = defaultdict(set)
    for whose, line in itertools.chain(_in_bucket(made), _in_spools(made)):
        if "message" in (data := json.loads(line)):
            kept[whose].add(_same(data["message"]))
    return kept


def _in_bucket(made: Fleet) -> Iterator[tuple[tuple[str, str], bytes]]:
    bucket = made.s3.bucket(prefix="fleet")
    for found in list(bucket.list_objects()):
        tenant, conversation, *_ = found.name.split("/")
        yield from (((tenant, conversation), line) for line in bucket.get(found.name).splitlines())


def _in_spools(made: Fleet) -> Iterator[tuple[tuple[str, str], bytes]]:
    for replica in made.replicas:
        for file in (replica.place / "state" / "spool").glob("*/*/*.jsonl"):
            whose = file.parts[-3], file.parts[-2]
            yield from ((whose, line) for line in file.read_bytes().splitlines(keepends=True) if line.endswith(b"\n"))


def _same(message: dict[str, Any]) -> str:
    return json.dumps(message, sort_keys=True)


def _task_of(lines: set[str]) -> str:
    data = (json.loads(line) for line in lines)
    return next((each["content"] for each in data if each["role"] == "user"), "")
