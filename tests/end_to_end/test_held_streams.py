"""The first events of a stream are held back until it is clear that they are no refusal, and never for long."""

import pytest

from tests.support import messages, messages_api, responses_api
from tests.support.agent import reading
from tests.support.messages import user
from tests.support.proxy_client import ask, log_of, streaming, until
from tests.support.scripted_upstream import Upstream, comment, hang, pause, stream, text_turn

pytestmark = pytest.mark.asyncio(loop_scope="module")

HEARTBEAT_SECONDS = 0.3
BEAT = b": keep-alive\n\n"
PATH = {"chat": "/chat/completions", "responses": "/responses", "messages": "/messages"}
REQUEST = {"chat": messages.body, "responses": responses_api.request, "messages": messages_api.request}
ANSWER = {
    "chat": [comment("PROCESSING"), *text_turn("All is well.").frames()],
    "responses": responses_api.answer_events("All is well."),
    "messages": messages_api.answer_events("All is well."),
}
BEGUN = {"chat": b"PROCESSING", "responses": b"response.created", "messages": b"message_start"}
OUTPUT = {"chat": b"choices", "responses": b"output_item", "messages": b"content_block"}


def split_answer(api):
    """The events of an answer that say only that the request was taken, and the others."""
    first = next(place for place, frame in enumerate(ANSWER[api]) if OUTPUT[api] in frame)
    return ANSWER[api][:first], ANSWER[api][first:]


def long_request(api):
    return REQUEST[api](reading(8), stream=True)


@pytest.fixture(scope="module")
def config():
    return {"upstreams": [{"window": 1_000_000}], "listen": {"heartbeat_seconds": HEARTBEAT_SECONDS}}


@pytest.mark.seconds
@pytest.mark.parametrize("api", PATH)
async def test_a_stream_that_says_nothing_more_gets_heartbeats(serve, config, api):
    begun, rest = split_answer(api)
    async with Upstream() as up, serve(up.url, config=config) as proxy:
        up.script = stream(*begun, pause(6 * HEARTBEAT_SECONDS), *rest)
        reply = await ask(proxy, long_request(api), PATH[api])
    assert reply.body.whole
    assert reply.body.data.count(BEAT) >= 2
    assert reply.body.data.replace(BEAT, b"") == b"".join((*begun, *rest))


@pytest.mark.parametrize("api", PATH)
async def test_comments_of_the_upstream_do_not_prolong_the_wait(serve, config, api):
    begun, _ = split_answer(api)
    async with Upstream() as up, serve(up.url, config=config) as proxy:
        up.script = stream(*begun, *(comment("PROCESSING"), pause(0.05)) * 20, hang())
        async with streaming(proxy, long_request(api), PATH[api]) as line:
            await line.until(BEGUN[api])
            await line.until(b"PROCESSING")


@pytest.mark.parametrize("api", PATH)
async def test_the_stream_of_a_short_request_is_not_held_back(serve, api):
    begun, _ = split_answer(api)
    async with Upstream() as up, serve(up.url, config={"listen": {"heartbeat_seconds": 3_600}}) as proxy:
        up.script = stream(*begun, hang())
        async with streaming(proxy, REQUEST[api](user("Hi."), stream=True), PATH[api]) as line:
            await line.until(BEGUN[api])


@pytest.mark.parametrize("api", PATH)
async def test_the_wait_for_the_upstream_is_no_overhead_of_the_proxy(serve, api):
    begun, rest = split_answer(api)
    config = {"listen": {"heartbeat_seconds": 3_600}, "log": {"format": "json"}}
    async with Upstream() as up, serve(up.url, config=config) as proxy:
        up.script = stream(*begun, pause(0.6), *rest)
        reply = await ask(proxy, long_request(api), PATH[api])
        assert reply.body.data == b"".join((*begun, *rest))
        (line,) = await until(lambda: log_of(proxy, "request", route=f"/v1{PATH[api]}"))
    assert line["overhead_ms"] < 400
