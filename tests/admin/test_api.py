"""The admin API: what conversations did, and what operators can do about it, on a real proxy with a real history."""

import asyncio
import json
import re
import time

import pytest
import pytest_asyncio
from msgspec.structs import replace

from proxy.admin.dispatch import ROUTES
from proxy.admin.teams import find_kind
from proxy.config.loading import load
from proxy.store.activity_log import ActivityLog, Incident
from tests.admin.conftest import WINDOW
from tests.support.admin_client import TURN, AdminClient
from tests.support.clocks import Clocks
from tests.support.proxy_client import whole_log

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("admin")]


@pytest.fixture
def admin(busy_proxy):
    return busy_proxy


async def find_conversation(admin, team):
    """The conversation of a team's agent, once it is written down."""
    return (await admin.until(f"/conversations?team={team}", lambda found: found["conversations"]))[0]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def conversation(busy_proxy):
    """As it is listed, once its last turn is written down: that of the team search, whose policy makes summaries."""
    found, before = await find_conversation(busy_proxy, "search"), None
    while found != before:
        await asyncio.sleep(0.5)
        found, before = await find_conversation(busy_proxy, "search"), found
    return found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def data(busy_proxy, conversation):
    """Its page."""
    return await busy_proxy.read(f"/conversations/{conversation['conversation']}")


async def test_the_overview_adds_up_what_came_and_what_went_on(admin):
    await asyncio.sleep(0.5)
    day = (await admin.read("/overview"))["day"]
    assert day["requests"] >= 90
    assert 0 < day["tokens_forwarded"] < day["tokens_raw"]
    assert day["blocks"] > 0
    assert day["summaries"] > 0
    assert 0 < day["cached_share"] < 1
    assert day["paid"] + day["saved"] + day["spent"] == pytest.approx(day["plain"])


async def test_the_moments_of_the_overview_are_the_same_total(admin):
    data = await admin.read("/overview?hours=2")
    assert sum(each["tokens_raw"] for each in data["moments"]) == data["all"]["tokens_raw"]


async def test_usage_separates_teams(admin):
    groups = (await admin.read("/usage?by=team"))["groups"]
    assert {group["name"] for group in groups} == {"platform", "search"}


async def test_conversations_are_found_by_team_and_by_any_name_of_theirs(admin):
    one, other = await find_conversation(admin, "platform"), await find_conversation(admin, "search")
    assert one["conversation"] != other["conversation"]
    assert [one["team"], other["team"]] == ["platform", "search"]
    by_name = await admin.read(f"/conversations?text={other['conversation'][:8]}")
    assert [each["conversation"] for each in by_name["conversations"]] == [other["conversation"]]
    assert (await admin.read("/conversations?text=nobody-is-called-so"))["conversations"] == []


async def test_a_list_goes_on_where_its_page_ended(admin, conversation):
    first = await admin.read("/conversations?limit=1")
    second = await admin.read(f"/conversations?limit=1&before={first['next']}")
    assert first["conversations"][0]["last"] >= second["conversations"][0]["last"]
    assert first["conversations"] != second["conversations"]
    assert second["next"] is None


async def test_the_money_of_a_conversation_adds_up_in_the_list_and_on_its_page(conversation, data):
    one = conversation
    assert one["spent"] == pytest.approx(data["spent"])
    assert one["spent"] > 0
    assert one["paid"] == pytest.approx(sum(turn["paid"] for turn in data["turns"]))
    assert one["saved"] == pytest.approx(sum(turn["saved"] for turn in data["turns"]) - data["spent"])


async def test_a_title_is_what_the_user_asked_for_first(conversation):
    assert conversation["title"].startswith("Customers complain that some of them")


async def test_a_conversation_is_shown_request_by_request(data):
    actions = [turn["action"] for turn in data["turns"]]
    assert {"created", "applied"} <= set(actions)
    assert all(re.fullmatch(r"patient@[0-9a-f]{8}", turn["policy"]) for turn in data["turns"])
    assert all(turn["tokens_read"] <= WINDOW for turn in data["turns"])


async def test_every_message_has_a_status(data):
    statuses = {piece["status"] for piece in data["pieces"]}
    assert {"kept", "pinned"} < statuses <= {"kept", "pinned", "cleared", "summarised", "folded"}
    assert len(data["pieces"]) == data["turns"][-1]["messages"]
    assert all(piece["step"] for piece in data["pieces"] if piece["status"] == "cleared")
    assert data["summary"].startswith("## Goals and constraints")
    assert data["block"]["policy"].startswith("patient@")


async def test_messages_newer_than_the_block_are_kept(data):
    assert {piece["status"] for piece in data["pieces"][data["block"]["covers"] :]} <= {"kept", "cleared"}


async def test_a_message_is_shown_beside_what_is_forwarded_instead(admin, data):
    name, pieces = data["conversation"], data["pieces"]
    shortest = min(pieces, key=lambda piece: piece["bytes_sent"] / piece["bytes"])
    opened = await admin.read(f"/conversations/{name}/messages/{shortest['place']}")
    assert opened["status"] in ("cleared", "summarised")
    assert json.loads(opened["raw"])["role"] == shortest["role"]
    assert opened["original"].startswith(shortest["preview"][:10])
    assert opened["instead"] != [opened["original"]]
    cleared = next(piece for piece in pieces if piece["status"] == "cleared")
    assert (await admin.read(f"/conversations/{name}/messages/{cleared['place']}"))["tells"] == 1
    assert await admin.read_error(404, "GET", f"/conversations/{name}/messages/99999")
    assert await admin.read_error(404, "GET", f"/conversations/{name}/messages/first")


async def test_an_earlier_request_is_shown_as_it_was_forwarded_then(admin, data):
    """Also right before a block was made that covers what this request held already."""
    name, turns = data["conversation"], data["turns"]
    made = [place for place, turn in enumerate(turns) if turn["action"] == "created"]
    for turn in (turns[place] for before in made for place in (before - 1, before)):
        shown = await admin.read(f"/conversations/{name}?at={turn['link']}")
        assert (shown["at"], len(shown["pieces"])) == (turn["link"], turn["messages"])
        share = sum(each["bytes_sent"] for each in shown["pieces"]) / sum(each["bytes"] for each in shown["pieces"])
        assert share == pytest.approx(turn["tokens_forwarded"] / turn["tokens_raw"], abs=0.12), turn


async def test_blocks_and_summaries_are_in_the_timeline(data):
    assert {"compaction-ended", "summary-ended"} <= {each["name"] for each in data["happened"]}


async def test_words_are_found_in_what_is_kept(admin, data):
    found = await admin.read("/search?text=hb-20417&limit=3")
    assert [hit["found"] for hit in found["hits"]] == ["HB-20417"] * 3
    assert all(hit["title"].startswith("Customers complain") for hit in found["hits"])
    assert found["hits"][0]["at"] in {piece["link"] for piece in data["pieces"]}
    assert await admin.read("/search?text=nobody+ever+said+this") == {"hits": [], "whole": True}


async def test_the_default_policy_is_of_the_file_only_where_the_file_sets_it(tmp_path):
    (tmp_path / "proxy.yaml").write_text("policies: {default: {min_groups: 30}}\n")
    kinds = [find_kind(loaded, "default") for loaded in (load(None, {}), load(tmp_path / "proxy.yaml", {}))]
    assert kinds == ["default", "file"]


async def test_policies_are_listed_with_their_author(admin):
    kinds = {each["name"]: each["kind"] for each in (await admin.read("/policies"))["policies"]}
    assert (kinds["default"], kinds["observe"], kinds["patient"]) == ("default", "shipped", "file")
    values = {each["path"]: each for each in (await admin.read("/policies/patient"))["values"]}
    assert values["clear_at_least"]["value"] == 6_000
    assert values["clear_at_least"]["origin"].endswith("(policy patient)")
    assert values["min_groups"]["origin"] == "default"


async def test_attachments_are_listed_in_the_order_in_which_they_decide(admin):
    attachments = (await admin.read("/policies"))["attachments"]
    assert [(each["policy"], each["tag"]) for each in attachments] == [("observe", "night*"), ("default", "nightly")]


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
async def test_no_query_path_or_body_makes_it_fail(admin, route):
    for path in sorted({re.sub(r"\{\w+\}", name, route.path) for name in ("x", "%00", "%ff", "..%2f", "9" * 400)}):
        for query in ("", "?limit=-1", "?limit=1e999&hours=nan", "?at=%00", "?text=%ff&before=x", "?nope=1"):
            answer = await admin.send(route.method, f"/admin/api{path}{query}")
            assert answer.status < 500, (path, query)
        for raw in (
            b"", b"null", b"[]", b'{"team": "nobody"}', b"\xff", b'{"team": 1}', b"[" * 5000, b'{"on": "\\ud800"}',
        ):  # fmt: skip
            headers = {"content-type": "application/json"}
            answer = await admin.send(route.method, f"/admin/api{path}", raw=raw, headers=headers)
            assert answer.status < 500, (path, raw)
    assert "our-fault" not in await whole_log(admin.proxy)


async def test_a_key_is_shown_once_and_opens_until_it_is_revoked(admin):
    made = await admin.read("/keys", method="POST", body={"team": "platform", "label": "for a test", "days": 1})
    assert made["key"] not in json.dumps(await admin.read("/keys"))
    assert made["told"]["expires"] - made["told"]["created"] == 86_400
    assert (await admin.read(f"/keys/{made['told']['id']}", method="DELETE"))["state"] == "revoked"
    assert made["key"] not in await whole_log(admin.proxy)
    assert (await admin.read("/audit?limit=1"))["acts"][0]["act"] == "revoke key"
    assert made["key"] not in (admin.proxy.state / "audit.jsonl").read_text()


async def test_a_key_is_for_a_team_that_there_is(admin):
    fault = await admin.read_error(422, "POST", "/keys", body={"team": "nobody"})
    assert fault["faults"][0]["path"] == "team"
    assert await admin.read_error(404, "DELETE", "/keys/0123456789")


async def test_a_team_tells_whether_its_policies_store_text(serve, up):
    policies = {"text-free": {"store_text": False}, "trial": {"inherit": "text-free", "mode": "observe"}}
    teams = {"red": {"policy": "text-free"}, "blue": {}, "green": {"policy": "text-free"}}
    attachments = [{"policy": "trial", "team": "red", "tag": "x"}, {"policy": "default", "team": "green", "tag": "x"}]
    config = {"policies": policies, "teams": teams, "attachments": attachments}
    async with serve(up.url, config=config) as proxy:
        listed = (await AdminClient(proxy).read("/teams"))["teams"]
    assert {team["name"]: team["stores_text"] for team in listed} == {"blue": True, "green": True, "red": False}


async def test_a_switch_is_turned_for_a_team_and_for_all(admin):
    switched = await admin.read("/switches", method="PUT", body={"state": "still-fit", "team": "search"})
    assert [(each["team"], each["state"]) for each in switched["switches"]] == [("search", "still-fit")]

    async def read_states():
        return {each["name"]: each["switch"] for each in (await admin.read("/teams"))["teams"]}

    assert await read_states() == {"platform": "on", "search": "still-fit"}
    await admin.read("/switches", method="PUT", body={"state": "bypass"})
    assert await read_states() == {"platform": "bypass", "search": "bypass"}
    for team in ("", "search"):
        await admin.read("/switches", method="PUT", body={"state": "on", "team": team})
    assert await read_states() == {"platform": "on", "search": "on"}
    acts = (await admin.read("/audit?limit=9"))["acts"]
    act = next(act for act in acts if act["who"] == "admin")  # "this proxy" deletes for an earlier test by now
    assert (act["address"], act["act"], act["subject"]) == ("127.0.0.1", "switch on", "search")
    assert admin.key not in (admin.proxy.state / "audit.jsonl").read_text()


async def test_only_the_user_of_the_proxy_can_read_what_it_stores(admin):
    """As docs/threat-model.md says: files 0600, folders 0700."""
    found = {path: path.stat().st_mode & 0o777 for path in (admin.proxy.state, *admin.proxy.state.rglob("*"))}
    wrong = {str(path): oct(mode) for path, mode in found.items() if mode != (0o700 if path.is_dir() else 0o600)}
    assert len(found) > 10
    assert wrong == {}


@pytest.mark.seconds
async def test_a_refused_configuration_says_why_until_it_is_right_again(admin):
    file = admin.proxy.place / "proxy.yaml"
    before, version = file.read_text(), (await admin.read("/configuration"))["version"]
    file.write_text(before + "nonsense: 1\n")
    refused = await admin.until("/configuration", lambda data: data["refused"])
    assert "nonsense: there is no such setting" in refused["why"]
    assert (await admin.read("/configuration"))["version"] == version
    assert any(each["name"] == "config-refused" for each in (await admin.read("/events?least=error"))["events"])
    file.write_text(before)  # at once, before it is read again
    assert (await admin.read("/configuration"))["refused"] is None
    file.write_text(before.replace("6000", "7000"))
    assert await admin.until("/configuration", lambda data: not data["refused"] and data["version"] != version)
    file.write_text(before)
    assert await admin.until("/configuration", lambda data: data["version"] == version)


async def test_no_secret_is_in_any_answer(admin):
    data = ""
    for path in ("/overview", "/conversations", "/policies", "/teams", "/keys", "/configuration", "/audit", "/events"):
        data += json.dumps(await admin.read(path))
    assert admin.key not in data
    assert "digest" not in data


async def test_a_listed_conversation_is_what_its_newest_request_says_and_the_sum_of_all(admin):
    log = ActivityLog(admin.proxy.state)
    for before, policy in ((500, "former"), (300, "newer")):
        log.record(replace(TURN, conversation="d" * 16, team="walkers", policy=policy, tokens_before=before))
        await asyncio.sleep(0.01)
    log.close()
    one = await find_conversation(admin, "walkers")
    assert one["policy"].startswith("newer@")
    assert (one["requests"], one["tokens_raw"]) == (2, 800)
    found = await admin.read("/conversations?text=newer")
    assert [each["requests"] for each in found["conversations"]] == [2]
    for text in ("former", "newer@"):  # not of the newest request, and not by the digest of a policy
        assert (await admin.read(f"/conversations?text={text}"))["conversations"] == []


async def test_equal_events_of_an_hour_are_one_row(admin):
    clocks = Clocks(time.time() // 3600 * 3600 - 5_000)
    log = ActivityLog(admin.proxy.state, clock=clocks.as_system_clock())
    for minute in range(60):  # an hour begins after 24 of them
        refusal = {"request_id": f"cp-{minute}", "upstream": "grouped", "kind": "input"}
        log.record(Incident("warning", "refused-for-size", "", refusal))
        clocks.pass_time(60)
    log.record(Incident("warning", "refused-for-size", "", {**refusal, "kind": "output"}))
    log.close()
    rows = [row for row in (await admin.read("/events"))["events"] if row["details"].get("upstream") == "grouped"]
    assert [(row["times"], row["details"]["kind"]) for row in rows] == [(1, "output"), (36, "input"), (24, "input")]
    assert rows[1]["at"] - rows[1]["since"] == 35 * 60
    assert rows[1]["details"]["request_id"] == "cp-59"


async def test_conversations_are_listed_by_their_saving_the_smallest_first(admin):
    log = ActivityLog(admin.proxy.state)
    for name, plain in (("good", 9.0), ("bad", 1.0), ("unpriced", None)):
        log.record(
            replace(TURN, conversation=name.ljust(16, "e"), team="sorted", paid_dollars=2.0, plain_dollars=plain)
        )
    log.close()
    told = await admin.read("/conversations?team=sorted&sort=saved&limit=2")
    assert [(each["conversation"].strip("e"), each["saved"]) for each in told["conversations"]] == [
        ("bad", -1),
        ("good", 7),
    ]
    assert told["next"] is None
    assert await admin.read_error(422, "GET", "/conversations?sort=name")
