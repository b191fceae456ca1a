"""Policies in the large: which one applies where, to how many, and what is hardly meant."""

import pytest

from proxy.config import Attachment, Config, InvalidConfig, Occasion, Secret, find_warnings, load

UPSTREAMS = [{"name": "main", "policy": "gentle"}, {"name": "lab", "base_url": "http://lab/v1", "models": ["lab-*"]}]
POLICIES = {"gentle": {"clear_at_least": 30_000}, "bold": {"clear_at_least": 5_000}, "trial": {"inherit": "bold"}}
TEAMS = {"red": {"policy": "bold"}, "blue": {}}


def config(*attachments, teams=TEAMS, **more):
    return Config(upstreams=UPSTREAMS, policies=POLICIES, attachments=list(attachments), teams=teams, **more)


def chosen(told, team="", model="gpt", upstream="main", **more):
    return [
        (each.policy, each.rollout) for each in told.choices(Occasion(team, model=model, upstream=upstream, **more))
    ]


def test_without_attachments_the_team_decides_and_without_a_word_of_its_the_upstream():
    assert chosen(config(), "red") == [("bold", 100)]
    assert chosen(config(), "blue") == chosen(config()) == [("gentle", 100)]


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
    told = config({"policy": "trial", **attachment})
    assert chosen(told, **occasion) == [("trial", 100)]
    assert ("trial", 100) not in chosen(told, "blue", tag="x", key="0")


def test_the_highest_priority_decides_and_of_two_equal_ones_the_first():
    told = config({"policy": "bold"}, {"policy": "gentle"}, {"policy": "trial", "priority": 1, "team": "red"})
    assert chosen(told, "red") == [("trial", 100)]
    assert chosen(told, "blue") == [("bold", 100)]


def test_what_is_rolled_out_leaves_the_others_to_the_next():
    told = config({"policy": "trial", "rollout": 5}, {"policy": "trial", "mode": "observe", "rollout": 50})
    assert chosen(told, "red") == [("trial", 5), ("trial", 50), ("bold", 100)]
    assert chosen(config({"policy": "trial", "rollout": 0}), "red") == [("bold", 100)]
    same = config({"policy": "trial", "rollout": 5}, {"policy": "gentle", "rollout": 5})
    assert chosen(same, "red") == [("trial", 5), ("bold", 100)], "the second would get conversations 0 to 5 as well"


def test_an_attachment_can_set_the_mode():
    told = config({"policy": "bold", "mode": "observe"})
    (choice,) = told.choices(Occasion("red", upstream="main"))
    assert told.policy(choice.policy, choice.mode).mode == "observe"
    assert told.policy("bold").mode == "auto"


def test_a_version_changes_with_any_value_and_with_nothing_else():
    told = config()
    assert told.policy("trial").version == told.policy("bold").version
    assert told.policy("trial", "observe").version != told.policy("trial").version
    assert len({told.policy(name).version for name in ("gentle", "bold", "default")}) == 3


def test_a_team_may_have_an_upstream_of_its_own():
    told = config(teams={"red": {"upstream": "lab"}, "blue": {}})
    assert told.upstream_for("gpt", "red").name == "lab"
    assert told.upstream_for("gpt", "blue").name == told.upstream_for("gpt").name == "main"


@pytest.mark.parametrize(
    ("values", "where"),
    [
        ({"attachments": [{"policy": "none"}]}, "attachments.0.policy: there is no policy"),
        ({"teams": {"red": {"policy": "none"}}}, "teams.red.policy: there is no policy"),
        ({"teams": {"red": {"upstream": "none"}}}, "teams.red.upstream: there is no upstream"),
        ({"teams": {"red": {"key": "env:KEY"}}}, "say which in teams.red.upstream"),
        ({"teams": {"../x": {}}}, "teams"),
        ({"access": {"trusted": ["everywhere"]}}, "access.trusted.0"),
        ({"access": {"team_header": "x team"}}, "access.team_header"),
        ({"attachments": [{"rollout": 101}]}, "attachments.0.rollout"),
        ({"attachments": [{"key": "cp-0123456789-canary"}]}, "attachments.0.key"),
        ({"admin": {"key": "env:WEAK"}}, "admin.key"),
        ({"admin": {"key": "env:MANUAL"}}, "admin.key"),
        ({"admin": {"key": "plain"}}, "admin.key"),
        ({"state": {"url": "http://x"}}, "state.url"),
        ({"state": {"url": "redis://x/y"}}, "state.url"),
        ({"state": {"url": "redis://x:canary"}}, "state.url"),
        ({"state": {"url": "redis://:canary@x"}}, "state.url"),
    ],
)
def test_what_cannot_be_is_refused_with_its_place(tmp_path, values, where):
    file = tmp_path / "proxy.yaml"
    file.write_text(str(values))
    with pytest.raises(InvalidConfig) as invalid:
        load(file, {"KEY": "sk-a", "WEAK": "a" * 20, "MANUAL": "changeme-0123456789-xyz"})
    assert where in str(invalid.value)
    assert "canary" not in str(invalid.value)


@pytest.mark.parametrize(
    "key", ["short-9Qw3kZ", "aaaaaaaaaaaaaaaaaaaaaaaa", "abcdefghijklmnopqrst", "asdfghjklqertzui",
            "compaction-proxy-1", "Replace-me-please-0815", "my-Password-is-long-9"],
)  # fmt: skip
def test_an_admin_key_that_somebody_thought_up_is_refused(tmp_path, key):
    file = tmp_path / "proxy.yaml"
    file.write_text("admin: {key: env:KEY}")
    with pytest.raises(InvalidConfig, match=r"admin\.key: too weak") as invalid:
        load(file, {"KEY": key})
    assert key not in str(invalid.value)


def test_a_strong_admin_key_is_taken_and_a_password_in_a_url_stays_unsaid(tmp_path):
    file = tmp_path / "proxy.yaml"
    file.write_text(str({"admin": {"key": "env:KEY"}, "state": {"url": "env:URL"}}))
    told = load(file, {"KEY": "v9Qw3kZr7LpX2mTb", "URL": "rediss://:canary@host:6380/1"}).config
    assert "canary" not in repr(told)
    assert told.state.url.value.endswith("/1")


# --- what is hardly meant ---


def said(told):
    return dict(find_warnings(told, lambda model: model == "gpt-known"))


def test_an_attachment_behind_one_that_decides_everything_is_told():
    told = config({"policy": "bold", "team": "r*"}, {"policy": "gentle", "team": "red", "model": "gpt-*"})
    assert "never reached: attachments.0" in said(told)["attachments.1"]
    assert "attachments.1" not in said(config({"policy": "bold", "team": "r*", "rollout": 50}, {"team": "red"}))
    first = config({"team": "red"}, {"priority": 1})
    assert "never reached: attachments.1" in said(first)["attachments.0"]


@pytest.mark.parametrize(
    ("earlier", "later", "is_told"),
    [
        ({"rollout": 5}, {"rollout": 5, "team": "red"}, True),  # the same five
        ({"rollout": 5}, {"rollout": 6}, False),
        ({"team": "a?"}, {"team": "a*"}, False),
        ({"team": "[ab]*"}, {"team": "?*"}, False),
        ({"team": "a*"}, {"team": "a?[bc]*"}, True),
        ({"model": "*-mini"}, {"model": "gpt-*-mini"}, True),
        ({"model": "gpt-*"}, {"model": "*-mini"}, False),
        ({"tag": "*]*"}, {"tag": "[a]"}, False),
    ],
)
def test_an_attachment_is_unreachable_only_where_an_earlier_one_takes_all_of_its_conversations(earlier, later, is_told):
    assert ("attachments.1" in said(config(earlier, later))) is is_told


@pytest.mark.parametrize(
    ("attachment", "where"),
    [
        ({"model": "gtp-4o"}, "attachments.0.model"),
        ({"team": "green"}, "attachments.0.team"),
        ({"upstream": "mian"}, "attachments.0.upstream"),
        ({"rollout": 0}, "attachments.0.rollout"),
    ],
)
def test_names_that_match_nothing_cause_a_warning(attachment, where):
    assert where in said(config(attachment))


@pytest.mark.parametrize(
    ("attachment", "where", "why"),
    [
        ({"team": "gr*"}, "attachments.0.team", "no team in `teams`"),
        ({"upstream": "az*"}, "attachments.0.upstream", "matches no upstream"),
        ({"team": "own", "upstream": "main"}, "attachments.0.upstream", "another upstream"),
        ({"team": "red", "model": "gpt-known"}, "attachments.0.model", "served by no upstream"),
    ],
)
def test_what_no_request_can_be_at_once_is_told(attachment, where, why):
    labs = [{"name": "lab", "models": ["lab-*"]}, {"name": "main", "models": ["m-*"]}]
    told = Config(upstreams=labs, teams={"red": {}, "own": {"upstream": "lab"}}, attachments=[attachment])
    assert why in said(told)[where]


def test_where_a_gateway_names_the_teams_any_name_is_one():
    told = Config(access={"team_header": "x-team"}, attachments=[{"team": "purple"}])
    assert said(told) == {}
    assert told.knows_team("purple")
    assert not told.knows_team("../purple")
    assert not Config().knows_team("purple")


def test_a_name_that_somebody_has_is_not_told():
    assert set(said(config({"model": "gpt-known", "team": "red", "upstream": "lab"}))) <= {
        "teams.red",
        "teams.blue",
        "upstreams.1",  # behind one that serves everything
    }


def test_a_target_below_what_is_kept_is_told():
    told = Config(policies={"odd": {"trigger_tokens": 20_000, "keep": {"tokens": 12_000}, "clear_at_least": 10_000}})
    assert {"policies.odd.keep.tokens", "policies.odd.clear_at_least"} <= set(said(told))


def test_a_team_whose_upstream_would_get_no_key_is_told():
    assert "has none either" in said(config())["teams.red"]


def test_a_key_that_every_stranger_could_use_is_told():
    keyed = [{"key": Secret("env:KEY", "sk-a")}]
    assert "without `teams`" in said(Config(listen={"host": "0.0.0.0"}, upstreams=keyed))["upstreams.0.key"]
    assert said(Config(upstreams=keyed)) == said(Config(listen={"host": "0.0.0.0"})) == {}
    assert said(Config(listen={"host": "0.0.0.0"}, upstreams=keyed, teams={"red": {}})) == {}


def test_the_shipped_settings_cause_no_warning():
    assert said(Config()) == {}
    assert Attachment().covers(Attachment(team="red"))
