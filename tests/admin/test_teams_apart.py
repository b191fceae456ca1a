"""An admin key of one team sees nothing of another: neither its names nor its figures, in any answer."""

import asyncio
import json
import re
from itertools import chain

import pytest
import pytest_asyncio
from msgspec.structs import replace

from proxy.access.records import Records
from proxy.access.registry import find_public_id
from proxy.admin.dispatch import ROUTES
from proxy.store.activity_log import ActivityLog, Incident
from tests.support.admin_client import TURN, AdminClient, admin_config, team_key, until_open
from tests.support.messages import call, chat, system, user
from tests.support.proxy_client import ask
from tests.support.running_proxy import QUIET, serving
from tests.support.scripted_upstream import Upstream, text_turn

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("admin-teams-apart")]
LEADER = "cpa-Zq8bCsxwpEdNf3wdgctWy7mq1"
OWN, OTHER = "search", "platform"
WORDS = "a line of output\n" * 900
FILTERS = (
    "?team=platform", "?model=platform-model", "?user=platform-user", "?session=platform-session", "?text=platform",
    "?by=model", "?by=user", "?by=session", "?by=key", "?by=tag", "?text=line",
)  # fmt: skip
CHANGING = {"now", "places", "last_used"}
"""Members of answers that differ from one moment to the next."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def admin(tmp_path_factory):
    place = tmp_path_factory.mktemp("apart")
    (place / "leader").write_text(LEADER)
    async with Upstream(text_turn("ok")) as up:
        config = admin_config(up.url, admin={"users": {"lea": {"key": f"file:{place / 'leader'}", "team": OWN}}})
        config["upstreams"][0] |= QUIET
        config["policies"] |= {"patient": {"clear_at_least": 2_000}, "default": {"clear_at_least": 10_000}}
        config["transcripts"] = {"keep": "all"}
        async with serving(None, place=place, config=config) as proxy:
            yield AdminClient(proxy)


async def work(admin, team, key):
    """Two conversations of a team, one of them a system prompt alone, and rows as earlier versions wrote them."""
    headers = {
        "authorization": f"Bearer {key}", "content-type": "application/json", "x-session-id": f"{team}-session",
        "x-compaction-tag": f"{team}-tag",
    }  # fmt: skip
    reads = [call("x", out=f"{team} {n} {WORDS}", path=f"/{team}/{n}") for n in range(4)]
    for pieces in ([user(f"Mend {team}."), *reads], [system(f"{team} {WORDS}" * 8)]):
        data = chat(*pieces, model=f"{team}-model", user=f"{team}-user")
        assert (await ask(admin.proxy, data, headers=headers)).status == 200
    log = ActivityLog(admin.proxy.state)
    log.record(replace(TURN, conversation="", tenant=f"team.{team}", team=team, model=f"{team}-model"))
    log.record(Incident("info", "summary-ended", "", {}, 0.5 if team == OTHER else 0.0))
    log.close()
    await admin.until(f"/conversations?team={team}", lambda found: len(found["conversations"]) == 3)
    await asyncio.sleep(0.5)  # what the same requests still write


def drop_changing(value):
    """The answer without its times, and without the moments in which nothing came."""
    if isinstance(value, dict):
        kept = {name: drop_changing(member) for name, member in value.items() if name not in CHANGING}
        if "moments" in kept:
            kept["moments"] = [each for each in kept["moments"] if each["requests"]]
        return kept
    return [drop_changing(each) for each in value] if isinstance(value, list) else value


async def read_all(admin, paths):
    """What the key of the team is answered."""
    answers = {path: await admin.send("GET", f"/admin/api{path}", key=LEADER) for path in paths}
    return {path: (answer.status, answer.body.data) for path, answer in answers.items()}


async def list_paths(admin, team):
    """Every path that is read, with the names of a team in it."""
    listed = (await admin.read(f"/conversations?team={team}"))["conversations"]
    requests = (await admin.read(f"/requests?team={team}"))["requests"]
    names = {
        "conversation": [each["conversation"] or "%00" for each in listed],
        "request": [each["request_id"] for each in requests],
        "policy": ["default"],
        "place": ["0"],
    }
    found = []
    for route in ROUTES:
        if route.method == "GET":
            filled = [route.path]
            for name in re.findall(r"\{(\w+)\}", route.path):
                filled = [path.replace(f"{{{name}}}", value) for path in filled for value in names[name]]
            found += chain.from_iterable((path, *(path + query for query in FILTERS)) for path in filled)
    return found


def as_values(answer):
    """The status of an answer, and what it says where it is good."""
    status, data = answer
    if status != 200:
        return status, None
    return status, drop_changing(json.loads(data)) if data[:1] == b"{" else data


async def test_nothing_of_another_team_is_in_any_answer(admin):
    own_key, other_key = team_key(admin.proxy, OWN), team_key(admin.proxy, OTHER)
    await until_open(admin.proxy, own_key)
    await work(admin, OWN, own_key)
    own_paths = await list_paths(admin, OWN)
    alone = await read_all(admin, own_paths)
    await work(admin, OTHER, other_key)
    beside = await read_all(admin, own_paths)

    good = [path for path, (status, _) in alone.items() if status == 200]
    assert {re.sub(r"\?.*", "", path).split("/")[1] for path in good} >= {
        "overview", "usage", "requests", "traffic", "conversations", "search", "policies", "teams", "keys", "switches"
    }  # fmt: skip
    for path in own_paths:
        assert as_values(beside[path]) == as_values(alone[path]), path

    seen = await admin.read(f"/conversations?team={OTHER}")
    assert OTHER + "-model" in seen["models"]  # to a key of all teams
    ids = {each["conversation"] for each in seen["conversations"]} - {""}
    ids |= {each["request_id"] for each in (await admin.read(f"/requests?team={OTHER}"))["requests"]}
    ids |= {each["id"] for each in (await admin.read("/keys"))["keys"] if each["team"] == OTHER}
    assert len(ids) >= 5
    other_paths = await list_paths(admin, OTHER)
    for path, (_, data) in (beside | await read_all(admin, other_paths)).items():
        assert OTHER.encode() not in data, path
        assert not [each for each in ids if each.encode() in data], path
    for path in set(other_paths) - set(own_paths):
        assert (await admin.send("GET", f"/admin/api{path}", key=LEADER)).status in (403, 404, 422), path


async def test_to_a_key_of_a_team_a_key_of_another_team_does_not_exist(admin):
    """403 for ids that exist and 404 for others would tell which ids exist. Also before the worker has read of them."""
    missing = await admin.read_error(404, "DELETE", "/keys/0123456789", key=LEADER)
    records = Records(admin.proxy.state)
    for _ in range(3):
        other_id = find_public_id(team_key(admin.proxy, OTHER))
        existing = await admin.read_error(404, "DELETE", f"/keys/{other_id}", key=LEADER)
        assert (existing["code"], existing["message"]) == (missing["code"], missing["message"])
        records.look()
        assert not records.current.keys[other_id].revoked


@pytest.mark.seconds  # it goes on from the one before
async def test_histories_of_a_system_prompt_alone_have_a_name_of_their_own(admin):
    listed = (await admin.read("/conversations?limit=200"))["conversations"]
    named = [each for each in listed if each["conversation"]]
    assert len({each["conversation"] for each in named}) == len(named) == 4
    unnamed = [each for each in listed if not each["conversation"]]
    assert {(each["team"], each["requests"], each["spent"]) for each in unnamed} == {(OWN, 1, 0), (OTHER, 1, 0)}
