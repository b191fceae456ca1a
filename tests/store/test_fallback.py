"""What a worker goes on with while the shared store is out, and what it gives back to one that has forgotten."""

from contextlib import suppress

import pytest

from proxy.store.contract import Found, StoreLimits, StoreUnavailable
from proxy.store.memory_store import FallbackStore, MemoryStore
from tests.support.stores import Clock, find_block


class SharedStore(MemoryStore):
    """A store that several workers share, and that can be out; it remembers how many keys it was asked for."""

    out = False

    def __init__(self, **more):
        super().__init__(**more)
        self.asked = []

    async def find(self, *lists):
        self._check()
        self.asked.append(tuple(len(keys.names) for keys in lists))
        return await super().find(*lists)

    async def put(self, *value):
        self._check()
        return await super().put(*value)

    def _check(self):
        if self.out:
            raise StoreUnavailable("the store is out")


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def shared_store(clock):
    return SharedStore(clock=clock)


@pytest.fixture
def worker(shared_store, clock):
    def fallback_over(store=shared_store, **limits):
        return FallbackStore(store, StoreLimits(**limits), clock)

    return fallback_over


async def test_values_made_or_read_by_a_worker_stay_available_during_an_outage(shared_store, worker):
    one, two, stranger = worker(), worker(), worker()
    await one.put_block("t/h1", b"block")
    await find_block(two, "t/h1")
    shared_store.out = True
    assert await find_block(one, "t/h2", "t/h1") == await find_block(two, "t/h1") == Found("t/h1", b"block")
    assert await find_block(stranger, "t/h1") is None


async def test_the_loser_of_a_race_remembers_the_stored_block(shared_store, worker):
    one, two = worker(), worker()
    await one.put_block("t/h1", b"block")
    assert await two.put_block("t/h1", b"late") == b"block"
    shared_store.out = True
    assert await find_block(two, "t/h1") == Found("t/h1", b"block")


async def test_a_replacing_block_is_remembered(shared_store, worker):
    one, two = worker(), worker()
    await one.put_block("t/h1", b"block")
    await two.put_block("t/h1", b"deeper", over=b"block")
    assert await find_block(one, "t/h1") == Found("t/h1", b"deeper")
    shared_store.out = True
    assert await find_block(one, "t/h1") == Found("t/h1", b"deeper")


async def test_a_block_made_during_an_outage_is_stored_once_the_store_is_back(shared_store, worker):
    one, two = worker(), worker()
    shared_store.out = True
    assert await one.put_block("t/h2", b"block") == b"block"
    assert await one.put_block("t/h2", b"late") == b"block"
    shared_store.out = False
    assert await find_block(two, "t/h3", "t/h2") is None
    assert await find_block(one, "t/h3", "t/h2") == Found("t/h2", b"block")
    assert await find_block(two, "t/h3", "t/h2") == Found("t/h2", b"block")


async def test_of_two_blocks_made_during_an_outage_the_first_one_stored_counts(shared_store, worker):
    one, two = worker(), worker()
    shared_store.out = True
    await one.put_block("t/h2", b"of one")
    await two.put_block("t/h2", b"of two")
    shared_store.out = False
    found = [await find_block(store, "t/h2") for store in (two, one, two)]
    assert found == [Found("t/h2", b"of two")] * 3


async def test_a_value_that_the_store_forgot_is_restored_with_the_next_look_up(worker):
    one = worker()
    for key in ("t/h1", "t/h3"):
        await one.put_block(key, key.encode())
    one._store = emptied = MemoryStore()
    await emptied.put_block("t/h2", b"somebody's")
    assert await find_block(one, "t/h4", "t/h3", "t/h2", "t/h1") == Found("t/h3", b"t/h3")
    assert await find_block(emptied, "t/h3") == Found("t/h3", b"t/h3")
    assert await find_block(emptied, "t/h1") is None


async def test_nothing_older_is_asked_for_than_what_is_held(shared_store, worker):
    one, keys = worker(), [f"t/h{number}" for number in range(400, 0, -1)]
    await one.find_first(keys, keys)
    await one.put_block(keys[17], b"block")
    await one.write_fact(keys[2], b"fact", 60)
    assert await one.find_first(keys, keys) == (Found(keys[17], b"block"), Found(keys[2], b"fact"))
    assert shared_store.asked == [(400, 400), (18, 3)]


async def test_the_keys_of_a_look_up_are_gone_through_once(shared_store, worker):
    """Each is written when it is asked for, and a long history has thousands."""

    class Names(list):
        passes = 0

        def __iter__(self):
            self.passes += 1
            return super().__iter__()

    absent, known = Names(["t/h2", "t/h1"]), Names(["t/h4", "t/h3"])
    one = worker()
    await one.put_block("t/h3", b"block")
    assert await one.find_first(absent, [], known) == (None, None, None)
    assert await one.find_first(known) == (Found("t/h3", b"block"), None)
    assert (absent.passes, known.passes) == (1, 2)


async def test_an_older_fact_may_replace_one_that_the_store_lost(shared_store, worker):
    one = worker()
    await worker().write_fact("t/a1", b"theirs", 60)
    await one.write_fact("t/a2", b"ours", 60)
    await shared_store.write_fact("t/a2", b"", 0)
    assert await one.find_first([], ["t/a3", "t/a2", "t/a1"]) == (None, Found("t/a1", b"theirs"))


async def test_facts_that_the_store_lost_are_asked_for_once_more_together(shared_store, worker):
    one, lists = worker(), [["t/a2", "t/a1"], ["t/b2", "t/b1"], ["t/c1"]]
    for fact, *_ in lists:
        await one.write_fact(fact, b"ours", 60)
        await shared_store.write_fact(fact, b"", 0)
    assert await one.find_first([], *lists) == (None, None, None, None)
    assert shared_store.asked == [(0, 1, 1, 1), (2, 2)]  # of the last one, there is nothing older


async def test_a_newer_value_in_the_store_counts(shared_store, worker):
    one, two = worker(), worker()
    await one.put_block("t/h1", b"older")
    await two.put_block("t/h2", b"newer")
    assert await find_block(one, "t/h2", "t/h1") == Found("t/h2", b"newer")


async def test_facts_noted_here_are_known_here_while_the_store_is_out_and_no_longer(shared_store, worker, clock):
    one = worker()
    await one.write_fact("t/a", b"ours", 60)
    await worker().write_fact("t/b", b"theirs", 60)
    shared_store.out = True
    await one.write_fact("t/c", b"meanwhile", 60)
    assert [await one.read_fact(key) for key in ("t/a", "t/b", "t/c")] == [b"ours", None, b"meanwhile"]
    assert await one.find_first([], ["t/b", "t/a"], ["t/c"]) == (
        None,
        Found("t/a", b"ours"),
        Found("t/c", b"meanwhile"),
    )
    clock.forward(61)
    assert await one.read_fact("t/a") is None
    shared_store.out = False
    assert await one.read_fact("t/c") is None


async def test_in_a_store_that_answers_facts_are_its_own(shared_store, worker):
    one = worker()
    await one.write_fact("t/window", b"128000", 60)
    await worker().write_fact("t/window", b"131072", 60)
    assert await one.read_fact("t/window") == b"131072"


async def test_without_a_store_one_claim_counts_here(shared_store, worker):
    one = worker()
    shared_store.out = True
    assert await one.claim_fact("t/errand", b"one", 60)
    assert not await one.claim_fact("t/errand", b"two", 60)


async def test_documents_are_read_from_the_store_only(shared_store, worker):
    one = worker()
    assert await one.replace_document("keys", None, b"one")
    shared_store.out = True
    for act in (one.read_document("keys"), one.replace_document("keys", b"one", b"two")):
        with pytest.raises(StoreUnavailable):
            await act


async def test_a_worker_remembers_no_more_than_it_has_room_for(shared_store, worker):
    one = worker(block_bytes=10_000, fact_bytes=10_000)
    for number in range(100):
        await one.put_block(f"t/{number}", bytes(1_000))
        await find_block(one, f"t/{number}")
    shared_store.out = True
    assert [number for number in range(100) if await find_block(one, f"t/{number}")] == list(range(93, 100))


async def test_faults_of_the_store_are_reported_one_a_second_whoever_asks(shared_store, clock):
    reports = []
    one = FallbackStore(shared_store, clock=clock, warn=reports.append)
    shared_store.out = True
    asks = [
        lambda: one.find_first(["t/h1"]),
        lambda: one.put_block("t/h1", b"block"),
        lambda: one.read_fact("t/a"),
        lambda: one.write_fact("t/a", b"fact", 60),
        lambda: one.claim_fact("t/a", b"mine", 60),
        one.load_secret,
        lambda: one.read_document("keys"),
        lambda: one.replace_document("keys", None, b"new"),
    ]
    for ask in asks:
        clock.forward(1.5)
        for _ in range(3):
            with suppress(StoreUnavailable):
                await ask()
    assert reports == ["the store is out"] * len(asks)
