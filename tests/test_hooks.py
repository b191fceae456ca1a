"""Somebody else is told what happened: a real command, a real server."""

import asyncio
import json
import sys

from agent_talk import Agent
from living import SMALL, WIDE, WORK
from upstream import Upstream, answer
from upstream import says as tells


def house(up, *hooks):
    return {"upstreams": [{**WIDE, "base_url": up.url}], "policies": {"default": SMALL}, "hooks": list(hooks)}


async def until(true, seconds=10.0):
    async with asyncio.timeout(seconds):
        while not true():  # noqa: ASYNC110 (another process)
            await asyncio.sleep(0.02)


async def test_a_command_is_run_and_a_url_is_called_with_the_event(serve, tmp_path):
    noted = tmp_path / "noted"
    writes = f"import sys; open({str(noted)!r}, 'a').write(sys.stdin.read() + chr(10))"
    async with Upstream(tells("Go on.")) as up, Upstream(answer(b"")) as listener:
        command = {"events": ["compaction-ended"], "command": [sys.executable, "-c", writes]}
        url = {"events": ["compaction-started", "compaction-ended"], "url": f"{listener.origin}/hook"}
        async with serve(None, config=house(up, command, url)) as proxy:
            step = await Agent(proxy, up, "sk-a").sends(WORK)
            await until(lambda: noted.exists() and noted.read_text().endswith("\n") and len(listener.requests) == 2)
            await asyncio.gather(*(request.end() for request in listener.requests))
    (event,) = map(json.loads, noted.read_text().splitlines())
    assert event["event"] == "compaction-ended"
    assert (event["tokens_before"], event["tokens_after"]) == step.tokens
    assert [request.json["event"] for request in listener.requests] == ["compaction-started", "compaction-ended"]


async def test_a_hook_that_fails_or_hangs_holds_up_nobody_and_is_told(serve):
    async with Upstream(tells("Go on.")) as up:
        absent = {"command": ["/no/such/program"]}
        hanging = {"command": [sys.executable, "-c", "import time; time.sleep(60)"], "seconds": 0.2}
        async with serve(None, config=house(up, absent, hanging)) as proxy:
            step = await Agent(proxy, up, "sk-a").sends(WORK)
            await until(lambda: proxy.output.count("hooks: ") == 2)
    assert step.compaction == "created"
    assert "/no/such/program failed: FileNotFoundError" in proxy.output
    assert "failed: TimeoutExpired" in proxy.output
