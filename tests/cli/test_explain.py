"""`explain`: what is in force, each value with its origin."""

import json

import pytest

from proxy.access.registry import Records, create_team_key
from proxy.cli import main

FILE = """\
listen:
  port: 9000
upstreams:
  - {name: house, models: ["gpt-*"], key: "env:HOUSE_KEY", retries: 3}
  - name: local
    base_url: http://localhost:8000/v1
    headers: {x-api-key: "env:HOUSE_KEY", x-team: red}
teams:
  red: {policy: bold, upstream: local}
policies:
  bold: {clear_at_least: 20000}
attachments:
  - {policy: observe, team: red, tag: trial, rollout: 5}
  - {policy: bold, team: red, tag: trial, mode: observe, rollout: 20}
"""


@pytest.fixture
def explain(tmp_path, capsys, monkeypatch):
    """Explains this file; answers exit code and, per path, its value and origin."""
    monkeypatch.setenv("HOUSE_KEY", "sk-canary-explain")

    def run(*options, text=FILE, **environ):
        for name, value in environ.items():
            monkeypatch.setenv(f"COMPACTION_PROXY_{name}", value)
        (tmp_path / "proxy.yaml").write_text(text)
        code = main(["explain", "--config", str(tmp_path / "proxy.yaml"), *options])
        output = capsys.readouterr()
        assert "canary" not in output.out + output.err
        rows = {}
        for line in output.out.splitlines():
            path, _, rest = line.partition("  ")
            value, _, origin = rest.strip().partition("  ")
            rows[path] = (value, origin.strip().replace(f"{tmp_path}/", ""))
        return code, rows

    return run


def test_every_value_has_its_origin(explain):
    code, rows = explain("--model", "gpt-4o", LOG__LEVEL="debug")
    assert code == 0
    assert rows["upstreams.0.name"] == ("house", "proxy.yaml:4")
    assert rows["upstreams.0.retries"] == ("3", "proxy.yaml:4")
    assert rows["listen.port"] == ("9000", "proxy.yaml:2")
    assert rows["log.level"] == ("debug", "COMPACTION_PROXY_LOG__LEVEL")
    assert rows["log.format"] == ("auto", "default")


def test_only_what_is_no_default_is_shown_where_asked_for_and_as_json_has_it(explain, tmp_path, capsys):
    _, rows = explain("--model", "gpt-4o", "--changed", LOG__LEVEL="debug")
    assert {"upstreams.0.retries", "listen.port", "log.level"} < set(rows)
    assert not [origin for _, origin in rows.values() if origin.startswith("default")]
    assert main(["explain", "--config", str(tmp_path / "proxy.yaml"), "--json"]) == 0
    values = {row["setting"]: row["value"] for row in json.loads(capsys.readouterr().out)}
    assert (values["listen.port"], values["listen.tls_cert"], values["transcripts.required"]) == (9000, None, False)
    assert values["policy default.always"] == [{"clip_output": {}}, {"dedup_arrivals": {}}]


def test_settings_missing_in_the_file_are_defaults_also_in_an_upstream_and_a_team(explain):
    _, rows = explain("--team", "red")
    assert rows["upstreams.1.headers"][1] == "proxy.yaml:7"
    unset = {path: origin for path, (_, origin) in rows.items() if path.startswith(("upstreams.1.", "teams.red."))}
    for path in ("name", "base_url", "headers"):
        assert unset.pop(f"upstreams.1.{path}").startswith("proxy.yaml:")
    for path in ("policy", "upstream"):
        assert unset.pop(f"teams.red.{path}").startswith("proxy.yaml:")
    assert len(unset) > 10
    assert set(unset.values()) == {"default"}


@pytest.mark.parametrize(
    ("policy", "added"),
    [("default", "cache-marks, cache-key"), ("lossless", "cache-marks, cache-key"), ("off", "nothing")],
)
def test_what_is_added_to_a_request_for_the_cache_has_its_line(explain, policy, added):
    _, rows = explain("--policy", policy, text="upstreams: [{name: a, base_url: 'https://api.openai.com/v1'}]\n")
    value, origin = rows[f"added to requests under {policy}, if the client sets none"]
    assert value == added
    assert origin == "all other bytes are the client's, but for shortened messages"


def test_an_attachment_that_only_observes_adds_nothing(explain):
    text = "attachments: [{policy: default, tag: a, rollout: 5}, {policy: default, mode: observe}]\n"
    _, rows = explain("--tag", "a", text=text)
    ending = ", if the client sets none"
    assert rows[f"added to requests under default{ending}"][0] == "cache-marks, cache-key"
    assert rows[f"added to requests under default (mode observe){ending}"][0] == "nothing"
    _, rows = explain(text=text)
    assert f"added to requests under default{ending}" not in rows


def test_a_policy_that_stores_no_text_says_so_and_saves_no_transcripts(explain):
    _, rows = explain("--policy", "mine", text="policies: {mine: {store_text: false}}\n")
    assert rows["stored under mine"] == (
        "no text",
        "blocks and summaries are in the memory of each worker, until it ends",
    )
    assert rows["policy mine.transcripts"] == ("false", "proxy.yaml:1 (policy mine)")
    assert "stored under default" not in explain(text="policies: {mine: {store_text: false}}\n")[1]


def test_what_a_policy_says_of_steps_and_tools_has_its_line(explain):
    text = "policies:\n  mine:\n    steps: {clear_results: {over: 9}}\n    tools:\n      git: {dedup: true}\n"
    _, rows = explain("--policy", "mine", "--changed", text=text)
    assert rows["policy mine.steps.clear_results"][1] == "proxy.yaml:3 (policy mine)"
    assert rows["policy mine.tools.git"][1] == "proxy.yaml:5 (policy mine)"


@pytest.mark.parametrize("text", ["", "listen: {host: 127.0.0.2, port: 9000}\n"])
def test_a_group_that_one_variable_sets_is_replaced_with_its_origins(explain, text):
    _, rows = explain(text=text, LISTEN="{port: 9001}")
    assert rows["listen.port"] == ("9001", "COMPACTION_PROXY_LISTEN")
    assert rows["listen.host"] == ("127.0.0.1", "default")


def test_an_unambiguous_value_is_accepted(explain):
    text = """
    log: {level: INFO}
    teams: {research: , support: }
    policies: {default: {pins: {markers: "IMPORTANT:"}}}
    """
    code, rows = explain(text=text)
    assert code == 0
    assert rows["log.level"][0] == "info"
    assert rows["policy default.pins.markers"][0] == "IMPORTANT:"


def test_a_policy_that_is_named_nowhere_applies_by_default(explain):
    _, rows = explain(text="upstreams: [{name: a, base_url: 'http://localhost:9/v1'}]\n")
    assert rows["applies"][1] == "default (upstreams.0.policy)"


def test_a_secret_is_shown_as_the_name_of_its_source(explain):
    _, rows = explain("--model", "gpt-4o")
    assert rows["upstreams.0.key"] == ("env:HOUSE_KEY", "proxy.yaml:4")
    _, rows = explain("--model", "llama")
    value, _ = rows["upstreams.1.headers"]
    assert "env:HOUSE_KEY" in value
    assert "red" in value


def test_the_upstream_is_the_one_that_serves_the_model(explain):
    assert explain("--model", "llama")[1]["upstreams.1.name"][0] == "local"
    assert explain()[1]["upstreams.0.name"][0] == "house"


def test_while_a_policy_is_rolled_out_each_one_is_shown_with_how_many_it_gets(explain):
    _, rows = explain("--team", "red", "--tag", "trial")
    assert rows["applies to 5 % of conversations"][1] == "proxy.yaml:13 (attachments.0)"
    assert rows["applies to 15 % of conversations"][1] == "proxy.yaml:14 (attachments.1)"
    assert rows["applies to 80 % of conversations"][1] == "proxy.yaml:9 (teams.red.policy)"
    assert rows["policy bold.clear_at_least"] == ("20000", "proxy.yaml:11 (policy bold)")
    assert rows["policy observe.mode"] == ("observe", "shipped policy observe")
    assert rows["teams.red.upstream"] == ("local", "proxy.yaml:9")
    assert rows["upstreams.1.name"][0] == "local"


def test_a_key_resolves_to_its_own_team_only(explain, tmp_path):
    state = ("--state", str(tmp_path / "state"))
    text, key = create_team_key("red", 1.0)
    Records(tmp_path / "state").change(lambda known: known.with_key(key))
    for shown in (key.id, text):
        assert explain("--key", shown, *state)[1]["applies"][1] == "proxy.yaml:9 (teams.red.policy)"
    assert explain("--key", key.id, "--team", "blue", *state)[0] == 1


def test_a_model_without_an_upstream_is_reported_with_advice(tmp_path, capsys):
    (tmp_path / "proxy.yaml").write_text("upstreams: [{models: ['gpt-*']}]\n")
    assert main(["explain", "--config", str(tmp_path / "proxy.yaml"), "--model", "llama"]) == 1
    assert "upstreams.models" in capsys.readouterr().err


def test_with_a_model_the_limits_are_shown_that_are_in_force_in_its_window(explain):
    _, rows = explain("--model", "gpt-4o")
    assert rows["gpt-4o under default: shortened over"][0] == "75000"
    assert explain("--model", "claude-opus-5-5")[1]["claude-opus-5-5 under default: shortened over"][0] == "95000"
    _, rows = explain("--model", "claude-opus-5-5", "--policy", "middleware")
    assert rows["claude-opus-5-5 under middleware: shortened over"][0] == "199999"
    assert "claude-opus-5-5 under middleware: with an expired cache" not in rows
    assert explain("--model", "gpt-5.6")[1]["gpt-5.6 under default: a cache expires after"][0] == "1800.0"
