"""What a worker goes on with while the shared store is out, and what it gives back to one that has forgotten."""

import pytest

from proxy.store.contract import Found, StoreLimits, StoreUnavailable
from proxy.store.fallback import FallbackStore
from proxy.store.memory import MemoryStore
from tests.support.stores import Clock

METHODS = {
    "find_first", "put_block", "read_fact", "write_fact", "claim_fact", "load_secret", "read_document",
    "replace_document",
}  # fmt: skip


class Shared(MemoryStore):
    """A store that several workers share, and that can be out; it remembers how many keys it was asked for."""

    out = False

    def __init__(self, **more):
        super().__init__(**more)
        self.asked = []

    async def find_first(self, blocks, facts=(), *more):
        self.asked.append((len(blocks), len(facts)))
        return await super().find_first(blocks, facts, *more)

    def __getattribute__(self, name):
        if name in METHODS and self.out:
            raise StoreUnavailable("the store is out")
        return super().__getattribute__(name)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def shared(clock):
    return Shared(clock=clock)


@pytest.fixture
def worker(shared, clock):
    def made(store=shared, **limits):
        return FallbackStore(store, StoreLimits(**limits), clock)

    return made


async def find_block(store, *keys):
    block, _ = await store.find_first(keys)
    return block


async def test_what_a_worker_made_or_read_stands_while_the_store_is_out(shared, worker):
    one, two, stranger = worker(), worker(), worker()
    await one.put_block("t/h1", b"block")
    await find_block(two, "t/h1")
    shared.out = True
    assert await find_block(one, "t/h2", "t/h1") == await find_block(two, "t/h1") == Found("t/h1", b"block")
    assert await find_block(stranger, "t/h1") is None


async def test_who_came_too_late_remembers_what_stands(shared, worker):
    one, two = worker(), worker()
    await one.put_block("t/h1", b"block")
    assert await two.put_block("t/h1", b"late") == b"block"
    shared.out = True
    assert await find_block(two, "t/h1") == Found("t/h1", b"block")


async def test_what_took_a_place_is_remembered_in_it(shared, worker):
    one, two = worker(), worker()
    await one.put_block("t/h1", b"block")
    await two.put_block("t/h1", b"deeper", over=b"block")
    assert await find_block(one, "t/h1") == Found("t/h1", b"deeper")
    shared.out = True
    assert await find_block(one, "t/h1") == Found("t/h1", b"deeper")


async def test_a_block_made_meanwhile_is_given_to_the_store_once_it_is_back(shared, worker):
    one, two = worker(), worker()
    shared.out = True
    assert await one.put_block("t/h2", b"block") == b"block"
    assert await one.put_block("t/h2", b"late") == b"block"
    shared.out = False
    assert await find_block(two, "t/h3", "t/h2") is None
    assert await find_block(one, "t/h3", "t/h2") == Found("t/h2", b"block")
    assert await find_block(two, "t/h3", "t/h2") == Found("t/h2", b"block")


async def test_of_two_who_made_one_meanwhile_the_first_to_come_back_counts(shared, worker):
    one, two = worker(), worker()
    shared.out = True
    await one.put_block("t/h2", b"of one")
    await two.put_block("t/h2", b"of two")
    shared.out = False
    told = [await find_block(store, "t/h2") for store in (two, one, two)]
    assert told == [Found("t/h2", b"of two")] * 3


async def test_what_the_store_forgot_stands_there_again_with_the_next_look_up(worker):
    one = worker()
    for key in ("t/h1", "t/h3"):
        await one.put_block(key, key.encode())
    one._store = emptied = MemoryStore()
    await emptied.put_block("t/h2", b"somebody's")
    assert await find_block(one, "t/h4", "t/h3", "t/h2", "t/h1") == Found("t/h3", b"t/h3")
    assert await find_block(emptied, "t/h3") == Found("t/h3", b"t/h3")
    assert await find_block(emptied, "t/h1") is None


async def test_nothing_older_is_asked_for_than_what_is_held(shared, worker):
    one, keys = worker(), [f"t/h{number}" for number in range(400, 0, -1)]
    await one.find_first(keys, keys)
    await one.put_block(keys[17], b"block")
    await one.write_fact(keys[2], b"fact", 60)
    assert await one.find_first(keys, keys) == (Found(keys[17], b"block"), Found(keys[2], b"fact"))
    assert shared.asked == [(400, 400), (18, 3)]


async def test_for_a_fact_that_the_store_has_lost_an_older_one_may_stand(shared, worker):
    one = worker()
    await worker().write_fact("t/a1", b"theirs", 60)
    await one.write_fact("t/a2", b"ours", 60)
    await shared.write_fact("t/a2", b"", 0)
    assert await one.find_first([], ["t/a3", "t/a2", "t/a1"]) == (None, Found("t/a1", b"theirs"))


async def test_what_is_newer_in_the_store_counts(shared, worker):
    one, two = worker(), worker()
    await one.put_block("t/h1", b"older")
    await two.put_block("t/h2", b"newer")
    assert await find_block(one, "t/h2", "t/h1") == Found("t/h2", b"newer")


async def test_facts_noted_here_are_known_here_while_the_store_is_out_and_no_longer(shared, worker, clock):
    one = worker()
    await one.write_fact("t/a", b"ours", 60)
    await worker().write_fact("t/b", b"theirs", 60)
    shared.out = True
    await one.write_fact("t/c", b"meanwhile", 60)
    assert [await one.read_fact(key) for key in ("t/a", "t/b", "t/c")] == [b"ours", None, b"meanwhile"]
    assert await one.find_first([], ["t/b", "t/a"], ["t/c"]) == (
        None,
        Found("t/a", b"ours"),
        Found("t/c", b"meanwhile"),
    )
    clock.forward(61)
    assert await one.read_fact("t/a") is None
    shared.out = False
    assert await one.read_fact("t/c") is None


async def test_in_a_store_that_answers_facts_are_its_own(shared, worker):
    one = worker()
    await one.write_fact("t/window", b"128000", 60)
    await worker().write_fact("t/window", b"131072", 60)
    assert await one.read_fact("t/window") == b"131072"


async def test_without_a_store_one_claim_counts_here(shared, worker):
    one = worker()
    shared.out = True
    assert await one.claim_fact("t/errand", b"one", 60)
    assert not await one.claim_fact("t/errand", b"two", 60)


async def test_the_secret_once_told_is_known(shared, worker):
    one = worker()
    shared.out = True
    with pytest.raises(StoreUnavailable):
        await one.load_secret()
    shared.out = False
    secret = await one.load_secret()
    shared.out = True
    assert await one.load_secret() == secret


async def test_of_documents_only_the_store_can_tell(shared, worker):
    one = worker()
    assert await one.replace_document("keys", None, b"one")
    shared.out = True
    for act in (one.read_document("keys"), one.replace_document("keys", b"one", b"two")):
        with pytest.raises(StoreUnavailable):
            await act


async def test_a_worker_remembers_no_more_than_it_has_room_for(shared, worker):
    one = worker(block_bytes=10_000, fact_bytes=10_000)
    for number in range(100):
        await one.put_block(f"t/{number}", bytes(1_000))
        await find_block(one, f"t/{number}")
    shared.out = True
    assert [number for number in range(100) if await find_block(one, f"t/{number}")] == list(range(92, 100))
