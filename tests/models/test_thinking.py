"""Which models bind their thinking, and what of a history is such thinking."""

import json

import pytest

from proxy.foundation.model_names import FAMILIES, find_binding, plain_name
from proxy.history.messages import read_message

EXAMPLES = [(model, binding) for _, binding, models in FAMILIES for model in models]
SIGNED = {"type": "thinking", "thinking": "So.", "signature": "c2ln"}


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
    ("members", "is_thinking"),
    [
        ({"content": [SIGNED, {"type": "text", "text": "Done."}]}, True),
        ({"content": [{"type": "redacted_thinking", "data": "c2ln"}]}, True),
        ({"content": "Done.", "thinking_blocks": [SIGNED]}, True),
        (
            {"content": "Done.", "reasoning_details": [{"type": "reasoning.text", "text": "So.", "signature": "c2"}]},
            True,
        ),
        (
            {"reasoning_details": [{"type": "reasoning.encrypted", "data": "c2", "format": "anthropic-claude-v1"}]},
            True,
        ),
        ({"content": [{"type": "thinking", "thinking": "So.", "signature": ""}]}, False),
        ({"reasoning_details": [{"type": "reasoning.text", "text": "So.", "signature": None}]}, False),
        ({"reasoning_details": [{"type": "reasoning.encrypted", "data": "c2", "format": "google-gemini-v1"}]}, False),
        ({"content": 'It says {"signature": "c2"} and "redacted_thinking".', "reasoning_content": "So."}, False),
        ({"content": [{"type": "text", "text": "So.", "signature": "c2"}, "signature"], "thinking_blocks": {}}, False),
    ],
)
def test_thinking_that_anthropic_has_signed_is_known_in_every_form(members, is_thinking):
    raw = json.dumps({"role": "assistant", **members}).encode()
    assert read_message(json.loads(raw), raw).has_claude_thinking is is_thinking


@pytest.mark.parametrize(
    ("model", "plain"), [("openrouter/free", "free"), ("thinking", "thinking"), ("a/b:free", "b"), ("a/b:c", "b:c")]
)
def test_a_model_may_be_called_like_a_route(model, plain):
    assert plain_name(model) == plain
