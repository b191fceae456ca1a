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


@pytest.mark.parametrize("text", ["", "listen: {host: 127.0.0.2, port: 9000}\n"])
def test_a_group_that_one_variable_sets_is_replaced_with_its_origins(explain, text):
    _, rows = explain(text=text, LISTEN="{port: 9001}")
    assert rows["listen.port"] == ("9001", "COMPACTION_PROXY_LISTEN")
    assert rows["listen.host"] == ("127.0.0.1", "default")


def test_a_policy_that_is_named_nowhere_applies_by_default(explain):
    _, rows = explain(text="upstreams: [{name: a, base_url: 'http://localhost:9/v1'}]\n")
    assert rows["applies"][1] == "default (upstreams.0.policy)"


def test_a_key_resolves_to_its_own_team_only(explain, tmp_path):
    state = ("--state", str(tmp_path / "state"))
    text, key = create_team_key("red", 1.0)
    Records(tmp_path / "state").change(lambda known: known.with_key(key))
    for shown in (key.id, text):
        assert explain("--key", shown, *state)[1]["applies"][1] == "proxy.yaml:9 (teams.red.policy)"
    assert explain("--key", key.id, "--team", "blue", *state)[0] == 1


def test_with_a_model_the_limits_are_shown_that_are_in_force_in_its_window(explain):
    _, rows = explain("--model", "gpt-4o")
    assert rows["gpt-4o under default: shortened over"][0] == "75000"
    assert explain("--model", "claude-opus-5-5")[1]["claude-opus-5-5 under default: shortened over"][0] == "95000"
    _, rows = explain("--model", "claude-opus-5-5", "--policy", "middleware")
    assert rows["claude-opus-5-5 under middleware: shortened over"][0] == "199999"
    assert "claude-opus-5-5 under middleware: with an expired cache" not in rows
    assert explain("--model", "gpt-5.6")[1]["gpt-5.6 under default: a cache expires after"][0] == "1800.0"
