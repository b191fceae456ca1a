"""What the state costs a request: in memory, in a file, in a Redis; above `clear_at_least` tokens and below it.

    python bench/shared_state.py                                        # half a minute
    python bench/shared_state.py --markdown shared-state.md

Three proxies before the same upstream, alike but for where they keep their state, take turns with an agent at work.
What Redis *adds* is its median less that of the proxy that keeps its state in memory. Then the look-up by itself, as
a request makes it: one block a quarter of the way back, the last time, no summary. The Redis is on the same machine
and shares the clients' core: a network between them adds its round trip, once to a request.
"""

import argparse
import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter

import load
from contestants import Contestant, Kind, contestants, free_port
from fake_upstream import FakeUpstream, Pace
from longwork import Work
from process import CLIENTS, Server, alone
from redis.asyncio import Redis
from tables import figure, provenance, table

from proxy.store.contract import Store, StoreUnavailable
from proxy.store.memory_store import FallbackStore, MemoryStore
from proxy.store.redis import RedisStore
from proxy.store.sqlite import SqliteStore

MS = 1_000
MOST = 1.0  # milliseconds that Redis may add to the median
ROUNDS, TURNS = 8, 10
SIZES = {"below": 20_000, "100,000 tokens": 400_000, "250,000 tokens": 1_000_000}
LINKS = (50, 300, 2_000)
LOOKS = 300
BLOCK, LAST_TIME = 20_000, 250  # bytes

Samples = dict[tuple[str, str], list[float]]


@dataclass(slots=True)
class Agents:
    """One history of each size, that grows from turn to turn where it is to be shortened."""

    works: dict[str, Work] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.works = {name: Work(number).up_to(size) for number, (name, size) in enumerate(SIZES.items())}

    def bodies(self, name: str) -> list[bytes]:
        work = self.works[name]
        return [work.body()] * TURNS if name == "below" else list(work.bodies(TURNS))


@contextmanager
def redis(place: Path) -> Iterator[int]:
    program = shutil.which("redis-server") or shutil.which("valkey-server")
    if program is None:
        sys.exit("there is neither a redis-server nor a valkey-server to measure")
    port = free_port()
    server = Server([program, "--port", str(port), "--save", "", "--dir", str(place)], place / "redis.log")
    for pid in server.tree():
        os.sched_setaffinity(pid, {CLIENTS})
    try:
        yield port
    finally:
        server.stop()


def kind(name: str, state: str) -> Kind:
    """A proxy that keeps its state so."""

    def command(place: Path, port: int, upstream: str) -> list[str]:
        (place / f"{name}.yaml").write_text(f"state: {{{state}, dir: {place / name}}}\n")
        options = ["--port", str(port), "--upstream", f"{upstream}/v1", "--config", str(place / f"{name}.yaml")]
        return [sys.executable, "-m", "proxy", "serve", *options]

    return Kind(name, None, command)


async def requests(field_: Sequence[Contestant]) -> Samples:
    """The same requests for each contestant, round by round; the first one only warms them up."""
    found: Samples = {(one.name, size): [] for one in field_ for size in SIZES}
    servers, agents = [one.server for one in field_ if one.server], Agents()
    for number in range(ROUNDS + 1):
        for size in SIZES:
            bodies = agents.bodies(size)
            for one in field_:
                with alone(one.server, servers):
                    for body in bodies:
                        sample = await load.ask(one.chat, body, times=1, clients=1)
                        await asyncio.sleep(0.02)  # what is noted after an answer is not in the next one's way
                        found[one.name, size] += sample.latencies if number else []
    return found


def request_rows(found: Samples) -> list[tuple[str, ...]]:
    return [
        (
            f"{name}, {size}",
            figure(median(latencies) * MS, 2),
            figure(load.percentile(latencies, 0.99) * MS, 2),
            figure((median(latencies) - median(found["memory", size])) * MS, 2),
        )
        for (name, size), latencies in found.items()
    ]


def targets(found: Samples) -> list[tuple[str, str, str, str]]:
    rows = []
    for size in SIZES:
        added = (median(found["redis", size]) - median(found["memory", size])) * MS
        rows.append((f"ms that Redis adds, {size}", figure(MOST, 1), figure(added, 2), _verdict(added)))
    return rows


def _verdict(added: float) -> str:
    return "met" if added <= MOST else "MISSED"


async def looks(name: str, store: Store, links: int) -> tuple[str, ...]:
    """One after the other, as from a single agent."""
    tenant, chain = "t" * 24, [os.urandom(20).hex() for _ in range(links)]
    blocks, anchors, summaries = ([f"{tenant}/{kind}/{link}" for link in chain] for kind in ("block", "anchor", "s"))
    await store.put_block(blocks[links // 4], os.urandom(BLOCK))
    await store.write_fact(anchors[2], os.urandom(LAST_TIME), 3_600)
    times = []
    for _ in range(LOOKS):
        began = perf_counter()
        block, last, *_ = await store.find_first(blocks, anchors, (), summaries)
        times.append(perf_counter() - began)
        assert block is not None
        assert last is not None
    return f"{name}, {links} messages", figure(median(times) * MS, 2), figure(load.percentile(times, 0.99) * MS, 2)


async def look_rows(place: Path, port: int) -> list[tuple[str, ...]]:
    url, rows = f"redis://127.0.0.1:{port}/1", []
    for links in LINKS:
        kinds = {
            "memory": MemoryStore(),
            "sqlite": SqliteStore(place / f"{links}.sqlite"),
            "redis": FallbackStore(RedisStore(url)),
        }
        for name, store in kinds.items():
            before = await script_seconds(port)
            row = await looks(name, store, links)
            served = figure((await script_seconds(port) - before) / LOOKS * MS, 3) if name == "redis" else ""
            rows.append((*row, served))
            await store.close()
    return rows


async def script_seconds(port: int) -> float:
    """Seconds that the server has worked on scripts."""
    found = await run_redis_command(port, "INFO", "commandstats")
    return sum(int(line.partition("usec=")[2].split(",")[0]) for line in found.splitlines() if "evalsha" in line) / 1e6


async def sizes(port: int) -> str:
    """What the server needs for one of each."""
    store, tenant = RedisStore(f"redis://127.0.0.1:{port}/2"), "t" * 24
    block, fact = (f"{tenant}/{kind}/{os.urandom(20).hex()}" for kind in ("block", "anchor"))
    await store.put_block(block, os.urandom(BLOCK))
    await store.write_fact(fact, os.urandom(LAST_TIME), 3_600)
    taken = [
        await run_redis_command(port, "MEMORY", "USAGE", key) for key in (f"cp/1/promise/{block}", f"cp/1/fact/{fact}")
    ]
    await store.close()
    return (
        f"A block of {BLOCK:,} bytes takes {taken[0]} bytes of the server's memory, a fact of {LAST_TIME} {taken[1]}."
    )


async def run_redis_command(port: int, *words: str) -> str:
    client = Redis(port=port, db=2, protocol=2)
    client.response_callbacks.clear()  # as the server says it
    answer = await client.execute_command(*words)  # type: ignore[no-untyped-call] # (the library has no types for it)
    await client.aclose()
    return answer.decode() if isinstance(answer, bytes) else str(answer)


async def run(place: Path) -> tuple[str, list[tuple[str, str, str, str]]]:
    with redis(place) as port:
        await listens(port)
        states = {"memory": "store: memory", "sqlite": "store: sqlite", "redis": f"url: 'redis://127.0.0.1:{port}'"}
        async with FakeUpstream(Pace()) as upstream:
            kinds = tuple(kind(name, state) for name, state in states.items())
            with contestants(kinds, upstream.url, place) as field_:
                found = await requests(field_)
        looked, taken = await look_rows(place, port), await sizes(port)
    targets_met = targets(found)
    parts = [
        f"# What the state costs\n\n{provenance()}.",
        table(("request", "p50 ms", "p99 ms", "over memory"), request_rows(found)),
        table(("look-up", "p50 ms", "p99 ms", "server ms"), looked),
        taken,
        table(("target", "at most", "found", ""), targets_met),
    ]
    return "\n".join(f"{part}\n" for part in parts), targets_met


async def listens(port: int) -> None:
    """Until the server is there."""
    store = RedisStore(f"redis://127.0.0.1:{port}")
    for _ in range(100):
        try:
            await store.load_secret()
            break
        except StoreUnavailable:
            await asyncio.sleep(0.1)
    await store.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--markdown", metavar="FILE", type=Path, help="write the tables there too")
    parser.add_argument("--strict", action="store_true", help="exit 1 where a target was missed")
    args = parser.parse_args()
    os.sched_setaffinity(0, {CLIENTS})
    with tempfile.TemporaryDirectory() as place:
        text, targets_met = asyncio.run(run(Path(place)))
    print(text)
    if args.markdown:
        args.markdown.write_text(text)
    return int(args.strict and not all(verdict == "met" for *_, verdict in targets_met))


if __name__ == "__main__":
    sys.exit(main())
