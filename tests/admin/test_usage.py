"""Usage and requests, on a proxy whose activity log holds a day of traffic."""

import csv
import time
from io import StringIO
from urllib.parse import urlencode

import pytest
import pytest_asyncio
from msgspec.structs import replace

from proxy.admin.figures import GROUPS_LISTED_MAX, LOCAL_BY, SUMMED_BY
from proxy.admin.request_pages import KINDS
from proxy.events import SizeRefused
from proxy.store.activity_log import ActivityLog, Incident
from proxy.store.usage_sums import UsageDelta, UsageNames
from proxy.telemetry.activity import REFUSALS_PER_MINUTE, ActivityListener
from tests import ROOT
from tests.admin import demo_traffic
from tests.support.admin_client import TURN, AdminClient, admin_config, team_key, until_open
from tests.support.messages import call, chat, user
from tests.support.proxy_client import ask
from tests.support.running_proxy import QUIET, serving
from tests.support.scripted_upstream import Upstream, text_turn

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def admin(tmp_path_factory):
    place = tmp_path_factory.mktemp("usage")
    demo_traffic.fill(place / "state", time.time() - 60)
    async with Upstream(text_turn("ok")) as up:
        config = admin_config(up.url)
        config["upstreams"][0] |= QUIET
        config["teams"]["research"] = {}
        config["policies"]["patient"] = {"clear_at_least": 2_000}
        async with serving(None, place=place, config=config) as proxy:
            yield AdminClient(proxy)


@pytest.mark.parametrize("by", SUMMED_BY + LOCAL_BY)
async def test_groups_and_moments_add_up_to_the_same_total(admin, by):
    data = await admin.read(f"/usage?by={by}&hours=48")
    assert data["total"]["requests"] > 300
    for name in ("requests", "tokens_raw", "tokens_forwarded", "cost", "saved", "spent"):
        of_groups = sum(each[name] for each in data["groups"])
        of_moments = sum(each[name] for each in data["moments"])
        assert of_groups == pytest.approx(data["total"][name]), name
        assert of_moments == pytest.approx(data["total"][name]), name
    assert data["total"]["cost"] + data["total"]["saved"] == pytest.approx(data["total"]["plain"])
    assert data["total"]["spent"] > 0
    assert len(data["shown"]) <= 8


@pytest.mark.parametrize("by", LOCAL_BY)
async def test_a_conversation_counts_once_in_the_group_in_which_it_began(admin, by):
    listed = await admin.read("/conversations?limit=200")
    data = await admin.read(f"/usage?by={by}&hours=48")
    assert sum(each["conversations"] for each in data["groups"]) == len(listed["conversations"]) > 5


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def many_sessions(tmp_path_factory):
    """A proxy whose activity log holds more sessions than a page lists."""
    place = tmp_path_factory.mktemp("many-sessions")
    demo_traffic.fill_with_sessions(place / "state", GROUPS_LISTED_MAX + 50)
    async with Upstream(text_turn("ok")) as up, serving(None, place=place, config=admin_config(up.url)) as proxy:
        yield AdminClient(proxy)


async def test_of_many_groups_the_largest_are_listed_and_the_others_are_one_row(many_sessions):
    data = await many_sessions.read("/usage?by=session")
    assert [each["name"] for each in data["groups"][:2]] == ["session-249", "session-248"]
    assert len(data["groups"]) == GROUPS_LISTED_MAX
    assert data["others"]["groups"] == 50
    for name in ("requests", "tokens_raw", "cost"):
        listed = sum(each[name] for each in data["groups"])
        assert listed + data["others"][name] == pytest.approx(data["total"][name])
    assert (await many_sessions.read("/usage?by=team"))["others"] is None


async def test_usage_agrees_with_the_overview(admin):
    totals = (await admin.read("/overview"))["all"]
    usage = (await admin.read("/usage?by=model&hours=48"))["total"]
    assert usage["tokens_forwarded"] == totals["tokens_forwarded"]
    assert usage["saved"] == pytest.approx(totals["saved"], rel=1e-3)
    assert usage["spent"] == pytest.approx(totals["spent"], rel=1e-3)


async def test_the_share_from_the_cache_is_told_with_and_without_what_the_proxy_added(admin):
    data = await admin.read("/usage?by=team&hours=48")
    for figures in (data["total"], *data["groups"]):
        added, read = figures["tokens_read_placed"], figures["tokens_read"]
        assert 0 < added < read
        with_added, without = figures["cached_share_placed"], figures["cached_share_as_sent"]
        share = (with_added * added + without * (read - added)) / read
        assert share == pytest.approx(figures["cached_share"], abs=2e-4)


async def test_each_request_is_of_exactly_one_kind(admin):
    data = await admin.read("/traffic?hours=48")
    kinds = ("ok", "refused", "upstream-errors", "failed", "client-left")
    assert sum(data["total"][kind] for kind in kinds) == data["total"]["requests"] > 300
    assert all(data["total"][kind] for kind in kinds)
    assert sum(each["requests"] for each in data["moments"]) == data["total"]["requests"]
    for kind in KINDS:
        assert (await admin.read(f"/requests?hours=48&kind={kind}&limit=1"))["requests"], kind


@pytest.mark.parametrize("path", ["/requests?kind=", "/traffic?kind=", "/usage?by="])
@pytest.mark.parametrize("value", ["nonsense", "", "ok%0A", "team%0A", "ERRORS"])
async def test_a_value_that_is_none_of_those_to_choose_from_is_refused(admin, path, value):
    (fault,) = (await admin.read_error(422, "GET", path + value))["faults"]
    assert fault["path"] == path.partition("?")[2].rstrip("=")
    assert "|" in fault["message"], "it lists those to choose from"


async def test_percentiles_are_those_of_the_rows(admin):
    rows = (await admin.read("/requests?hours=48&team=search&limit=1000"))["requests"]
    total = (await admin.read("/traffic?hours=48&team=search"))["total"]
    assert len(rows) == total["requests"]
    durations = sorted(row["seconds"] for row in rows)
    assert total["p50"] == durations[-(-len(durations) // 2) - 1]
    assert total["p95"] == durations[-(-len(durations) * 95 // 100) - 1]


async def test_a_list_of_requests_goes_on_at_both_ends(admin):
    first = await admin.read("/requests?hours=48&limit=5&model=gpt-5.1")
    assert {row["model"] for row in first["requests"]} == {"gpt-5.1"}
    second = await admin.read(f"/requests?hours=48&limit=5&model=gpt-5.1&before={first['next']}")
    ids = [row["id"] for row in first["requests"] + second["requests"]]
    assert ids == sorted(ids, reverse=True)
    assert len(set(ids)) == 10
    newer = await admin.read(f"/requests?hours=48&model=gpt-5.1&after={ids[2]}")
    assert [row["id"] for row in newer["requests"]] == ids[:2]


async def test_a_request_is_found_by_its_id_with_what_it_cost(admin):
    row = (await admin.read("/requests?hours=48&kind=compacted&limit=1"))["requests"][0]
    data = await admin.read(f"/requests/{row['request_id']}")
    assert data["conversation"] == row["conversation"]
    assert data["turn"]["paid"] > 0
    assert (await admin.read(f"/requests?hours=48&text={row['request_id']}"))["requests"] == [row]
    assert await admin.read_error(404, "GET", "/requests/cp-nowhere")


async def test_the_audit_log_names_the_operator(admin):
    made = await admin.read("/keys", method="POST", body={"team": "search"})
    assert (await admin.read("/audit?limit=1"))["acts"][0]["who"] == "admin"
    answer = await admin.send("POST", "/admin/login", key="", raw=urlencode({"key": admin.key}).encode())
    cookie = {"cookie": answer.head.first("set-cookie").partition(";")[0]}
    here = {**cookie, "origin": f"http://localhost:{admin.proxy.port}"}
    await admin.read(f"/keys/{made['told']['id']}", method="DELETE", key="", headers=here)
    act = (await admin.read("/audit?limit=1"))["acts"][0]
    assert (act["who"], act["act"]) == ("admin (session)", "revoke key")


async def test_histories_without_a_conversation_have_no_part_in_a_summary_of_none(tmp_path):
    log = ActivityLog(tmp_path / "state")
    for team in ("search", "platform"):
        log.record(replace(TURN, conversation="", tenant=f"team.{team}", team=team))
    log.record(Incident("info", "summary-ended", "", {}, 0.5))
    log.close()
    async with serving(None, place=tmp_path, config=admin_config("http://127.0.0.1:9/v1")) as proxy:
        listed = (await AdminClient(proxy).read("/conversations"))["conversations"]
    assert {(each["team"], each["requests"], each["spent"]) for each in listed} == {
        ("search", 1, 0),
        ("platform", 1, 0),
    }


async def test_months_have_no_group_without_figures_and_no_name_that_a_spreadsheet_would_run(tmp_path):
    log = ActivityLog(tmp_path / "state")
    models = ["=1+1", "+1", "-1+1", "@SUM(1)", "\t=1", "\r=1", "gpt-5.1"]
    for model in models:
        log.record(UsageDelta({"turns": 1, "paid": 1.0, "plain": 0.5}, UsageNames("search", model=model)))
    log.record(UsageDelta({"requests": 9}, UsageNames("search")))
    log.close()
    async with serving(None, place=tmp_path, config=admin_config("http://127.0.0.1:9/v1")) as proxy:
        admin = AdminClient(proxy)
        answer = await admin.send("GET", "/admin/api/usage/months?by=model&format=csv")
        (team,) = (await admin.read("/usage/months?by=team"))["months"]
    page = (ROOT / "docs" / "admin.md").read_text()
    figures = [name for name in team if name not in {"month", "team"} and not name.endswith(("_placed", "_as_sent"))]
    assert [name for name in figures if f"`{name}`" not in page] == [], "each column is explained"
    rows = [*csv.DictReader(StringIO(answer.body.data.decode(), newline=""))]
    assert sorted(row["model"] for row in rows) == sorted(["gpt-5.1", *(f"'{model}" for model in models[:-1])])
    assert {row["saved"] for row in rows} == {"-0.5"}, "a figure less than 0 is a number"
    assert (team["turns"], team["requests"]) == (7, 9)


async def test_agents_with_the_same_beginning_are_separated_by_their_sessions(admin):
    text = team_key(admin.proxy, "search")
    await until_open(admin.proxy, text)
    reads = [call("x", out="a line\n" * 900, path=f"{n}") for n in range(4)]
    data = chat(user("Mend the test."), *reads, model="gpt-5.1", user="u-7")
    for session in ("ses-one", "ses-two"):
        headers = {"authorization": f"Bearer {text}", "x-session-id": session, "content-type": "application/json"}
        assert (await ask(admin.proxy, data, headers=headers)).status == 200
    listed = await admin.until(
        "/conversations?text=ses-", lambda found: len(found["conversations"]) == 2 and found["conversations"]
    )
    assert {each["session"] for each in listed} == {"ses-one", "ses-two"}
    assert {each["user"] for each in listed} == {"u-7"}
    name = listed[0]["conversation"]
    whole = await admin.read(f"/conversations/{name}")
    assert [each["session"] for each in whole["sessions"]] == ["ses-two", "ses-one"]
    one = await admin.read(f"/conversations/{name}?session=ses-one")
    assert [turn["session"] for turn in one["turns"]] == ["ses-one"]
    assert await admin.read_error(404, "GET", f"/conversations/{name}?session=other")


async def test_refusals_of_unknown_callers_do_not_push_out_other_requests(tmp_path):
    log = ActivityLog(tmp_path)
    listener = ActivityListener(log)
    refused = replace(demo_traffic.REQUEST, outcome="refused", status=401)
    for _ in range(3 * REFUSALS_PER_MINUTE):
        listener(refused)
    listener(demo_traffic.REQUEST)
    log.close()
    rows = log.query("select outcome, count(*) as many from requests group by outcome")
    counts = {row["outcome"]: row["many"] for row in rows}
    assert counts["completed"] == 1
    assert REFUSALS_PER_MINUTE <= counts["refused"] <= 2 * REFUSALS_PER_MINUTE
    assert log.query("select sum(refused) as many from usage_sums")[0]["many"] == 180


async def test_a_refused_signature_is_not_counted_as_too_long(tmp_path):
    log = ActivityLog(tmp_path)
    listener = ActivityListener(log)
    for kind in ("signature", "input"):
        for helped in (True, False):
            listener(SizeRefused("cp-1", "u", kind, None, helped))
    log.close()
    rows = log.query("select sum(overflows) as overflows, sum(overflows_helped) as helped from usage_sums")
    assert rows == [{"overflows": 2, "helped": 1}]


async def test_names_of_a_clients_making_are_a_bounded_number_of_rows(tmp_path):
    log = ActivityLog(tmp_path)
    listener = ActivityListener(log)
    for number in range(2_000):
        listener(replace(TURN, model=f"made-up-{number}"))
        listener(replace(TURN, team=f"made-up-{number}"))
    log.close()
    (row,) = log.query("select count(distinct team) as teams, count(distinct model) as models from usage_sums")
    assert row["teams"] <= 501
    assert row["models"] <= 52
    assert log.query("select sum(turns) as turns from usage_sums") == [{"turns": 4_000}]
