"""The contract of a store, for every kind of it (kept.py): facts, claims, documents, the secret, and many workers."""

import asyncio

import pytest

from proxy.store.contract import SECRET_BYTES, Found
from tests.support.stores import APART


async def find_block(store, *keys):
    block, _ = await store.find_first(keys)
    return block


# --- facts ---


async def test_a_fact_may_be_written_again(kept):
    store = kept.store()
    await store.write_fact("t/window", b"128000", seconds=60)
    await store.write_fact("t/window", b"131072", seconds=60)
    assert await store.read_fact("t/window") == b"131072"
    assert await store.read_fact("t/other") is None


async def test_a_fact_ends_with_its_time(kept):
    store = kept.store()
    await store.write_fact("t/window", b"128000", seconds=60)
    kept.forward(59)
    assert await store.read_fact("t/window") == b"128000"
    kept.forward(2)
    assert await store.read_fact("t/window") is None


async def test_block_and_fact_come_from_one_look_up(kept):
    store = kept.store()
    await store.put_block("t/h2", b"block")
    await store.write_fact("t/usage/h3", b"older", seconds=60)
    await store.write_fact("t/usage/h4", b"newer", seconds=60)
    found = await store.find_first(["t/h4", "t/h3", "t/h2"], ["t/usage/h5", "t/usage/h4", "t/usage/h3"])
    assert found == (Found("t/h2", b"block"), Found("t/usage/h4", b"newer"))


async def test_facts_and_blocks_of_one_name_are_two_things(kept):
    store = kept.store()
    await store.write_fact("t/h1", b"fact", seconds=60)
    assert await find_block(store, "t/h1") is None
    await store.put_block("t/h1", b"block")
    assert await store.read_fact("t/h1") == b"fact"


async def test_facts_are_bounded_by_bytes_without_touching_blocks(bounded):
    store = bounded.store()
    await store.put_block("t/h1", b"block")
    for number in range(300):
        bounded.forward(0.1)
        await store.write_fact(f"t/{number}", bytes(500), seconds=600)
    held = [number for number in range(300) if await store.read_fact(f"t/{number}")]
    assert held[-1] == 299
    assert 25 <= len(held) <= 45
    assert await find_block(store, "t/h1") is not None


async def test_of_several_who_claim_one_is_told_that_it_may(kept):
    store = kept.store()
    told = await asyncio.gather(*(store.claim_fact("t/errand", b"worker %d" % n, seconds=60) for n in range(8)))
    assert sorted(told) == [False] * 7 + [True]
    assert await store.read_fact("t/errand") == b"worker %d" % told.index(True)


async def test_a_claim_ends_with_its_time_and_only_then(kept):
    store = kept.store()
    assert await store.claim_fact("t/errand", b"one", seconds=60)
    kept.forward(59)
    assert not await store.claim_fact("t/errand", b"two", seconds=60)
    kept.forward(2)
    assert await store.claim_fact("t/errand", b"two", seconds=60)
    assert await store.read_fact("t/errand") == b"two"


async def test_nothing_that_stands_as_a_fact_can_be_claimed(kept):
    store = kept.store()
    await store.write_fact("t/window", b"128000", seconds=60)
    assert not await store.claim_fact("t/window", b"mine", seconds=60)
    assert await store.read_fact("t/window") == b"128000"


async def test_who_made_a_claim_may_write_down_what_came_of_it(kept):
    store = kept.store()
    await store.claim_fact("t/errand", b"mine", seconds=60)
    await store.write_fact("t/errand", b"done", seconds=600, over=b"mine")
    assert await store.read_fact("t/errand") == b"done"
    kept.forward(599)
    assert await store.read_fact("t/errand") == b"done"


async def test_whose_claim_has_run_out_may_do_so_only_where_nobody_else_is_at_it(kept):
    store = kept.store()
    for key in ("t/free", "t/taken", "t/done"):
        await store.claim_fact(key, b"mine", seconds=60)
    kept.forward(61)
    await store.claim_fact("t/taken", b"newer", seconds=60)
    await store.write_fact("t/done", b"newer result", seconds=60)
    for key in ("t/free", "t/taken", "t/done"):
        await store.write_fact(key, b"late", seconds=60, over=b"mine")
    told = [await store.read_fact(key) for key in ("t/free", "t/taken", "t/done")]
    assert told == [b"late", b"newer", b"newer result"]


async def test_a_claim_is_given_back_by_its_maker_and_by_nobody_else(kept):
    store = kept.store()
    await store.claim_fact("t/errand", b"mine", seconds=60)
    await store.write_fact("t/errand", b"", seconds=0, over=b"another's")
    assert not await store.claim_fact("t/errand", b"yours", seconds=60)
    await store.write_fact("t/errand", b"", seconds=0, over=b"mine")
    assert await store.claim_fact("t/errand", b"yours", seconds=60)


# --- documents ---


async def test_a_document_is_changed_by_who_knows_what_it_was(kept):
    store = kept.store()
    assert await store.read_document("keys") is None
    assert not await store.replace_document("keys", b"never was", b"one")
    assert await store.replace_document("keys", None, b"one")
    assert not await store.replace_document("keys", None, b"another")
    assert not await store.replace_document("keys", b"never was", b"another")
    assert await store.read_document("keys") == b"one"
    assert await store.replace_document("keys", b"one", b"two")
    assert await store.read_document("keys") == b"two"


async def test_an_empty_document_is_not_none(kept):
    store = kept.store()
    assert await store.replace_document("keys", None, b"")
    assert await store.read_document("keys") == b""
    assert not await store.replace_document("keys", None, b"one")
    assert await store.replace_document("keys", b"", b"one")


async def test_of_many_who_change_a_document_at_once_one_is_told_that_it_did(kept):
    store = kept.store()
    await store.replace_document("keys", None, b"old")
    told = await asyncio.gather(*(store.replace_document("keys", b"old", b"new %d" % n) for n in range(16)))
    assert sorted(told) == [False] * 15 + [True]
    assert await store.read_document("keys") == b"new %d" % told.index(True)


async def test_a_document_is_never_swept_and_never_grows_old(kept):
    store = kept.store(block_bytes=2_000, fact_bytes=2_000)
    await store.replace_document("keys", None, bytes(10_000))
    for number in range(50):
        await store.put_block(f"t/{number}", bytes(500))
        await store.write_fact(f"t/{number}", bytes(500), seconds=60)
    kept.forward(100_000_000)
    await store.put_block("t/new", bytes(1_000))
    assert await store.read_document("keys") == bytes(10_000)


async def test_documents_blocks_and_facts_of_one_name_are_three_things(kept):
    store = kept.store()
    await store.replace_document("t/h1", None, b"document")
    assert await find_block(store, "t/h1") is None
    assert await store.read_fact("t/h1") is None
    await store.put_block("t/h1", b"block")
    await store.write_fact("t/h1", b"fact", seconds=60)
    assert await store.read_document("t/h1") == b"document"


# --- the secret ---


async def test_the_secret_is_made_once(kept):
    store = kept.store()
    secret = await store.load_secret()
    assert len(secret) == SECRET_BYTES
    kept.forward(1_000_000)
    assert await store.load_secret() == secret


@pytest.mark.parametrize("kind", APART)
async def test_two_states_have_two_secrets(kind, place):
    one, two = kind(place()), kind(place())
    assert await one.store().load_secret() != await two.store().load_secret()
    await one.close()
    await two.close()


# --- workers and restarts ---


async def test_workers_see_each_others_blocks_facts_and_secret(shared):
    one, two = shared.store(), shared.store()
    assert await one.load_secret() == await two.load_secret()
    await one.put_block("t/h1", b"block")
    await one.write_fact("t/window", b"128000", seconds=60)
    assert await two.find_first(["t/h1"], ["t/window"]) == (Found("t/h1", b"block"), Found("t/window", b"128000"))
    assert await two.put_block("t/h1", b"late") == b"block"


async def test_workers_see_each_others_documents(shared):
    one, two = shared.store(), shared.store()
    assert await one.replace_document("keys", None, b"one")
    assert await two.read_document("keys") == b"one"
    assert await two.replace_document("keys", b"one", b"two")
    assert not await one.replace_document("keys", b"one", b"three")


async def test_a_state_that_lost_its_secret_takes_the_one_that_is_held(shared):
    one, two, fresh = shared.store(), shared.store(), shared.store()
    secret = await one.load_secret()
    assert await two.load_secret(held=b"never asked for") == secret
    shared.lose()
    assert await two.load_secret(held=secret) == secret
    assert await fresh.load_secret(held=b"another") == await fresh.load_secret() == secret


async def test_of_many_who_hold_different_secrets_all_adopt_one(shared):
    stores = [shared.store() for _ in range(4)]
    told = await asyncio.gather(*(store.load_secret(held=b"%d" % n * 32) for n, store in enumerate(stores)))
    assert len(set(told)) == 1


async def test_a_state_that_was_lost_is_begun_anew(shared):
    store = shared.store()
    await store.put_block("t/h1", b"block")
    await store.write_fact("t/window", b"128000", seconds=60)
    shared.lose()
    assert await store.read_fact("t/window") is None
    assert await store.put_block("t/h1", b"block") == b"block"
    assert await find_block(shared.store(), "t/h1") == Found("t/h1", b"block")


async def test_of_many_workers_at_once_one_wins_and_all_agree(shared):
    stores = [shared.store() for _ in range(4)]
    told = await asyncio.gather(*(store.put_block("t/h1", b"worker %d" % n) for n, store in enumerate(stores * 8)))
    assert len(set(told)) == 1


async def test_of_many_workers_who_built_on_the_same_block_one_wins_and_all_agree(shared):
    stores = [shared.store() for _ in range(4)]
    await stores[0].put_block("t/h1", b"first")
    puts = (store.put_block("t/h1", b"worker %d" % n, over=b"first") for n, store in enumerate(stores * 4))
    told = set(await asyncio.gather(*puts))
    assert len(told) == 1
    assert told != {b"first"}


async def test_of_many_workers_who_claim_one_is_told_that_it_may(shared):
    stores = [shared.store() for _ in range(4)]
    told = await asyncio.gather(*(store.claim_fact("t/errand", b"mine", seconds=60) for store in stores * 2))
    assert sorted(told) == [False] * 7 + [True]


async def test_everything_survives_a_restart(shared):
    before = shared.store()
    secret = await before.load_secret()
    await before.put_block("t/h1", b"block")
    await before.write_fact("t/window", b"128000", seconds=60)
    await before.replace_document("keys", None, b"document")
    await shared.close()
    shared.opened.clear()
    after = shared.store()
    assert await after.load_secret() == secret
    assert await after.read_document("keys") == b"document"
    assert await after.find_first(["t/h1"], ["t/window"]) == (Found("t/h1", b"block"), Found("t/window", b"128000"))
