"""How long the caches of providers remember a prompt."""

import pytest

from proxy.models.windows import LIFETIMES, find_cache_seconds
from proxy.shorten.economics import LAST_RESORT_SECONDS

EXAMPLES = [(name, seconds) for _, seconds, examples in LIFETIMES for name in examples]


@pytest.mark.parametrize(("model", "seconds"), EXAMPLES, ids=[name for name, _ in EXAMPLES])
def test_each_example_is_found_by_its_own_entry(model, seconds):
    assert find_cache_seconds(model) == seconds


@pytest.mark.parametrize("model", ["", "qwen3.5-coder", "gemini-3.7-pro", "my-own-model"])
def test_of_other_models_the_shortest_lifetime_is_assumed(model):
    assert find_cache_seconds(model) == LAST_RESORT_SECONDS
