"""What an SQLite store remembers of its answers changes none of them, also where another process writes to the file."""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.store import sqlite
from proxy.store.contract import RECORDED_USES_PER_LIFETIME, StoreLimits
from proxy.store.sqlite import FILE_NAME, SHORT_LIST, SqliteStore

# So many bytes that nothing is deleted here to make room, which makes all answers unknown.
LIMITS = StoreLimits(block_bytes=2**40, fact_bytes=2**40, block_seconds=1_000.0)
LINKS = 3 * SHORT_LIST
FACT_SECONDS = 500.0


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def list_keys(kind: str, length: int, tenant: str = "team-a") -> list[str]:
    """The keys of a history of so many messages, the newest first."""
    return [f"{tenant}/{kind}/{number}" for number in reversed(range(length))]


def open_store(folder: Path | str, clock: Clock) -> SqliteStore:
    return SqliteStore(Path(folder) / FILE_NAME, LIMITS, clock=clock)


async def look_up(store: SqliteStore, length: int):
    return await store.find_first(list_keys("block", length), list_keys("anchor", length), list_keys("summary", length))


ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("look"), st.integers(0, 1), st.integers(1, LINKS)),
        st.tuples(st.just("grow"), st.integers(0, 1), st.integers(1, 4)),
        st.tuples(st.just("block"), st.integers(0, 1), st.integers(0, LINKS)),
        st.tuples(st.just("anchor"), st.integers(0, 1), st.integers(0, LINKS)),
        st.tuples(st.just("summary"), st.integers(0, 1), st.integers(0, LINKS)),
        st.tuples(st.just("wait"), st.just(0), st.sampled_from([1, 40, 300, 700])),
        st.tuples(st.just("reopen"), st.just(0), st.just(0)),
    ),
    max_size=30,
)


@given(acts=ACTS)
def test_a_store_that_remembers_answers_like_one_that_was_just_opened(acts):
    async def compare(folder: str) -> None:
        clock, length = Clock(), SHORT_LIST + 1
        stores = [open_store(folder, clock), open_store(folder, clock)]
        for number, (act, which, size) in enumerate(acts):
            store = stores[which]
            match act:
                case "look" | "grow":
                    length = size if act == "look" else min(LINKS, length + size)
                    found = await look_up(store, length)
                    fresh = open_store(folder, clock)
                    assert found == await look_up(fresh, length)
                    await fresh.close()
                case "block":
                    key = f"team-a/block/{size}"
                    there, *_ = await store.find_first([key])
                    await store.put_block(key, b"%d" % number, over=there.value if there and number % 2 else None)
                case "anchor" | "summary":
                    await store.write_fact(f"team-a/{act}/{size}", b"%d" % number, FACT_SECONDS)
                case "wait":
                    clock.now += size
                case "reopen":
                    (Path(folder) / FILE_NAME).unlink(missing_ok=True)
        for store in stores:
            await store.close()

    with TemporaryDirectory() as folder:
        asyncio.run(compare(folder))


@pytest.fixture
def query_sizes(monkeypatch):
    """How many keys the file was asked for, query by query."""
    numbers: list[int] = []
    select = sqlite._select
    monkeypatch.setattr(sqlite, "_select", lambda *args: numbers.append(len(args[-1])) or select(*args))
    return numbers


async def test_of_a_history_that_goes_on_only_new_keys_are_asked_for(tmp_path, query_sizes):
    store = open_store(tmp_path, Clock())
    await store.put_block("team-a/block/0", b"of the first message")
    for length, count in ((LINKS, LINKS), (LINKS + 2, 2), (LINKS + 4, 2)):
        query_sizes.clear()
        found, *_ = await store.find_first(list_keys("block", length))
        assert found is not None
        assert found.value == b"of the first message"
        assert sum(query_sizes) == count
    await store.close()


async def test_the_use_of_a_block_is_recorded_though_its_answer_is_known(tmp_path):
    clock = Clock()
    store = open_store(tmp_path, clock)
    await store.put_block("team-a/block/0", b"a block")
    for _ in range(2 * RECORDED_USES_PER_LIFETIME):
        clock.now += LIMITS.block_seconds / RECORDED_USES_PER_LIFETIME
        found, *_ = await store.find_first(list_keys("block", LINKS))
        assert found is not None
    await store.close()


async def test_a_tenant_with_many_conversations_does_not_displace_the_answers_of_another(tmp_path, query_sizes):
    store = open_store(tmp_path, Clock())
    await store.put_block("team-a/block/0", b"a block")  # a first write looks for what is to be deleted
    await store.find_first(list_keys("block", LINKS))
    for number in range(30):
        await store.put_block(f"team-b/{number}/block/0", b"x" * 1_000_000)
        await store.find_first(list_keys(f"{number}/block", LINKS, "team-b"))
    query_sizes.clear()
    await store.find_first(list_keys("block", LINKS + 1))
    assert sum(query_sizes) == 1
    await store.close()
