"""Windows: where they are known from, and what room they leave. How long caches of providers remember a prompt."""

import json

import pytest

from proxy.models.windows import LIFETIMES, PROBES, find_bundled_window, find_cache_seconds, resolve_window
from proxy.shorten.economics import (
    LAST_RESORT_SECONDS,
    UNKNOWN,
    TokenPrices,
    Window,
)
from tests import ROOT

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


TOP = {"context_length": 262_144, "max_completion_tokens": 65_536}


@pytest.mark.parametrize(
    ("path", "answer", "limits"),
    [
        ("/v1/models", {"data": [{"id": "m", "max_model_len": 40_960}]}, (40_960, None, None)),
        (
            "/v1/models",
            {"data": [{"id": "m", "context_window": 131_072, "max_completion_tokens": 8_192}]},
            (131_072, None, 8_192),
        ),
        ("/v1/models", {"data": [{"id": "m", "max_context_length": 32_768}]}, (32_768, None, None)),
        ("/v1/models", [{"id": "m", "context_length": 16_384}], (16_384, None, None)),
        (
            "/v1/models",
            {"data": [{"id": "m", "context_length": 300_000, "top_provider": TOP}]},
            (262_144, None, 65_536),
        ),
        ("/props", {"default_generation_settings": {"n_ctx": 4_096}, "total_slots": 2}, (4_096, None, None)),
        ("/api/ps", {"models": [{"name": "m", "model": "m", "context_length": 4_096}]}, (4_096, None, None)),
        (
            "/api/v0/models",
            {"data": [{"id": "m", "max_context_length": 131_072, "loaded_context_length": 8_192}]},
            (8_192, None, None),
        ),
        ("/info", {"max_total_tokens": 8_192, "max_input_tokens": 7_168}, (8_192, 7_168, None)),
    ],
)
def test_each_upstream_reports_its_window_in_its_own_way(path, answer, limits):
    window = PROBES[path](answer, "m")
    assert (window.total, window.input, window.output) == limits
    assert window.origin == "live"


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


@pytest.mark.parametrize(
    "name",
    [
        "claude-sonnet-4-5",
        "claude-sonnet-4-5-20250929",
        "claude-sonnet-4-5-latest",
        "claude-sonnet-4-5@20250929",
        "anthropic/claude-sonnet-4.5",
        "anthropic/claude-sonnet-4.5:free",
        "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
        "bedrock/anthropic.claude-sonnet-4-5-v1",
        " Claude-Sonnet-4-5 ",
    ],
)
def test_one_model_under_its_many_names(name):
    window = find_bundled_window(name)
    assert (window.total, window.output, window.origin) == (200_000, 64_000, "bundled")


@pytest.mark.parametrize(
    ("name", "same"),
    [
        ("azure/gpt-4o", "gpt-4o"),
        ("gpt-35-turbo", "gpt-3.5-turbo"),
        ("models/gemini-2.5-pro", "gemini-2.5-pro"),
        ("openai/gpt-oss-120b:nitro", "gpt-oss-120b"),
        ("accounts/fireworks/models/kimi-k2-instruct", "moonshotai/kimi-k2-instruct"),
    ],
)
def test_providers_spell_the_same_model_differently(name, same):
    assert find_bundled_window(name) is not None
    assert find_bundled_window(name) == find_bundled_window(same)


@pytest.mark.parametrize("name", ["qwen2.5-coder:7b", "gpt-4o-of-our-own", "my-deployment", "", "gpt", "a/b/"])
def test_a_name_the_table_does_not_know_is_unknown(name):
    assert find_bundled_window(name) is None


def test_a_dated_release_with_other_limits_keeps_them():
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
