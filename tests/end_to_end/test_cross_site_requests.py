"""What a web page can do to a proxy on the machine of the person who visits it."""

import pytest

from tests.support.proxy_client import ask, chat
from tests.support.running_proxy import serving
from tests.support.scripted_upstream import Upstream, answer, text_turn

ALLOWED = [("Access-Control-Allow-Origin", "*"), ("access-control-expose-headers", "x-a"), ("x-kept", "1")]
FROM_A_PAGE = {"origin": "https://evil.example", "content-type": "text/plain", "sec-fetch-site": "cross-site"}


def open_to_pages(_request):
    """As vLLM, llama.cpp and others answer."""
    return answer(text_turn("hi").completion(), headers=ALLOWED)


@pytest.fixture
async def up():
    async with Upstream(open_to_pages) as up:
        yield up


def serve(up, place):
    config = {"upstreams": [{"base_url": up.url, "window": 1_000_000, "key": "env:OWN"}]}
    return serving(None, config=config, environment={"OWN": "sk-own"}, place=place)


async def test_no_page_of_another_site_spends_the_proxys_key(tmp_path, up):
    async with serve(up, tmp_path) as proxy:
        for headers in (FROM_A_PAGE, {"host": "rebound.evil.example"}, {"content-type": "text/plain"}):
            refused = await ask(proxy, chat(), headers=headers)
            embedded = await ask(proxy, chat(), "/embeddings", headers=headers)
            assert {refused.status, embedded.status} <= {403, 415}
            assert refused.head.first("access-control-allow-origin") is None
    assert not up.requests


async def test_programs_notice_nothing_and_no_page_may_read_their_answers(tmp_path, up):
    async with serve(up, tmp_path) as proxy:
        answered = await ask(proxy, chat())
        listed = await ask(proxy, None, "/models", method="GET")
    for reply in (answered, listed):
        assert reply.status == 200
        assert reply.head.first("x-kept") == "1"
        assert not [name for name, _ in reply.head.headers if name.lower().startswith(b"access-control-")]
