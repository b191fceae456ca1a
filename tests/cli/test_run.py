"""`run -- COMMAND`: a command gets the address of a proxy, its exit code comes back, and the saving is told."""

import asyncio
import json
import socket
import subprocess
import sys
from asyncio.subprocess import PIPE
from urllib.parse import urlsplit

import pytest

from proxy.cli import run
from proxy.server.listeners import find_running
from tests.support.agent import reading
from tests.support.commands import run_command
from tests.support.messages import body
from tests.support.running_proxy import serving
from tests.support.scripted_upstream import Upstream, answer, text_turn

AGENT = """
import json, os, sys, urllib.request
for line in open(sys.argv[1], "rb"):
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    request = urllib.request.Request(url, data=line, headers={"content-type": "application/json"})
    print(urllib.request.urlopen(request).status, os.environ["ANTHROPIC_BASE_URL"], flush=True)
sys.exit(7)
"""


@pytest.fixture
def agent(tmp_path):
    (tmp_path / "agent.py").write_text(AGENT)
    requests = [body(reading(files), model="gpt-5.1") for files in (8, 12, 20)]
    (tmp_path / "requests.jsonl").write_bytes(b"\n".join(requests))
    config = {"policies": {"default": {"trigger_tokens": 6_000, "summary": {"enabled": False}}}}
    (tmp_path / "proxy.yaml").write_text(json.dumps(config))
    return ("--", sys.executable, "agent.py", "requests.jsonl")


async def test_a_proxy_is_started_for_the_command_and_ends_with_it(tmp_path, agent):
    async with Upstream(text_turn("ok")) as up:
        ended = await run_command("run", *agent, place=tmp_path, OPENAI_UPSTREAM=up.url)
    assert ended.code == 7
    assert ended.out.count("200 http://127.0.0.1:") == 3
    assert "% less)" in ended.complaint
    assert "0 results fetched again." in ended.complaint
    assert not list((tmp_path / "state").glob("running-*.json"))


async def test_a_proxy_that_runs_is_taken(tmp_path, agent):
    async with Upstream(text_turn("ok")) as up, serving(up.url, place=tmp_path) as proxy:
        ended = await run_command("run", *agent, place=tmp_path)
        assert ended.code == 7
        assert ended.out.count(f"200 {proxy.origin}") == 3


async def test_two_at_once_have_a_proxy_each_and_a_signal_leaves_none_behind(tmp_path):
    """The first one to end would take the other's proxy with it."""
    command = (sys.executable, "-m", "proxy", "run", "--state", str(tmp_path / "state"), "--", "sh", "-c")
    show = 'echo "$ANTHROPIC_BASE_URL"; exec sleep 60'
    runs = [
        await asyncio.create_subprocess_exec(*command, show, cwd=tmp_path, stdout=PIPE, stderr=PIPE) for _ in range(2)
    ]
    urls = {await each.stdout.readline() for each in runs}
    assert len(urls) == 2
    for each in runs:
        each.terminate()
    assert {await asyncio.wait_for(each.wait(), 60) for each in runs} == {143}
    assert not find_running(tmp_path / "state")


LATE = """
import socket, sys, time
from pathlib import Path
from proxy.server.listeners import announce
with socket.socket() as sock:
    sock.bind(("127.0.0.1", 0))
    with announce(Path(sys.argv[1]), f"http://127.0.0.1:{sock.getsockname()[1]}"):
        time.sleep(0.5)
        sock.listen()
        time.sleep(60)
"""


def test_the_command_begins_once_the_proxy_takes_connections(tmp_path):
    with subprocess.Popen([sys.executable, "-c", LATE, str(tmp_path)]) as server:
        try:
            url = urlsplit(run._await_start(tmp_path, server))
            socket.create_connection((url.hostname, url.port)).close()
        finally:
            server.kill()


async def test_a_command_that_is_not_there_is_named(tmp_path):
    ended = await run_command("run", "--", "no-such-agent", place=tmp_path, OPENAI_UPSTREAM="http://127.0.0.1:9/v1")
    assert (ended.code, "no-such-agent: No such file" in ended.complaint) == (1, True)


@pytest.fixture
def claude(tmp_path):
    ask = "urllib.request.urlopen(os.environ['ANTHROPIC_BASE_URL'] + '/v1/models')"
    (tmp_path / "claude").write_text(f"#!{sys.executable}\nimport os, urllib.request\n{ask}\n")
    (tmp_path / "claude").chmod(0o700)


@pytest.mark.usefixtures("claude")
async def test_the_key_of_claude_does_not_go_to_openai_by_a_proxy_that_runs(tmp_path):
    async with Upstream(answer({"data": []})) as up, serving(None, place=tmp_path):
        ended = await run_command("run", "--", "./claude", place=tmp_path, ANTHROPIC_BASE_URL=up.origin)
    assert (ended.code, len(up.requests)) == (0, 1)


@pytest.mark.usefixtures("claude")
async def test_claude_goes_to_the_upstream_of_the_configuration_if_there_is_one(tmp_path):
    async with Upstream(answer({"data": []})) as up:
        variables = {"COMPACTION_PROXY_UPSTREAMS__0__BASE_URL": up.url, "PATH": "/usr/bin:/bin"}
        ended = await run_command("run", "--", "./claude", place=tmp_path, **variables)
    assert (ended.code, len(up.requests)) == (0, 1)


async def test_codex_is_told_by_options(tmp_path):
    (tmp_path / "codex").write_text('#!/bin/sh\nprintf \'%s\\n\' "$@" "$OPENAI_BASE_URL"\n')
    (tmp_path / "codex").chmod(0o700)
    async with Upstream(text_turn("ok")) as up:
        ended = await run_command("run", "--", "./codex", "exec", "Mend it.", place=tmp_path, OPENAI_UPSTREAM=up.url)
    *words, url = ended.out.splitlines()
    assert words[:3] == ["-c", 'model_provider="proxy"', "-c"]
    assert f'base_url="{url}"' in words[3]
    assert words[4:] == ["exec", "Mend it."]
