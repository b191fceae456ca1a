"""A cache that is bounded in bytes, and shared fairly."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.foundation.lru import ENTRY_BYTES, ByteBoundedCache, weigh_text

MIB = 1024 * 1024


def test_the_least_recently_used_entry_is_dropped_first():
    cache = ByteBoundedCache(3 * (ENTRY_BYTES + 2))
    for key in "abc":
        cache[key] = key
    assert cache.get("a") == "a"
    cache["d"] = "d"
    assert [key for key in "abcd" if key in cache] == ["a", "c", "d"]
    assert cache.get("b") is None


@pytest.mark.seconds
@pytest.mark.parametrize("size", [10, 10_000, 2 * MIB])
def test_memory_is_bounded_whatever_the_size_of_an_entry(size):
    cache = ByteBoundedCache(4 * MIB)
    tracemalloc.start()
    for number in range(24 * MIB // max(size, 1_000)):
        cache[f"{number}"] = f"{number}".rjust(size, "x")
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 1.75 * 4 * MIB


def test_an_entry_that_is_too_large_is_not_kept_and_displaces_nothing():
    cache = ByteBoundedCache(MIB)
    cache["small"] = "x"
    cache["large"] = "x" * MIB
    assert "small" in cache
    assert "large" not in cache


def test_an_entry_is_replaced_and_taken_out():
    cache = ByteBoundedCache(MIB)
    cache["a"], cache["a"] = "first", "second"
    assert (len(cache), cache.bytes) == (1, ENTRY_BYTES + len("asecond"))
    assert (cache.pop("a"), cache.pop("a")) == ("second", None)
    assert (len(cache), cache.bytes) == (0, 0)


def test_one_owner_displaces_only_itself():
    cache = ByteBoundedCache(MIB, owner_of=lambda key: key[0])
    for tenant in range(3):
        for number in range(20):
            cache[tenant, number] = "x" * 1_000
    for number in range(100_000):
        cache["a flood", number] = "x" * 1_000
    assert all((tenant, number) in cache for tenant in range(3) for number in range(20))
    assert cache.bytes <= MIB


class TurnByTurn:
    """Owners whose entries take turns, in a cache with room for 40 of them: 10 of each owner."""

    def __init__(self, *, keeps_used=True):
        size = ENTRY_BYTES + 1_000 + len("owner")
        self.cache = ByteBoundedCache(40 * size, owner_of=lambda key: key[0])
        self.keeps_used = keeps_used

    def count_known(self, keys, rounds=1):
        for _ in range(rounds):
            known = 0
            for key in keys:
                is_known = self.cache.get(key) is not None
                displaces_used = is_known or not self.keeps_used
                self.cache.add(key, "x" * 1_000, is_used=True, displaces_used=displaces_used)
                known += is_known
        return known


@pytest.mark.parametrize(("entries", "known"), [(10, 10), (11, 10), (20, 10), (40, 10), (60, 10)])
def test_of_more_entries_than_fit_that_an_owner_uses_in_turn_those_that_fit_stay(entries, known):
    turns = TurnByTurn()
    assert turns.count_known([("owner", number) for number in range(entries)], rounds=4) == known


@pytest.mark.parametrize(("owners", "known"), [(40, 40), (41, 40), (80, 40), (240, 40)])
def test_of_more_owners_than_fit_that_take_turns_those_that_fit_stay(owners, known):
    turns = TurnByTurn()
    assert turns.count_known([(f"{number:05}", 0) for number in range(owners)], rounds=4) == known


def test_entries_that_are_not_used_any_more_make_room():
    turns = TurnByTurn()
    turns.count_known([("owner", f"old {number}") for number in range(10)], rounds=4)
    new_keys = [("owner", number) for number in range(8)]
    assert turns.count_known(new_keys) == 0
    assert turns.count_known(new_keys, rounds=12) == 8


def test_an_owner_with_less_than_its_equal_share_displaces_entries_in_use():
    turns = TurnByTurn()
    others = [(f"{owner:05}", number) for owner in range(4) for number in range(10)]
    assert turns.count_known(others, rounds=4) == 40
    own = [("owner", number) for number in range(8)]
    turns.count_known(own)
    assert turns.count_known(own) == 8
    assert turns.count_known(others, rounds=4) == 32


def test_without_such_a_rule_the_newest_entry_is_always_kept():
    turns = TurnByTurn(keeps_used=False)
    keys = [("owner", number) for number in range(11)]
    assert turns.count_known(keys, rounds=4) == 0
    assert keys[-1] in turns.cache


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 5), st.integers(0, 400), st.booleans()), max_size=60),
    st.booleans(),
)
def test_the_byte_count_is_the_sum_of_the_entries(acts, displaces_used):
    cache = ByteBoundedCache(4 * (ENTRY_BYTES + 200), owner_of=lambda key: key[0])
    kept = {}
    for owner, number, size, keeps in acts:
        key = owner, number
        if keeps:
            kept[key] = "x" * size
            cache.add(key, kept[key], is_used=True, displaces_used=displaces_used)
        else:
            cache.pop(key)
            kept.pop(key, None)
        assert cache.bytes == sum(
            ENTRY_BYTES + len(owner) + len(value) for (owner, number), value in kept.items() if (owner, number) in cache
        )
        assert cache.bytes <= 4 * (ENTRY_BYTES + 200)
        assert all(cache.get(each) == kept[each] for each in kept if each in cache)


def test_texts_are_weighed_by_what_they_take():
    assert weigh_text("abc") == weigh_text(b"abc") == weigh_text(("a", ("b", b"c"), 7, None)) == 3
    assert weigh_text("数据") == 8
