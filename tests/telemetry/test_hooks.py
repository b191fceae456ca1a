"""Somebody else is told what happened: a real command, a real server. Whatever they do holds up nobody."""

import asyncio
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from proxy.events import BreakerOpened, CompactionStarted
from proxy.telemetry.hooks import Hooks
from tests.support.agent import Agent
from tests.support.compacting_proxy import SMALL, WIDE, WORK, metric
from tests.support.proxy_client import log_of
from tests.support.scripted_upstream import Upstream, answer, close, hang, raw
from tests.support.scripted_upstream import says as tells

OPENED = BreakerOpened("c0ffee", "default")


@dataclass(frozen=True)
class Hook:
    """As the configuration would have it."""

    command: tuple[str, ...] = ()
    address: str = ""
    events: tuple[str, ...] = ("breaker-opened",)
    seconds: float = 5.0


def runs(code, *arguments, **more):
    return Hook((sys.executable, "-c", code, *map(str, arguments)), **more)


async def until(true, seconds=10.0):
    async with asyncio.timeout(seconds):
        while not (found := true()):  # noqa: ASYNC110 (another process)
            await asyncio.sleep(0.02)
    return found


async def complaint(hook):
    """What the operator is told of a hook that an event was brought to."""
    told = []
    Hooks([hook], told.append)(OPENED)
    await until(lambda: told)
    return told[0]


# --- in a proxy ------------------------------------------------------------------------------------------------------


def house(up, *hooks):
    return {
        "upstreams": [{**WIDE, "base_url": up.url}],
        "policies": {"default": SMALL},
        "hooks": list(hooks),
        "log": {"format": "json"},
    }


async def test_commands_are_run_and_urls_called_and_one_that_fails_or_hangs_holds_up_nobody(serve, tmp_path):
    noted = tmp_path / "noted"
    writes = f"import sys; open({str(noted)!r}, 'a').write(sys.stdin.read() + chr(10))"
    async with Upstream(tells("Go on.")) as up, Upstream(answer(b"")) as listener:
        absent = {"command": ["/no/such/program"]}
        hanging = {"command": [sys.executable, "-c", "import time; time.sleep(60)"], "seconds": 0.2}
        command = {"events": ["compaction-ended"], "command": [sys.executable, "-c", writes]}
        url = {"events": ["compaction-started", "compaction-ended"], "url": f"{listener.origin}/hook"}
        async with serve(None, config=house(up, absent, hanging, command, url)) as proxy:
            step = await Agent(proxy, up, "sk-a").sends(WORK)
            await until(lambda: noted.exists() and noted.read_text().endswith("\n") and len(listener.requests) == 2)
            await asyncio.gather(*(request.end() for request in listener.requests))
            await until(lambda: len(log_of(proxy, "hook-failed")) == 2)
            assert await metric(proxy, "store_faults_total") == 0
    (event,) = map(json.loads, noted.read_text().splitlines())
    assert step.compaction == "created"
    assert event["event"] == "compaction-ended"
    assert (event["tokens_before"], event["tokens_after"]) == step.tokens
    assert [request.json["event"] for request in listener.requests] == ["compaction-started", "compaction-ended"]
    assert "hook /no/such/program failed: FileNotFoundError" in proxy.output
    assert f"hook {sys.executable} was killed: its time was up" in proxy.output


# --- commands --------------------------------------------------------------------------------------------------------


async def test_a_command_gets_the_event_and_a_path_and_no_secret_of_ours(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary")
    writes = "import os, sys, pathlib; pathlib.Path(sys.argv[1]).write_text(f'{sys.stdin.read()}|{dict(os.environ)}')"
    Hooks([runs(writes, tmp_path / "noted")], pytest.fail)(OPENED)
    text = await until(lambda: (tmp_path / "noted").exists() and (tmp_path / "noted").read_text())
    event, _, environment = text.partition("|")
    assert json.loads(event).items() >= {"event": "breaker-opened", "conversation": "c0ffee"}.items()
    assert "PATH" in environment
    assert "sk-canary" not in environment


async def test_a_command_whose_time_is_up_is_killed_with_all_that_it_has_started(tmp_path):
    starts = "sleep 60 & echo $! > $0; wait"
    told = await complaint(Hook(("sh", "-c", starts, str(tmp_path / "child")), seconds=0.3))
    assert told == "hook sh was killed: its time was up"
    child = int((tmp_path / "child").read_text())
    await until(lambda: _is_gone(child))


def _is_gone(pid):
    """A child whose parent is dead may wait for somebody to bury it."""
    stat = Path(f"/proc/{pid}/stat")
    try:
        return stat.read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


async def test_how_a_command_ended_is_told_but_not_what_it_was_told():
    assert await complaint(runs("raise SystemExit(3)", "--token=sk-canary")) == f"hook {sys.executable} ended with 3"


async def test_a_command_that_does_not_listen_is_no_fault(tmp_path):
    Hooks([runs("import sys, pathlib; pathlib.Path(sys.argv[1]).touch()", tmp_path / "ran")], pytest.fail)(OPENED)
    await until((tmp_path / "ran").exists)


# --- URLs ------------------------------------------------------------------------------------------------------------


async def test_a_redirect_is_not_followed():
    async with Upstream(answer(b"")) as elsewhere:
        for status in (302, 307):
            async with Upstream(answer(b"", status, [("location", f"{elsewhere.origin}/admin")])) as listener:
                assert await complaint(Hook(address=f"{listener.origin}/hook")) == f"hook 127.0.0.1 answered {status}"
        assert not elsewhere.requests


async def test_the_path_of_a_url_is_in_no_complaint():
    async with Upstream(answer(b"", 500)) as listener:
        assert (
            await complaint(Hook(address=f"{listener.origin}/services/T0/sk-canary")) == "hook 127.0.0.1 answered 500"
        )


async def test_a_url_that_is_silent_is_left_when_its_time_is_up():
    async with Upstream(hang()) as listener:
        began = time.monotonic()
        assert await complaint(Hook(address=listener.origin, seconds=0.2)) == "hook 127.0.0.1 failed: TimeoutError"
        assert time.monotonic() - began < 20


async def test_after_an_answer_that_is_none_the_next_event_is_brought_all_the_same():
    told = []
    async with Upstream(raw(b"\x00 what is this\r\n\r\n", close())) as listener:
        hooks = Hooks([Hook(address=listener.origin)], told.append)
        hooks(OPENED)
        await until(lambda: told)
        hooks(OPENED)
        await until(lambda: len(listener.requests) == 2)


# --- none in another's way -------------------------------------------------------------------------------------------


async def test_one_that_hangs_does_not_hold_up_another(tmp_path):
    hanging = runs("import time; time.sleep(60)", seconds=30.0)
    other = runs("import sys, pathlib; pathlib.Path(sys.argv[1]).touch()", tmp_path / "ran")
    hooks = Hooks([hanging, other], lambda _: None)
    hooks(OPENED)
    await until((tmp_path / "ran").exists, seconds=20)
    hooks.close()


async def test_what_is_too_much_is_left_out_and_told_once_and_nobody_waits():
    told = []
    hooks = Hooks([runs("import time; time.sleep(60)", seconds=30)], told.append)
    began = time.monotonic()
    for _ in range(1_500):
        hooks(OPENED)
    assert time.monotonic() - began < 10
    assert told == [f"hook {sys.executable} is slow: 1000 events are waiting, further ones are dropped"]
    hooks.close()


async def test_what_is_running_ends_with_us(tmp_path):
    hooks = Hooks([Hook(("sh", "-c", "sleep 60 & echo $! > $0; wait", str(tmp_path / "child")))], lambda _: None)
    hooks(OPENED)
    child = await until(lambda: (tmp_path / "child").exists() and (tmp_path / "child").read_text().strip())
    hooks.close()
    await until(lambda: _is_gone(child))


def test_what_a_hook_does_not_ask_for_it_does_not_get():
    Hooks([Hook(("/no/such/program",))], pytest.fail)(CompactionStarted("c0ffee", "default", "stride", 100))
