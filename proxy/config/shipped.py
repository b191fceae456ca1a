"""Shipped policies: `observe`, `off`, and one for each earlier design that this product grew from.

The figures of those are the designs' own, so that anyone can run what they describe. Ours are measured.
"""

from collections.abc import Mapping
from functools import cache

from proxy.config.policies import Policy


@cache
def policies() -> Mapping[str, Policy]:
    return {name: Policy.model_validate(values) for name, values in _SHIPPED.items()}


# More than any history holds: its results are never cleared in bulk.
_UNREACHABLE_TOKENS = 1_000_000_000
# More than any conversation has: every rewrite pays for itself.
_ENDLESS_REQUESTS = 1_000_000_000

_SHIPPED = {
    "observe": {"mode": "observe"},
    "off": {"mode": "off"},
    # Every request folds all results but the newest ten; a large history becomes a summary and an acknowledgement.
    "j-cli": {
        "summary": {
            "prepare": 1.0,
            "call": "transcript",
            "prompt": "workflow",
            "max_tokens": 20_000,
            "wait": 60,
            "shape": "pair",
            "ledger": 0,
        },
        "estimator": "chars",
        "clear_at_least": 1,
        "clear_cold_at_least": 1,
        "horizon": _ENDLESS_REQUESTS,
        "trigger": 0,
        "trigger_tokens": 204_800,
        "min_progress": 0,
        "min_groups": 0,
        "keep": {"tokens": 0, "groups": 1},
        "always": [],
        "when_full": [
            {
                "clear_results": {
                    "over": 800,
                    "keep_recent": 10,
                    "keep_failed": 0,
                    "names": 0,
                    "exempt": ("*skill*", "task", "*todo*", "ask*"),
                    "template": "[Previous: used {tool}]",
                }
            }
        ],
    },
    # Nothing until 200,000 tokens by the provider's own count; then everything becomes one message.
    "middleware": {
        "summary": {"prepare": 1.0, "wait": 60, "shape": "single", "ledger": 0},
        "clear_at_least": _UNREACHABLE_TOKENS,
        "clear_cold_at_least": _UNREACHABLE_TOKENS,
        "trigger": 0,
        "trigger_tokens": 200_000,
        "target": 0.1,
        "min_groups": 0,
        "keep": {"tokens": 0, "groups": 1},
        "always": [],
        "when_full": [],
    },
    # Mechanical first, tool by tool, over three quarters of the window; a summary if still over half of it.
    "jp": {
        "summary": {"prepare": 1.0, "call": "transcript", "wait": 60},
        "estimator": "chars",
        "clear_at_least": _UNREACHABLE_TOKENS,
        "clear_cold_at_least": _UNREACHABLE_TOKENS,
        "trigger": 0.75,
        "target": 0.66,
        "min_groups": 5,
        "keep": {"tokens": 0, "groups": 1, "turns": 1},
        "always": [],
        "when_full": [
            {"strip_reasoning": {}},
            {"strip_attachments": {}},
            {"dedup_old": {}},
            {"tool_hints": {"names": 0}},
        ],
    },
    # The first two and the last ten groups stay, their outputs cut to fifty lines; the rest becomes one line a turn.
    "blocks": {
        "summary": {"enabled": False},
        "clear_at_least": _UNREACHABLE_TOKENS,
        "clear_cold_at_least": _UNREACHABLE_TOKENS,
        "trigger": 0.9,
        "min_groups": 12,
        "keep": {"tokens": 0, "groups": 10, "first": 2},
        "always": [{"clip_output": {"lines": 50}}],
        "always_at_least": 1,
        "when_full": [],
        "fold": [{"one_liners": {"tokens": 2_000}}],
    },
}
