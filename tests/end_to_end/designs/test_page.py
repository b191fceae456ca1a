"""docs/five-documents.md: every setting that it names is there, and its figures are those in force."""

import re

import pytest
import yaml

from proxy.config.settings import Config
from proxy.config.warnings import find_warnings
from proxy.shorten.steps import STEPS
from tests import ROOT

PAGE = (ROOT / "docs" / "five-documents.md").read_text(encoding="utf-8")
POLICIES = {"000": "j-cli", "001": "middleware", "002": "jp", "003": "jp", "004": "blocks"}
SECTIONS = dict(re.findall(r"^## (\d{3}) [^\n]*\n(.*?)(?=^## )", PAGE, re.MULTILINE | re.DOTALL))
ALTERNATIVES = ("tools", "always", "fold", "recall")
"""Settings that are shown as what one may write, not as what the policy has."""


def words_of(section):
    """The rows of the first table: a word of the document, its figure, and the setting."""
    table = section.partition("| word of the document |")[2].partition("\n\n")[0]
    return [re.split(r"\s*\|\s*", line.strip("| ")) for line in table.splitlines()[2:]]


def settings_of(section):
    """The settings with a value, as `clear_results.over: 800`, of the rows that say what the policy has."""
    for word, _, here in words_of(section):
        for path, value in re.findall(r"`([a-z_.]+): ([^`]+)`", here):
            if path.partition(".")[0] not in ALTERNATIVES and not word.startswith("threshold 0"):
                yield path, yaml.safe_load(value)


def value_in_force(policy, path):
    first, _, rest = path.partition(".")
    if first in STEPS:
        return policy.find_listed(first).get(rest)
    value = policy.model_dump(mode="json")
    for part in path.split("."):
        value = value[part]
    return value


@pytest.mark.parametrize("document", POLICIES)
def test_the_figures_of_a_document_are_those_of_its_policy(document):
    policy = Config().policy(POLICIES[document])
    settings = list(settings_of(SECTIONS[document]))
    assert len(settings) >= 5
    assert [(path, value_in_force(policy, path)) for path, _ in settings] == settings


@pytest.mark.parametrize("document", POLICIES)
def test_three_lines_select_the_design_and_change_it(document):
    (example,) = re.findall(r"```yaml\n(.*?)```", SECTIONS[document], re.DOTALL)
    assert len(example.splitlines()) <= 3
    config = Config.model_validate(yaml.safe_load(example))
    assert config.lineage(config.upstreams[0].policy)[1] == POLICIES[document]
    assert list(find_warnings(config, lambda model: True)) == []
    own, shipped = config.policy("mine").rules("x"), Config().policy(POLICIES[document]).rules("x")
    assert own != shipped
