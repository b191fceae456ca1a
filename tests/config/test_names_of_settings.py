"""Where a setting acts is found by its name: `grep -rn 'keep\\.tokens' proxy`.

A group of settings is carried whole, in a variable or field with the name of the group. Code that copies a value into a
field with another name makes a newcomer follow it through five files.
"""

import ast
from typing import get_args

import pytest

from proxy.config.policies import Policy
from proxy.config.settings import Config
from tests import ROOT

CARRIERS = {
    "policy": ("settings", "rules", "self"),
    "summary": ("summary", "self"),
    "pins": ("pins", "self"),
}
"""Names of variables that hold a group, if these are others than its own."""
READ_BY_NAME = {("transcripts", name) for name in ("region", "key", "secret", "token")} | {("policy", "inherit")}
"""A table in `store/transcripts/bucket.py` has the first; the last is followed while the configuration is read."""


def find_groups():
    groups = {"policy": Policy}
    for group, field in (*Config.model_fields.items(), *Policy.model_fields.items()):
        models = [kind for kind in (field.annotation, *get_args(field.annotation)) if hasattr(kind, "model_fields")]
        if models and group not in ("policies", "attachments"):  # attachments are matched by the names of their fields
            groups[group] = models[0]
    return groups


def find_reads():
    """Find each `listen.port` and `config.listen.port` in the code, as ("listen", "port")."""
    for path in (ROOT / "proxy").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute):
                owner = node.value
                carrier = getattr(owner, "attr", getattr(owner, "id", ""))
                yield carrier.lstrip("_"), node.attr


GROUPS, READS = find_groups(), set(find_reads())
SETTINGS = [(group, name) for group, model in GROUPS.items() for name in model.model_fields if name not in GROUPS]


@pytest.mark.parametrize(("group", "name"), SETTINGS, ids=str)
def test_a_setting_is_read_under_the_name_of_its_group(group, name):
    carriers = CARRIERS.get(group, (group, group.removesuffix("s")))
    is_read = any((carrier, name) in READS for carrier in carriers)
    assert is_read or (group, name) in READ_BY_NAME, f"grep for {group}.{name} finds no use of it"
