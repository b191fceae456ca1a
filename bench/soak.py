"""Does the proxy leak? Many requests, with clients that leave at random and an upstream that fails, and a verdict.

    python bench/soak.py                                 # 100,000 requests
    python bench/soak.py --requests 5000                 # for CI
    python bench/soak.py --markdown soak.md         # as a page

It watches the real process from outside while it works, and once more when it has come to rest: memory, open files,
connections to the upstream, requests in flight. Exit code 1 where anything stayed behind.
"""

import argparse
import asyncio
import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from urllib.request import urlopen

from contestants import OURS, Contestant, start_contestant
from fake_upstream import FakeUpstream, Pace
from process import CLIENTS, Server
from soak_clients import PATIENCE, SOAK_CLIENTS, choose_client, send_request
from tables import provenance, table

AT_ONCE = 48
WARM_UP_REQUESTS = 10_000
"""What is remembered of requests is bounded by bytes. It fills first; what grows after that is judged."""
PACE = Pace(chunks=20, seconds=0.002)
# The database, and the files of conversations whose originals were kept last.
SETTLED = 8
REST_SECONDS = 45.0  # a kept connection goes at the latest after twice the 15 s that it may lie idle
_IN_FLIGHT = re.compile(r"^compaction_proxy_inflight (\S+)", re.MULTILINE)
_TROUBLE = re.compile(rb'"event":"(our-fault|failed-open|store-failed)".*?"(?:kind|why)":"([^"]*)"')


@dataclass(frozen=True, slots=True)
class Sample:
    """The state of the proxy at one moment."""

    seconds: float
    requests: int
    rss: float
    files: int
    upstream: int  # connections to it
    in_flight: int


@dataclass(slots=True)
class Run:
    """What happened so far."""

    asked: Counter[str] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)
    samples: list[Sample] = field(default_factory=list)
    rest: Sample | None = None
    seconds: float = 0.0
    trouble: Counter[str] = field(default_factory=Counter)
    exit_code: int = -1


@dataclass(frozen=True, slots=True)
class Check:
    what: str
    found: str
    passed: bool


async def run(requests: int, place: Path) -> Run:
    done = Run()
    async with FakeUpstream(PACE) as upstream, AsyncExitStack() as leaving:
        proxy = start_contestant(OURS, upstream.url, place)
        leaving.callback(proxy.stop)
        assert proxy.server is not None
        began = perf_counter()
        look = Look(proxy, proxy.server, upstream, done, began)
        done.samples.append(await look.now())
        watching = asyncio.create_task(look.again_and_again())
        turns = iter(range(WARM_UP_REQUESTS + requests))
        await asyncio.gather(*(_come_and_go(turns, proxy.origin, done) for _ in range(AT_ONCE)))
        done.seconds = perf_counter() - began
        watching.cancel()
        done.rest = await look.at_rest()
        done.exit_code = await asyncio.to_thread(proxy.server.stop)
        done.trouble = Counter(b": ".join(found).decode() for found in _TROUBLE.findall(proxy.server.log.read_bytes()))
    return done


async def _come_and_go(turns: Iterator[int], origin: str, done: Run) -> None:
    for _ in turns:
        client = choose_client()
        wrong = await send_request(client, origin)
        done.asked[client.name] += 1
        if wrong is not None:
            done.wrong[f"{client.name}: {wrong}"] += 1


@dataclass(frozen=True, slots=True)
class Look:
    """Looks at the proxy from outside."""

    proxy: Contestant
    server: Server
    upstream: FakeUpstream
    done: Run
    began: float

    async def again_and_again(self) -> None:
        while True:
            self.done.samples.append(await self.now())
            await asyncio.sleep(1)

    async def at_rest(self) -> Sample:
        """When nothing is left to do; or after the longest wait, when it does not come to rest."""
        last = perf_counter() + REST_SECONDS
        sample = await self.now()
        while (sample.in_flight or sample.upstream) and perf_counter() < last:
            await asyncio.sleep(0.5)
            sample = await self.now()
        return sample

    async def now(self) -> Sample:
        values = await asyncio.to_thread(_read, f"{self.proxy.origin}/metrics")
        found = _IN_FLIGHT.search(values)
        return Sample(
            perf_counter() - self.began,
            self.done.asked.total(),
            self.server.rss,
            self.server.files,
            len(self.upstream.open),
            int(float(found[1])) if found else -1,
        )


def _read(url: str) -> str:
    with urlopen(url, timeout=PATIENCE) as page:
        return str(page.read(), "utf-8")


def growth(samples: list[Sample]) -> tuple[float, float]:
    """The most memory in each half of the run after the warm-up, in MB. Free memory goes back every 15 s: it falls."""
    judged = [it.rss for it in samples if it.requests >= WARM_UP_REQUESTS]
    half = max(1, len(judged) // 2)
    return max(judged[:half]), max(judged[half:] or judged)


def verdict(done: Run) -> list[Check]:
    rest, first = done.rest, done.samples[0]
    assert rest is not None
    early, late = growth(done.samples)
    return [
        Check("clients that got anything but what they had to", _most_common(done.wrong), not done.wrong),
        Check(
            "most memory in MB (first and second half after the warm-up): flat",
            f"{early:.1f}, {late:.1f}",
            late <= early * 1.05 + 5,
        ),
        Check("requests left in flight", str(rest.in_flight), rest.in_flight == 0),
        Check("connections to the upstream left", str(rest.upstream), rest.upstream == 0),
        Check(
            "open files and sockets (before, at rest after)",
            f"{first.files}, {rest.files}",
            rest.files <= first.files + SETTLED,
        ),
        Check("faults of its own in the log", _most_common(done.trouble), not done.trouble),
        Check("exit code after SIGTERM", str(done.exit_code), done.exit_code == 0),
    ]


def _most_common(counted: Counter[str]) -> str:
    return "; ".join(f"{times} x {what}" for what, times in counted.most_common(5)) or "none"


INTRO = """\
# What stays behind after {requests:,} requests

{provenance}.

{requests:,} requests in {seconds:.0f} s by {at_once} clients at once through the real process, {leaving:.0%} of them by
clients that leave: while they ask, before the headers, in silence, mid-stream, half of them with a reset. What is
remembered of requests is bounded and fills first: memory is judged after {warm_up:,} requests.

`make soak ARGS="--markdown soak.md"` makes this page.
"""


def report(done: Run) -> str:
    requests = done.asked.total()
    leaving = sum(done.asked[client.name] for client in SOAK_CLIENTS if client.leaves) / requests
    parts = [
        INTRO.format(
            requests=requests,
            provenance=provenance(),
            seconds=done.seconds,
            warm_up=WARM_UP_REQUESTS,
            at_once=AT_ONCE,
            leaving=leaving,
        ),
        table(("", "found", ""), [(it.what, it.found, "passed" if it.passed else "FAILED") for it in verdict(done)]),
    ]
    return "\n".join(f"{part}\n" for part in parts).strip() + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--markdown", metavar="FILE", type=Path, help="write the result there too")
    args = parser.parse_args()
    os.sched_setaffinity(0, {CLIENTS})
    with tempfile.TemporaryDirectory() as place:
        done = asyncio.run(run(args.requests, Path(place)))
    text = report(done)
    print(text)
    if args.markdown:
        args.markdown.write_text(text)
    return 0 if all(check.passed for check in verdict(done)) else 1


if __name__ == "__main__":
    sys.exit(main())
