"""The contract of a store, for every kind of it: one more name in `KINDS`, and in `SHARED` where workers share it."""

import asyncio

import pytest
from kept import Clock, Kept

from proxy.store.memory import MemoryStore
from proxy.store.promises import SECRET_BYTES, Found
from proxy.store.sqlite import SqliteStore


def in_memory(_folder):
    clock = Clock()
    return Kept(lambda bounds: MemoryStore(bounds, clock), clock.forward)


def in_sqlite(folder):
    clock = Clock()
    return Kept(lambda bounds: SqliteStore(folder / "state.db", bounds, clock=clock), clock.forward)


KINDS = [in_memory, in_sqlite]
SHARED = [in_sqlite]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.__name__)
async def kept(request, tmp_path):
    kind = request.param(tmp_path)
    yield kind
    await kind.close()


@pytest.fixture(params=SHARED, ids=lambda kind: kind.__name__)
async def shared(request, tmp_path):
    kind = request.param(tmp_path)
    yield kind
    await kind.close()


async def longest(store, *keys):
    promise, _ = await store.longest(keys)
    return promise


# --- promises ---


async def test_a_promise_is_found_again(kept):
    store = kept.store()
    assert await store.put("team-a/h1", b"block") == b"block"
    assert await longest(store, "team-a/h1") == Found("team-a/h1", b"block")


async def test_where_nothing_was_promised_nothing_is_found(kept):
    store = kept.store()
    await store.put("team-a/h1", b"block")
    assert await longest(store, "team-a/h2", "team-b/h1") is None
    assert await longest(store) is None


async def test_the_newest_key_that_holds_a_promise_is_the_longest(kept):
    store = kept.store()
    for number in (1, 3, 7):
        await store.put(f"t/h{number}", b"block %d" % number)
    assert await longest(store, "t/h9", "t/h8", "t/h7", "t/h3", "t/h1") == Found("t/h7", b"block 7")
    assert await longest(store, "t/h5", "t/h3", "t/h2", "t/h1") == Found("t/h3", b"block 3")


async def test_a_long_history_is_looked_up_whole(kept):
    store = kept.store()
    await store.put("t/h3", b"old")
    assert await longest(store, *(f"t/h{number}" for number in range(6000, 0, -1))) == Found("t/h3", b"old")


async def test_the_first_writer_wins_and_the_second_is_told(kept):
    store = kept.store()
    assert await store.put("t/h1", b"first") == b"first"
    assert await store.put("t/h1", b"second") == b"first"
    assert await longest(store, "t/h1") == Found("t/h1", b"first")


async def test_of_many_writers_at_once_one_wins_and_all_agree(kept):
    store = kept.store()
    told = await asyncio.gather(*(store.put("t/h1", b"writer %d" % number) for number in range(32)))
    assert len(set(told)) == 1


async def test_a_promise_that_was_dropped_is_gone_and_may_be_made_anew(kept):
    store = kept.store()
    await store.put("t/h1", b"invalid")
    await store.drop("t/h1")
    await store.drop("t/never-was")
    assert await longest(store, "t/h1") is None
    assert await store.put("t/h1", b"better") == b"better"


async def test_an_empty_value_is_a_value(kept):
    store = kept.store()
    await store.put("t/h1", b"")
    assert await store.put("t/h1", b"second") == b""
    assert await longest(store, "t/h1") == Found("t/h1", b"")


async def test_any_bytes_and_any_key_come_back_as_they_were(kept):
    store, value = kept.store(), bytes(range(256)) * 10
    await store.put("tëam/quo'te\"\\/ü", value)
    assert await longest(store, "tëam/quo'te\"\\/ü") == Found("tëam/quo'te\"\\/ü", value)


async def test_tenants_never_meet(kept):
    store = kept.store()
    await store.put("team-a/h1", b"of a")
    assert await store.put("team-b/h1", b"of b") == b"of b"
    assert await longest(store, "team-a/h1") == Found("team-a/h1", b"of a")


# --- in the place of another ---


async def test_a_promise_takes_the_place_of_the_one_it_was_built_on(kept):
    store = kept.store()
    await store.put("t/h1", b"first")
    assert await store.put("t/h1", b"deeper", over=b"first") == b"deeper"
    assert await longest(store, "t/h1") == Found("t/h1", b"deeper")


async def test_a_promise_built_on_what_does_not_stand_any_more_comes_too_late(kept):
    store = kept.store()
    await store.put("t/h1", b"first")
    await store.put("t/h1", b"deeper", over=b"first")
    assert await store.put("t/h1", b"late", over=b"first") == b"deeper"
    assert await store.put("t/h1", b"stranger", over=b"never was") == b"deeper"
    assert await longest(store, "t/h1") == Found("t/h1", b"deeper")


async def test_a_promise_built_on_what_is_gone_is_made_all_the_same(kept):
    store = kept.store()
    for key in ("t/dropped", "t/old"):
        await store.put(key, b"first")
    await store.drop("t/dropped")
    kept.forward(1001)
    for key in ("t/dropped", "t/old", "t/never-was"):
        assert await store.put(key, b"deeper", over=b"first") == b"deeper"
        assert await longest(store, key) == Found(key, b"deeper")


async def test_what_took_a_place_is_as_young_as_if_it_had_been_made_anew(kept):
    store = kept.store()
    await store.put("t/h1", b"first")
    kept.forward(900)
    await store.put("t/h1", b"deeper", over=b"first")
    kept.forward(900)
    assert await longest(store, "t/h1") == Found("t/h1", b"deeper")


async def test_of_many_who_built_on_the_same_promise_one_wins_and_all_agree(kept):
    store = kept.store()
    await store.put("t/h1", b"first")
    told = await asyncio.gather(*(store.put("t/h1", b"deeper %d" % n, over=b"first") for n in range(32)))
    assert set(told) == {(await longest(store, "t/h1")).value} != {b"first"}


async def test_no_other_promise_gives_way(kept):
    store = kept.store()
    for key in ("t/h1", "t/h2", "u/h1"):
        await store.put(key, b"same")
    await store.put("t/h1", b"deeper", over=b"same")
    assert [(await longest(store, key)).value for key in ("t/h2", "u/h1")] == [b"same", b"same"]


# --- age and size ---


async def test_a_promise_nobody_used_for_its_lifetime_is_forgotten(kept):
    store = kept.store()
    await store.put("t/h1", b"block")
    kept.forward(999)
    await store.put("t/h2", b"block")
    kept.forward(2)
    assert await longest(store, "t/h1") is None
    assert await longest(store, "t/h2") is not None


async def test_the_age_of_a_promise_counts_from_its_last_use(kept):
    store = kept.store()
    await store.put("t/h1", b"block")
    for _ in range(5):
        kept.forward(600)
        assert await longest(store, "t/h1") == Found("t/h1", b"block")


async def test_after_its_lifetime_a_promise_may_be_made_anew(kept):
    store = kept.store()
    await store.put("t/h1", b"old")
    kept.forward(1001)
    assert await store.put("t/h1", b"new") == b"new"
    assert await longest(store, "t/h1") == Found("t/h1", b"new")


async def test_beyond_its_bytes_a_store_forgets_what_was_used_longest_ago(kept):
    store = kept.store()
    await store.put("t/dear", bytes(1000))
    for number in range(300):
        kept.forward(0.5)
        await store.put(f"t/{number}", bytes(1000))
        if number % 50 == 0:
            kept.forward(60)
            assert await longest(store, "t/dear") is not None
    held = [number for number in range(300) if await longest(store, f"t/{number}")]
    assert held == list(range(held[0], 300))
    assert 80 <= len(held) <= 105


async def test_one_promise_larger_than_the_store_does_no_harm(kept):
    store = kept.store()
    await store.put("t/huge", bytes(200_000))
    await store.put("t/h1", b"block")
    assert await longest(store, "t/h1") == Found("t/h1", b"block")


# --- facts ---


async def test_a_fact_may_be_written_again(kept):
    store = kept.store()
    await store.note("t/window", b"128000", seconds=60)
    await store.note("t/window", b"131072", seconds=60)
    assert await store.fact("t/window") == b"131072"
    assert await store.fact("t/other") is None


async def test_a_fact_ends_with_its_time(kept):
    store = kept.store()
    await store.note("t/window", b"128000", seconds=60)
    kept.forward(59)
    assert await store.fact("t/window") == b"128000"
    kept.forward(2)
    assert await store.fact("t/window") is None


async def test_promise_and_fact_come_from_one_look_up(kept):
    store = kept.store()
    await store.put("t/h2", b"block")
    await store.note("t/usage/h3", b"older", seconds=60)
    await store.note("t/usage/h4", b"newer", seconds=60)
    found = await store.longest(["t/h4", "t/h3", "t/h2"], ["t/usage/h5", "t/usage/h4", "t/usage/h3"])
    assert found == (Found("t/h2", b"block"), Found("t/usage/h4", b"newer"))


async def test_facts_and_promises_of_one_name_are_two_things(kept):
    store = kept.store()
    await store.note("t/h1", b"fact", seconds=60)
    assert await longest(store, "t/h1") is None
    await store.put("t/h1", b"promise")
    assert await store.fact("t/h1") == b"fact"


async def test_facts_are_bounded_by_bytes_without_touching_promises(kept):
    store = kept.store()
    await store.put("t/h1", b"block")
    for number in range(300):
        kept.forward(0.1)
        await store.note(f"t/{number}", bytes(500), seconds=600)
    held = [number for number in range(300) if await store.fact(f"t/{number}")]
    assert held[-1] == 299
    assert 30 <= len(held) <= 45
    assert await longest(store, "t/h1") is not None


async def test_of_several_who_claim_one_is_told_that_it_may(kept):
    store = kept.store()
    told = await asyncio.gather(*(store.claim("t/errand", b"worker %d" % n, seconds=60) for n in range(8)))
    assert sorted(told) == [False] * 7 + [True]
    assert await store.fact("t/errand") == b"worker %d" % told.index(True)


async def test_a_claim_ends_with_its_time_and_only_then(kept):
    store = kept.store()
    assert await store.claim("t/errand", b"one", seconds=60)
    kept.forward(59)
    assert not await store.claim("t/errand", b"two", seconds=60)
    kept.forward(2)
    assert await store.claim("t/errand", b"two", seconds=60)
    assert await store.fact("t/errand") == b"two"


async def test_nothing_that_stands_as_a_fact_can_be_claimed(kept):
    store = kept.store()
    await store.note("t/window", b"128000", seconds=60)
    assert not await store.claim("t/window", b"mine", seconds=60)
    assert await store.fact("t/window") == b"128000"


# --- the secret ---


async def test_the_secret_is_made_once(kept):
    store = kept.store()
    secret = await store.secret()
    assert len(secret) == SECRET_BYTES
    kept.forward(1_000_000)
    assert await store.secret() == secret


@pytest.mark.parametrize("kind", KINDS)
async def test_two_states_have_two_secrets(kind, tmp_path):
    one, two = kind(tmp_path / "one"), kind(tmp_path / "two")
    assert await one.store().secret() != await two.store().secret()
    await one.close()
    await two.close()


# --- workers and restarts ---


async def test_workers_see_each_others_promises_facts_and_secret(shared):
    one, two = shared.store(), shared.store()
    assert await one.secret() == await two.secret()
    await one.put("t/h1", b"block")
    await one.note("t/window", b"128000", seconds=60)
    assert await two.longest(["t/h1"], ["t/window"]) == (Found("t/h1", b"block"), Found("t/window", b"128000"))
    assert await two.put("t/h1", b"late") == b"block"


async def test_of_many_workers_at_once_one_wins_and_all_agree(shared):
    stores = [shared.store() for _ in range(4)]
    told = await asyncio.gather(*(store.put("t/h1", b"worker %d" % n) for n, store in enumerate(stores * 8)))
    assert len(set(told)) == 1


async def test_of_many_workers_who_built_on_the_same_promise_one_wins_and_all_agree(shared):
    stores = [shared.store() for _ in range(4)]
    await stores[0].put("t/h1", b"first")
    puts = (store.put("t/h1", b"worker %d" % n, over=b"first") for n, store in enumerate(stores * 4))
    told = set(await asyncio.gather(*puts))
    assert len(told) == 1
    assert told != {b"first"}


async def test_of_many_workers_who_claim_one_is_told_that_it_may(shared):
    stores = [shared.store() for _ in range(4)]
    told = await asyncio.gather(*(store.claim("t/errand", b"mine", seconds=60) for store in stores * 2))
    assert sorted(told) == [False] * 7 + [True]


async def test_everything_survives_a_restart(shared):
    before = shared.store()
    secret = await before.secret()
    await before.put("t/h1", b"block")
    await before.note("t/window", b"128000", seconds=60)
    await shared.close()
    shared.opened.clear()
    after = shared.store()
    assert await after.secret() == secret
    assert await after.longest(["t/h1"], ["t/window"]) == (Found("t/h1", b"block"), Found("t/window", b"128000"))
