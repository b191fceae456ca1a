"""Policies in the large: which one applies where, and to how many."""

import pytest

from proxy.config.policies import Attachment, Occasion
from proxy.config.settings import Config

UPSTREAMS = [{"name": "main", "policy": "gentle"}, {"name": "lab", "base_url": "http://lab/v1", "models": ["lab-*"]}]
POLICIES = {"gentle": {"clear_at_least": 30_000}, "bold": {"clear_at_least": 5_000}, "trial": {"inherit": "bold"}}
TEAMS = {"red": {"policy": "bold"}, "blue": {}}


def config(*attachments, teams=TEAMS, **more):
    return Config(upstreams=UPSTREAMS, policies=POLICIES, attachments=list(attachments), teams=teams, **more)


def choose_policies(found, team="", model="gpt", upstream="main", **more):
    return [
        (each.policy, each.rollout) for each in found.choices(Occasion(team, model=model, upstream=upstream, **more))
    ]


def test_without_attachments_the_team_decides_and_without_a_word_of_its_the_upstream():
    assert choose_policies(config(), "red") == [("bold", 100)]
    assert choose_policies(config(), "blue") == choose_policies(config()) == [("gentle", 100)]


@pytest.mark.parametrize(
    ("attachment", "occasion"),
    [
        ({"team": "re*"}, {"team": "red"}),
        ({"model": "gpt-5*"}, {"model": "gpt-5-mini"}),
        ({"upstream": "lab"}, {"upstream": "lab"}),
        ({"tag": "nightly-*"}, {"tag": "nightly-1"}),
        ({"key": "ab12*"}, {"key": "ab12ff"}),
    ],
)
def test_an_attachment_applies_where_all_of_its_globs_fit(attachment, occasion):
    loaded = config({"policy": "trial", **attachment})
    assert choose_policies(loaded, **occasion) == [("trial", 100)]
    assert ("trial", 100) not in choose_policies(loaded, "blue", tag="x", key="0")


def test_the_first_that_matches_decides():
    loaded = config({"policy": "trial", "team": "red"}, {"policy": "bold"}, {"policy": "gentle"})
    assert choose_policies(loaded, "red") == [("trial", 100)]
    assert choose_policies(loaded, "blue") == [("bold", 100)]


def test_a_rollout_leaves_the_other_conversations_to_the_next_attachment():
    loaded = config({"policy": "trial", "rollout": 5}, {"policy": "trial", "mode": "observe", "rollout": 50})
    assert choose_policies(loaded, "red") == [("trial", 5), ("trial", 50), ("bold", 100)]
    assert choose_policies(config({"policy": "trial", "rollout": 0}), "red") == [("bold", 100)]
    same = config({"policy": "trial", "rollout": 5}, {"policy": "gentle", "rollout": 5})
    assert choose_policies(same, "red") == [("trial", 5), ("bold", 100)], (
        "the second would get conversations 0 to 5 as well"
    )


@pytest.mark.parametrize(
    ("attachments", "team", "policies"),
    [
        ([], "red", ["bold"]),
        ([], "blue", ["gentle", "default"]),
        ([{"policy": "trial", "tag": "night*"}], "red", ["trial", "bold"]),
        ([{"policy": "trial", "team": "r*"}, {"policy": "gentle"}], "red", ["trial"]),
        ([{"policy": "trial", "team": "blue"}], "red", ["bold"]),
        ([{"policy": "trial", "rollout": 50}], "red", ["trial", "bold"]),
    ],
)
def test_the_policies_that_may_apply_to_a_team_are_known(attachments, team, policies):
    assert config(*attachments).list_policies_of_team(team) == policies


def test_an_attachment_can_set_the_mode():
    loaded = config({"policy": "bold", "mode": "observe"})
    (choice,) = loaded.choices(Occasion("red", upstream="main"))
    assert loaded.policy(choice.policy, choice.mode).mode == "observe"
    assert loaded.policy("bold").mode == "auto"


def test_a_version_changes_with_any_value_and_with_nothing_else():
    loaded = config()
    assert loaded.policy("trial").version == loaded.policy("bold").version
    assert loaded.policy("trial", "observe").version != loaded.policy("trial").version
    assert len({loaded.policy(name).version for name in ("gentle", "bold", "default")}) == 3


def test_a_team_may_have_an_upstream_of_its_own():
    loaded = config(teams={"red": {"upstream": "lab"}, "blue": {}})
    assert loaded.upstream_for("gpt", "red").name == "lab"
    assert loaded.upstream_for("gpt", "blue").name == loaded.upstream_for("gpt").name == "main"


def test_a_strong_admin_key_is_accepted_and_a_password_in_a_url_is_not_printed(load_text):
    environ = {"KEY": "v9Qw3kZr7LpX2mTb", "URL": "rediss://:canary@host:6380/1"}
    loaded = load_text("admin: {key: env:KEY}\nstate: {url: env:URL}", environ)
    assert "canary" not in repr(loaded)
    assert loaded.state.url.value.endswith("/1")


def test_where_a_gateway_names_the_teams_any_name_is_one():
    loaded = Config(access={"team_header": "x-team"})
    assert loaded.knows_team("purple")
    assert not loaded.knows_team("../purple")
    assert not Config().knows_team("purple")


@pytest.mark.parametrize(
    ("earlier", "later", "is_told"),
    [
        ({"rollout": 5}, {"rollout": 5, "team": "red"}, True),  # the same five
        ({"rollout": 5}, {"rollout": 6}, False),
        ({"rollout": 50, "team": "r*"}, {"team": "red"}, False),
        ({"team": "a?"}, {"team": "a*"}, False),
        ({"team": "[ab]*"}, {"team": "?*"}, False),
        ({"team": "a*"}, {"team": "a?[bc]*"}, True),
        ({"model": "*-mini"}, {"model": "gpt-*-mini"}, True),
        ({"model": "gpt-*"}, {"model": "*-mini"}, False),
        ({"tag": "*]*"}, {"tag": "[a]"}, False),
    ],
)
def test_an_attachment_is_unreachable_only_where_an_earlier_one_takes_all_of_its_conversations(earlier, later, is_told):
    assert Attachment(**earlier).covers(Attachment(**later)) is is_told
