"""Which upstream hears what: models, keys, paths, headers, and the ways through proxies and certificates."""

import json

import pytest
import pytest_asyncio

from proxy.config.settings import Upstream as Settings
from proxy.upstream import client as client_module
from proxy.upstream.client import Call, Client
from tests.support.proxy_client import ask, chat, fault_of, log_of, until
from tests.support.scripted_upstream import Upstream, answer, echo

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


def upstreams(up):
    quiet = {"window": 1_000_000}
    return [
        {"name": "keyed", "base_url": f"{up.origin}/keyed/v1", "models": ["gpt-*", "o3"], "key": "env:BEARER", **quiet},
        {"name": "open", "base_url": f"{up.origin}/open/v1", "models": ["open-*"], **quiet},
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
async def all_upstreams():
    async with Upstream() as up:
        yield up


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def proxy(serve, all_upstreams):
    async with serve(None, config={"upstreams": upstreams(all_upstreams)}, environment=OURS) as proxy:
        yield proxy


@pytest.fixture
def up(all_upstreams):
    all_upstreams.forget()
    all_upstreams.script = echo
    return all_upstreams


@pytest.mark.parametrize("path", ["/chat/completions", "/embeddings"])
async def test_a_request_of_any_kind_is_routed_by_its_model(up, proxy, path):
    body = chat("open-2")
    assert (await ask(proxy, body, path)).body.data == body
    assert up.requests[0].target == f"/open/v1{path}"


async def test_a_sole_upstream_gets_the_model_of_requests_of_another_kind_in_its_url(serve):
    azure = {"base_url": "", "window": 1_000_000}
    body = json.dumps({"model": "text-embedding-3", "input": "x"}).encode()
    async with Upstream(echo) as up:
        azure["base_url"] = f"{up.origin}/openai/deployments/{{model}}"
        async with serve(None, config={"upstreams": [azure]}) as proxy:
            reply = await ask(proxy, body, "/embeddings")
        assert (reply.status, reply.body.data) == (200, body)
        assert [sent.target for sent in up.requests] == ["/openai/deployments/text-embedding-3/embeddings"]


async def test_a_model_without_an_upstream_is_a_404_with_advice_and_named_in_the_log(up, proxy):
    reply = await ask(proxy, chat("unheard-of"))
    (line,) = await until(lambda: log_of(proxy, "request", request_id=fault_of(reply)["request_id"]))
    assert (reply.status, line["status"], line["model"]) == (404, 404, "unheard-of")
    assert "upstreams.models" in fault_of(reply)["message"]
    assert not up.requests


async def test_where_a_key_is_configured_it_takes_the_place_of_all_that_is_the_clients_own(up, proxy):
    await ask(proxy, chat("gpt-4o"), headers=CLIENTS_OWN | KEPT)
    sent = up.requests[0]
    assert sent.head.all("authorization") == [b"Bearer sk-house-key"]
    assert sent.head.all("accept-encoding") == [b"identity"]
    assert not [pair for pair in sent.headers if b"client" in pair[1]]
    assert {name: sent.header(name) for name in KEPT} == KEPT


async def test_beside_the_key_of_a_team_nothing_of_the_clients_own_account_is_sent(serve):
    async with Upstream(echo) as up:
        config = {
            "upstreams": [{"base_url": up.url, "key_header": "x-api-key", "window": 1_000_000}],
            "access": {"team_header": "x-team", "trusted": ["127.0.0.0/8"]},
            "teams": {"red": {"key": "env:BEARER", "upstream": "default"}},
        }
        async with serve(None, config=config, environment=OURS) as proxy:
            reply = await ask(proxy, chat(), headers=CLIENTS_OWN | KEPT | {"x-team": "red"})
    sent = up.requests[0]
    assert reply.status == 200
    assert sent.head.all("x-api-key") == [b"sk-house-key"]
    assert not [pair for pair in sent.headers if b"client" in pair[1]]
    assert {name: sent.header(name) for name in KEPT} == KEPT


async def test_without_a_key_the_clients_own_passes_through_untouched(up, proxy):
    await ask(proxy, chat("open-1"), headers=CLIENTS_OWN | KEPT)
    sent = up.requests[0]
    assert {name: sent.header(name) for name in CLIENTS_OWN | KEPT} == CLIENTS_OWN | KEPT


# More are in tests/wire/test_http_head.py.
NOT_OURS_TO_ASK = [("POST", "/files"), ("GET", "/chat/completions"), ("DELETE", "/models/ft-mine"), ("GET", "/")]


@pytest.mark.parametrize(("method", "path"), NOT_OURS_TO_ASK)
async def test_with_a_proxy_key_only_models_are_asked(up, proxy, method, path):
    reply = await ask(proxy, None, path, method=method)
    assert reply.status == 403
    fault = fault_of(reply)
    assert fault["code"] == "path_not_allowed"
    assert "upstreams.paths" in fault["message"]
    assert not up.requests


async def test_without_a_key_every_path_below_v1_is_relayed(serve):
    async with Upstream() as up, serve(up.url) as proxy:
        for method, path in NOT_OURS_TO_ASK:
            assert (await ask(proxy, None, path, method=method)).status == 200
        assert [(sent.method, sent.target) for sent in up.requests] == [(m, f"/v1{p}") for m, p in NOT_OURS_TO_ASK]


async def test_a_query_of_the_client_is_kept_beside_the_configured_one(up, proxy):
    await ask(proxy, chat("azure-gpt"), "/chat/completions?beta=1&x=%2F")
    await ask(proxy, chat("extra-1"))
    assert up.requests[0].target.endswith("/chat/completions?beta=1&x=%2F&api-version=2024-10-21")
    assert up.requests[1].target == "/extra/v1/chat/completions?tag=a%26b+c"


async def test_only_a_url_without_the_clients_query_is_cached(up):
    builds = client_module._build_plain_url.cache_info
    async with Client(Settings(base_url=f"{up.origin}/cached/v1"), lambda _: None) as client:
        for query, built in (("", 1), ("key=sk-client", 0), ("", 0)):
            before = builds().misses
            async with client.send(Call("GET", "/models", query, (), None), None):
                assert builds().misses - before == built
    assert [sent.target for sent in up.requests] == [
        f"/cached/v1/models{query}" for query in ("", "?key=sk-client", "")
    ]


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
