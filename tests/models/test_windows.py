"""Windows: where they are known from, and what room they leave. How long caches of providers remember a prompt."""

import json
from pathlib import Path

import pytest

from proxy.models.windows import LIFETIMES, PROBES, find_bundled_window, find_cache_seconds, resolve_window
from proxy.shorten.economics import LAST_RESORT_SECONDS, UNKNOWN, TokenPrices, Window
from tests import ROOT
from tests.support.written_steps import assert_case, list_cases, list_given

GOLDEN = Path(__file__).parent / "golden"
CONFIG = Window(total=64_000, origin="config")
LEARNED = Window(total=131_072, origin="learned")
LIVE = Window(total=262_144, output=9_000, origin="live")


def test_f18_config_before_learned_before_live_before_bundled_before_unknown():
    assert resolve_window("gpt-5.5", CONFIG, LEARNED, LIVE).origin == "config"
    assert resolve_window("gpt-5.5", None, LEARNED, LIVE).origin == "learned"
    assert resolve_window("gpt-5.5", None, None, LIVE).origin == "live"
    assert resolve_window("gpt-5.5", None, None, None).origin == "bundled"
    assert resolve_window("my-own-model", None, None, None) == UNKNOWN


def test_limits_come_from_one_source_and_prices_from_any_source_with_prices():
    window = resolve_window("gpt-5.5", CONFIG, None, LIVE)
    assert (window.total, window.input, window.output) == (64_000, None, 9_000)
    assert window.prices.input == 5.0
    assert window.cliffs[0].above == 272_000


def test_a_source_that_knows_only_prices_does_not_hide_the_limits():
    priced = Window(prices=TokenPrices(1.0, 0.1, None, 2.0), origin="config")
    window = resolve_window("gpt-5.5", priced)
    assert (window.origin, window.total, window.prices.input) == ("bundled", 1_050_000, 1.0)


def describe(window):
    if window is None:
        return "unknown"
    parts = [f"{name} {tokens:,}" for name in ("total", "input", "output") if (tokens := getattr(window, name))]
    return ", ".join([*parts, window.origin])


def judge(case):
    """The page of an upstream and its answer, or names of models; with the window, or the one that all have."""
    given = list_given(case)
    path, _, answer = given[0].partition(" ")
    windows = [PROBES[path](json.loads(answer), "m")] if path in PROBES else map(find_bundled_window, given)
    return "\n".join([*given, *(f"= {describe(window)}" for window in dict.fromkeys(windows))])


@pytest.mark.parametrize(("sentence", "case"), list_cases(GOLDEN))
def test_windows_are_those_of_the_golden_file(sentence, case):
    assert_case(GOLDEN, case, judge(case))


@pytest.mark.parametrize("path", PROBES)
@pytest.mark.parametrize(
    "answer",
    [
        *(None, {}, [], "no", 7, {"data": None}, {"data": [{"id": "m"}]}, {"models": ["m"]}, {"error": {}}),
        {"data": [{"id": "m", "meta": {"n_ctx_train": 131_072}}]},  # llama.cpp: the length it was trained with
    ],
)
def test_an_upstream_that_reports_no_window_leaves_it_unknown(path, answer):
    assert PROBES[path](answer, "m") is None


@pytest.mark.parametrize("length", [0, -1, 1, True, "4096", None, 4096.0])
def test_only_a_count_is_a_window(length):
    assert PROBES["/v1/models"]({"data": [{"id": "m", "max_model_len": length}]}, "m") is None


def test_a_server_of_one_model_answers_for_any_name_and_one_of_many_only_for_its_own():
    one = {"data": [{"id": "/models/qwen", "max_model_len": 40_960}]}
    many = {"data": [*one["data"], {"id": "other", "max_model_len": 8_192}]}
    probe = PROBES["/v1/models"]
    assert probe(one, "gpt-4o").total == 40_960
    assert probe(many, "gpt-4o") is None
    assert probe(many, "vendor/qwen:free").total == 40_960
    assert probe(many, "other").total == 8_192


def test_a_dated_release_with_other_limits_keeps_them_and_no_name_has_none():
    assert find_bundled_window("") is None
    assert find_bundled_window("gpt-4o-2024-05-13").output == 4_096
    assert find_bundled_window("gpt-4o-2024-08-06").output == find_bundled_window("gpt-4o").output == 16_384


def test_every_row_of_the_table_is_sane():
    for name in json.loads((ROOT / "proxy/models/data/models.json").read_text()):
        window = find_bundled_window(name)
        assert 0 < window.usable_tokens() < window.total
        assert window.input is None or window.input < window.total
        assert window.output is None or window.output < window.total
        assert [cliff.above for cliff in window.cliffs] == sorted({cliff.above for cliff in window.cliffs})


EXAMPLES = [(name, seconds) for _, seconds, examples in LIFETIMES for name in examples]


@pytest.mark.parametrize(("model", "seconds"), EXAMPLES, ids=[name for name, _ in EXAMPLES])
def test_each_example_is_found_by_its_own_entry(model, seconds):
    assert find_cache_seconds(model) == seconds


@pytest.mark.parametrize("model", ["", "qwen3.5-coder", "gemini-3.7-pro", "my-own-model"])
def test_of_other_models_the_shortest_lifetime_is_assumed(model):
    assert find_cache_seconds(model) == LAST_RESORT_SECONDS
