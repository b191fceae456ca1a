"""What compaction costs: delay, processor time and stalls of the event loop, beside a bare relay, in one run.

    python bench/compact.py                                 # two minutes
    python bench/compact.py --markdown compact.md

The history is our own make (longwork.py): 1 MB, about 250,000 tokens, more than 300 messages. *Warm*: an agent at
work, each request one call longer than the last, strides included. *Cold*: conversations that were never seen before.
While a cold one is worked on, another client asks for /health/live without pause: the longest answer is the stall. What
these answers cost is not in its processor time: that is of another history, which is as long and comes undisturbed.
"""

import argparse
import asyncio
import os
import re
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median

import load
from contestants import BARE, OURS, Contestant, contestants
from fake_upstream import FakeUpstream, Pace
from longwork import Work
from lookups import look_ups, tokens
from process import CLIENTS, CORES, alone
from tables import figure, provenance, table

MB = 1_000_000
MS = 1_000
WARM_TURNS, COLD, ROUNDS = 20, 7, 4
WRITING_SECONDS = 0.3
"""For each megabyte: the original of what was shortened is written behind the answer."""
PAGES = {"1 MB": (MB, 6_000), "10 MB": (10 * MB, 3_500)}
_LAG = re.compile(r'compaction_proxy_loop_lag_seconds_bucket\{le="([^"]+)"\} (\S+)')

INTRO = """\
# What compaction costs

{provenance}.

A history of 1 MB in {messages} messages, about {tokens:,} tokens. For the warm figures the relay has one core
for itself, clients and upstream share the other, and the contestants take turns; for the cold ones it has both, as
counting goes on in two threads. `direct` is the upstream without a relay; `the same, bypass` is the way through the
proxy without what it is for.
"""


@dataclass(frozen=True, slots=True)
class Warm:
    """One contestant over all warm turns: seconds each took, and processor time for each."""

    latencies: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    @property
    def p50(self) -> float:
        return median(self.latencies)


@dataclass(frozen=True, slots=True)
class Cold:
    """A history seen for the first time: how long it took, and how long other requests waited."""

    seconds: float
    cpu: float
    stall: float
    lag: str
    again: float


async def warm(field_: Sequence[Contestant], work: Work) -> dict[str, Warm]:
    """The same growing requests for each contestant, round by round."""
    found = {contestant.name: Warm() for contestant in field_}
    servers = [contestant.server for contestant in field_ if contestant.server]
    for number in range(ROUNDS + 1):
        bodies = list(work.bodies(WARM_TURNS if number else 2))
        for contestant in field_:
            with alone(contestant.server, servers):
                for body in bodies:
                    before = contestant.cpu
                    sample = await load.ask(contestant.chat, body, times=1, clients=1, headers=contestant.headers)
                    await asyncio.sleep(0.02)  # what is noted after an answer counts, too
                    if number:
                        found[contestant.name].latencies.extend(sample.latencies)
                        found[contestant.name].cpu.append(contestant.cpu - before)
    return found


async def cold(contestant: Contestant, work: Work, undisturbed: Work) -> Cold:
    """Two first sights, one beside a client that asks for /health/live, and that request once more."""
    done = asyncio.Event()
    waits: list[float] = []
    lags = await _lags(contestant)
    watching = asyncio.create_task(_watch(contestant.live, done, waits))
    await asyncio.sleep(0.1)
    first = await load.ask(contestant.chat, work.body(), times=1, clients=1, headers=contestant.headers)
    await asyncio.sleep(0.15)  # the loop measures its lag ten times a second
    done.set()
    await watching
    again = await load.ask(contestant.chat, work.body(), times=1, clients=1, headers=contestant.headers)
    await asyncio.sleep(WRITING_SECONDS * len(work.body()) / MB)
    before = contestant.cpu
    await load.ask(contestant.chat, undisturbed.body(), times=1, clients=1, headers=contestant.headers)
    await asyncio.sleep(WRITING_SECONDS * len(work.body()) / MB)
    cpu = contestant.cpu - before
    return Cold(first.seconds, cpu, max(waits), _worst(lags, await _lags(contestant)), again.seconds)


async def _watch(url: str, done: asyncio.Event, waits: list[float]) -> None:
    while not done.is_set():
        waits.append(await load.visit(url))
        await asyncio.sleep(0.001)


async def _lags(contestant: Contestant) -> dict[str, float]:
    """How often the event loop woke up at most so late, as the proxy itself counts."""
    reader, writer = await asyncio.open_connection(*contestant.origin.removeprefix("http://").split(":"))
    writer.write(b"GET /metrics HTTP/1.1\r\nhost: bench\r\nconnection: close\r\n\r\n")
    page = (await reader.read()).decode()
    writer.close()
    return {edge: float(count) for edge, count in _LAG.findall(page)}


def _worst(before: dict[str, float], after: dict[str, float]) -> str:
    """The bucket of the longest lag in between."""
    counts = [(edge, count - before.get(edge, 0.0)) for edge, count in after.items()]
    most = counts[-1][1] if counts else 0.0
    return next((edge for edge, count in counts if count == most), "-") if most else "-"


def targets(found: dict[str, Warm], colds: Sequence[Cold], lookups: tuple[int, int]) -> list[tuple[str, str, str, str]]:
    ours, bare, direct = (found[name] for name in (OURS.name, BARE.name, "direct"))
    cpu = fmean(ours.cpu) * MS
    rows = [
        ("warm: ms added to the median, over the bare relay", 12.0, (ours.p50 - bare.p50) * MS),
        ("warm: ms added to the median, over no relay", 12.0, (ours.p50 - direct.p50) * MS),
        ("warm: CPU ms per request, strides included", 15.0, cpu),
        ("cold: ms, median", 250.0, median(cold.seconds for cold in colds) * MS),
        ("cold: CPU ms, median", 120.0, median(cold.cpu for cold in colds) * MS),
        ("cold: longest wait for /health/live, ms, median", 10.0, median(cold.stall for cold in colds) * MS),
        ("store look-ups just below clear_at_least", 1.0, float(lookups[0])),
        ("store look-ups just above it", 1.0, float(lookups[1])),
    ]
    return [(name, f"{most:g}", figure(value, 1), "met" if value <= most else "MISSED") for name, most, value in rows]


def _spread(contestant: Contestant) -> None:
    """From here on it may use all cores."""
    for pid in contestant.server.tree() if contestant.server else ():
        for thread in Path(f"/proc/{pid}/task").iterdir():
            os.sched_setaffinity(int(thread.name), CORES)


def warm_rows(found: dict[str, Warm]) -> list[tuple[str, ...]]:
    return [
        (
            name,
            figure(it.p50 * MS, 2),
            figure(load.percentile(it.latencies, 0.99) * MS, 2),
            figure((it.p50 - found["direct"].p50) * MS, 2),
            figure(median(it.cpu) * MS, 2),
            figure(fmean(it.cpu) * MS, 2),
        )
        for name, it in found.items()
    ]


def cold_rows(name: str, colds: Sequence[Cold]) -> list[tuple[str, ...]]:
    return [
        (
            f"{name}, {what}",
            figure(pick(it.seconds for it in colds) * MS, 0),
            figure(pick(it.cpu for it in colds) * MS, 0),
            figure(pick(it.again for it in colds) * MS, 0),
            figure(pick(it.stall for it in colds) * MS, 1),
            max((it.lag for it in colds), key=lambda edge: float(edge.replace("-", "0"))),
        )
        for what, pick in (("median", median), ("worst", max))
    ]


async def run(place: Path) -> tuple[str, list[tuple[str, str, str, str]]]:
    work = Work(1).up_to(MB)
    begun = len(work.messages)
    colds = {}
    async with FakeUpstream(Pace()) as upstream:
        with contestants((OURS, BARE), upstream.url, place) as field_:
            found = await warm(field_, work)
            ours = next(contestant for contestant in field_ if contestant.name == OURS.name)
            _spread(ours)
            for name, (size, page) in PAGES.items():
                times = COLD if size == MB else 2
                colds[name] = [
                    await cold(ours, Work(seed, page).up_to(size), Work(1_000 + seed, page).up_to(size))
                    for seed in range(100, 100 + times)
                ]
            memory = ours.server.rss if ours.server else 0.0
    promised = targets(found, colds["1 MB"], await look_ups(place))
    intro = INTRO.format(provenance=provenance(), messages=begun, tokens=await tokens(Work(1).up_to(MB)))
    parts = [
        intro,
        table(("warm", "p50 ms", "p99 ms", "added p50", "CPU ms p50", "CPU ms mean"), warm_rows(found)),
        table(
            ("cold", "first ms", "CPU ms", "again ms", "/health/live ms", "loop lag up to s"),
            [row for name, found_ in colds.items() for row in cold_rows(name, found_)],
        ),
        f"The 10 MB histories have more than 5,000 messages. Afterwards the proxy holds {memory:.0f} MB.",
        table(("target", "at most", "found", ""), promised),
    ]
    return "\n".join(f"{part}\n" for part in parts), promised


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--markdown", metavar="FILE", type=Path, help="write the tables there too")
    parser.add_argument("--strict", action="store_true", help="exit 1 where a target was missed")
    args = parser.parse_args()
    os.sched_setaffinity(0, {CLIENTS})
    with tempfile.TemporaryDirectory() as place:
        text, promised = asyncio.run(run(Path(place)))
    print(text)
    if args.markdown:
        args.markdown.write_text(text)
    return int(args.strict and not all(verdict == "met" for *_, verdict in promised))


if __name__ == "__main__":
    sys.exit(main())
