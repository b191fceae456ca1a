"""The contract of a store, for every kind of it (kept.py): blocks. Time is the suite's own and moves when told to."""

import asyncio

from proxy.store.contract import Found


async def find_block(store, *keys):
    block, _ = await store.find_first(keys)
    return block


# --- blocks ---


async def test_a_block_is_found_again(kept):
    store = kept.store()
    assert await store.put_block("team-a/h1", b"block") == b"block"
    assert await find_block(store, "team-a/h1") == Found("team-a/h1", b"block")


async def test_where_no_block_stands_nothing_is_found(kept):
    store = kept.store()
    await store.put_block("team-a/h1", b"block")
    assert await find_block(store, "team-a/h2", "team-b/h1") is None
    assert await find_block(store) is None


async def test_the_newest_key_that_holds_a_block_is_the_longest(kept):
    store = kept.store()
    for number in (1, 3, 7):
        await store.put_block(f"t/h{number}", b"block %d" % number)
    assert await find_block(store, "t/h9", "t/h8", "t/h7", "t/h3", "t/h1") == Found("t/h7", b"block 7")
    assert await find_block(store, "t/h5", "t/h3", "t/h2", "t/h1") == Found("t/h3", b"block 3")


async def test_a_long_history_is_looked_up_whole(kept):
    store = kept.store()
    await store.put_block("t/h3", b"old")
    assert await find_block(store, *(f"t/h{number}" for number in range(6000, 0, -1))) == Found("t/h3", b"old")


async def test_the_first_writer_wins_and_the_second_is_told(kept):
    store = kept.store()
    assert await store.put_block("t/h1", b"first") == b"first"
    assert await store.put_block("t/h1", b"second") == b"first"
    assert await find_block(store, "t/h1") == Found("t/h1", b"first")


async def test_of_many_writers_at_once_one_wins_and_all_agree(kept):
    store = kept.store()
    told = await asyncio.gather(*(store.put_block("t/h1", b"writer %d" % number) for number in range(32)))
    assert len(set(told)) == 1


async def test_an_empty_value_is_a_value(kept):
    store = kept.store()
    await store.put_block("t/h1", b"")
    assert await store.put_block("t/h1", b"second") == b""
    assert await find_block(store, "t/h1") == Found("t/h1", b"")


async def test_any_bytes_and_any_key_come_back_as_they_were(kept):
    store, value = kept.store(), bytes(range(256)) * 10
    await store.put_block("tëam/quo'te\"\\/ü", value)
    assert await find_block(store, "tëam/quo'te\"\\/ü") == Found("tëam/quo'te\"\\/ü", value)


async def test_tenants_never_meet(kept):
    store = kept.store()
    await store.put_block("team-a/h1", b"of a")
    assert await store.put_block("team-b/h1", b"of b") == b"of b"
    assert await find_block(store, "team-a/h1") == Found("team-a/h1", b"of a")


# --- in the place of another ---


async def test_a_block_takes_the_place_of_the_one_it_was_built_on(kept):
    store = kept.store()
    await store.put_block("t/h1", b"first")
    assert await store.put_block("t/h1", b"deeper", over=b"first") == b"deeper"
    assert await find_block(store, "t/h1") == Found("t/h1", b"deeper")


async def test_a_block_built_on_what_does_not_stand_any_more_comes_too_late(kept):
    store = kept.store()
    await store.put_block("t/h1", b"first")
    await store.put_block("t/h1", b"deeper", over=b"first")
    assert await store.put_block("t/h1", b"late", over=b"first") == b"deeper"
    assert await store.put_block("t/h1", b"stranger", over=b"never was") == b"deeper"
    assert await find_block(store, "t/h1") == Found("t/h1", b"deeper")


async def test_a_block_built_on_what_is_gone_is_made_all_the_same(kept):
    store = kept.store()
    await store.put_block("t/old", b"first")
    kept.forward(1001)
    for key in ("t/old", "t/never-was"):
        assert await store.put_block(key, b"deeper", over=b"first") == b"deeper"
        assert await find_block(store, key) == Found(key, b"deeper")


async def test_what_took_a_place_is_as_young_as_if_it_had_been_made_anew(kept):
    store = kept.store()
    await store.put_block("t/h1", b"first")
    kept.forward(900)
    await store.put_block("t/h1", b"deeper", over=b"first")
    kept.forward(900)
    assert await find_block(store, "t/h1") == Found("t/h1", b"deeper")


async def test_of_many_who_built_on_the_same_block_one_wins_and_all_agree(kept):
    store = kept.store()
    await store.put_block("t/h1", b"first")
    told = await asyncio.gather(*(store.put_block("t/h1", b"deeper %d" % n, over=b"first") for n in range(32)))
    assert set(told) == {(await find_block(store, "t/h1")).value} != {b"first"}


async def test_no_other_block_gives_way(kept):
    store = kept.store()
    for key in ("t/h1", "t/h2", "u/h1"):
        await store.put_block(key, b"same")
    await store.put_block("t/h1", b"deeper", over=b"same")
    assert [(await find_block(store, key)).value for key in ("t/h2", "u/h1")] == [b"same", b"same"]


# --- age and size ---


async def test_a_block_nobody_used_for_its_lifetime_is_forgotten(kept):
    store = kept.store()
    await store.put_block("t/h1", b"block")
    kept.forward(999)
    await store.put_block("t/h2", b"block")
    kept.forward(2)
    assert await find_block(store, "t/h1") is None
    assert await find_block(store, "t/h2") is not None


async def test_the_age_of_a_block_counts_from_its_last_use(kept):
    store = kept.store()
    await store.put_block("t/h1", b"block")
    for _ in range(5):
        kept.forward(600)
        assert await find_block(store, "t/h1") == Found("t/h1", b"block")


async def test_after_its_lifetime_a_block_may_be_made_anew(kept):
    store = kept.store()
    await store.put_block("t/h1", b"old")
    kept.forward(1001)
    assert await store.put_block("t/h1", b"new") == b"new"
    assert await find_block(store, "t/h1") == Found("t/h1", b"new")


async def test_beyond_its_bytes_a_store_forgets_what_was_used_longest_ago(bounded):
    store = bounded.store()
    await store.put_block("t/dear", bytes(1000))
    for number in range(300):
        bounded.forward(0.5)
        await store.put_block(f"t/{number}", bytes(1000))
        if number % 50 == 0:
            bounded.forward(60)
            assert await find_block(store, "t/dear") is not None
    held = [number for number in range(300) if await find_block(store, f"t/{number}")]
    assert held == list(range(held[0], 300))
    assert 80 <= len(held) <= 105


async def test_one_block_larger_than_the_store_does_no_harm(bounded):
    store = bounded.store()
    await store.put_block("t/huge", bytes(200_000))
    await store.put_block("t/h1", b"block")
    assert await find_block(store, "t/h1") == Found("t/h1", b"block")
