"""The prompt of a summary."""

import re

import pytest
from pydantic import ValidationError

from proxy.config.defaults import as_json_schema
from proxy.config.policies import SHIPPED_PROMPTS, Policy, read_prompt
from proxy.config.settings import Config

EVERY = pytest.mark.parametrize("name", SHIPPED_PROMPTS)


@EVERY
def test_the_sections_are_headings_that_a_machine_can_find_again(name):
    prompt = read_prompt(name)
    assert prompt.headings == tuple(re.findall("^## (.+)$", prompt.text, re.MULTILINE))
    assert len(prompt.headings) >= 9


@pytest.mark.parametrize("name", ["j-cli", "middleware", "jp"])
def test_a_summary_that_is_asked_for_at_the_trigger_has_code_snippets_and_the_next_step(name):
    rules = Config().policy(name).rules(name).summary
    assert rules.headings[-3:] == ("Technical context", "Code snippets", "Immediate next step")
    assert rules.prompt.endswith("and what was interrupted.")
    assert "Immediate next step" not in Config().policy("default").rules("default").summary.prompt


def test_a_prompt_of_a_teams_own_is_used_as_it_is_without_a_section_more(tmp_path):
    own = tmp_path / "own.md"
    own.write_text("## Tell me {everything} in {brackets}.\n", encoding="utf-8")
    summary = Policy.model_validate({"summary": {"prompt": str(own), "ahead": False}}).rules("own").summary
    assert (summary.instruction, summary.headings) == ("## Tell me {everything} in {brackets}.", ())


def policy(file):
    return Policy.model_validate({"summary": {"prompt": str(file)}})


def test_a_prompt_of_a_teams_own_is_read_with_its_policy_and_never_again(tmp_path):
    """Its file may be gone when the first request needs it; that request has done no wrong."""
    file = tmp_path / "ours.md"
    file.write_text("Say it in {words} words.", encoding="utf-8-sig")
    read = policy(file)
    file.unlink()
    assert read.rules("ours").summary.instruction == f"Say it in {int(read.summary.max_tokens * 0.4)} words."
    assert read.model_dump(mode="json")["summary"]["prompt"] == str(file)


def test_a_policy_with_another_prompt_is_another_version(tmp_path):
    file = tmp_path / "ours.md"
    file.write_text("Be brief.")
    before = policy(file)
    file.write_text("Be long.")
    after = policy(file)
    assert before != after
    assert before.version != after.version


@pytest.mark.parametrize("told", ["narrative", "/nowhere/canary.md", "/", "\0canary", ["canary"], 5])
def test_a_prompt_that_cannot_be_read_is_a_fault_that_does_not_repeat_it(told):
    with pytest.raises(
        ValidationError, match="structured, workflow, or the path of a text file that can be read"
    ) as refused:
        Policy.model_validate({"summary": {"prompt": told}})
    assert "canary" not in str(refused.value)


def test_the_schema_has_the_default_prompt_by_its_name():
    policy = as_json_schema()["$defs"]["SummaryConfig"]
    assert policy["properties"]["prompt"]["default"] == "structured"
