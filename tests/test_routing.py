"""Which upstream hears what: models, keys, paths, headers, and the ways through proxies and certificates."""

import asyncio
import json
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field

import http1
import pytest
import pytest_asyncio
import trustme
from asking import HOST, ask, chat, fault_of, request
from serving import Proxy, free_port
from upstream import Upstream, answer, echo, says

pytestmark = pytest.mark.asyncio(loop_scope="module")

OURS = {"BEARER": "sk-house-key", "AZURE": "azure-house-key", "SIGNATURE": "signed-by-the-house"}
CLIENTS_OWN = {
    "Authorization": "Bearer sk-client",
    "api-key": "sk-client",
    "X-Api-Key": "sk-client",
    "x-goog-api-key": "sk-client",
    "Cookie": "session=sk-client",
    "OpenAI-Organization": "org-client",
    "OpenAI-Project": "proj-client",
}
KEPT = {"OpenAI-Beta": "assistants=v2", "User-Agent": "agent/1.0", "traceparent": "00-1-1-01", "Idempotency-Key": "k1"}


@dataclass(frozen=True, slots=True)
class House:
    up: Upstream
    proxy: Proxy


def upstreams(up):
    quiet = {"window": 1_000_000}
    return [
        {"name": "keyed", "base_url": f"{up.origin}/keyed/v1", "models": ["gpt-*", "o3"], "key": "env:BEARER", **quiet},
        {"name": "open", "base_url": f"{up.origin}/open/v1", "models": ["open-*"], **quiet},
        {"name": "shadowed", "base_url": f"{up.origin}/shadowed/v1", "models": ["open-1", "late-*"], **quiet},
        {
            "name": "azure",
            "base_url": f"{up.origin}/openai/deployments/{{model}}",
            "models": ["azure-*"],
            "key": "env:AZURE",
            "key_header": "api-key",
            "query": {"api-version": "2024-10-21"},
            **quiet,
        },
        {
            "name": "anywhere",
            "base_url": f"{up.origin}/d/{{model}}",
            "models": ["*[./]*", "."],
            "key": "env:AZURE",
            "key_header": "x-api-key",
            **quiet,
        },
        {
            "name": "extra",
            "base_url": f"{up.origin}/extra/v1",
            "models": ["extra-*"],
            "headers": {"X-Team": "red", "x-signature": "env:SIGNATURE", "user-agent": "the-house"},
            "query": {"tag": "a&b c"},
            **quiet,
        },
    ]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house(serve) -> AsyncIterator[House]:
    async with Upstream() as up, serve(None, config={"upstreams": upstreams(up)}, environment=OURS) as proxy:
        yield House(up, proxy)


@pytest.fixture
def up(house):
    house.up.forget()
    house.up.script = echo
    return house.up


@pytest.fixture
def proxy(house, up):
    return house.proxy


# --- models ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "target"),
    [
        ("gpt-4o", "/keyed/v1/chat/completions"),
        ("o3", "/keyed/v1/chat/completions"),
        ("open-1", "/open/v1/chat/completions"),
        ("late-1", "/shadowed/v1/chat/completions"),
        ("azure-gpt", "/openai/deployments/azure-gpt/chat/completions?api-version=2024-10-21"),
    ],
)
async def test_a_request_goes_to_the_first_upstream_whose_models_match(up, proxy, model, target):
    reply = await ask(proxy, chat(model))
    assert (reply.status, reply.body.data) == (200, chat(model))
    assert [sent.target for sent in up.requests] == [target]


async def test_what_is_no_chat_is_routed_by_its_model_too(up, proxy):
    body = json.dumps({"model": "open-2", "input": "x"}).encode()
    assert (await ask(proxy, body, "/embeddings")).body.data == body
    assert up.requests[0].target == "/open/v1/embeddings"


@pytest.mark.parametrize("body", [b"not json", b"{}", b'{"model":null}'])
async def test_a_request_without_a_model_goes_to_the_first_upstream(up, proxy, body):
    await ask(proxy, body)
    assert up.requests[0].target == "/keyed/v1/chat/completions"


async def test_a_model_nobody_serves_is_a_404_that_says_what_to_do(up, proxy):
    reply = await ask(proxy, chat("unheard-of"))
    assert reply.status == 404
    assert "upstreams.models" in fault_of(reply)["message"]
    assert not up.requests


# --- keys ------------------------------------------------------------------------------------------------------------


async def test_where_a_key_is_configured_it_takes_the_place_of_all_that_is_the_clients_own(up, proxy):
    await ask(proxy, chat("gpt-4o"), headers=CLIENTS_OWN | KEPT)
    sent = up.requests[0]
    assert sent.head.all("authorization") == [b"Bearer sk-house-key"]
    assert not [pair for pair in sent.headers if b"client" in pair[1]]
    assert {name: sent.header(name) for name in KEPT} == KEPT


async def test_a_key_can_be_sent_in_another_header(up, proxy):
    await ask(proxy, chat("azure-gpt"), headers=CLIENTS_OWN)
    sent = up.requests[0]
    assert sent.head.all("api-key") == [b"azure-house-key"]
    assert sent.header("authorization") is None
    assert sent.header("x-api-key") is None


async def test_without_a_key_the_clients_own_passes_through_untouched(up, proxy):
    await ask(proxy, chat("open-1"), headers=CLIENTS_OWN | KEPT)
    sent = up.requests[0]
    assert {name: sent.header(name) for name in CLIENTS_OWN | KEPT} == CLIENTS_OWN | KEPT


# --- paths -----------------------------------------------------------------------------------------------------------

NOT_OURS_TO_ASK = [
    ("GET", "/files"),
    ("POST", "/files"),
    ("DELETE", "/files/file-1"),
    ("POST", "/batches"),
    ("POST", "/fine_tuning/jobs"),
    ("GET", "/organization/admin_api_keys"),
    ("GET", "/chat/completions"),
    ("DELETE", "/models/ft-mine"),
    ("GET", "/"),
]
TRICKS = [
    "/chat/completions/../../files",
    "/chat/completions/%2e%2e/%2e%2e/files",
    "/chat/completions/%2E./.%2E/files",
    "/./files",
    "//files",
    "/models//..//files",
    "/models/%2e%2e%2ffiles",
    "/models/..%2ffiles",
    "/models/%2f..%2ffiles",
    "/models/%252e%252e/files",
    "/models/%2%65%2%65/files",
    "/models\\..\\files",
    "/models/%5c..%5cfiles",
    "/models/..;/files",
    "/%66iles",
    "/files#/models",
    "/files?/../models",
    "/FILES",
]


@pytest.mark.parametrize(("method", "path"), NOT_OURS_TO_ASK)
async def test_with_a_key_of_ours_only_models_are_asked(up, proxy, method, path):
    reply = await ask(proxy, None, path, method=method)
    assert reply.status == 403
    fault = fault_of(reply)
    assert fault["code"] == "path_not_allowed"
    assert "upstreams.paths" in fault["message"]
    assert not up.requests


@pytest.mark.parametrize("path", TRICKS)
async def test_no_spelling_reaches_a_path_that_is_refused(up, proxy, path):
    for method in ("GET", "POST"):
        reply = await ask(proxy, None, path, method=method)
        assert reply.status in (403, 404)
        fault_of(reply)
    assert not up.requests


async def test_what_is_asked_for_in_another_spelling_goes_out_in_the_normal_one(up, proxy):
    await ask(proxy, chat("gpt-4o"), "//chat/./%63ompletions")
    await ask(proxy, None, "/models/../models/gpt-4o?a=%2e%2e/&b", method="GET")
    assert [sent.target for sent in up.requests] == [
        "/keyed/v1/chat/completions",
        "/keyed/v1/models/gpt-4o?a=%2e%2e/&b",
    ]


async def test_what_the_configuration_lists_may_be_called_with_the_key(serve):
    keyed = {"key": "env:BEARER", "paths": ["/files", "/files/*"]}
    async with Upstream() as up, serve(up.url, config={"upstreams": [keyed]}, environment=OURS) as proxy:
        assert (await ask(proxy, None, "/files/file-1", method="DELETE")).status == 200
        assert (await ask(proxy, None, "/batches", method="GET")).status == 403
        assert [sent.target for sent in up.requests] == ["/v1/files/file-1"]


async def test_without_a_key_every_path_below_v1_is_relayed(serve):
    async with Upstream() as up, serve(up.url) as proxy:
        for method, path in NOT_OURS_TO_ASK:
            assert (await ask(proxy, None, path, method=method)).status == 200
        assert [(sent.method, sent.target) for sent in up.requests] == [(m, f"/v1{p}") for m, p in NOT_OURS_TO_ASK]


# --- quirks ----------------------------------------------------------------------------------------------------------


async def test_a_query_of_the_client_is_kept_beside_the_configured_one(up, proxy):
    await ask(proxy, chat("azure-gpt"), "/chat/completions?beta=1&x=%2F")
    await ask(proxy, chat("extra-1"))
    assert up.requests[0].target.endswith("/chat/completions?beta=1&x=%2F&api-version=2024-10-21")
    assert up.requests[1].target == "/extra/v1/chat/completions?tag=a%26b+c"


@pytest.mark.parametrize("model", ["a/../../files", "../files", ".", "..", "a\\..\\b.", "x.%2e/y", "./"])
async def test_a_model_in_a_path_cannot_lead_elsewhere(up, proxy, model):
    reply = await ask(proxy, chat(model))
    assert reply.status == 400
    assert fault_of(reply)["code"] == "bad_request"
    assert not up.requests


@pytest.mark.parametrize(
    ("model", "segment"),
    [("a.b?c=d#e", "a.b%3Fc%3Dd%23e"), ("a.%2e", "a.%252e"), ("a.\ud800", "a.%3F"), ("ä.", "%C3%A4.")],
)
async def test_a_model_in_a_path_is_one_segment_of_it(up, proxy, model, segment):
    await ask(proxy, chat(model))
    assert up.requests[0].target == f"/d/{segment}/chat/completions"


async def test_headers_of_the_configuration_take_the_place_of_the_clients(up, proxy):
    await ask(proxy, chat("extra-1"), headers={"X-TEAM": "blue", "User-Agent": "agent/1.0", "x-other": "kept"})
    sent = up.requests[0]
    assert sent.head.all("x-team") == [b"red"]
    assert sent.head.all("user-agent") == [b"the-house"]
    assert sent.header("x-signature") == OURS["SIGNATURE"]
    assert sent.header("x-other") == "kept"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_handed_on_and_never_followed(up, proxy, status):
    elsewhere = f"{up.origin}/elsewhere"
    up.script = answer(b"", status, [("location", elsewhere), ("set-cookie", "a=b")])
    for body in (chat("gpt-4o"), None):
        reply = await ask(proxy, body, "/chat/completions" if body else "/models", method="POST" if body else "GET")
        assert (reply.status, reply.head.first("location")) == (status, elsewhere)
    assert len(up.requests) == 2
    assert up.requests[1].header("cookie") is None, "and no cookie is kept"


# --- headers ---------------------------------------------------------------------------------------------------------


async def test_what_belongs_to_the_clients_connection_stays_on_it(up, proxy):
    of_connection = {
        "Connection": "keep-alive, X-Hop, close",
        "X-Hop": "1",
        "Keep-Alive": "timeout=5",
        "Proxy-Authorization": "Basic abc",
        "Proxy-Connection": "keep-alive",
        "TE": "trailers",
        "Upgrade": "h2c",
        "Accept-Encoding": "br",
    }
    await ask(proxy, chat("open-1"), headers=of_connection | KEPT)
    sent = up.requests[0]
    names = [name.lower().decode() for name, _ in sent.headers]
    assert not {name.lower() for name in of_connection} - {"accept-encoding"} & set(names)
    assert sent.head.all("accept-encoding") == [b"identity"]
    assert sent.head.all("host") == [up.origin.removeprefix("http://").encode()]
    assert {name: sent.header(name) for name in KEPT} == KEPT
    assert HOST.encode() not in b"".join(value for _, value in sent.headers)


async def test_words_to_the_proxy_are_not_for_the_upstream(up, proxy):
    words = {"x-compaction": "off", "X-Compaction-Focus": "the tests", "x-conversation-id": "7"}
    await ask(proxy, chat("open-1"), headers=words)
    assert not [
        name for name, _ in up.requests[0].headers if name.lower().startswith((b"x-compaction", b"x-conversation"))
    ]


async def test_what_belongs_to_the_upstreams_connection_stays_on_it(up, proxy):
    kept = [
        ("x-request-id", "req_1"),
        ("Retry-After", "3"),
        ("x-ratelimit-remaining-tokens", "9"),
        ("OpenAI-Processing-Ms", "12"),
        ("set-cookie", "a=1"),
        ("set-cookie", "b=2"),
    ]
    hop = [("connection", "x-internal"), ("x-internal", "1"), ("keep-alive", "timeout=5"), ("alt-svc", 'h3=":443"')]
    up.script = answer({"ok": 1}, headers=[*hop, *kept])
    reply = await ask(proxy, chat("open-1"))
    names = {name.lower() for name, _ in reply.head.headers}
    assert not {b"x-internal", b"keep-alive", b"alt-svc"} & names
    assert [(name, reply.head.all(name)) for name, _ in kept] == [
        (name, [value.encode() for other, value in kept if other == name]) for name, _ in kept
    ]


# --- through an HTTP proxy -------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Tunnel:
    """A tiny HTTP proxy: takes CONNECT, and says what it was asked."""

    refuses: bool = False
    asked: list[http1.Head] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://agent:sk-canary-tunnel@127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await http1.read_head(reader)
        self.asked.append(head)
        method, target, _ = head.start.decode().split()
        with closing(writer):
            if self.refuses or method != "CONNECT":
                writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n")
                return
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            there, back = await asyncio.open_connection(*target.rsplit(":", 1))
            with closing(back):
                await asyncio.wait([_flow(reader, back), _flow(there, writer)], return_when=asyncio.FIRST_COMPLETED)


def _flow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> asyncio.Task[None]:
    async def flow() -> None:
        while piece := await reader.read(1 << 16):
            writer.write(piece)

    return asyncio.ensure_future(flow())


@asynccontextmanager
async def tunnel(**settings: bool) -> AsyncIterator[Tunnel]:
    made = Tunnel(**settings)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    async with server:
        made.port = server.sockets[0].getsockname()[1]
        yield made


@dataclass(frozen=True, slots=True)
class Authority:
    """Signs for 127.0.0.1, and stands in files where a configuration can name it."""

    ca: trustme.CA
    file: str
    client: str

    def server(self, *, asks_client: bool = False) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.ca.issue_cert("127.0.0.1").configure_cert(context)
        if asks_client:
            context.verify_mode = ssl.CERT_REQUIRED
            self.ca.configure_trust(context)
        return context


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    folder = tmp_path_factory.mktemp("authority")
    ca = trustme.CA()
    ca.cert_pem.write_to_path(folder / "ca.pem")
    ca.issue_cert("agent@example.com").private_key_and_cert_chain_pem.write_to_path(folder / "client.pem")
    return Authority(ca, str(folder / "ca.pem"), str(folder / "client.pem"))


async def test_https_proxy_is_the_way_to_an_https_upstream(serve, authority):
    config = {"upstreams": [{"ca_file": authority.file, "window": 1}]}
    async with Upstream(says("Hi"), tls=authority.server()) as up, tunnel() as way:
        async with serve(up.url, config=config, environment={"HTTPS_PROXY": way.url}) as proxy:
            assert (await ask(proxy, chat())).status == 200
        assert way.asked[0].start.decode() == f"CONNECT {up.origin.removeprefix('https://')} HTTP/1.1"
        assert way.asked[0].first("proxy-authorization").startswith("Basic ")
        assert up.requests[0].header("proxy-authorization") is None


async def test_no_proxy_leads_past_the_https_proxy(serve, authority):
    config = {"upstreams": [{"ca_file": authority.file, "window": 1}]}
    async with Upstream(says("Hi"), tls=authority.server()) as up, tunnel() as way:
        around = {"HTTPS_PROXY": way.url, "NO_PROXY": "example.com,127.0.0.1"}
        async with serve(up.url, config=config, environment=around) as proxy:
            assert (await ask(proxy, chat())).status == 200
        assert not way.asked


async def test_a_proxy_that_refuses_is_named_and_its_password_is_not(serve, authority):
    config = {"upstreams": [{"ca_file": authority.file, "window": 1, "retries": 0}]}
    async with Upstream(tls=authority.server()) as up, tunnel(refuses=True) as way:
        async with serve(up.url, config=config, environment={"https_proxy": way.url}) as proxy:
            reply = await ask(proxy, chat())
        assert reply.status == 502
        assert "check HTTPS_PROXY" in fault_of(reply)["message"]
        assert "sk-canary-tunnel" not in reply.body.data.decode() + proxy.output
        assert not up.requests


# --- certificates ----------------------------------------------------------------------------------------------------


async def test_an_upstream_signed_by_nobody_we_know_is_refused(serve, authority):
    async with (
        Upstream(tls=authority.server()) as up,
        serve(up.url, config={"upstreams": [{"retries": 0, "window": 1}]}) as proxy,
    ):
        reply = await ask(proxy, chat(), headers={"authorization": "Bearer sk-client"})
    assert reply.status == 502
    assert "unable to get local issuer certificate" in fault_of(reply)["message"]
    assert not up.requests


async def test_a_client_certificate_is_shown_to_an_upstream_that_asks(serve, authority):
    trusting = {"ca_file": authority.file, "window": 1, "retries": 0}
    async with Upstream(says("Hi"), tls=authority.server(asks_client=True)) as up:
        async with serve(up.url, config={"upstreams": [{**trusting, "client_cert": authority.client}]}) as proxy:
            assert (await ask(proxy, chat())).status == 200
        async with serve(up.url, config={"upstreams": [trusting]}) as proxy:
            reply = await ask(proxy, chat())
        assert reply.status == 502
        fault_of(reply)
        assert len(up.requests) == 1


async def test_the_listener_speaks_tls_where_it_has_a_certificate(authority, tmp_path):
    leaf = authority.ca.issue_cert("127.0.0.1")
    leaf.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    leaf.private_key_pem.write_to_path(tmp_path / "key.pem")
    listen = f"{{tls_cert: {tmp_path}/cert.pem, tls_key: {tmp_path}/key.pem}}"
    (tmp_path / "proxy.yaml").write_text(f"listen: {listen}\nupstreams: [{{window: 1}}]\n")
    port = free_port()
    trusting = ssl.create_default_context(cafile=authority.file)

    async def ask_over_tls() -> http1.Answer | None:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
        except OSError:
            return None
        with closing(writer):
            writer.write(request(body=chat()))
            return await http1.read_answer(reader)

    async with Upstream(says("Hi")) as up:
        options = ["--port", str(port), "--upstream", up.url, "--config", "proxy.yaml"]
        with (tmp_path / "out").open("wb") as out:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "proxy", "serve", *options, cwd=tmp_path, env={}, stdout=out
            )
        try:
            while (reply := await ask_over_tls()) is None:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        finally:
            process.terminate()
            code = await process.wait()
        assert (reply.status, code) == (200, 0)
        assert f'"url":"https://127.0.0.1:{port}"' in (tmp_path / "out").read_text()
