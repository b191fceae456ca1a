"""A running proxy that keeps its transcripts in an object store: whatever becomes of the store, requests go on.

The store is a real one that checks signatures; before it is a server that causes faults.
"""

import asyncio

import pytest

from proxy.store.transcripts.archive import Archive, read_transcript
from tests.support.agent import Agent, compactions, reading
from tests.support.object_store.faulty_relay import drop_connection, pass_through
from tests.support.proxy_client import fault_of
from tests.support.scripted_upstream import text_turn

pytest_plugins = ("tests.support.object_store.fixtures",)

WORK = reading(16)
SMALL = {"clear_at_least": 3_000, "keep": {"tokens": 1_000}}


@pytest.fixture
def start(serve, up, bucket, s3, relay):
    """`async with start(keep="all") as proxy:` keeps in the bucket of this test; credentials come as AWS has them."""
    up.script = text_turn("Go on.")

    def begin(*arguments, **told):
        config = {
            "upstreams": [{"window": 1_000_000}],
            "policies": {"default": SMALL},
            "transcripts": {"dir": bucket.url, "endpoint": relay.url, **told},
            "log": {"format": "json"},
        }
        environment = {"AWS_ACCESS_KEY_ID": s3.key, "AWS_SECRET_ACCESS_KEY": s3.secret}
        return serve(up.url, *arguments, config=config, environment=environment)

    return begin


async def test_an_agents_work_is_in_the_store_when_the_proxy_has_left(start, up, bucket, tmp_path):
    async with start("--workers", "2", keep="all") as proxy:
        steps = await Agent(proxy, up, "sk-a").work(WORK)
    assert {"created", "applied"} <= {*compactions(steps)}
    (found,) = [read_transcript(one) for one in Archive(tmp_path / "nothing", bucket).find()]  # in the store alone
    assert len(found.messages) == len(WORK) - 1
    assert len(found.answers) == len(steps)
    assert list((proxy.state / "spool").rglob("*.jsonl")) == []


@pytest.mark.slow
async def test_where_originals_are_required_a_full_spool_refuses_until_the_store_is_back(start, up, relay):
    relay.now = drop_connection
    async with start(required=True, spool_mib=1) as proxy:
        larger = reading(16, size=9_000, task="Fill it.")
        statuses = [(await Agent(proxy, up, f"sk-{number}").send(larger)).answer.status for number in range(12)]
        assert (statuses[0], statuses[-1]) == (200, 503)
        agent = Agent(proxy, up, "sk-a")
        refused = await agent.send(WORK)
        assert fault_of(refused.answer)["code"] == "transcripts_unavailable"
        assert (await agent.send(reading(2))).answer.status == 200
        relay.now = pass_through
        async with asyncio.timeout(60):
            while (await agent.send(WORK)).answer.status != 200:  # noqa: ASYNC110 (it is the proxy that is waited for)
                await asyncio.sleep(0.2)
