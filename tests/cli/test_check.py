"""`check`: everything that is wrong with a configuration, at once, and nothing that is secret."""

import pytest

from proxy.cli import main
from proxy.config.defaults import as_yaml
from proxy.server.listeners import announce


@pytest.fixture
def check(tmp_path, capsys):
    """Checks a configuration of this text; answers exit code, output and complaints."""

    def run(text, *options):
        (tmp_path / "proxy.yaml").write_text(text)
        code = main(["check", str(tmp_path / "proxy.yaml"), *options])
        output = capsys.readouterr()
        return code, output.out, output.err

    return run


def test_check_accepts_a_good_file(check):
    code, out, err = check("upstreams: [{name: local, base_url: http://localhost:8000/v1}]\n")
    assert (code, err) == (0, "")
    assert out.endswith("proxy.yaml). Upstreams: local (http://localhost:8000/v1)\n")


def test_the_defaults_can_be_printed_and_are_good(check, capsys):
    assert main(["check", "--defaults"]) == 0
    assert capsys.readouterr().out == as_yaml()
    assert check(as_yaml())[0] == 0


def test_a_setting_without_effect_is_a_warning_and_no_fault(check):
    code, out, _ = check("transcripts: {keep: off, required: true}\n")
    assert code == 0
    assert "warning: transcripts.required: has no effect" in out


def test_check_says_which_teams_have_no_text_stored_and_who_reads_it_nevertheless(check):
    policy = "{store_text: false, summary: {upstream: default}}"
    code, out, _ = check(f"policies: {{quiet: {policy}}}\nteams: {{red: {{policy: quiet}}, blue: {{}}}}\n")
    assert code == 0
    assert "policy quiet (teams: red): no text is stored; blocks and summaries are in the memory of each worker" in out
    assert "upstream 'default' reads the conversations for summaries" in out


@pytest.mark.parametrize("text", ["", "# upstreams: []\n", "teams:\n"])
def test_a_file_without_settings_is_a_warning(check, text):
    code, out, _ = check(text)
    assert code == 0
    assert "proxy.yaml: holds no setting: the defaults are in force, with no teams" in out


@pytest.mark.parametrize("command", [["keys", "create", "--team", "red"], ["switch", "show"], ["explain"]])
def test_commands_that_use_no_secret_need_none(tmp_path, capsys, command):
    (tmp_path / "proxy.yaml").write_text(
        "upstreams: [{key: env:UPKEY, headers: {x-api-key: env:UPKEY}}]\n"
        "teams: {red: {upstream: default, key: env:UPKEY}}\n"
        "admin: {key: env:UPKEY}\n"
    )
    (tmp_path / "state").mkdir()
    with announce(tmp_path / "state", "http://127.0.0.1:8800"):
        assert main([*command, "--config", str(tmp_path / "proxy.yaml")]) == 0
    assert main(["check", str(tmp_path / "proxy.yaml")]) == 1
    assert "variable UPKEY is empty or missing" in capsys.readouterr().err
