"""Windows and prices of models."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.shorten.economics import (
    NOTHING_SEEN,
    UNKNOWN,
    CacheMemory,
    PriceCliff,
    Prices,
    StoredWindow,
    TokenPrices,
    Window,
    compute_relative_prices,
    make_learned_window,
    make_model_keys,
    price_prompt,
)

PRICED = Window(prices=TokenPrices(input=2.0, cache_read=0.2, cache_write=None, output=8.0))


def test_cached_tokens_cost_the_cache_price():
    assert price_prompt(PRICED, 1_000_000, 0) == 2.0
    assert price_prompt(PRICED, 1_000_000, 1_000_000) == 0.2
    assert price_prompt(PRICED, 1_000_000, 500_000) == 1.1


def test_over_a_cliff_all_of_it_costs_more():
    cliff = PriceCliff(100, TokenPrices(4.0, 0.4, None, 16.0))
    window = Window(prices=PRICED.prices, cliffs=(cliff,))
    assert price_prompt(window, 100, 0) == 100 * 2.0 / 1_000_000
    assert price_prompt(window, 101, 0) == 101 * 4.0 / 1_000_000


FIRST, SECOND = (PriceCliff(above, TokenPrices(price, None, price, None)) for above, price in ((100, 4.0), (300, 6.0)))


@pytest.mark.parametrize("cliffs", [(FIRST, SECOND), (SECOND, FIRST)], ids=["lowest first", "highest first"])
@pytest.mark.parametrize(("size", "price"), [(100, 2.0), (101, 4.0), (300, 4.0), (301, 6.0)])
def test_of_several_cliffs_the_highest_that_was_passed_counts(cliffs, size, price):
    window = Window(prices=PRICED.prices, cliffs=cliffs)
    assert (window.prices_at(size).input, price_prompt(window, size, 0)) == (price, size * price / 1_000_000)


@pytest.mark.parametrize(
    ("prices", "relative", "dollars"),
    [
        (TokenPrices(2.0, 0.5, 3.0, 8.0), Prices(0.25), 3.0 / 2 + 0.5 / 2),
        (TokenPrices(2.0, None, None, None), Prices(), 2.0),
        (TokenPrices(0.0, 0.5, 3.0, None), Prices(), 3.0 / 2 + 0.5 / 2),
        (None, Prices(), None),
    ],
)
def test_a_price_that_is_not_stated_is_that_of_plain_input(prices, relative, dollars):
    """To weigh a rewrite, cached tokens are then taken for a tenth: hardly a provider charges them in full."""
    window = Window(prices=prices, cliffs=() if prices is None else (PriceCliff(2_000_000, prices),))
    cliffs = tuple(cliff.above for cliff in window.cliffs)
    assert compute_relative_prices(window) == Prices(relative.read, cliffs)
    assert price_prompt(window, 1_000_000, 500_000) == dollars


def test_no_price_is_no_cost_at_all():
    assert price_prompt(Window(), 1_000, 0) is None


def test_an_upstream_cannot_have_cached_more_than_there_was():
    assert price_prompt(PRICED, 100, 5_000) == price_prompt(PRICED, 100, 100)


def test_a_total_leaves_room_for_the_answer_and_a_margin_and_an_input_limit_for_the_margin():
    assert Window(total=200_000).usable_tokens(wanted=40_000) == 152_000
    assert Window(input=272_000).usable_tokens(wanted=128_000) == 258_400


def test_of_both_limits_the_tighter_counts():
    gpt_5 = Window(total=400_000, input=272_000, output=128_000)
    assert gpt_5.usable_tokens() == 258_400
    assert gpt_5.usable_tokens(wanted=200_000) == 190_000


def test_without_a_requested_answer_length_a_reasonable_one_is_reserved():
    assert Window(total=1_000_000, output=128_000).answer_tokens() == 32_000
    assert Window(total=1_000_000, output=4_096).answer_tokens() == 4_096
    assert Window(total=1_000_000).answer_tokens() == 8_192


def test_small_windows_reserve_in_proportion():
    assert Window(total=8_192, output=8_192).usable_tokens() == int((8_192 - 2_048) * 0.95)
    assert Window(total=8_000).usable_tokens(wanted=7_500) == 950
    assert Window(input=1).usable_tokens() == 1
    assert Window(input=8_000).answer_tokens() == 8_192


@given(total=st.integers(1, 2_000_000), output=st.integers(1, 400_000), wanted=st.integers(0, 4_000_000))
def test_f22_the_room_is_never_negative_and_never_more_than_fits(total, output, wanted):
    room = Window(total=total, output=output).usable_tokens(wanted)
    assert 1 <= room <= total
    if wanted <= total * 7 // 8:
        assert room == 1 or room + wanted <= total


def test_f22_a_full_window_and_the_answer_asked_for_fit_together():
    window = Window(total=196_608)
    assert window.usable_tokens(wanted=32_000) + 32_000 < 196_608


def test_the_room_of_an_unknown_window_is_unknown():
    assert UNKNOWN.usable_tokens() is None
    assert [window.is_known for window in (UNKNOWN, Window(total=9), Window(input=9))] == [False, True, True]
    assert [window.tokens for window in (UNKNOWN, Window(total=9, input=8), Window(input=8))] == [None, 9, 8]


def test_the_limit_of_an_overflow_is_a_window():
    assert make_learned_window(131_072) == Window(total=131_072, origin="learned")
    assert make_learned_window(272_000, "input") == Window(input=272_000, origin="learned")
    assert [make_learned_window(limit).total for limit in (2_048, 10_000_000)] == [2_048, 10_000_000]


@pytest.mark.parametrize("limit", [None, 0, 400, 2_047, 10_000_001])
def test_a_number_that_cannot_be_a_window_is_not_learned(limit):
    assert make_learned_window(limit) is None


def test_a_known_window_survives_serialization():
    for found in (Window(total=32_768, input=30_000, output=2_048, origin="live"), make_learned_window(131_072)):
        assert StoredWindow.from_bytes(StoredWindow(found).to_bytes()).window == found
    of_version_0_3 = b'[3, 131072, null, null, "learned"]'
    assert StoredWindow.from_bytes(of_version_0_3).window == found
    assert StoredWindow.from_bytes(of_version_0_3.replace(b"3", b"2", 1)) is None


def test_learned_figures_hold_for_one_tenant_upstream_and_model():
    scopes = [
        ("t", "up", "m"),
        ("u", "up", "m"),
        ("t", "vp", "m"),
        ("t", "up", "n"),
    ]
    keys = {key for scope in scopes for key in make_model_keys(*scope)}
    assert len(keys) == 3 * 4
    assert all(key.startswith("team-a/") for key in make_model_keys("team-a", "up", "m"))


def see(*gaps):
    """What is remembered of a cache after these gaps; `-400` is one of 400 seconds after which the prefix was lost."""
    memory = NOTHING_SEEN
    for gap in gaps:
        memory = memory.learn(abs(gap), was_found=gap > 0)
    return memory


@pytest.mark.parametrize(
    ("gaps", "assumed", "seconds"),
    [
        ((), 300, 300),
        ((900,), 300, 900),  # it lives longer than is said
        ((90,), 300, 300),
        ((-200,), 300, 300),  # a miss happens
        ((-200, -250), 300, 200),
        ((90, 400, -500, -700), 300, 400),
        ((90, 400, -500, -700), 3_600, 500),
        ((-200, -250, 280), 300, 300),  # it was there after all
        ((900, -400), 300, 900),
        ((900, -400, -500, -400), 300, 300),  # the upstream has changed
        ((900, -400, -500, -200), 300, 200),
    ],
)
def test_a_lifetime_that_is_assumed_is_bounded_by_what_was_seen(gaps, assumed, seconds):
    assert see(*gaps).bound_lifetime(assumed) == seconds
    assert CacheMemory.from_bytes(see(*gaps).to_bytes()) == see(*gaps)
