"""A policy edited in the text of a configuration file: nothing else of it changes."""

import pytest
import yaml

from proxy.config.editing import replace_policy

VALUES = {"clear_at_least": 20_000, "keep": {"tokens": 500}}
FILES = {
    "empty": "",
    "no policies": "listen:\n  port: 9000  # ours\n",
    "no entries": "policies: {}\nteams:\n  a: {}\n",
    "null": "policies:\nteams:\n  a: {}\n",
    "in one line": "policies: {quick: {clear_at_least: 5000}, slow: {inherit: quick}}\n# the end\n",
    "an entry in one line": "policies:\n  quick: {clear_at_least: 5000}  # why\n\n# teams\nteams:\n  a: {}\n",
    "an entry": "policies:\n  quick:\n    clear_at_least: 5000\n    pins:\n      markers:\n        - x\n\n"
    "  # slow\n  slow:\n    inherit: quick\n\nteams:\n  a: {}\n",
    "the last entry": "policies:\n    quick:\n        summary:\n            pointer: |\n             a\n",
    "without a last line end": "policies:\n  slow: {}",
    "an entry of nothing": "policies:\n  quick:\n  slow: {}\nteams: {a: {}}\n",
}


@pytest.mark.parametrize("text", FILES.values(), ids=FILES)
def test_only_the_policy_changes(text):
    changed = replace_policy(text, "quick", VALUES)
    before, after = yaml.safe_load(text) or {}, yaml.safe_load(changed)
    assert after == {**before, "policies": {**(before.get("policies") or {}), "quick": VALUES}}
    kept = [line for line in text.splitlines() if line.startswith(("#", "listen", "  port", "teams", "  # slow"))]
    assert [line for line in kept if line not in changed.splitlines()] == []


def test_an_alias_is_not_edited():
    assert replace_policy("a: &a {clear_at_least: 1}\npolicies:\n  quick: *a\n  slow: *a\nx: *a\n", "quick", VALUES)
    assert replace_policy("policies:\n  quick: &a\n    clear_at_least: 1\n  slow: *a\n", "quick", VALUES) is None


def test_an_invalid_yaml_file_is_not_edited():
    assert replace_policy("policies: [", "quick", VALUES) is None
