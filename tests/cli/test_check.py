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


def test_the_defaults_can_be_printed_and_are_good(check, capsys):
    assert main(["check", "--defaults"]) == 0
    assert capsys.readouterr().out == as_yaml()
    assert check(as_yaml())[0] == 0


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
