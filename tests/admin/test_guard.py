"""Who may come in to the admin pages: with which key, under which name, from which page."""

import asyncio
import json
import re
from urllib.parse import urlencode

import pytest
import pytest_asyncio

from proxy.admin import guard
from proxy.admin.app import ROUTES
from tests.support.admin_client import Desk, configured
from tests.support.proxy_client import whole_log
from tests.support.running_proxy import serving

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("admin")]
KEY = "cpa-Yw4bCsxwpEdNf-3wdgctWy7mq1FFN8A9"
SECURE = ("content-security-policy", "x-frame-options", "x-content-type-options", "cache-control")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def desk(tmp_path_factory):
    """A proxy without any traffic yet."""
    place = tmp_path_factory.mktemp("guarded")
    async with serving(None, place=place, config=configured("http://127.0.0.1:9/v1")) as proxy:
        yield Desk(proxy)


async def logged_in(desk, **headers):
    """The session that the login form gives, as a browser would send it back."""
    answer = await desk.asks("POST", "/admin/login", key="", raw=urlencode({"key": desk.key}).encode(), headers=headers)
    assert answer.status == 303, answer.body.data
    return answer.head.first("set-cookie")


def shown(cookie):
    return {"cookie": cookie.partition(";")[0]}


@pytest.mark.parametrize("path", ["/admin/", "/admin", "/admin/static/app.js", "/admin/nowhere", "/admin/api/nowhere"])
async def test_without_the_key_every_page_answers_401(desk, path):
    assert (await desk.asks("GET", path, key="")).status == 401


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
async def test_without_the_key_the_api_answers_401_to_everything(desk, route):
    path = re.sub(r"\{\w+\}", "x", route.path)
    answer = await desk.asks(route.method, f"/admin/api{path}", key="", body={})
    assert answer.status == 401
    assert json.loads(answer.body.data)["error"]["code"] == "admin_key_needed"


async def test_a_team_key_does_not_open_the_admin_pages(desk):
    made = await desk.told("/keys", method="POST", body={"team": "platform"})
    assert await desk.refused(401, "GET", "/overview", key=made["key"])


async def test_every_answer_forbids_a_browser_to_do_more_with_it(desk):
    for path, key in (
        ("/admin/", ""),
        ("/admin/", None),
        ("/admin/api/overview", None),
        ("/admin/static/app.js", None),
    ):
        head = (await desk.asks("GET", path, key=key)).head
        assert all(head.first(name) for name in SECURE), path
        assert head.first("content-security-policy").startswith("default-src 'none'; ")
        assert "unsafe" not in head.first("content-security-policy")
        assert head.first("access-control-allow-origin") is None


async def test_a_wrong_key_is_answered_late_and_the_right_one_is_not(desk):
    began = asyncio.get_running_loop().time()
    wrong = [desk.asks("GET", "/admin/api/overview", key="cpa-wrong") for _ in range(20)]
    waiting = asyncio.gather(*wrong)
    assert (await desk.asks("GET", "/admin/api/overview")).status == 200
    assert {answer.status for answer in await waiting} == {401}
    assert asyncio.get_running_loop().time() - began >= guard.WRONG_KEY_SECONDS


async def test_a_wrong_key_stands_in_the_audit_log(desk):
    await desk.told("/overview")
    assert await desk.refused(401, "GET", "/overview", key="cpa-very-wrong")
    act = (await desk.told("/audit?limit=1"))["acts"][0]
    assert (act["act"], act["outcome"], act["address"]) == ("log in", "refused", "127.0.0.1")
    assert "cpa-very-wrong" not in (desk.proxy.state / "audit.jsonl").read_text()
    assert "cpa-very-wrong" not in await whole_log(desk.proxy)


# --- sessions --------------------------------------------------------------------------------------------------------


async def test_a_browser_gets_a_session_that_is_not_the_key(desk):
    cookie = await logged_in(desk)
    assert desk.key not in cookie
    assert {"HttpOnly", "SameSite=Strict", "Path=/admin"} <= set(cookie.split("; "))
    assert (await desk.asks("GET", "/admin/api/overview", key="", headers=shown(cookie))).status == 200
    assert (await desk.asks("GET", "/admin/", key="", headers=shown(cookie))).status == 200


async def test_a_session_that_was_tampered_with_opens_nothing(desk):
    name, _, value = (await logged_in(desk)).partition(";")[0].partition("=")
    until, nonce, signature = value.split(".")
    for forged in (
        f"{int(until) + 1}.{nonce}.{signature}",
        f"{until}.{nonce}.{'0' * 48}",
        "..",
        "x",
        f"{until}.{nonce}.",
    ):
        answer = await desk.asks("GET", "/admin/api/overview", key="", headers={"cookie": f"{name}={forged}"})
        assert answer.status == 401, forged


async def test_a_session_ends(desk):
    now = 1_000_000.0
    told = guard.make_session(KEY, now)
    assert guard.is_session(told, KEY, now + guard.SESSION_SECONDS - 1)
    assert not guard.is_session(told, KEY, now + guard.SESSION_SECONDS + 1)
    assert not guard.is_session(told, KEY + "x", now)


async def test_logging_out_takes_the_session_from_the_browser(desk):
    here = f"http://localhost:{desk.proxy.port}"
    cookie = await logged_in(desk)
    answer = await desk.asks("POST", "/admin/logout", key="", headers={**shown(cookie), "origin": here})
    assert answer.status == 303
    assert 'compaction-admin=""' in answer.head.first("set-cookie")


async def test_logging_out_ends_the_session_for_copies_of_its_cookie_too(desk):
    here = f"http://localhost:{desk.proxy.port}"
    cookie, other = shown(await logged_in(desk)), shown(await logged_in(desk))
    await desk.asks("POST", "/admin/logout", key="", headers={**cookie, "origin": here})
    assert (await desk.asks("GET", "/admin/api/overview", key="", headers=cookie)).status == 401
    assert (await desk.asks("GET", "/admin/api/overview", key="", headers=other)).status == 200
    signature = cookie["cookie"].rpartition(".")[2]
    assert signature not in (desk.proxy.state / "registry.json").read_text()


async def test_a_wrong_key_in_the_form_is_told_there(desk):
    answer = await desk.asks("POST", "/admin/login", key="", raw=b"key=wrong")
    assert answer.status == 401
    assert b"Wrong key." in answer.body.data
    assert answer.head.first("set-cookie") is None


# --- other sites -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["evil.test", "localhost.evil.test", "127.0.0.1.evil.test", ""])
async def test_under_a_foreign_name_nothing_is_served(desk, host):
    answer = await desk.asks("GET", "/admin/api/overview", headers={"host": host})
    assert answer.status == 403
    assert json.loads(answer.body.data)["error"]["code"] == "host_not_allowed"


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]:8800", "LOCALHOST:1"])
async def test_under_the_names_of_this_machine_it_is(desk, host):
    assert (await desk.asks("GET", "/admin/api/overview", headers={"host": host})).status == 200


@pytest.mark.parametrize(
    "origin", ["https://evil.test", "null", "http://localhost:1", "http://localhost.evil.test", "http://[", ""]
)
async def test_no_other_site_changes_anything(desk, origin):
    session = shown(await logged_in(desk))
    for headers, key in (({**session, "origin": origin}, ""), ({"origin": origin}, None)):
        fault = await desk.refused(403, "PUT", "/switches", body={"on": True}, headers=headers, key=key)
        assert fault["code"] == "foreign_origin"


async def test_with_a_session_a_change_must_say_where_it_comes_from(desk):
    session = shown(await logged_in(desk))
    assert await desk.refused(403, "PUT", "/switches", body={"on": True}, headers=session, key="")
    here = {**session, "origin": f"http://localhost:{desk.proxy.port}"}
    assert await desk.told("/switches", method="PUT", body={"on": True}, headers=here, key="")


async def test_a_form_of_another_site_cannot_log_anybody_in(desk):
    answer = await desk.asks("POST", "/admin/login", key="", raw=b"key=x", headers={"origin": "https://evil.test"})
    assert answer.status == 403


# --- what else is asked ----------------------------------------------------------------------------------------------


async def test_what_cannot_be_is_told_clearly(desk):
    assert (await desk.refused(404, "GET", "/nowhere"))["code"] == "not_found"
    assert (await desk.refused(405, "DELETE", "/overview"))["code"] == "method_not_allowed"
    assert (await desk.refused(415, "PUT", "/switches", body={}, headers={"content-type": "text/plain"}))[
        "code"
    ] == "not_json"
    assert (await desk.refused(400, "PUT", "/switches", raw=b"{"))["code"] == "bad_request"
    assert (await desk.refused(413, "PUT", "/switches", raw=b" " * 1_100_000))["code"] == "body_too_large"
    assert (await desk.refused(422, "PUT", "/switches", body={"on": "yes"}))["faults"][0]["path"] == "on"
    assert (await desk.refused(422, "GET", "/overview?hours=never"))["faults"][0]["path"] == "hours"
    assert await desk.refused(422, "GET", "/overview?nonsense=1")


@pytest.fixture
def place(tmp_path):
    return tmp_path


async def test_switched_off_there_are_no_pages(place):
    config = configured("http://127.0.0.1:9/v1", admin={"enabled": False})
    async with serving(None, place=place, config=config) as proxy:
        answer = await Desk(proxy).asks("GET", "/admin/", key=KEY)
        assert answer.status == 404
        assert not (proxy.state / "chronicle.sqlite").exists()


async def test_an_operator_names_the_key_and_the_hosts(place):
    (place / "key").write_text(KEY)
    config = configured("http://127.0.0.1:9/v1", admin={"key": f"file:{place / 'key'}", "hosts": ["ops.example"]})
    async with serving(None, place=place, config=config) as proxy:
        desk = Desk(proxy)
        at = {"host": "ops.example", "origin": "https://ops.example"}
        assert (await desk.asks("PUT", "/admin/api/switches", {"on": True}, headers=at, key=KEY)).status == 200
        assert (await desk.asks("GET", "/admin/api/overview", key="cpa-" + "x" * 32)).status == 401


async def test_what_cannot_be_read_now_is_said_and_is_no_fault_of_ours(place):
    config = configured("http://127.0.0.1:9/v1")
    async with serving(None, place=place, config=config) as proxy:
        desk = Desk(proxy)
        (proxy.state / "audit.jsonl").mkdir()
        assert (await desk.refused(503, "GET", "/audit"))["code"] == "unreadable"
