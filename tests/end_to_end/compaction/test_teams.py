"""Teams as they meet a running proxy: their keys, their policies, their walls, and the switches of its operator."""

import asyncio
import json
import re

import pytest
import pytest_asyncio
import yaml

from tests.support.admin_client import team_key, until_open
from tests.support.agent import Agent, compactions, reading
from tests.support.commands import run_command
from tests.support.compacting_proxy import SMALL, WORK, rows
from tests.support.proxy_client import ask, chat, fault_of, page, whole_log
from tests.support.scripted_upstream import Upstream, text_turn

pytestmark = pytest.mark.asyncio(loop_scope="module")

TEAMS = {"red": {"policy": "bold"}, "blue": {"policy": "bold"}, "green": {"policy": "late"}, "own": {}}
SECRETS = {"REAL": "sk-real", "GREEN": "sk-green"}
POLICIES = {"default": SMALL, "bold": SMALL, "late": {"clear_at_least": 500_000}}


def settings(up, **more):
    upstreams = [
        {"name": "lab", "models": ["lab-*"], "base_url": up.url, "window": 1_000_000, "key": "env:REAL"},
        {"name": "main", "base_url": up.url, "window": 1_000_000, "key": "env:REAL"},
    ]
    teams = {**TEAMS, "own": {"upstream": "lab", "key": "env:GREEN"}}
    return {"upstreams": upstreams, "policies": POLICIES, "teams": teams, "log": {"format": "json"}, **more}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack(serve):
    """A proxy with four teams in front of an upstream with keys of its own."""
    async with Upstream(text_turn("Go on.")) as up, serve(None, config=settings(up), environment=SECRETS) as proxy:
        keys = {team: team_key(proxy, team) for team in TEAMS}
        for key in keys.values():
            await until_open(proxy, key)
        yield up, proxy, keys


@pytest.fixture
def work(request):
    """A history of this test alone: what another one made of the same would be here too."""
    return reading(24, task=f"Make the tests pass: {request.node.name}.")


@pytest.fixture
def agents(stack):
    """An agent of each team, with nothing switched off."""
    up, proxy, keys = stack
    up.forget()
    return {team: Agent(proxy, up, key) for team, key in keys.items()}


@pytest.mark.parametrize("path", ["/chat/completions", "/chat/completions/compact", "/models", "/embeddings", "/files"])
async def test_without_a_team_key_nothing_opens(stack, path):
    up, proxy, _ = stack
    up.forget()
    for headers in ({}, {"authorization": "Bearer sk-provider"}, {"authorization": "Bearer cp-0123456789-" + "a" * 32}):
        refused = await ask(proxy, b"{}", path, headers=headers)
        assert refused.status == 401
        assert fault_of(refused)["code"] == "invalid_api_key"
    assert up.requests == []
    assert "sk-provider" not in await whole_log(proxy)


async def test_no_team_key_is_written_or_printed(stack, agents, work):
    """However it is shown: as it should be, half, doubled, as a password, or in the middle of a URL."""
    _, proxy, keys = stack
    await agents["red"].work(work)
    text = keys["red"]
    shown = [f"Bearer {text}", f"Bearer {text}x", f"Bearer {text[:-1]}", f"Basic {text}", f"Bearer {text}, {text}"]
    paths = ["/chat/completions", f"/chat/completions?key={text}", f"/files/{text}", f"/{text}/models"]
    answers = [await ask(proxy, chat(), path, headers={"authorization": each}) for each in shown for path in paths]
    answers.append(await page(proxy, f"/{text}"))
    assert {200, 401, 403, 404} == {answer.status for answer in answers}
    written = b"".join(path.read_bytes() for path in proxy.place.rglob("*") if path.is_file())
    written += (await page(proxy, "/metrics")).body.data
    written += b"".join(answer.body.data + repr(answer.head).encode() for answer in answers)
    for text in keys.values():
        assert text.split("-", 2)[2].encode() not in written
        assert text.split("-")[1].encode() in written  # the public id may


async def test_two_teams_with_the_same_conversation_share_nothing(agents, work):
    """Invariant 9, looked at in every store: the same bytes, twice, and each apart from the other."""
    red, blue = await agents["red"].work(work), await agents["blue"].work(work)
    assert compactions(red) == compactions(blue)
    assert "created" in compactions(red)
    assert [step.forwarded for step in red] == [step.forwarded for step in blue]
    conversations = [{step.header("x-compaction-conversation") for step in steps} - {None} for steps in (red, blue)]
    assert not conversations[0] & conversations[1]
    place = agents["red"].proxy.state
    for table in ("blocks_1", "facts_1"):
        keys = [key.partition("/") for (key,) in rows(place, f"select key from {table}")]
        mine, theirs = ({rest for tenant, _, rest in keys if tenant == f"team.{team}"} for team in ("red", "blue"))
        assert mine, table
        assert theirs, table
        assert not {rest for rest in mine & theirs if not rest.startswith("scale/")}, table
    folders = [path for path in (place / "originals").iterdir() if path.is_dir()]
    assert {"team.red", "team.blue"} <= {folder.name for folder in folders}
    for team in ("red", "blue"):
        files = (place / "originals" / f"team.{team}").rglob("*.jsonl")
        lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
        assert {line["tenant"] for line in lines if "tenant" in line} == {f"team.{team}"}


async def test_each_team_has_its_policy_and_the_answer_says_which_version(agents, work):
    bold, late = await agents["red"].work(work), await agents["green"].work(work)
    made = next(step for step in bold if step.compaction == "created")
    assert made.header("x-compaction-policy") == "bold"
    version = made.header("x-compaction-policy-version")
    assert re.fullmatch(r"[0-9a-f]{8}", version)
    assert set(compactions(late)) == {"none"}
    blocks = rows(agents["red"].proxy.state, "select value from blocks_1 where key like 'team.red/%'")
    assert {json.loads(value)["policy"] for (value,) in blocks} == {f"bold@{version}"}
    place = agents["red"].proxy.place
    ended = await run_command("explain", "--team", "red", "--config", "proxy.yaml", place=place, **SECRETS)
    assert ended.code == 0
    assert f"bold@{version}" in ended.out


@pytest.mark.seconds
async def test_a_file_that_is_being_written_is_read_once_it_is_complete(serve):
    """The beginning of a file may be a valid configuration, or be refused because the teams are still missing."""
    async with Upstream(text_turn("Go on.")) as up, serve(None, config=settings(up), environment=SECRETS) as proxy:
        agent = Agent(proxy, up, team_key(proxy, "green"))
        await until_open(proxy, agent.key)
        file, whole = proxy.place / "proxy.yaml", yaml.safe_dump(settings(up))
        for length in range(0, len(whole), len(whole) // 8):
            file.write_text(whole[:length])
            await asyncio.sleep(0.1)
        file.write_text(whole)
        assert (await agent.send(WORK[:2])).answer.status == 200
        await asyncio.sleep(1)
        assert "config-refused" not in await whole_log(proxy)
        assert (await agent.send(WORK[:2])).answer.status == 200
