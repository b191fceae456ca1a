"""The contract of every kind of store (support/stores.py): blocks. Time is the suite's own and moves when told to."""

import pytest

from proxy.history.identity import LinkKeys
from proxy.store.contract import Found, Keys, Kind
from tests.support.stores import find_block


async def test_the_newest_key_that_holds_a_block_is_the_longest(store):
    for number in (1, 3, 7):
        await store.put_block(f"t/h{number}", b"block %d" % number)
    assert await find_block(store, "t/h9", "t/h8", "t/h7", "t/h3", "t/h1") == Found("t/h7", b"block 7")
    assert await find_block(store, "t/h5", "t/h3", "t/h2", "t/h1") == Found("t/h3", b"block 3")


async def test_a_long_history_is_looked_up_whole(store):
    await store.put_block("t/h3", b"old")
    assert await find_block(store, *(f"t/h{number}" for number in range(6000, 0, -1))) == Found("t/h3", b"old")


async def test_keys_may_be_written_when_they_are_asked_for(store):
    links = [bytes([number]) for number in range(20)]
    for number in (3, 7):
        await store.put_block(f"t/block/{number:02x}", b"block %d" % number)
    (block,) = await store.find(Keys(Kind.BLOCK, LinkKeys("t/block/", links)))
    assert block == Found("t/block/07", b"block 7")


async def test_the_first_writer_wins_and_the_second_gets_its_value(store):
    assert await store.put_block("t/h1", b"first") == b"first"
    assert await store.put_block("t/h1", b"second") == b"first"
    assert await find_block(store, "t/h1") == Found("t/h1", b"first")


@pytest.mark.parametrize("value", [b"", bytes(range(256)) * 10], ids=["none", "all"])
async def test_any_bytes_and_any_key_come_back_as_they_were(store, value):
    key = "tëam/quo'te\"\\/ü"
    assert await store.put_block(key, value) == await store.put_block(key, b"second") == value
    assert await find_block(store, key) == Found(key, value)


async def test_tenants_never_meet_and_without_a_block_nothing_is_found(store):
    await store.put_block("team-a/h1", b"of a")
    assert await find_block(store, "team-a/h2", "team-b/h1") is None
    assert await find_block(store) is None
    assert await store.put_block("team-b/h1", b"of b") == b"of b"
    assert await find_block(store, "team-a/h1") == Found("team-a/h1", b"of a")


async def test_a_block_takes_the_place_of_the_one_it_was_built_on_and_of_no_other(store):
    await store.put_block("t/h1", b"first")
    assert await store.put_block("t/h1", b"deeper", over=b"first") == b"deeper"
    assert await find_block(store, "t/h1") == Found("t/h1", b"deeper")
    assert await store.put_block("t/h1", b"late", over=b"first") == b"deeper"
    assert await store.put_block("t/h1", b"stranger", over=b"never was") == b"deeper"
    assert await find_block(store, "t/h1") == Found("t/h1", b"deeper")


async def test_a_block_built_on_a_missing_block_is_stored(store_kind, store):
    await store.put_block("t/old", b"first")
    store_kind.forward(1001)
    for key in ("t/old", "t/never-was"):
        assert await store.put_block(key, b"deeper", over=b"first") == b"deeper"
        assert await find_block(store, key) == Found(key, b"deeper")


async def test_a_replacing_block_is_as_young_as_a_new_one(store_kind, store):
    await store.put_block("t/h1", b"first")
    store_kind.forward(900)
    await store.put_block("t/h1", b"deeper", over=b"first")
    store_kind.forward(900)
    assert await find_block(store, "t/h1") == Found("t/h1", b"deeper")


async def test_no_other_block_gives_way(store):
    for key in ("t/h1", "t/h2", "u/h1"):
        await store.put_block(key, b"same")
    await store.put_block("t/h1", b"deeper", over=b"same")
    assert [(await find_block(store, key)).value for key in ("t/h2", "u/h1")] == [b"same", b"same"]


async def test_the_age_of_a_block_counts_from_its_last_use(store_kind, store):
    await store.put_block("t/h1", b"block")
    for _ in range(5):
        store_kind.forward(600)
        assert await find_block(store, "t/h1") == Found("t/h1", b"block")


async def test_a_block_unused_for_its_lifetime_is_forgotten_and_may_be_made_again(store_kind, store):
    await store.put_block("t/h1", b"old")
    store_kind.forward(999)
    await store.put_block("t/h2", b"block")
    store_kind.forward(2)
    assert await find_block(store, "t/h1") is None
    assert await find_block(store, "t/h2") is not None
    assert await store.put_block("t/h1", b"new") == b"new"
    assert await find_block(store, "t/h1") == Found("t/h1", b"new")


async def test_beyond_its_bytes_a_store_forgets_what_was_used_longest_ago(bounded_kind):
    store = bounded_kind.store()
    await store.put_block("t/dear", bytes(1000))
    for number in range(300):
        bounded_kind.forward(0.5)
        await store.put_block(f"t/{number}", bytes(1000))
        if number % 50 == 0:
            bounded_kind.forward(60)
            assert await find_block(store, "t/dear") is not None
    held = [number for number in range(300) if await find_block(store, f"t/{number}")]
    assert held == list(range(held[0], 300))
    assert 75 <= len(held) <= 105


async def test_one_block_larger_than_the_store_does_no_harm(bounded_kind):
    store = bounded_kind.store()
    await store.put_block("t/huge", bytes(200_000))
    await store.put_block("t/h1", b"block")
    assert await find_block(store, "t/h1") == Found("t/h1", b"block")
