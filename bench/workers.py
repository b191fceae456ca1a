"""How throughput grows with `--workers`, and what a request costs in processor time: what sizing needs.

    python bench/workers.py --markdown workers.md

Agents work at the same time, as fast as they are answered. Each request is the one before with one more call and its
result, and the history before it was shortened by a stored block, as in nearly all requests of long work. Workers,
clients and upstream share the machine's cores, so separate machines would show a larger growth than this.
"""

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from statistics import median
from urllib.error import URLError
from urllib.request import urlopen

import load
import yaml
from contestants import free_port
from fake_upstream import FakeUpstream, Pace
from longwork import Work
from process import PATIENCE, PROC
from tables import figure, provenance, table

# Bytes at the start, conversations of each agent, and turns of each conversation: no history grows by more than half.
SIZES = {"10 kB": (10_000, 25, 6), "100k tokens (400 kB)": (400_000, 1, 60), "1 MB": (1_000_000, 1, 40)}
NEW_BYTES, TURN_BYTES = 600, 850
"""Of a new result, on average, and with its call."""
CLIENTS = 8
ROUNDS = 3
# The first request of a conversation is sent on so many connections that each worker has very likely read it.
CONNECTIONS = 6
WORKERS = (1, 2)
LEAST_GROWTH = 1.8
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class Measurement:
    """Of one number of workers and one size: requests a second, and processor time a request, round by round."""

    rates: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    rss: float = 0.0


@contextmanager
def proxy(workers: int, upstream: str, place: Path) -> Iterator[tuple[str, int]]:
    """Its origin and its process; it may use every core."""
    port, config = free_port(), place / f"{workers}.yaml"
    config.write_text(yaml.safe_dump({"upstreams": [{"base_url": upstream, "window": 10_000_000}]}))
    command = [sys.executable, "-m", "proxy", "serve", "--config", str(config), "--port", str(port)]
    command += ["--workers", str(workers), "--state", str(place / f"state-{workers}")]
    with (place / f"{workers}.log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        origin = f"http://127.0.0.1:{port}"
        try:
            _ready(f"{origin}/health/ready")
            yield origin, process.pid
        finally:
            process.terminate()


def _ready(url: str) -> None:
    last = time.monotonic() + PATIENCE
    while time.monotonic() < last:
        try:
            with urlopen(url, timeout=1):
                return
        except (URLError, ConnectionError):
            time.sleep(0.02)
    raise TimeoutError(url)


def _tree(pid: int) -> list[int]:
    found = [pid]
    for each in found:
        for task in (PROC / str(each) / "task").glob("*/children"):
            found.extend(map(int, task.read_text().split()))
    return found


def _cpu(pid: int) -> float:
    stats = [(PROC / str(each) / "stat").read_text().rpartition(")")[2].split() for each in _tree(pid)]
    return sum(int(found[11]) + int(found[12]) for found in stats) / TICKS


def _rss(pid: int) -> float:
    pages = (int((PROC / str(each) / "statm").read_text().split()[1]) for each in _tree(pid))
    return sum(pages) * os.sysconf("SC_PAGE_SIZE") / 1e6


async def measure_workers(origin: str, pid: int, agents: list[list[Work]], turns: int, found: Measurement) -> None:
    """Every turn of every conversation, of all agents at the same time."""
    url = f"{origin}/v1/chat/completions"
    for work in chain.from_iterable(agents):
        await load.ask(url, work.body(), times=CONNECTIONS, clients=CONNECTIONS)
    await asyncio.sleep(1)  # originals of the first block are written after its answer
    before, began = _cpu(pid), time.perf_counter()
    samples = await asyncio.gather(*(load.ask_in_turn(url, _bodies(works, turns)) for works in agents))
    seconds, answered = time.perf_counter() - began, sum(len(sample.latencies) for sample in samples)
    found.rates.append(answered / seconds)
    found.cpu.append((_cpu(pid) - before) / answered)
    found.rss = max(found.rss, _rss(pid))


def _bodies(works: list[Work], turns: int) -> Iterator[bytes]:
    for _ in range(turns):
        for work in works:
            yield work.grown().body()


def _begin(seed: int, size: int) -> Work:
    """A conversation of this size, whose further results are short."""
    work = Work(seed).up_to(size)
    work.page = NEW_BYTES
    return work


async def run(place: Path) -> dict[tuple[str, int], Measurement]:
    found = {(size, workers): Measurement() for size in SIZES for workers in WORKERS}
    async with FakeUpstream(Pace()) as upstream:
        with proxy(1, upstream.url, place) as one, proxy(2, upstream.url, place) as two:
            for name, (size, conversations, turns) in SIZES.items():
                for number in range(ROUNDS):
                    for workers, (origin, pid) in zip(WORKERS, (one, two), strict=True):
                        seeds = [range(at, CLIENTS * conversations, CLIENTS) for at in range(CLIENTS)]
                        agents = [[_begin(1_000 * number + seed, size) for seed in mine] for mine in seeds]
                        await measure_workers(origin, pid, agents, turns, found[name, workers])
    return found


INTRO = """\
# What a machine carries

{provenance}.

{clients} agents at the same time, as fast as they are answered. Each request is the one before with a call and its
result more (about {new_bytes} bytes); the history before was shortened by a stored block. Medians of {rounds} rounds,
in which one worker and two take turns. Clients and upstream use the same cores, so two workers compete with them.
"""


def report(found: dict[tuple[str, int], Measurement]) -> str:
    rows = []
    for size in SIZES:
        one, two = found[size, 1], found[size, 2]
        growth = median(b / a for a, b in zip(one.rates, two.rates, strict=True))
        cpu = median(one.cpu + two.cpu) * 1_000
        rows.append(
            (
                size,
                figure(median(one.rates), 0),
                figure(median(two.rates), 0),
                f"{growth:.2f}x",
                figure(cpu, 2),
                figure(cpu, 1),
                figure(one.rss, 0),
                figure(two.rss, 0),
            )
        )
    names = (
        "history", "1 worker, requests/s", "2 workers", "growth", "CPU ms a request",
        "cores for 1,000/s", "MB with 1", "MB with 2",
    )  # fmt: skip
    intro = INTRO.format(provenance=provenance(), clients=CLIENTS, rounds=ROUNDS, new_bytes=TURN_BYTES)
    growths = [(row[0], f"{LEAST_GROWTH:g}x", row[3]) for row in rows]
    promised = [(*row, "met" if float(row[2].rstrip("x")) >= LEAST_GROWTH else "MISSED") for row in growths]
    targets = table(("growth with a second worker", "at least", "found", ""), promised)
    return f"{intro}\n{table(names, rows)}\n\n{targets}\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--markdown", metavar="FILE", type=Path, help="write the table there too")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        text = report(asyncio.run(run(Path(place))))
    print(text)
    if args.markdown:
        args.markdown.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
