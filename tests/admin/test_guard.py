"""Who may come in to the admin pages: with which key, under which name, from which page."""

import asyncio
import json
import os
import re
from urllib.parse import urlencode

import pytest
import pytest_asyncio

from proxy.admin import routes
from proxy.admin.dispatch import ROUTES
from proxy.store.activity_log import ActivityLog
from tests.support.admin_client import idle_proxy
from tests.support.proxy_client import PATIENCE_SECONDS, until, whole_log

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("admin")]
KEY = "cpa-Yw4bCsxwpEdNf-3wdgctWy7mq1FFN8A9"
SECURE = ("content-security-policy", "x-frame-options", "x-content-type-options", "cache-control")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def admin(tmp_path_factory):
    """A proxy without any traffic yet."""
    async with idle_proxy(tmp_path_factory.mktemp("guarded")) as operator:
        yield operator


async def logged_in(admin):
    """The session that the login form gives, as a browser would send it back."""
    answer = await admin.send("POST", "/admin/login", key="", raw=urlencode({"key": admin.key}).encode())
    assert answer.status == 303, answer.body.data
    return answer.head.first("set-cookie")


async def as_browser(admin):
    """The headers of a page of the dashboard after the log in."""
    cookie = (await logged_in(admin)).partition(";")[0]
    return {"cookie": cookie, "origin": f"http://localhost:{admin.proxy.port}"}


async def is_open(admin, headers):
    return (await admin.send("GET", "/admin/api/overview", key="", headers=headers)).status == 200


@pytest.mark.parametrize("path", ["/admin/", "/admin", "/admin/static/app.js", "/admin/nowhere", "/admin/api/nowhere"])
async def test_without_the_key_every_page_answers_401(admin, path):
    assert (await admin.send("GET", path, key="")).status == 401


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
async def test_without_the_key_the_api_answers_401_to_everything(admin, route):
    path = re.sub(r"\{\w+\}", "x", route.path)
    answer = await admin.send(route.method, f"/admin/api{path}", key="", body={})
    assert answer.status == 401
    assert json.loads(answer.body.data)["error"]["code"] == "admin_key_needed"


async def test_a_team_key_does_not_open_the_admin_pages(admin):
    made = await admin.read("/keys", method="POST", body={"team": "platform"})
    assert await admin.read_error(401, "GET", "/overview", key=made["key"])


async def test_every_answer_forbids_a_browser_to_do_more_with_it(admin):
    for path, key in (
        ("/admin/", ""),
        ("/admin/", None),
        ("/admin/api/overview", None),
        ("/admin/static/app.js", None),
    ):
        head = (await admin.send("GET", path, key=key)).head
        assert all(head.first(name) for name in SECURE), path
        assert head.first("content-security-policy").startswith("default-src 'none'; ")
        assert "unsafe" not in head.first("content-security-policy")
        assert head.first("access-control-allow-origin") is None


async def test_a_wrong_key_is_answered_late_and_the_right_one_is_not(admin):
    began = asyncio.get_running_loop().time()
    wrong = [admin.send("GET", "/admin/api/overview", key="cpa-wrong") for _ in range(20)]
    waiting = asyncio.gather(*wrong)
    assert (await admin.send("GET", "/admin/api/overview")).status == 200
    assert {answer.status for answer in await waiting} == {401}
    assert asyncio.get_running_loop().time() - began >= routes.WRONG_KEY_SECONDS


async def test_a_wrong_key_is_written_to_the_audit_log_and_does_not_fill_the_activity_log(admin):
    await admin.read("/overview")
    assert await admin.read_error(401, "GET", "/overview", key="cpa-very-wrong")
    act = (await admin.read("/audit?limit=1"))["acts"][0]
    assert (act["act"], act["outcome"], act["address"]) == ("log in", "refused", "127.0.0.1")
    assert "cpa-very-wrong" not in (admin.proxy.state / "audit.jsonl").read_text()
    assert "cpa-very-wrong" not in await whole_log(admin.proxy)
    await admin.read("/switches", method="PUT", body={"state": "on"})  # which is written down behind it
    log, acts = ActivityLog(admin.proxy.state), "select details from incidents where name = 'admin'"
    await until(lambda: "switch on" in str(log.query(acts)))
    assert '"refused"' not in str(log.query(acts))
    log.close()


async def test_a_browser_gets_a_session_that_is_not_the_key(admin):
    cookie = await logged_in(admin)
    assert admin.key not in cookie
    assert {"HttpOnly", "SameSite=Strict", "Path=/admin"} <= set(cookie.split("; "))
    session = {"cookie": cookie.partition(";")[0]}
    assert await is_open(admin, session)
    assert await is_open(admin, {**session, "authorization": "Bearer"}), "no key is shown"
    assert (await admin.send("GET", "/admin/", key="", headers=session)).status == 200


async def test_a_session_that_was_tampered_with_opens_nothing(admin):
    name, _, value = (await logged_in(admin)).partition(";")[0].partition("=")
    until, nonce, signature = value.split(".")
    later, unsigned = f"{int(until) + 1}", "0" * 48
    for forged in (f"{later}.{nonce}.{signature}", f"{until}.{nonce}.{unsigned}", f"{until}.{nonce}.", "..", "x"):
        assert not await is_open(admin, {"cookie": f"{name}={forged}"}), forged


async def test_a_session_ends(admin):
    now = 1_000_000.0
    session = routes.make_session(KEY, now)
    assert routes.is_session(session, KEY, now + routes.SESSION_SECONDS - 1)
    assert not routes.is_session(session, KEY, now + routes.SESSION_SECONDS + 1)
    assert not routes.is_session(session, KEY + "x", now)
    assert not routes.is_session(session, None, now)


async def test_logging_out_ends_the_session_for_copies_of_its_cookie_too(admin):
    session, other = await as_browser(admin), await as_browser(admin)
    answer = await admin.send("POST", "/admin/logout", key="", headers=session)
    assert (answer.status, 'compaction-admin=""' in answer.head.first("set-cookie")) == (303, True)
    assert not await is_open(admin, session)
    assert await is_open(admin, other)
    signature = session["cookie"].rpartition(".")[2]
    assert signature not in (admin.proxy.state / "registry.json").read_text()


def read_ended_sessions(admin):
    return json.loads((admin.proxy.state / "registry.json").read_text())["ended_sessions"]


@pytest.mark.parametrize("session", ["99999999990000.x.y", "9999999999.0123456789abcdef.y", f"{'9' * 5_000}.x.y", "x"])
async def test_logging_out_ends_no_session_that_the_proxy_did_not_sign(admin, session):
    await admin.read("/switches", method="PUT", body={"state": "on"})  # so that there is a registry
    before = read_ended_sessions(admin)
    answer = await admin.send("POST", "/admin/logout", headers={"cookie": f"{routes.COOKIE}={session}"})
    assert answer.status == 303
    assert read_ended_sessions(admin) == before


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"a=%41&" * 170_000, 413), (b"key=" + b"%ff" * 340_000, 413), (b"a=b&" * 1_025, 413), (b"a=b&" * 99, 400)],
)
async def test_a_large_body_is_no_login(admin, body, status):
    """It needs no key, so it must not cost the proxy anything: 1 MiB took a second in which nothing else was served."""
    answer = await admin.send("POST", "/admin/login", key="", raw=body)
    assert (answer.status, answer.head.first("set-cookie")) == (status, None)


async def test_a_wrong_key_in_the_form_is_reported_there(admin):
    answer = await admin.send("POST", "/admin/login", key="", raw=b"key=wrong")
    assert answer.status == 401
    assert b"Wrong key." in answer.body.data
    assert answer.head.first("set-cookie") is None


@pytest.mark.parametrize("host", ["evil.test", "localhost.evil.test", "127.0.0.1.evil.test", ""])
async def test_under_a_foreign_name_nothing_is_served(admin, host):
    answer = await admin.send("GET", "/admin/api/overview", headers={"host": host})
    assert answer.status == 403
    assert json.loads(answer.body.data)["error"]["code"] == "host_not_allowed"


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]:8800", "LOCALHOST:1"])
async def test_under_the_names_of_this_machine_it_is(admin, host):
    assert (await admin.send("GET", "/admin/api/overview", headers={"host": host})).status == 200


@pytest.mark.parametrize(
    "origin", ["https://evil.test", "null", "http://localhost:1", "http://localhost.evil.test", "http://[", ""]
)
async def test_no_other_site_changes_anything(admin, origin):
    session = await as_browser(admin)
    for headers, key in (({**session, "origin": origin}, ""), ({"origin": origin}, None)):
        fault = await admin.read_error(403, "PUT", "/switches", body={"state": "on"}, headers=headers, key=key)
        assert fault["code"] == "foreign_origin"


async def test_with_a_session_a_change_must_say_where_it_comes_from(admin):
    session = await as_browser(admin)
    change = {"body": {"state": "on"}, "key": ""}
    assert await admin.read_error(403, "PUT", "/switches", headers={"cookie": session["cookie"]}, **change)
    assert await admin.read("/switches", method="PUT", headers=session, **change)


async def test_a_form_of_another_site_cannot_log_in(admin):
    answer = await admin.send("POST", "/admin/login", key="", raw=b"key=x", headers={"origin": "https://evil.test"})
    assert answer.status == 403


async def test_an_impossible_request_is_explained(admin):
    assert (await admin.read_error(404, "GET", "/nowhere"))["code"] == "not_found"
    assert (await admin.read_error(405, "DELETE", "/overview"))["code"] == "method_not_allowed"
    assert (await admin.send("POST", "/admin/api/conversations")).head.first("allow") == "GET, HEAD"
    assert (await admin.send("HEAD", "/admin/api/overview")).status == 200
    text = {"content-type": "text/plain"}
    assert (await admin.read_error(415, "PUT", "/switches", body={}, headers=text))["code"] == "not_json"
    assert (await admin.read_error(400, "PUT", "/switches", raw=b"{"))["code"] == "bad_request"
    assert (await admin.read_error(413, "PUT", "/switches", raw=b" " * 1_100_000))["code"] == "body_too_large"
    assert (await admin.read_error(422, "PUT", "/switches", body={"state": "yes"}))["faults"][0]["path"] == "state"
    assert (await admin.read_error(422, "GET", "/overview?hours=never"))["faults"][0]["path"] == "hours"
    assert await admin.read_error(422, "GET", "/overview?nonsense=1")


async def test_switched_off_there_are_no_pages(tmp_path):
    async with idle_proxy(tmp_path, admin={"enabled": False}) as admin:
        assert (await admin.send("GET", "/admin/", key=KEY)).status == 404
        assert not (admin.proxy.state / "chronicle.sqlite").exists()


async def test_an_operator_names_the_key_and_the_hosts(tmp_path):
    (tmp_path / "key").write_text(KEY)
    async with idle_proxy(tmp_path, admin={"key": f"file:{tmp_path / 'key'}", "hosts": ["ops.example"]}) as admin:
        at = {"host": "ops.example", "origin": "https://ops.example"}
        assert (await admin.send("PUT", "/admin/api/switches", {"state": "on"}, headers=at, key=KEY)).status == 200
        assert (await admin.send("GET", "/admin/api/overview", key="cpa-" + "x" * 32)).status == 401


async def test_searches_delay_neither_a_switch_nor_a_key_nor_one_another(tmp_path):
    """Originals on a disk that does not answer: a pipe without a writer. The threads of requests must stay free."""
    async with idle_proxy(tmp_path) as admin:
        folder = admin.proxy.state / "originals" / "default" / ("0" * 32)
        folder.mkdir(parents=True)
        os.mkfifo(folder / "current.jsonl")
        (folder / "closed.jsonl").write_bytes(b"{}\n")
        searches = [asyncio.create_task(admin.send("GET", "/admin/api/search?text=x")) for _ in range(12)]
        await asyncio.sleep(0.5)
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert await admin.read("/switches", method="PUT", body={"state": "off"})
            assert await admin.read("/keys", method="POST", body={"team": "platform"})
            assert await admin.read("/requests")
        await asyncio.to_thread((folder / "current.jsonl").write_bytes, b"")
        answers = await asyncio.gather(*searches)
        assert sorted(answer.status for answer in answers) == [200, *[503] * 11]
        refused = next(answer for answer in answers if answer.status == 503)
        assert json.loads(refused.body.data)["error"]["code"] == "overloaded"
        (folder / "current.jsonl").unlink()
        assert await admin.read("/search?text=x") == {"hits": [], "whole": True}


async def test_a_temporarily_unreadable_state_is_reported_and_is_no_internal_error(tmp_path):
    async with idle_proxy(tmp_path) as admin:
        (admin.proxy.state / "audit.jsonl").mkdir()
        assert (await admin.read_error(503, "GET", "/audit"))["code"] == "unreadable"
