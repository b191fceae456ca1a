"""The contract of every kind of store (support/stores.py): facts, claims, documents, the secret, and many workers."""

import asyncio

import pytest

from proxy.store.contract import SECRET_BYTES, Found
from tests.support.stores import KINDS, find_block


async def test_a_fact_may_be_written_again_and_ends_with_its_time(store_kind, store):
    for value in (b"128000", b"131072"):
        await store.write_fact("t/window", value, seconds=60)
        store_kind.forward(59)
        assert await store.read_fact("t/window") == value
    store_kind.forward(2)
    assert await store.read_fact("t/window") is None
    assert await store.read_fact("t/other") is None


async def test_block_and_fact_come_from_one_look_up(store):
    await store.put_block("t/h2", b"block")
    await store.write_fact("t/usage/h3", b"older", seconds=60)
    await store.write_fact("t/usage/h4", b"newer", seconds=60)
    found = await store.find_first(["t/h4", "t/h3", "t/h2"], ["t/usage/h5", "t/usage/h4", "t/usage/h3"])
    assert found == (Found("t/h2", b"block"), Found("t/usage/h4", b"newer"))


@pytest.mark.seconds
async def test_facts_are_bounded_by_bytes_without_touching_blocks(bounded_kind):
    store = bounded_kind.store()
    await store.put_block("t/h1", b"block")
    for number in range(300):
        bounded_kind.forward(0.1)
        await store.write_fact(f"t/{number}", bytes(500), seconds=600)
    held = [number for number in range(300) if await store.read_fact(f"t/{number}")]
    assert held[-1] == 299
    assert 20 <= len(held) <= 45
    assert await find_block(store, "t/h1") is not None


async def test_a_claim_ends_with_its_time_and_only_then(store_kind, store):
    assert await store.claim_fact("t/errand", b"one", seconds=60)
    store_kind.forward(59)
    assert not await store.claim_fact("t/errand", b"two", seconds=60)
    store_kind.forward(2)
    assert await store.claim_fact("t/errand", b"two", seconds=60)
    assert await store.read_fact("t/errand") == b"two"


async def test_an_existing_fact_cannot_be_claimed(store):
    await store.write_fact("t/window", b"128000", seconds=60)
    assert not await store.claim_fact("t/window", b"mine", seconds=60)
    assert await store.read_fact("t/window") == b"128000"


async def test_the_owner_of_a_claim_may_store_the_result(store_kind, store):
    await store.claim_fact("t/errand", b"mine", seconds=60)
    await store.write_fact("t/errand", b"done", seconds=600, over=b"mine")
    assert await store.read_fact("t/errand") == b"done"
    store_kind.forward(599)
    assert await store.read_fact("t/errand") == b"done"


async def test_an_expired_claim_may_be_completed_only_without_another_owner(store_kind, store):
    for key in ("t/free", "t/taken", "t/done"):
        await store.claim_fact(key, b"mine", seconds=60)
    store_kind.forward(61)
    await store.claim_fact("t/taken", b"newer", seconds=60)
    await store.write_fact("t/done", b"newer result", seconds=60)
    for key in ("t/free", "t/taken", "t/done"):
        await store.write_fact(key, b"late", seconds=60, over=b"mine")
    found = [await store.read_fact(key) for key in ("t/free", "t/taken", "t/done")]
    assert found == [b"late", b"newer", b"newer result"]


async def test_a_claim_can_be_released_by_its_owner_only(store):
    await store.claim_fact("t/errand", b"mine", seconds=60)
    await store.write_fact("t/errand", b"", seconds=0, over=b"another's")
    assert not await store.claim_fact("t/errand", b"yours", seconds=60)
    await store.write_fact("t/errand", b"", seconds=0, over=b"mine")
    assert await store.claim_fact("t/errand", b"yours", seconds=60)


async def test_a_document_can_be_changed_only_with_its_current_value(store):
    assert await store.read_document("keys") is None
    assert await store.replace_document("keys", b"lost", b"one")
    assert not await store.replace_document("keys", None, b"another")
    assert not await store.replace_document("keys", b"never was", b"another")
    assert await store.read_document("keys") == b"one"
    assert await store.replace_document("keys", b"one", b"two")
    assert await store.read_document("keys") == b"two"


async def test_an_empty_document_is_not_none(store):
    assert await store.replace_document("keys", None, b"")
    assert await store.read_document("keys") == b""
    assert not await store.replace_document("keys", None, b"one")
    assert await store.replace_document("keys", b"", b"one")


async def test_of_many_writers_of_a_document_at_once_one_succeeds(store):
    await store.replace_document("keys", None, b"old")
    results = await asyncio.gather(*(store.replace_document("keys", b"old", b"new %d" % n) for n in range(16)))
    assert sorted(results) == [False] * 15 + [True]
    assert await store.read_document("keys") == b"new %d" % results.index(True)


async def test_a_document_is_never_swept_and_never_grows_old(store_kind):
    store = store_kind.store(block_bytes=2_000, fact_bytes=2_000)
    await store.replace_document("keys", None, bytes(10_000))
    for number in range(50):
        await store.put_block(f"t/{number}", bytes(500))
        await store.write_fact(f"t/{number}", bytes(500), seconds=60)
    store_kind.forward(100_000_000)
    await store.put_block("t/new", bytes(1_000))
    assert await store.read_document("keys") == bytes(10_000)


async def test_documents_blocks_and_facts_of_one_name_are_three_things(store):
    await store.replace_document("t/h1", None, b"document")
    assert await find_block(store, "t/h1") is None
    assert await store.read_fact("t/h1") is None
    await store.put_block("t/h1", b"block")
    await store.write_fact("t/h1", b"fact", seconds=60)
    assert await store.read_document("t/h1") == b"document"


@pytest.mark.parametrize("kind", KINDS)
async def test_each_state_has_a_secret_of_its_own_that_is_made_once(kind, place):
    one, two = kind(place()), kind(place())
    store = one.store()
    secret = await store.load_secret()
    assert len(secret) == SECRET_BYTES
    one.forward(1_000_000)
    assert await store.load_secret() == secret != await two.store().load_secret()
    await one.close()
    await two.close()


async def test_workers_see_each_others_blocks_facts_secret_and_documents(shared_kind):
    one, two = shared_kind.store(), shared_kind.store()
    assert await one.load_secret() == await two.load_secret()
    await one.put_block("t/h1", b"block")
    await one.write_fact("t/window", b"128000", seconds=60)
    assert await two.find_first(["t/h1"], ["t/window"]) == (Found("t/h1", b"block"), Found("t/window", b"128000"))
    assert await two.put_block("t/h1", b"late") == b"block"
    assert await one.replace_document("keys", None, b"one")
    assert await two.read_document("keys") == b"one"
    assert await two.replace_document("keys", b"one", b"two")
    assert not await one.replace_document("keys", b"one", b"three")


async def test_a_state_that_lost_its_secret_takes_the_one_that_is_held(shared_kind):
    one, two, fresh = shared_kind.store(), shared_kind.store(), shared_kind.store()
    secret = await one.load_secret()
    assert await two.load_secret(b"never asked for") == secret
    shared_kind.lose()
    assert await two.load_secret(secret) == secret
    assert await fresh.load_secret(b"another") == await fresh.load_secret() == secret


async def test_of_many_holders_of_different_secrets_all_adopt_one(shared_kind):
    stores = [shared_kind.store() for _ in range(4)]
    results = await asyncio.gather(*(store.load_secret(b"%d" % n * 32) for n, store in enumerate(stores)))
    assert len(set(results)) == 1


async def test_a_lost_state_is_started_again(shared_kind):
    store = shared_kind.store()
    await store.put_block("t/h1", b"block")
    await store.write_fact("t/window", b"128000", seconds=60)
    shared_kind.lose()
    assert await store.read_fact("t/window") is None
    assert await store.put_block("t/h1", b"block") == b"block"
    assert await find_block(shared_kind.store(), "t/h1") == Found("t/h1", b"block")


async def test_of_many_workers_at_once_one_wins_and_all_agree(shared_kind):
    stores = [shared_kind.store() for _ in range(4)]
    await stores[0].put_block("t/old", b"first")
    for key, over in (("t/new", None), ("t/old", b"first")):
        puts = (store.put_block(key, b"worker %d" % n, over=over) for n, store in enumerate(stores * 8))
        results = set(await asyncio.gather(*puts))
        assert len(results) == 1
        assert results != {b"first"}


async def test_of_many_workers_that_claim_a_fact_one_succeeds(shared_kind):
    stores = [shared_kind.store() for _ in range(4)]
    claims = (store.claim_fact("t/errand", b"worker %d" % n, seconds=60) for n, store in enumerate(stores * 2))
    results = await asyncio.gather(*claims)
    assert sorted(results) == [False] * 7 + [True]
    assert await stores[0].read_fact("t/errand") == b"worker %d" % results.index(True)


async def test_everything_survives_a_restart(shared_kind):
    before = shared_kind.store()
    secret = await before.load_secret()
    await before.put_block("t/h1", b"block")
    await before.write_fact("t/window", b"128000", seconds=60)
    await before.replace_document("keys", None, b"document")
    await shared_kind.close()
    shared_kind.opened.clear()
    after = shared_kind.store()
    assert await after.load_secret() == secret
    assert await after.read_document("keys") == b"document"
    assert await after.find_first(["t/h1"], ["t/window"]) == (Found("t/h1", b"block"), Found("t/window", b"128000"))


async def test_wanted_values_of_a_tenant_are_removed_and_no_other(store):
    for key in ("t/block/aa", "t/block/bb", "u/block/aa"):
        await store.put_block(key, b'{"of":"ann"}')
        await store.write_fact(key, b"fact", seconds=600)
    await store.replace_document("keys", None, b"document")
    await store.remove({"t"}, lambda key, value: key.endswith("aa") and b"ann" in value)
    assert await find_block(store, "t/block/aa") is None
    assert [(await find_block(store, key)).key for key in ("t/block/bb", "u/block/aa")] == ["t/block/bb", "u/block/aa"]
    assert await store.read_fact("t/block/aa") == b"fact"
    assert await store.read_document("keys") == b"document"
