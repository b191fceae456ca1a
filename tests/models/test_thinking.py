"""Which models bind their thinking. What of a history is such thinking is in `golden/messages`."""

import pytest

from proxy.foundation.model_names import FAMILIES, find_binding, plain_name

EXAMPLES = [(model, binding) for _, binding, models in FAMILIES for model in models]


@pytest.mark.parametrize(("model", "binding"), EXAMPLES)
def test_each_family_knows_its_examples(model, binding):
    assert find_binding(model, has_budget=False) == binding


@pytest.mark.parametrize(
    ("model", "has_budget", "binding"),
    [
        ("claude-sonnet-5-5", True, "yes"),
        ("claude-opus-5-20260714", False, "if-refused"),
        ("claude-opus-4-5-20251101", True, "no"),
        ("our-coder", False, "yes"),
        ("our-coder", True, "if-refused"),
        ("gpt-5.6", True, "no"),
        ("", False, "yes"),
    ],
)
def test_a_budget_tells_of_an_older_model(model, has_budget, binding):
    assert find_binding(model, has_budget=has_budget) == binding


@pytest.mark.parametrize(
    ("model", "plain"), [("openrouter/free", "free"), ("thinking", "thinking"), ("a/b:free", "b"), ("a/b:c", "b:c")]
)
def test_a_model_may_be_called_like_a_route(model, plain):
    assert plain_name(model) == plain
