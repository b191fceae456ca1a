"""`keys` and `switch`: changes by operators, and the output."""

import json
import threading
import time

import pytest
import yaml

from proxy.access.registry import Records
from proxy.cli import main
from proxy.server.listeners import announce
from proxy.telemetry import activity
from tests.support.running_proxy import free_port

CONFIG = {"teams": {"red": {}, "blue": {}}, "policies": {"bold": {}}}


@pytest.fixture
def folder(tmp_path):
    """The state folder of this test."""
    (tmp_path / "state").mkdir()
    return tmp_path / "state"


@pytest.fixture
def proxy(folder):
    """A state folder that a proxy uses."""
    with announce(folder, "http://127.0.0.1:8800"):
        yield


@pytest.fixture
def command(tmp_path, capsys):
    """Runs a command on a configuration and a state of this test; answers exit code, output and complaints."""

    def run(*words, config=CONFIG):
        (tmp_path / "proxy.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
        words += ("--yes",) if words[:2] == ("keys", "revoke") or words[0] == "switch" else ()
        code = main([*words, "--config", str(tmp_path / "proxy.yaml"), "--state", str(tmp_path / "state")])
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def run(proxy, command):
    return command


@pytest.fixture
def records(tmp_path):
    return Records(tmp_path / "state")


def test_what_a_stopped_proxy_left_can_be_read(command, folder):
    with announce(folder, "http://127.0.0.1:8800"):
        command("switch", "off", "--team", "red")
    code, out, err = command("switch", "show")
    assert (code, out, err) == (0, "all teams: on\nred: off\nblue: on\n", f"no proxy uses {folder} now\n")


def test_a_proxy_that_was_killed_does_not_count_as_running(command, folder):
    (folder / "running-k3f9.json").write_text('{"url": "http://127.0.0.1:8800", "since": 1.0}')
    assert command("switch", "off")[0] == 1
    with announce(folder, "http://127.0.0.1:8801"):
        assert len(list(folder.glob("running-*"))) == 1
        assert "in force at http://127.0.0.1:8801 since" in command("switch", "off")[2]
    assert list(folder.glob("running-*")) == []


def test_two_proxies_on_one_folder_are_both_named(run, folder):
    with announce(folder, "http://127.0.0.1:8801"):
        err = run("switch", "off")[2]
    assert "http://127.0.0.1:8800 since" in err
    assert "http://127.0.0.1:8801 since" in err


def test_acts_of_a_command_are_in_the_audit_log_like_those_of_the_pages(run, tmp_path):
    text = run("keys", "create", "--team", "red", "--days", "7")[1].strip()
    run("keys", "revoke", text)
    run("switch", "off", "--team", "blue")
    run("switch", "show")
    log = (tmp_path / "state" / "audit.jsonl").read_text()
    complaint = [json.loads(line) for line in log.splitlines()]
    key = text.split("-")[1]
    assert [(one["act"], one["subject"]) for one in complaint] == [
        ("create key", key), ("revoke key", key), ("switch off", "blue"),
    ]  # fmt: skip
    assert {(one["address"], one["outcome"]) for one in complaint} == {("command line", "done")}
    assert complaint[0]["details"] == {"team": "red", "days": 7.0}
    assert text.split("-", 2)[2] not in log


def test_a_command_waits_until_its_act_is_in_the_audit_log(run, monkeypatch):
    """A thread would be left behind with its entry when the disk stalls."""
    writing = []
    monkeypatch.setattr(activity.AuditFile, "_append", lambda *_: writing.append(threading.current_thread()))
    assert run("switch", "off")[0] == 0
    assert writing == [threading.main_thread()]


def test_an_act_that_cannot_be_written_is_reported_and_done(run, records, folder):
    (folder / "audit.jsonl").mkdir()
    code, _, err = run("switch", "off")
    assert (code, err.count("admin actions are not recorded")) == (0, 1)
    assert records.look()


def test_a_registry_that_cannot_be_read_or_written_is_reported_without_a_traceback(run, records, monkeypatch):
    run("keys", "create", "--team", "red")
    records.path.write_text("{")
    assert "repair it" in run("keys", "list")[2]
    records.path.unlink()
    records.path.mkdir()
    code, _, err = run("keys", "create", "--team", "red")
    assert code == 1
    assert "cannot be read or written" in err
    records.path.rmdir()
    monkeypatch.setattr(time, "time", lambda: -1.0)
    code, _, err = run("keys", "create", "--team", "red")
    assert (code, "set the clock right" in err, "move it away" in err) == (1, True, False)


def test_a_switch_during_an_outage_counts_locally_and_is_reported_once(run):
    away = {**CONFIG, "state": {"url": f"redis://127.0.0.1:{free_port()}/0"}}
    code, out, err = run("keys", "create", "--team", "red", config=away)
    assert (code, out[:3]) == (0, "cp-")
    assert err.count("cannot be reached") == err.count("its proxy passes it on") == 1
    code, out, err = run("keys", "list", config=away)
    assert (code, out.count(" open ")) == (0, 1)
    assert err.count("this is what this machine knows") == 1
