"""Machines that share a state see each other's conversations, and lose nothing they had when it is emptied."""

from contextlib import contextmanager

import msgspec
import pytest
from msgspec.structs import replace
from operating import TURN

from proxy.admin.exchange import KEY, LASTS, Exchange
from proxy.store.chronicle import Chronicle, Tally
from proxy.store.memory import MemoryStore


@pytest.fixture
def machine(tmp_path):
    """`with machine("a") as tell: tell("c1")` is one that writes, and goes."""

    @contextmanager
    def working(name):
        one = Chronicle(tmp_path / name)
        yield lambda conversation: one.tell(replace(TURN, conversation=conversation))
        one.close()

    return working


def chronicle_of(tmp_path, name):
    found = Chronicle(tmp_path / name)
    found.close()
    return found


def seen(one):
    return {row["conversation"] for row in one.rows("select conversation from turns_1")}


@pytest.fixture
def two(machine, tmp_path):
    for name in ("a", "b"):
        with machine(name) as tell:
            tell(f"{name}0")
    return chronicle_of(tmp_path, "a"), chronicle_of(tmp_path, "b")


async def test_each_machine_sees_what_the_others_wrote(two, machine):
    store, (a, b) = MemoryStore(), two
    exchanges = Exchange(a, store), Exchange(b, store)
    for each in exchanges:
        await each.round()
    for name in ("a", "b"):
        with machine(name) as tell:
            tell(f"{name}1")
    for _ in range(2):
        for each in exchanges:
            await each.round()
    assert {"a1", "b1"} <= seen(a)
    assert {"a1", "b1"} <= seen(b)


async def test_what_happens_once_is_counted_once(two, tmp_path):
    store, (a, b) = MemoryStore(), two
    for name in ("a", "b"):
        one = Chronicle(tmp_path / name)
        one.tell(Tally({"requests": 1}))
        one.close()
    for _ in range(3):
        for each in (Exchange(a, store), Exchange(b, store)):
            await each.round()
    query = "select sum(many) as many from minutes_1 where name = 'requests'"
    assert [one.rows(query)[0]["many"] for one in two] == [2, 2]


async def test_after_the_shared_state_was_emptied_they_find_each_other_again(two, machine):
    a, b = two
    first = MemoryStore()
    exchanges = Exchange(a, first), Exchange(b, first)
    for each in exchanges:
        await each.round()
    emptied = MemoryStore()
    for each in exchanges:
        each._store = emptied
    with machine("a") as tell:
        tell("a2")
    for _ in range(2):
        for each in exchanges:
            await each.round()
    assert "a2" in seen(b)


async def test_a_machine_that_is_gone_is_forgotten_and_one_that_is_there_is_not(two, tmp_path):
    a, b = two
    now = [1_000_000.0]
    store = MemoryStore(clock=lambda: now[0])
    staying, leaving = Exchange(a, store), Exchange(b, store)
    for each in (staying, leaving):
        await each.round()
    now[0] += LASTS + 1
    for _ in range(3):
        await staying.round()
    assert await store.document(KEY) == msgspec.json.encode([a.name()])
