"""`check`: everything that is wrong with a configuration, at once, and nothing that is secret."""

import pytest

from proxy.cli import main
from proxy.config import as_yaml


@pytest.fixture
def check(tmp_path, capsys):
    """Checks a configuration of this text; answers exit code, output and complaints."""

    def run(text, *options):
        (tmp_path / "proxy.yaml").write_text(text)
        code = main(["check", str(tmp_path / "proxy.yaml"), *options])
        told = capsys.readouterr()
        return code, told.out, told.err

    return run


def test_a_good_file_is_told_to_be_good(check):
    code, out, err = check("upstreams: [{name: local, base_url: http://localhost:8000/v1}]\n")
    assert (code, err) == (0, "")
    assert out.endswith("proxy.yaml). Upstreams: local (http://localhost:8000/v1)\n")


def test_a_bad_file_is_told_with_every_fault_on_a_line_of_its_own(check):
    code, out, err = check("listen:\n  port: x\n  prot: 1\nlog: {level: loud}\n")
    assert (code, out) == (1, "")
    assert [line.split("proxy.yaml:")[1].split(": ")[:2] for line in err.splitlines()] == [
        ["2", "listen.port"],
        ["3", "listen.prot"],
        ["4", "log.level"],
    ]


def test_without_a_file_the_environment_is_checked(monkeypatch, capsys):
    monkeypatch.setenv("COMPACTION_PROXY_LISTEN__PORT", "eighty")
    assert main(["check"]) == 1
    assert capsys.readouterr().err.startswith("COMPACTION_PROXY_LISTEN__PORT: listen.port: ")


def test_a_file_that_is_not_there_is_a_fault_and_no_traceback(tmp_path, capsys):
    assert main(["check", str(tmp_path / "none.yaml")]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_a_key_that_was_written_into_the_file_is_not_repeated(check):
    code, out, err = check("upstreams: [{key: sk-canary-check}]\n")
    assert code == 1
    assert "say env:NAME or file:PATH" in err
    assert "canary" not in out + err


def test_the_defaults_can_be_printed_and_are_good(check, capsys):
    assert main(["check", "--defaults"]) == 0
    assert capsys.readouterr().out == as_yaml()
    assert check(as_yaml())[0] == 0
