"""A month of usage of two replicas that share a Redis: its size on disk and in Redis, and how long its figures take.

    python bench/fleet_usage.py                                # 200 developers, 100,000 requests a day, some minutes
    python bench/fleet_usage.py --developers 20 --requests 10000

Each developer has a key and works ten hours of each day, with one of two models and at either replica.
"""

import argparse
import asyncio
import random
import tempfile
import time
from collections import Counter
from pathlib import Path
from time import perf_counter
from typing import Any, cast

from redis.asyncio import Redis
from redis.exceptions import RedisError
from shared_state import redis
from tables import figure, provenance, table

from proxy.admin import figures
from proxy.admin.routes import AdminContext, AdminRequest, Visitor
from proxy.store.activity_log import SWEEP_SECONDS, ActivityLog
from proxy.store.contract import SystemClock
from proxy.store.fleet import Fleet
from proxy.store.redis import RedisStore
from proxy.store.usage_sums import DAY_SECONDS, GRAIN_SECONDS, UsageDelta, UsageNames

DAYS, WORK_STEPS = 31, 120
MEBIBYTE = 1024 * 1024
TURN = {
    "turns": 1, "tokens_raw": 41_372, "tokens_unshortened": 40_918, "tokens_forwarded": 23_417,
    "tokens_would_be": 23_209, "tokens_read": 23_611, "tokens_cached": 21_004, "tokens_written": 417,
    "priced": 1, "paid": 0.0057312, "plain": 0.0081274,
}  # fmt: skip


class Replica:
    def __init__(self, place: Path, url: str) -> None:
        self.now = time.time()
        self.dice = random.Random(place.name)
        self.store = RedisStore(url, timeout=10.0)  # a machine that is busy with other work is no finding
        self.log = ActivityLog(place, clock=SystemClock(lambda: self.now, lambda: self.now))
        self.fleet = Fleet(self.log, self.store, place.name)

    def record(self, requests: Counter[UsageNames]) -> None:
        for groups, count in requests.items():
            size = self.dice.uniform(0.3, 2.0)  # equal figures would compress too well
            turn = {name: value * count * size for name, value in TURN.items()}
            turn |= {name: round(turn[name]) for name in turn if name not in ("paid", "plain")}
            self.log.record(UsageDelta(turn, groups), UsageDelta({"requests": count}, UsageNames(groups.team)))


def fill(replicas: list[Replica], developers: int, requests: int) -> None:
    """Record a month of usage, of which the last day ends now."""
    dice, now = random.Random(1), time.time()
    for day in range(DAYS):
        begin = now - (DAYS - day) * DAY_SECONDS + (DAY_SECONDS - WORK_STEPS * GRAIN_SECONDS)
        for step in range(WORK_STEPS):
            counts = [Counter[UsageNames]() for _ in replicas]
            for _ in range(requests // WORK_STEPS):
                number = dice.randrange(developers)
                model = "gpt-5.1" if dice.random() < 0.9 else "gpt-5-mini"
                groups = UsageNames(f"team-{number % 10}", "default", model, f"{number:010x}", "openai")
                dice.choice(counts)[groups] += 1
            for replica, count in zip(replicas, counts, strict=True):
                replica.now = begin + step * GRAIN_SECONDS
                replica.record(count)
            if step % 20 == 0:
                for replica in replicas:
                    replica.log.flush()
    for replica in replicas:
        replica.now = max(now, replica.now) + SWEEP_SECONDS + 1
        replica.log.record(UsageDelta({"requests": 0}))
        replica.log.flush()


async def until_up(client: Redis) -> None:
    for _ in range(100):
        try:
            await client.ping()
        except RedisError:
            await asyncio.sleep(0.1)
        else:
            return
    raise TimeoutError("the Redis does not start")


async def exchange(replicas: list[Replica]) -> int:
    """Let the replicas exchange until all have the same sums. Return how often each published and read."""
    for count in range(1, 20):
        for replica in replicas:
            await replica.fleet.publish()
            await replica.fleet.read_others()
        totals = {str(replica.log.query("select sum(turns) from usage_sums")) for replica in replicas}
        if len(totals) == 1:
            return count
    raise TimeoutError("the replicas do not come to the same sums")


def read_page(log: ActivityLog, show: Any, query: object) -> float:  # noqa: ANN401 (any route)
    """Return how long the route takes, in milliseconds."""
    context = cast("AdminContext", type("Context", (), {"activity_log": log})())
    began = perf_counter()
    show(context, AdminRequest(Visitor("bench", ""), {}, query, None))
    return (perf_counter() - began) * 1_000


async def measure(developers: int, requests: int) -> str:
    with tempfile.TemporaryDirectory() as folder, redis(Path(folder)) as port:
        url = f"redis://127.0.0.1:{port}/0"
        client = Redis.from_url(url)
        await until_up(client)
        before = (await client.info("memory"))["used_memory"]
        replicas = [Replica(Path(folder) / name, url) for name in ("one", "other")]
        fill(replicas, developers, requests)
        count = await exchange(replicas)
        began = perf_counter()
        await exchange(replicas)
        again = (perf_counter() - began) / len(replicas) * 1_000
        in_redis = (await client.info("memory"))["used_memory"] - before
        for replica in replicas:
            replica.log.close()
            await replica.store.close()
        await client.aclose()
        log = replicas[0].log
        (rows,) = log.query("select count(*) as many from usage_sums")
        megabytes = [
            ("on the disk of each replica", log.path.stat().st_size / MEBIBYTE),
            ("in Redis", in_redis / MEBIBYTE),
        ]
        pages = [
            ("usage of a day by key", figures.show_usage, figures.UsageQuery(by="key")),
            ("usage of 31 days by team", figures.show_usage, figures.UsageQuery(hours=744, by="team")),
            ("usage of 31 days by key", figures.show_usage, figures.UsageQuery(hours=744, by="key")),
            ("overview", figures.show_overview, figures.OverviewQuery()),
            ("months by team", figures.show_months, figures.MonthsQuery()),
        ]
        lines = [(name, f"{figure(size, 1)} MiB") for name, size in megabytes]
        lines += [("rows", figure(rows["many"], 0)), ("exchanges until all is read", str(count))]
        lines.append(("an exchange in which nothing is new", f"{figure(again, 0)} ms"))
        for name, show, query in pages:
            lines.append((name, f"{figure(min(read_page(log, show, query) for _ in range(5)), 0)} ms"))
    return table((f"{developers:,} developers, {requests:,} requests a day, {DAYS} days", ""), lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--developers", type=int, default=200)
    parser.add_argument("--requests", type=int, default=100_000, help="of a day, at both replicas together")
    args = parser.parse_args()
    print(provenance())
    print(asyncio.run(measure(args.developers, args.requests)))


if __name__ == "__main__":
    main()
