"""The kinds of stores there are, and what the suite asks of each: to open one, to let time pass, to lose everything.

A new kind is a name in `KINDS`, in `SHARED` where workers share it, and in `BOUNDED` where it counts bytes itself.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import pytest
from msgspec.structs import replace

from proxy.store.contract import Found, Store, StoreLimits, StoreUnavailable
from proxy.store.memory_store import FallbackStore, MemoryStore
from proxy.store.redis import RedisStore
from proxy.store.sqlite import SqliteStore
from tests.support.clocks import even_clock
from tests.support.proxy_client import PATIENCE_SECONDS
from tests.support.redis_server import RedisServer, needs_redis

T = TypeVar("T")
BOUNDS = StoreLimits(block_bytes=100_000, fact_bytes=20_000, block_seconds=1000.0)
PATIENT = 10.0  # a busy machine is no finding


@dataclass(slots=True)
class Clock:
    now: float = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now

    def forward(self, seconds: float) -> None:
        self.now += seconds


async def when_available(act: Callable[[], Awaitable[T]]) -> T:
    """What it answers, once the store is not out any more."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            try:
                return await act()
            except StoreUnavailable:
                await asyncio.sleep(0.02)


async def find_block(store: Store, *keys: str) -> Found | None:
    block, _ = await store.find_first(keys)
    return block


@dataclass(frozen=True, slots=True)
class StoreKind:
    """A kind of store: `open(bounds)` gives one worker's view of the state."""

    open: Callable[[StoreLimits], Store]
    forward: Callable[[float], None]
    lose: Callable[[], None] = lambda: None  # what is in its own process cannot be lost from outside
    opened: list[Store] = field(default_factory=list)

    def store(self, **bounds: float) -> Store:
        made = self.open(replace(BOUNDS, **bounds))
        self.opened.append(made)
        return made

    async def close(self) -> None:
        for store in self.opened:
            await store.close()


@dataclass(frozen=True, slots=True)
class Place:
    """Where a state may live: a folder of its own, and a database of its own where there is a server."""

    folder: Path
    url: str
    server: RedisServer | None

    def empty(self) -> None:
        self.server.run("FLUSHALL")


def in_memory(place):
    clock = Clock()
    return StoreKind(lambda bounds: MemoryStore(bounds, clock), clock.forward)


def in_sqlite(place):
    clock, path = Clock(), place.folder / "state.db"
    return StoreKind(
        lambda bounds: SqliteStore(path, bounds, clock=even_clock(clock), timeout=PATIENT), clock.forward, path.unlink
    )


def in_redis(place, *, is_remembered=False):
    clock = Clock()

    def open_store(bounds):
        store = RedisStore(place.url, bounds, clock=clock, timeout=PATIENT)
        return FallbackStore(store, bounds, clock) if is_remembered else store

    return StoreKind(open_store, clock.forward, place.empty)


def in_redis_and_in_mind(place):
    return in_redis(place, is_remembered=True)


REDIS = [pytest.param(kind, marks=needs_redis) for kind in (in_redis, in_redis_and_in_mind)]
BOUNDED = [in_memory, in_sqlite]
SHARED = [in_sqlite, *REDIS]
KINDS = [in_memory, *SHARED]
