"""Values that no program should send or keep, through the running proxy: none of them fails a request open."""

import os
import sqlite3

import pytest

from tests.support.agent import reading
from tests.support.messages import body
from tests.support.proxy_client import ask, faults_of, until
from tests.support.scripted_upstream import Upstream, text_turn
from tests.support.summary_model import WINDOW

BLOCKS = "blocks_1"
LARGE = reading(40, size=4_000)


def settings(up, window=WINDOW, **policy):
    return {
        "upstreams": [{"name": "u", "base_url": up.url, "window": window}],
        "policies": {"default": policy},
        "log": {"format": "json"},
    }


async def turn(proxy, messages, headers=None, **more):
    found = await ask(proxy, body(messages, **more), headers={"authorization": "Bearer sk-a", **(headers or {})})
    assert found.status == 200
    return found.head.first("x-compaction")


@pytest.mark.seconds
@pytest.mark.parametrize(
    ("names", "left_bytes"),
    [
        (["promises.sqlite-shm", "chronicle.sqlite-shm"], 0),
        (["promises.sqlite"], 5_000),
        ([f"{name}.sqlite{end}" for name in ("promises", "chronicle") for end in ("", "-wal", "-shm")], 0),
    ],
)
async def test_files_of_the_store_that_are_truncated_while_it_serves_end_no_request(serve, names, left_bytes):
    """SQLite maps `-shm`: a process that reads what is no longer there is killed."""
    longer, longest = ([*LARGE, *reading(count, size=4_000)[1:]] for count in (41, 42))
    async with Upstream(text_turn("Go on.")) as up, serve(None, config=settings(up, 30_000)) as proxy:
        assert await turn(proxy, LARGE) == "created"
        await until(lambda: _values(proxy, BLOCKS))
        # Only between two uses: a worker cannot restore what is truncated while SQLite reads it. The activity log is
        # written in the background, some time after the answer.
        await until(lambda: _values(proxy, "requests", "request_id", "chronicle.sqlite"))
        for name in names:
            os.truncate(proxy.state / name, left_bytes)
        for history in (LARGE, longer, longest):
            assert await turn(proxy, history) in ("applied", "created")
        assert await turn(proxy, longest) == "applied"
        assert await faults_of(proxy) == []


def _values(proxy, table, column="value", file="promises.sqlite"):
    store = sqlite3.connect(proxy.state / file)
    try:
        return store.execute(f"select {column} from {table}").fetchall()
    except sqlite3.OperationalError:
        return []  # the table is not made yet
    finally:
        store.close()
