"""Whether state can be written: a worker asks its own store, a command the file of blocks."""

import sqlite3
from contextlib import closing

import pytest

from proxy import assembly
from proxy.assembly import can_write_state, find_write_fault
from proxy.config.settings import Config
from proxy.store.sqlite import FILE_NAME, SqliteStore
from tests.support.redis_server import needs_redis

WRITE_VERSION_OFFSET = 18
A_LATER_VERSION = b"\3"


@pytest.fixture
def path(tmp_path):
    return tmp_path / FILE_NAME


async def fill(path):
    """Make a file with a block in it, as a former worker has left it."""
    store = SqliteStore(path)
    await store.put_block("t/h1", b"block")
    await store.close()


@pytest.fixture
async def open_state(tmp_path):
    """The store of a worker, with these settings for its state."""
    opened = []

    def open_one(**state):
        opened.append(assembly.open_store(Config.model_validate({"state": {"dir": str(tmp_path), **state}}), print))
        return opened[-1]

    yield open_one
    for store in opened:
        await store.close()


async def test_every_store_can_be_written(store_kind, tmp_path):
    store = store_kind.store()
    assert await can_write_state(tmp_path, store)
    assert await store.read_document("none") is None


@pytest.mark.seconds
async def test_a_file_that_another_process_locks_cannot_be_written(open_state, path, tmp_path):
    await fill(path)
    worker, other_worker = open_state(), open_state()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("begin immediate")
        assert not await can_write_state(tmp_path, worker)
        assert not await can_write_state(tmp_path, other_worker)
        assert find_write_fault(tmp_path)
    assert find_write_fault(tmp_path) is None


async def test_a_read_only_file_cannot_be_written(open_state, path, tmp_path):
    """SQLite opens a file of a later version for reading only, as it does where permission is missing."""
    await fill(path)
    with path.open("r+b") as file:
        file.seek(WRITE_VERSION_OFFSET)
        file.write(A_LATER_VERSION)
    assert not await can_write_state(tmp_path, open_state())
    assert find_write_fault(tmp_path)


@pytest.mark.parametrize("content", [b"", b"not a database" * 1000])
async def test_a_file_that_will_be_made_again_can_be_written(open_state, path, tmp_path, content):
    path.write_bytes(content)
    assert find_write_fault(tmp_path) is None
    assert await can_write_state(tmp_path, open_state())


async def test_the_file_of_a_store_that_is_not_in_use_does_not_count(open_state, path, tmp_path):
    await fill(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("begin immediate")
        assert await can_write_state(tmp_path, open_state(store="memory"))


@needs_redis
async def test_a_server_that_is_away_cannot_be_written(open_state, server, tmp_path):
    store = open_state(url=server.url)
    assert await can_write_state(tmp_path, store)
    server.stop()
    assert not await can_write_state(tmp_path, store)
