"""`explain`: what is in force, each value with its origin."""

import json

import pytest

from proxy.cli import main

FILE = """\
upstreams:
  - {name: house, models: ["gpt-*"]}
  - name: local
    base_url: http://localhost:8000/v1
    headers: {x-api-key: "env:HOUSE_KEY", x-team: red}
teams:
  red: {policy: bold, upstream: local}
policies:
  bold: {clear_at_least: 20000}
"""


@pytest.fixture
def explain(tmp_path, capsys, monkeypatch):
    """Explains this file; answers, per path, its value and origin."""
    monkeypatch.setenv("HOUSE_KEY", "sk-explain")

    def run(*options, text=FILE):
        (tmp_path / "proxy.yaml").write_text(text)
        assert main(["explain", "--config", str(tmp_path / "proxy.yaml"), *options]) == 0
        rows = {}
        for line in capsys.readouterr().out.splitlines():
            path, _, rest = line.partition("  ")
            value, _, origin = rest.strip().partition("  ")
            rows[path] = (value, origin.strip().replace(f"{tmp_path}/", ""))
        return rows

    return run


def test_as_json_each_value_has_its_own_form(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "proxy.yaml").write_text("listen: {port: 9000}\n")
    assert main(["explain", "--json"]) == 0
    values = {row["setting"]: row["value"] for row in json.loads(capsys.readouterr().out)}
    assert (values["listen.port"], values["listen.tls_cert"], values["transcripts.required"]) == (9000, None, False)
    assert values["policy default.always"] == [{"clip_output": {}}, {"dedup_arrivals": {}}]


def test_settings_missing_in_the_file_are_defaults_also_in_an_upstream_and_a_team(explain):
    rows = explain("--team", "red")
    assert rows["upstreams.1.headers"][1] == "proxy.yaml:5"
    unset = {path: origin for path, (_, origin) in rows.items() if path.startswith(("upstreams.1.", "teams.red."))}
    for path in ("name", "base_url", "headers"):
        assert unset.pop(f"upstreams.1.{path}").startswith("proxy.yaml:")
    for path in ("policy", "upstream"):
        assert unset.pop(f"teams.red.{path}").startswith("proxy.yaml:")
    assert len(unset) > 10
    assert set(unset.values()) == {"default"}


def test_a_policy_that_is_named_nowhere_applies_by_default(explain):
    rows = explain(text="upstreams: [{name: a, base_url: 'http://localhost:9/v1'}]\n")
    assert rows["applies"][1] == "default (upstreams.0.policy)"


def test_with_a_model_the_limits_are_shown_that_are_in_force_in_its_window(explain):
    rows = explain("--model", "gpt-4o")
    assert rows["gpt-4o under default: shortened over"][0] == "75000"
    assert explain("--model", "claude-opus-5-5")["claude-opus-5-5 under default: shortened over"][0] == "95000"
    rows = explain("--model", "claude-opus-5-5", "--policy", "middleware")
    assert rows["claude-opus-5-5 under middleware: shortened over"][0] == "199999"
    assert "claude-opus-5-5 under middleware: with an expired cache" not in rows
    assert explain("--model", "gpt-5.6")["gpt-5.6 under default: a cache expires after"][0] == "1800.0"
