"""What an upstream has in its cache, on requests of which one can count the tokens by hand."""

from math import inf

import pytest

from proxy.lab.replay.replay_history import BREAKPOINTS, FOREVER, HABITS, PROVIDER, UNMARKED, Cache, Habit, Marked
from proxy.lab.replay.replay_values import Tokens

# A piece is as many tokens as it has bytes.
A, B, C, D = b"a" * 1_000, b"b" * 100, b"c" * 60, b"d" * 40


def reads(habit, *requests):
    cache = Cache(habit, len)
    tokens = [cache.read(pieces, at) for at, pieces in requests]
    return [(count.read, count.cached) for count in tokens]


def test_every_prefix_of_messages_that_was_ever_sent_is_cached():
    text = reads(FOREVER, (0, [A, B]), (1, [A, B, C]), (2, [A, D]), (3, [A, B, C, D]))
    assert text == [(1_100, 0), (1_160, 1_100), (1_040, 1_000), (1_200, 1_160)]


def test_a_message_that_was_changed_makes_all_behind_it_new():
    assert reads(FOREVER, (0, [A, B, C]), (1, [A, D, C])) == [(1_160, 0), (1_100, 1_000)]


def test_a_provider_keeps_no_short_prefix_and_charges_whole_blocks():
    assert reads(PROVIDER, (0, [A]), (1, [A, B])) == [(1_000, 0), (1_100, 0)]
    assert reads(PROVIDER, (0, [A, B]), (1, [A, B, C])) == [(1_100, 0), (1_160, 1_024)]
    assert reads(PROVIDER, (0, [A, B, C]), (1, [A, B, C, D])) == [(1_160, 0), (1_200, 1_152)]


def test_an_unused_prefix_is_forgotten_and_each_use_keeps_it_longer():
    habit = Habit(0, 1, lifetime=300)
    assert reads(habit, (0, [A]), (300, [A, B]), (600, [A]), (901, [A, B])) == [
        (1_000, 0),
        (1_100, 1_000),
        (1_000, 1_000),
        (1_100, 0),
    ]


def test_a_prefix_is_not_known_where_something_before_it_is_forgotten():
    assert reads(Habit(0, 1, lifetime=300), (0, [A, B]), (200, [A]), (400, [A, B])) == [
        (1_100, 0),
        (1_000, 1_000),
        (1_100, 1_000),
    ]


@pytest.mark.parametrize("name", HABITS)
def test_a_request_that_was_never_sent_is_not_cached_however_long_a_cache_lives(name):
    assert reads(HABITS[name], (0, [A, B]), (inf, [D, B])) == [(1_100, 0), (140, 0)]


def test_what_stands_behind_the_last_mark_is_not_stored():
    marked, unmarked = Cache(UNMARKED, len), Cache(UNMARKED, len)
    assert marked.read([Marked(A + B), C], 0) == Tokens(fresh=1_100, unstored=60)
    assert marked.read([A + B, C, Marked(D)], 1) == Tokens(fresh=100, cached=1_100)
    assert [unmarked.read([A, B, C], at) for at in (0, 1)] == [Tokens(unstored=1_160)] * 2


def test_a_breakpoint_is_found_where_a_request_ended_only():
    """GPT-5.6 and later: a rewrite that ends between two earlier requests is written as a whole."""
    found = reads(BREAKPOINTS, (0, [A, B]), (60, [A, B, C]), (120, [A, D]), (180, [A, D, B]))
    assert [cached for _, cached in found] == [0, len(A + B), 0, len(A + D)]
