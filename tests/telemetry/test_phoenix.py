"""Spans in Arize Phoenix, a third party's receiver of OpenTelemetry: sent over OTLP, read back through its API.

Phoenix is 850 MB, so it is no part of CI:

    python3 -m venv /tmp/phoenix && /tmp/phoenix/bin/pip install arize-phoenix==20.26.1
    PATH=$PATH:/tmp/phoenix/bin .venv/bin/pytest -m soak tests/telemetry/test_phoenix.py
"""

import asyncio
import os
import shutil
import socket
from contextlib import asynccontextmanager

import aiohttp
import pytest

from tests.support.agent import Agent
from tests.support.proxy_client import ask, chat, log_of, until
from tests.support.scripted_upstream import Upstream
from tests.support.summary_model import NEAR, OVER, SEEN, SMALL_WINDOW_SETTINGS, WINDOW, model

PHOENIX = shutil.which("phoenix")
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PATIENCE_SECONDS = 300

pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(900),
    pytest.mark.skipif(PHOENIX is None, reason="Phoenix is not installed"),
]


@asynccontextmanager
async def phoenix(place):
    """Its address, once it answers."""
    with socket.socket() as web, socket.socket() as grpc:
        web.bind(("127.0.0.1", 0))
        grpc.bind(("127.0.0.1", 0))
        ports = {"PORT": web.getsockname()[1], "GRPC_PORT": grpc.getsockname()[1]}
    settings = {**ports, "HOST": "127.0.0.1", "WORKING_DIR": place, "TELEMETRY_ENABLED": False}
    environment = {**os.environ, **{f"PHOENIX_{name}": str(value) for name, value in settings.items()}}  # noqa: TID251
    url = f"http://127.0.0.1:{ports['PORT']}"
    with (place / "phoenix.log").open("w") as log:
        process = await asyncio.create_subprocess_exec(PHOENIX, "serve", stdout=log, stderr=log, env=environment)
        try:
            await wait_for(f"{url}/v1/projects", lambda _: True)
            yield url
        finally:
            process.terminate()
            await process.wait()


async def wait_for(url, seen):
    """What `seen` finds in the JSON of this address, as soon as it finds anything."""
    async with asyncio.timeout(PATIENCE_SECONDS), aiohttp.ClientSession() as session:
        while True:
            try:
                async with session.get(url) as reply:
                    if reply.status == 200 and (found := seen(await reply.json())):
                        return found
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.2)


async def test_requests_calls_summaries_and_failures_are_read_back_as_traces(serve, tmp_path):
    async with phoenix(tmp_path) as receiver, Upstream(model()) as up:
        upstreams = [
            {"name": "away", "base_url": "http://127.0.0.1:1", "models": ["away"]},
            {"base_url": up.url, "window": WINDOW},
        ]
        settings = {
            "upstreams": upstreams,
            "otel": {"endpoint": receiver},
            "policies": {"default": SMALL_WINDOW_SETTINGS},
        }
        async with serve(None, config={**settings, "log": {"format": "json"}}) as proxy:
            agent = Agent(proxy, up, "sk-a")
            for history in (SEEN, NEAR, OVER):
                await agent.send(history)
            assert (await ask(proxy, chat("away"), headers={"traceparent": f"00-{TRACE}-{PARENT}-01"})).status == 502
            (ended,) = await until(lambda: log_of(proxy, "summary-ended"))
            # Four requests, the call of each, and one call for a summary.
            spans = await wait_for(
                f"{receiver}/v1/projects/default/spans?limit=1000",
                lambda found: found["data"] if len(found["data"]) >= 9 else None,
            )
    assert len(spans) == 9
    by_id = {span["context"]["span_id"]: span for span in spans}
    served = {
        span["attributes"]["compaction_proxy.request_id"]: span for span in spans if span["name"].startswith("POST")
    }
    assert len(served) == 4
    (summary,) = [span for span in spans if "compaction_proxy.summary.outcome" in span["attributes"]]
    assert by_id[summary["parent_id"]] == served[ended["request_id"]]
    assert summary["attributes"]["compaction_proxy.summary.outcome"] == "made"
    assert summary["attributes"]["gen_ai.usage.input_tokens"] == ended["tokens_read"]
    calls = [span for span in spans if span["name"].startswith("chat") and span is not summary]
    assert {by_id[span["parent_id"]]["attributes"]["compaction_proxy.request_id"] for span in calls} == set(served)
    (refused,) = [span for span in served.values() if span["status_code"] == "ERROR"]
    assert (refused["context"]["trace_id"], refused["parent_id"]) == (TRACE, PARENT)
    assert "src/part_1" not in str(spans), "no word of a conversation"
