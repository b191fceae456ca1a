"""`serve` and the command line as such: its output when it cannot start, and that it needs no file to start."""

import asyncio
import os
import pty
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from proxy import __version__
from proxy.cli import COMMANDS, main
from proxy.server import supervisor
from tests.support.proxy_client import ask, chat
from tests.support.running_proxy import free_port


@pytest.fixture
def complain(capsys, monkeypatch, tmp_path):
    """Runs `serve` in an empty folder, where it cannot start; answers what it complains of."""
    monkeypatch.chdir(tmp_path)

    def run(*options):
        assert main(["serve", *options]) == 1
        return capsys.readouterr().err.splitlines()

    return run


def test_a_port_in_use_is_reported_without_a_traceback(complain):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        lines = complain("--port", str(port))
    assert lines == [f"cannot listen on 127.0.0.1:{port}: Address already in use; choose another with --port"]


@pytest.mark.parametrize(
    ("host", "why"),
    [
        ("192.0.2.1", "Cannot assign requested address"),
        ("2001:db8::1", "Cannot assign requested address"),
        ("nowhere.invalid", ""),
        ("http://127.0.0.1", ""),
        ("127.0.0.1:8800", ""),
        ("a..b", ""),
    ],
)
def test_an_address_that_is_not_of_this_machine_is_reported_with_the_option_to_change(complain, host, why):
    (line,) = complain("--host", host, "--port", "0")
    assert line.startswith(f"cannot listen on {host}:0: {why}")
    assert line.endswith("; choose another with --host")


def test_several_workers_do_not_share_the_port_of_another_proxy(complain, monkeypatch):
    monkeypatch.setattr(supervisor, "serve", lambda *_: 0)
    with socket.create_server(("127.0.0.1", 0), reuse_port=True) as other:
        (line,) = complain("--port", str(other.getsockname()[1]), "--workers", "2")
    assert "Address already in use" in line


@pytest.mark.parametrize("broken", [('{"format": 1, "ke', "repair it"), ('{"format": 2}', "format 1"), (None, "owner")])
@pytest.mark.parametrize("options", [(), ("--workers", "2")])
def test_a_registry_that_cannot_be_read_is_reported_before_any_worker_starts(
    complain, monkeypatch, tmp_path, options, broken
):
    text, why = broken
    monkeypatch.setattr(supervisor, "serve", lambda *_: 0)
    registry = tmp_path / "state" / "registry.json"
    registry.parent.mkdir()
    registry.mkdir() if text is None else registry.write_text(text)  # even root cannot read a folder
    (line,) = complain("--port", "0", *options)
    assert why in line


async def test_no_file_is_needed_and_the_upstream_may_come_from_the_environment(up, serve):
    async with serve(None, environment={"OPENAI_UPSTREAM": up.url}) as proxy:
        assert (await ask(proxy, chat())).status == 200
    assert len(up.requests) >= 1


async def test_on_a_terminal_it_says_what_to_export_and_ctrl_c_ends_it_well(tmp_path):
    ours, theirs = pty.openpty()
    port = free_port()
    command = [sys.executable, "-m", "proxy", "serve", "--port", str(port), "--upstream", "http://127.0.0.1:1/v1"]
    process = await asyncio.create_subprocess_exec(
        *command, cwd=tmp_path, env={"TERM": "dumb"}, stdout=theirs, stderr=theirs, start_new_session=True
    )
    os.close(theirs)
    seen = b""
    while b"version" not in seen:  # the first line of the log: it can be interrupted now
        seen += await asyncio.to_thread(os.read, ours, 4096)
    process.send_signal(2)
    assert await asyncio.wait_for(process.wait(), 60) == 130
    with suppress(OSError):
        while more := os.read(ours, 4096):
            seen += more
    os.close(ours)
    assert f"export OPENAI_BASE_URL=http://127.0.0.1:{port}/v1".encode() in seen
    assert b"Traceback" not in seen
    assert b'{"' not in seen


@pytest.mark.seconds
@pytest.mark.parametrize("command", ["compaction-proxy", "python -m proxy"])
def test_the_command_has_two_names(command):
    words = [sys.executable, "-m", "proxy"] if "-m" in command else [str(Path(sys.executable).with_name(command))]
    output = subprocess.run([*words, "--version"], capture_output=True, text=True, check=True, timeout=120)
    assert output.stdout == f"compaction-proxy {__version__}\n"


def test_help_names_every_command_and_is_shown_without_one(capsys):
    assert main([]) == 0
    output = capsys.readouterr().out
    assert output.startswith("usage: compaction-proxy")
    assert [name for name in COMMANDS if f"\n    {name}" not in output] == []
    with pytest.raises(SystemExit):
        main(["--help"])
    assert capsys.readouterr().out == output
