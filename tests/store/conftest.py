"""Every kind of store, for each test that asks for one; and one real Redis for all of them."""

from collections.abc import Callable, Iterator
from itertools import count

import pytest

from proxy.store.redis import RedisStore
from tests.support.redis_server import PROGRAM, RedisServer, running
from tests.support.stores import BOUNDED, KINDS, SHARED, Place


@pytest.fixture(scope="session")
def redis(tmp_path_factory) -> Iterator[RedisServer | None]:
    """One server for all; each has a database of its own."""
    if PROGRAM is None:
        yield None
        return
    with running(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture(scope="session")
def databases():
    return count(1)


@pytest.fixture
def place(redis, databases, tmp_path) -> Callable[[], Place]:
    """A place for one state; each call gives another."""

    def new_place() -> Place:
        number = next(databases)
        (tmp_path / str(number)).mkdir()
        url = redis.database(number) if redis else ""
        return Place(tmp_path / str(number), url, redis)

    return new_place


def each_of(kinds):
    """A fixture: each of these kinds of store in turn."""

    @pytest.fixture(params=kinds, ids=lambda kind: kind.__name__)
    async def each_kind(request, place):
        kind = request.param(place())
        yield kind
        await kind.close()

    return each_kind


store_kind, bounded_kind, shared_kind = each_of(KINDS), each_of(BOUNDED), each_of(SHARED)


@pytest.fixture
async def store(store_kind):
    return store_kind.store()


@pytest.fixture
def server(tmp_path):
    """One of one's own, to be treated badly."""
    with running(tmp_path) as alone:
        yield alone


@pytest.fixture
async def open_store():
    stores = []

    def open_(url, **more):
        stores.append(RedisStore(url, **more))
        return stores[-1]

    yield open_
    for store in stores:
        await store.close()
