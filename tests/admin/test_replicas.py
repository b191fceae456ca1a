"""What one replica did is seen from any other that shares its state, over a real Redis."""

from pathlib import Path

import pytest
from agent_talk import Agent, reading
from operating import Desk, configured, team_key, until_open
from redis_server import needs_redis, running
from serving import QUIET, serving
from upstream import Upstream

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120), needs_redis]
KEY = "Yw4bCsxwpEdNf-3wdgctWy7mq1FFN8A9"
FIGURES = ("looked_at", "tokens_raw", "tokens_forwarded", "blocks")


def sharing(redis: str, upstream: str, folder: Path):
    (folder / "key").write_text(KEY)
    config = configured(upstream, state={"url": redis}, admin={"key": f"file:{folder / 'key'}"})
    config["policies"]["default"] = {"clear_at_least": 3_000}
    config["upstreams"][0] |= QUIET
    return config


def place(folder: Path, name: str) -> Path:
    (folder / name).mkdir()
    return folder / name


def figures(told):
    return {name: told["day"][name] for name in FIGURES}


async def test_a_conversation_on_one_replica_is_seen_on_the_other(tmp_path):
    with running(tmp_path) as redis:
        async with Upstream() as up:
            config = sharing(redis.url, up.url, tmp_path)
            async with (
                serving(None, place=place(tmp_path, "one"), config=config) as one,
                serving(None, place=place(tmp_path, "two"), config=config) as two,
            ):
                text = team_key(one, "platform")
                await until_open(one, text)
                await until_open(two, text)
                await Agent(one, up, text).works(reading(16))
                here, there = Desk(one, KEY), Desk(two, KEY)
                listed = await here.until("/conversations", lambda told: told["conversations"])
                again = await there.until("/conversations", lambda told: told["conversations"], within=15)
                assert [each["conversation"] for each in again] == [each["conversation"] for each in listed]
                wanted = figures(await here.told("/overview"))
                assert await there.until("/overview", lambda told: figures(told) == wanted, within=15)
                told = await there.told(f"/conversations/{listed[0]['conversation']}")
                assert len(told["turns"]) == wanted["looked_at"]
                assert "another machine" in told["why_no_pieces"]
