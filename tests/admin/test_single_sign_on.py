"""The admin pages behind single sign-on: the shipped nginx.conf, a real nginx, and an identity proxy that is scripted.

It answers as oauth2-proxy does: https://oauth2-proxy.github.io/oauth2-proxy/configuration/integration
"""

import json
from contextlib import AsyncExitStack, asynccontextmanager
from urllib.parse import parse_qs

import pytest
import pytest_asyncio

from proxy.foundation.errors import UntrustedGateway
from tests import ROOT
from tests.admin import install
from tests.admin.browser import run_scene
from tests.end_to_end.servers.nginx import PORT, PROGRAM, TEMPORARY, Nginx, running_nginx
from tests.support import http_client
from tests.support.admin_client import AdminClient, admin_config, idle_proxy
from tests.support.proxy_client import ask, chat, request
from tests.support.running_proxy import serving
from tests.support.scripted_upstream import Upstream, answer, text_turn

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("admin")]
needs_nginx = pytest.mark.skipif(PROGRAM is None, reason="there is no nginx here")
HOST, USER, KEY = "proxy.example.com", "x-auth-request-email", "cpa-Yw4bCsxwpEdNf-3wdgctWy7mq1FFN8A9"
ANN, BYPASS = {"cookie": "signed-in=ann@example.com"}, {"state": "bypass"}
FORM = """<form method="post" action="/oauth2/sign_in"><input id="who" name="who"><button>Log in</button></form>"""


def identify(request):
    """Who a browser is stands in its cookie, in clear: an identity proxy would have signed it."""
    if request.path == "/oauth2/sign_in":
        who = parse_qs(request.body.decode())["who"][0]
        return answer(b"", 302, [("location", "/admin/"), ("set-cookie", f"signed-in={who}; Path=/; SameSite=Lax")])
    if request.path == "/oauth2/start":
        return answer(FORM, headers=[("content-type", "text/html")])
    name, _, who = (request.header("cookie") or "").partition("=")
    return answer(b"", 202, [(USER, who)]) if name == "signed-in" else answer(b"", 401)


def configuration(proxy, identity, place):
    """The shipped file, but for the addresses, and the key in the file that it includes."""
    (place / "admin-key.conf").write_text(f'proxy_set_header Authorization "Bearer {proxy.key}";')
    text = (ROOT / "deploy" / "sso" / "nginx.conf").read_text()
    for shipped, here in (
        ("http://127.0.0.1:4180", identity.origin),
        ("http://127.0.0.1:8800", proxy.proxy.origin),
        ("access_log off;", f"access_log off; {TEMPORARY}"),
        ("listen 8443;", f"listen 127.0.0.1:{PORT};"),
    ):
        assert shipped in text
        text = text.replace(shipped, here)
    return text


@asynccontextmanager
async def signing_on(place):
    """The proxy alone, and behind nginx."""
    settings = {"hosts": [HOST], "user_header": USER}
    async with AsyncExitStack() as stack:
        up = await stack.enter_async_context(Upstream(text_turn("Hello.")))
        proxy = await stack.enter_async_context(serving(None, place=place, config=admin_config(up.url, admin=settings)))
        identity = await stack.enter_async_context(Upstream(identify))
        direct = AdminClient(proxy)
        front = await stack.enter_async_context(running_nginx(configuration(direct, identity, place), place))
        yield direct, front


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def both(tmp_path_factory):
    async with signing_on(tmp_path_factory.mktemp("sso")) as proxies:
        yield proxies


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def direct(tmp_path_factory):
    async with idle_proxy(tmp_path_factory.mktemp("direct"), admin={"user_header": "X-Person"}) as operator:
        yield operator


async def newest_act(admin):
    return (await admin.read("/audit?limit=1"))["acts"][0]


async def call(front: Nginx, method, path, headers=(), body=None):
    data = None if body is None else json.dumps(body).encode()
    sent = request(method, path, {"host": HOST, **dict(headers)}, data)
    return await http_client.send(front.origin, sent, method=method)


async def test_beside_the_key_the_header_names_who_acts(direct):
    for headers, who in (
        ({"x-person": "ann@example.com"}, "ann@example.com"),
        ({"x-person": "Änne"}, "Änne"),
        ({}, "admin"),
    ):
        encoded = {name: value.encode().decode("latin-1") for name, value in headers.items()}
        await direct.read("/switches", method="PUT", body={"state": "on"}, headers=encoded)
        assert (await newest_act(direct))["who"] == who


async def test_without_the_key_the_header_opens_nothing(direct):
    for key in ("", "cpa-wrong"):
        assert await direct.read_error(401, "GET", "/overview", key=key, headers={"x-person": "ann"})


async def test_a_session_of_the_login_form_cannot_name_anybody(direct):
    form = await direct.send("POST", "/admin/login", key="", raw=f"key={direct.key}".encode())
    headers = {
        "cookie": form.head.first("set-cookie").partition(";")[0],
        "origin": f"http://localhost:{direct.proxy.port}",
        "x-person": "bob",
    }
    await direct.read("/switches", method="PUT", body={"state": "on"}, key="", headers=headers)
    assert (await newest_act(direct))["who"] == "admin (session)"


@pytest.mark.parametrize("name", ["", " ", "x" * 201, "a\tb", "\x80"])
async def test_a_header_that_names_nobody_is_refused(direct, name):
    fault = await direct.read_error(400, "GET", "/overview", headers={"x-person": name})
    assert "admin.user_header" in fault["message"]


async def test_a_header_that_is_there_twice_is_refused(direct):
    pairs = [("host", "localhost"), ("authorization", f"Bearer {direct.key}"), ("x-person", "ann"), ("X-Person", "bob")]
    headers = tuple((name.encode(), value.encode()) for name, value in pairs)
    sent = http_client.request_bytes("GET", "/admin/api/overview", headers, b"")
    reply = await http_client.send(direct.proxy.origin, sent, method="GET")
    assert reply.status == 403
    assert json.loads(reply.body.data)["error"]["code"] == UntrustedGateway.code


@needs_nginx
class TestNginx:
    async def test_who_is_not_logged_in_is_sent_to_the_login(self, both):
        _, front = both
        reply = await call(front, "GET", "/admin/")
        assert reply.status == 302
        assert reply.head.first("location").endswith("/oauth2/start?rd=/admin/")
        assert (await call(front, "GET", "/admin/api/overview")).status == 401

    async def test_a_switch_is_recorded_under_the_name_of_the_person(self, both):
        direct, front = both
        headers = {**ANN, "origin": f"http://{HOST}"}
        assert (await call(front, "PUT", "/admin/api/switches", headers, BYPASS)).status == 200
        act = await newest_act(direct)
        assert (act["who"], act["act"]) == ("ann@example.com", "switch bypass")

    async def test_a_name_that_the_browser_sends_is_dropped(self, both):
        direct, front = both
        headers = {**ANN, "origin": f"http://{HOST}", USER: "bob@example.com"}
        assert (await call(front, "PUT", "/admin/api/switches", headers, BYPASS)).status == 200
        assert (await newest_act(direct))["who"] == "ann@example.com"
        assert (await call(front, "GET", "/admin/api/overview", {USER: "bob@example.com"})).status == 401

    async def test_no_page_of_another_site_uses_the_login(self, both):
        _, front = both
        headers = {**ANN, "origin": "https://evil.test"}
        assert (await call(front, "PUT", "/admin/api/switches", headers, BYPASS)).status == 403

    async def test_the_key_reaches_the_admin_pages_only(self, both):
        """Clients need a team key, and the metrics are not public."""
        _, front = both
        assert (await ask(front, chat(), headers={"host": HOST})).status == 401
        for path in ("/metrics", "/health", "/"):
            assert (await call(front, "GET", path, ANN)).status == 404


@pytest.mark.slow
@needs_nginx
@pytest.mark.skipif(not install.is_installed(), reason="python -m tests.admin.install puts a browser's driver here")
async def test_a_person_logs_in_and_turns_a_switch_on_the_page(tmp_path):
    async with signing_on(tmp_path) as (direct, front):
        url = front.origin.replace("127.0.0.1", "localhost")
        await run_scene(direct, "a_person_logs_in_and_turns_a_switch", url=url)
        acts = (await direct.read("/audit?limit=10"))["acts"]
    assert [act["who"] for act in acts if act["act"].startswith("switch")] == ["ann@example.com"]
