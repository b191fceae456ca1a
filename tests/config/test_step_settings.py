"""`policies.NAME.steps`: one setting of a step is changed, and the rest of the step stays as it is listed."""

from proxy.config.loading import load
from proxy.config.policies import Policy, shipped_policies
from proxy.config.settings import Config


def resolve(policies, name="mine"):
    return Config.model_validate({"policies": policies}).policy(name)


def find_step(policy, name):
    rules = policy.rules("mine")
    return next(step for step in (*rules.always, *rules.when_full, *rules.fold) if step.name == name)


def test_one_setting_of_an_inherited_step_changes_and_nothing_else_of_it():
    mine = resolve({"mine": {"inherit": "j-cli", "steps": {"clear_results": {"keep_recent": 3}}}})
    (listed,) = shipped_policies()["j-cli"].when_full
    (changed,) = mine.when_full
    assert changed == {"clear_results": {**listed["clear_results"], "keep_recent": 3}}
    step = find_step(mine, "clear_results")
    assert (step.keep_recent, step.over, step.template) == (3, 800, "[Previous: used {tool}]")


def test_changes_of_a_policy_and_of_its_parent_add_up_and_the_nearest_counts():
    policies = {
        "base": {"steps": {"clear_results": {"over": 900, "keep_recent": 5}}},
        "mine": {"inherit": "base", "steps": {"clear_results": {"over": 1_000}, "drop_middle": {"ledger": 100}}},
    }
    mine = resolve(policies)
    step = find_step(mine, "clear_results")
    assert (step.over, step.keep_recent) == (1_000, 5)
    assert find_step(mine, "drop_middle").ledger == 100


def test_a_list_that_is_written_anew_is_not_changed_by_what_the_parent_says_of_its_steps():
    policies = {
        "base": {"steps": {"clear_results": {"over": 900, "keep_recent": 5}}},
        "mine": {"inherit": "base", "when_full": [{"clear_results": {"over": 2_000}}]},
    }
    step = find_step(resolve(policies), "clear_results")
    assert (step.over, step.keep_recent) == (2_000, 0)


def test_a_policy_written_out_with_all_it_inherits_is_the_same_policy():
    mine = resolve({"mine": {"inherit": "j-cli", "steps": {"clear_results": {"keep_recent": 3}}}})
    assert Policy.model_validate(mine.model_dump(mode="json")).rules("mine") == mine.rules("mine")


def test_a_policy_that_changes_no_step_is_as_before():
    assert resolve({"mine": {}}).rules("x") == resolve({"mine": {"steps": {}}}).rules("x")


def test_a_variable_can_change_one_setting(tmp_path):
    file = tmp_path / "proxy.yaml"
    file.write_text("policies:\n  mine: {inherit: j-cli}\n")
    named = {"COMPACTION_PROXY_POLICIES__MINE__STEPS": "{clear_results: {keep_recent: 3}}"}
    assert find_step(load(file, named).config.policy("mine"), "clear_results").keep_recent == 3
