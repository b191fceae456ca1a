"""All peers as relays: what a request costs on its way, whatever becomes of its history.

As in bench/relay.py: the relay has one core for itself, the contestants take turns, round after round, and the others
are stopped. Beside the sizes and a stream there is the question that matters to a team: how long a small
request takes while three large ones of another client are under way.
"""

import asyncio
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import load
from bodies import chat
from contestants import BARE, DIRECT, Contestant, start_contestant
from fake_upstream import FakeUpstream
from process import alone
from relay import PACE, servers

from peers.conversations import MODEL
from peers.environments import NotInstalled, install_environment
from peers.processes import PEERS, start
from peers.scored import last_line

STREAM = f"stream of {PACE.chunks}, {PACE.seconds * 1000:g} ms apart"
BESIDE = "1 kB beside three of 1 MB"
LARGE = 1_000_000
UNDER_WAY, PAUSE = 0.3, 0.017
"""Seconds until the large ones are under way, and between two small ones."""
FEWEST = 10
ROUNDS = 5
PATIENCE = 120.0


@dataclass(frozen=True, slots=True)
class Workload:
    """One thing that is asked for, one after the other, so many times a round."""

    name: str
    body: bytes
    times: int
    beside: bool = False
    """While three large requests are under way."""


@dataclass(frozen=True, slots=True)
class Timing:
    """What one contestant took for one thing, per request: seconds."""

    p50: float
    p99: float
    cpu: float
    lag: float
    """Of a streamed event, at the 99th percentile."""


@dataclass(slots=True)
class Relay:
    """One contestant's figures."""

    name: str
    ready: float = 0.0
    idle_rss: float = 0.0
    busy_rss: float = 0.0
    rounds: dict[str, list[Timing]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    """What could not be asked of it, and why."""


def workloads() -> list[Workload]:
    return [
        Workload("1 kB", body(1_000), 100),
        Workload("100 kB", body(100_000), 40),
        Workload("1 MB", body(LARGE), 10),
        Workload(STREAM, body(1_000, stream=True), 2),
        Workload(BESIDE, body(1_000), 60, beside=True),
    ]


def body(size: int, *, stream: bool = False) -> bytes:
    return chat(size, stream=stream).replace(b'"bench-1"', f'"{MODEL}"'.encode())


async def measure_relays(place: Path, rounds: int = ROUNDS) -> list[Relay]:
    """The direct way, a bare relay and all peers that start."""
    async with FakeUpstream(PACE) as upstream:
        with _field(upstream.url, place) as contestants:
            found = {
                contestant.name: Relay(contestant.name, contestant.ready, contestant.idle_rss)
                for contestant in contestants
            }
            for number in range(rounds + 1):
                print(f"round {number} of {rounds}" if number else "warming up", file=sys.stderr, flush=True)
                await _round(contestants, found, number)
            for each in contestants:
                found[each.name].busy_rss = each.server.rss if each.server else 0.0
    return list(found.values())


async def _round(contestants: Sequence[Contestant], found: dict[str, Relay], number: int) -> None:
    for thing in workloads():
        for contestant in contestants:
            relay = found[contestant.name]
            if thing.name in relay.failed:
                continue
            try:
                taken = await asyncio.wait_for(_once(contestant, contestants, thing), PATIENCE)
            except FileNotFoundError:  # a thread ended while its server was looked at: one round less
                continue
            except (RuntimeError, OSError, TimeoutError) as fault:
                relay.failed[thing.name] = last_line(fault)
            else:
                relay.rounds.setdefault(thing.name, []).extend([taken] if number else [])


@contextmanager
def _field(upstream: str, place: Path) -> Iterator[list[Contestant]]:
    place.mkdir(exist_ok=True)
    with ExitStack() as leaving:
        bare = start_contestant(BARE, upstream, place)
        contestants = [Contestant(DIRECT, upstream), bare]
        leaving.callback(bare.stop)
        for peer in PEERS:
            try:
                install_environment(peer.environment)
                contestants.append(start(peer, upstream, place))
            except (NotInstalled, RuntimeError, TimeoutError, OSError) as fault:
                print(f"{peer.name}: {last_line(fault)}", file=sys.stderr)
                continue
            leaving.callback(contestants[-1].stop)
        yield contestants


async def _once(contestant: Contestant, contestants: Sequence[Contestant], thing: Workload) -> Timing:
    times = max(thing.times // contestant.slower, 2)
    with alone(contestant.server, servers(contestants)):
        before = contestant.cpu
        sample = await (
            measure_beside_large(contestant, thing, times) if thing.beside else _ask(contestant, thing, times)
        )
        cpu = contestant.cpu - before
    p50, p99 = (load.percentile(sample.latencies, share) for share in (0.5, 0.99))
    return Timing(p50, p99, cpu / times, load.percentile(sample.lags, 0.99))


async def _ask(contestant: Contestant, thing: Workload, times: int) -> load.Sample:
    return await load.ask(contestant.chat, thing.body, times=times, clients=1)


async def measure_beside_large(contestant: Contestant, thing: Workload, times: int) -> load.Sample:
    """Small ones at a steady pace, so that none of them waits for one of their own."""
    enough = asyncio.Event()
    large = asyncio.create_task(load.keep_asking(contestant.chat, body(LARGE), clients=3, until=enough))
    sample = load.Sample()
    try:
        await asyncio.sleep(UNDER_WAY)
        for _ in range(max(times, FEWEST)):
            await asyncio.sleep(PAUSE)
            sample.latencies += (await _ask(contestant, thing, 1)).latencies
    finally:
        enough.set()
        await large
    return sample


def median_of(relay: Relay, name: str, figure: str) -> float | None:
    """The median over the rounds; None where it could not be asked."""
    rounds = relay.rounds.get(name)
    return median(getattr(taken, figure) for taken in rounds) if rounds else None


def beyond(relay: Relay, direct: Relay, name: str) -> list[float]:
    return [
        one.p50 - other.p50 for one, other in zip(relay.rounds.get(name, ()), direct.rounds.get(name, ()), strict=False)
    ]


def times_bare(relay: Relay, bare: Relay, name: str) -> float | None:
    """Processor time, as a multiple of the bare relay's in the same round."""
    rounds = relay.rounds.get(name)
    if not rounds:
        return None
    return median(one.cpu / other.cpu for one, other in zip(rounds, bare.rounds[name], strict=False))
