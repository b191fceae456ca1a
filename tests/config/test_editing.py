"""A policy edited in the text of a configuration file: nothing else of it changes."""

import pytest

from proxy.config.yaml_file import NotEditable, YamlReader, replace_policy

VALUES = {"clear_at_least": 20_000, "keep": {"tokens": 500}}
FILES = {
    "empty": "",
    "no policies": "listen:\n  port: 9000  # ours\n",
    "no entries": "policies: {}\nteams:\n  a: {}\n",
    "null": "policies:\nteams:\n  a: {}\n",
    "an entry in one line": "policies:\n  quick: {clear_at_least: 5000}  # why\n\n# teams\nteams:\n  a: {}\n",
    "an entry": "policies:\n  quick:\n    clear_at_least: 5000\n    pins:\n      markers:\n        - x\n\n"
    "  # slow\n  slow:\n    inherit: quick\n\nteams:\n  a: {}\n",
    "the last entry": "policies:\n    quick:\n        summary:\n            pointer: |\n             a\n",
    "without a last line end": "policies:\n  slow: {}",
    "an entry of nothing": "policies:\n  quick:\n  slow: {}\nteams: {a: {}}\n",
}


def read(text):
    """The values of a text, as the proxy reads it."""
    return YamlReader(text).get_single_data()


@pytest.mark.parametrize("text", FILES.values(), ids=FILES)
def test_only_the_policy_changes(text):
    changed = replace_policy(text, "quick", VALUES)
    before, after = read(text) or {}, read(changed)
    assert after == {**before, "policies": {**(before.get("policies") or {}), "quick": VALUES}}
    kept = [line for line in text.splitlines() if line.startswith(("#", "listen", "  port", "teams", "  # slow"))]
    assert [line for line in kept if line not in changed.splitlines()] == []


@pytest.mark.parametrize("name", ["x", "new"])
@pytest.mark.parametrize(
    "text",
    [
        "policies:  # ours\n  # careful: {mode: off}\nb: 2\n",
        "policies: {}  # none\nb: off\n",
        "a: 1\r\npolicies:\r\n  y: {mode: off}  # y\r\n  x:\r\n    mode: auto\r\nb: 2\r\n",
        "a: 1 # a\r\n",
        "\ufeffpolicies:\n  y: {mode: off}\n",
        "policies:\n  x:\n    mode: auto\n    # end of x\n\n  # about y\n  y: {mode: off} # y\n# tail\nb: 2\n",
    ],
)
def test_values_comments_and_line_ends_stay(text, name):
    changed = replace_policy(text, name, VALUES)
    before = read(text)
    assert read(changed) == {**before, "policies": {**(before.get("policies") or {}), name: VALUES}}
    assert [line for line in text.splitlines() if "#" in line and line.partition("#")[2] not in changed] == []
    assert changed.count("\n") == changed.count("\r\n") or "\r" not in text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("policies:\n  quick: &a\n    clear_at_least: 1\n  slow: *a\n", "form"),
        ("policies: [", "not YAML"),
        ("policies: {quick: {clear_at_least: 5000}, slow: {inherit: quick}}\n", "in braces"),
        ("{policies: {y: {mode: off}}, b: 1}  # all\n", "in braces"),
        ("policies: [a]\n", "no mapping"),
        ("policies: off\n", "no mapping"),
        ("- a\n", "form"),
        ("policies: {  # none\n}\n", "comments"),
        ("policies:\n  a: !!int x\n", "form"),
        ("[" * 5_000, "form"),
    ],
)
def test_a_file_that_cannot_be_edited_is_refused(text, why):
    with pytest.raises(NotEditable, match=why):
        replace_policy(text, "quick", VALUES)


def test_an_alias_elsewhere_is_no_obstacle():
    assert replace_policy("a: &a {clear_at_least: 1}\npolicies:\n  quick: *a\n  slow: *a\nx: *a\n", "quick", VALUES)
