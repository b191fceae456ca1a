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
                await an_act_is_seen(here, there)
                await a_refused_change_is_seen(here, there)


async def an_act_is_seen(here, there):
    await here.told("/switches", method="PUT", body={"on": True, "team": "search"})
    act = await there.until("/audit", lambda told: told["acts"], within=15)
    machine = (await here.told("/configuration"))["machine"]
    assert [(each["act"], each["subject"], each["machine"]) for each in act] == [("switch on", "search", machine)]
    assert (await here.told("/audit"))["acts"][0]["machine"] == ""


async def a_refused_change_is_seen(here, there):
    """Also while the other machine takes changes of its own well."""
    file, machine = here.proxy.place / "proxy.yaml", (await here.told("/configuration"))["machine"]
    before = file.read_text()
    file.write_text(before + "nonsense: 1\n")
    await here.until("/configuration", lambda told: told["refused"])
    other = there.proxy.place / "proxy.yaml"
    other.write_text(other.read_text().replace("3000", "4000"))
    (refused,) = await there.until("/configuration", lambda told: told["refused"], within=15)
    assert (refused["machine"], "nonsense" in refused["why"]) == (machine, True)
    file.write_text(before.replace("3000", "5000"))
    await there.until("/configuration", lambda told: not told["refused"], within=15)
