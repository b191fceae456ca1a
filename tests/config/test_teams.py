"""Policies in the large: which one applies where, to how many, and what is hardly meant."""

import pytest

from proxy.config import Attachment, Config, InvalidConfig, Occasion, Secret, find_warnings, load
from proxy.config.values import WithoutSecrets

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
def test_an_impossible_value_is_refused_with_its_place(tmp_path, values, where):
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
def test_a_guessable_admin_key_is_refused(tmp_path, key):
    file = tmp_path / "proxy.yaml"
    file.write_text("admin: {key: env:KEY}")
    with pytest.raises(InvalidConfig, match=r"admin\.key: too weak") as invalid:
        load(file, {"KEY": key})
    assert key not in str(invalid.value)


SAME, OTHER = "v9Qw3kZr7LpX2mTb", "hY6uJ2kM8nB4vC1x"


@pytest.mark.parametrize(
    ("keys", "place", "holder"),
    [
        ({"ADMIN": SAME, "ANN": OTHER, "LEA": SAME}, "admin.users.lea.key", "admin.key"),
        ({"ADMIN": SAME, "ANN": OTHER, "LEA": f"{OTHER}\n"}, "admin.users.lea.key", "admin.users.ann.key"),
    ],
)
def test_two_admin_keys_must_not_be_the_same(tmp_path, keys, place, holder):
    """The rights of the first would count for the second, which may have far fewer."""
    users = {"ann": {"key": "env:ANN"}, "lea": {"key": "env:LEA", "role": "read", "team": "red"}}
    file = tmp_path / "proxy.yaml"
    file.write_text(str({"teams": {"red": {}}, "admin": {"key": "env:ADMIN", "users": users}}))
    with pytest.raises(InvalidConfig) as invalid:
        load(file, keys)
    assert [fault.path for fault in invalid.value.faults] == [place]
    assert f"same key as {holder}" in str(invalid.value)
    assert SAME not in str(invalid.value)
    assert OTHER not in str(invalid.value)
    assert load(file, {**keys, "LEA": "pL0oK9iJ8uH7yG6tF5rD4eS3"}).config.admin.users.keys() == {"ann", "lea"}
    assert load(file, WithoutSecrets()).config.admin.users.keys() == {"ann", "lea"}, "no key is known"


def test_a_strong_admin_key_is_accepted_and_a_password_in_a_url_is_not_printed(tmp_path):
    file = tmp_path / "proxy.yaml"
    file.write_text(str({"admin": {"key": "env:KEY"}, "state": {"url": "env:URL"}}))
    loaded = load(file, {"KEY": "v9Qw3kZr7LpX2mTb", "URL": "rediss://:canary@host:6380/1"}).config
    assert "canary" not in repr(loaded)
    assert loaded.state.url.value.endswith("/1")


# --- what is hardly meant ---


def warnings_of(found):
    return dict(find_warnings(found, lambda model: model == "gpt-known"))


def test_an_attachment_behind_one_that_decides_everything_causes_a_warning():
    loaded = config({"policy": "bold", "team": "r*"}, {"policy": "gentle", "team": "red", "model": "gpt-*"})
    assert "never reached: attachments.0" in warnings_of(loaded)["attachments.1"]
    assert "attachments.1" not in warnings_of(config({"policy": "bold", "team": "r*", "rollout": 50}, {"team": "red"}))


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
    assert ("attachments.1" in warnings_of(config(earlier, later))) is is_told


@pytest.mark.parametrize(
    ("attachment", "where", "why"),
    [
        ({"model": "gtp-4o"}, "attachments.0.model", "is no known model"),
        ({"team": "gr*"}, "attachments.0.team", "no team in `teams`"),
        ({"upstream": "az*"}, "attachments.0.upstream", "matches no upstream"),
        ({"team": "own", "upstream": "main"}, "attachments.0.upstream", "another upstream"),
        ({"team": "red", "model": "gpt-known"}, "attachments.0.model", "served by no upstream"),
    ],
)
def test_an_attachment_that_no_request_can_match_causes_a_warning(attachment, where, why):
    labs = [{"name": "lab", "models": ["lab-*"]}, {"name": "main", "models": ["m-*"]}]
    loaded = Config(upstreams=labs, teams={"red": {}, "own": {"upstream": "lab"}}, attachments=[attachment])
    assert why in warnings_of(loaded)[where]


def test_where_a_gateway_names_the_teams_any_name_is_one():
    loaded = Config(access={"team_header": "x-team"}, attachments=[{"team": "purple"}])
    assert warnings_of(loaded) == {}
    assert loaded.knows_team("purple")
    assert not loaded.knows_team("../purple")
    assert not Config().knows_team("purple")


def test_a_name_in_use_causes_no_warning():
    assert set(warnings_of(config({"model": "gpt-known", "team": "red", "upstream": "lab"}))) <= {
        "teams.red",
        "teams.blue",
        "upstreams.1",  # behind one that serves everything
    }


def test_a_target_below_the_kept_tokens_causes_a_warning():
    loaded = Config(policies={"odd": {"trigger_tokens": 20_000, "keep": {"tokens": 12_000}, "clear_at_least": 10_000}})
    assert {"policies.odd.keep.tokens", "policies.odd.clear_at_least"} <= set(warnings_of(loaded))


@pytest.mark.parametrize(("trigger", "used"), [(5_000, 833), (15_000, 2_500)])
def test_a_trigger_too_low_for_the_longest_summary_causes_a_warning(trigger, used):
    loaded = Config(policies={"low": {"inherit": "j-cli", "trigger_tokens": trigger}})
    expected = f"is 20,000, but {used:,} is used: trigger_tokens has no room for more"
    assert warnings_of(loaded)["policies.low.summary.max_tokens"] == expected
    assert not warnings_of(Config(policies={"low": {"inherit": "j-cli"}}))


def test_a_team_whose_upstream_would_get_no_key_causes_a_warning():
    assert "has none either" in warnings_of(config())["teams.red"]


def test_a_key_that_any_caller_could_use_causes_a_warning():
    keyed = [{"key": Secret("env:KEY", "sk-a")}]
    assert "without `teams`" in warnings_of(Config(listen={"host": "0.0.0.0"}, upstreams=keyed))["upstreams.0.key"]
    assert warnings_of(Config(upstreams=keyed)) == warnings_of(Config(listen={"host": "0.0.0.0"})) == {}
    assert warnings_of(Config(listen={"host": "0.0.0.0"}, upstreams=keyed, teams={"red": {}})) == {}


def test_the_shipped_settings_cause_no_warning():
    assert warnings_of(Config()) == {}
    assert Attachment().covers(Attachment(team="red"))
