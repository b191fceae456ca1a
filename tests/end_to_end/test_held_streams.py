"""The first events of a stream are held back until it is clear that they are no refusal, and never for long."""

import pytest

from tests.support.agent import reading
from tests.support.apis import CHAT, each_api
from tests.support.messages import user
from tests.support.proxy_client import ask, log_of, streaming, until
from tests.support.scripted_upstream import Reply, Upstream, comment, hang, pause, stream

pytestmark = pytest.mark.asyncio(loop_scope="module")

HEARTBEAT_SECONDS = 0.3
BEAT = b": keep-alive\n\n"
BEGUN = {"chat": b"PROCESSING", "responses": b"response.created", "messages": b"message_start"}
OUTPUT = {"chat": b"choices", "responses": b"output_item", "messages": b"content_block"}


def split_answer(api):
    """The events of an answer that say only that the request was taken, and the others."""
    events = [*([comment("PROCESSING")] if api is CHAT else []), *api.events("All is well.")]
    first = next(place for place, frame in enumerate(events) if OUTPUT[api.name] in frame)
    return events[:first], events[first:]


def long_request(api):
    return api.write(reading(8), stream=True)


@pytest.fixture(scope="module")
def config():
    return {"upstreams": [{"window": 1_000_000}], "listen": {"heartbeat_seconds": HEARTBEAT_SECONDS}}


@pytest.mark.seconds
@each_api
async def test_a_stream_that_says_nothing_more_gets_heartbeats(serve, config, api):
    begun, rest = split_answer(api)
    async with Upstream() as up, serve(up.url, config=config) as proxy:
        up.script = stream(*begun, pause(6 * HEARTBEAT_SECONDS), *rest)
        reply = await ask(proxy, long_request(api), api.path)
    assert reply.body.whole
    assert reply.body.data.count(BEAT) >= 2
    assert reply.body.data.replace(BEAT, b"") == b"".join((*begun, *rest))


@each_api
async def test_comments_of_the_upstream_do_not_prolong_the_wait(serve, config, api):
    begun, _ = split_answer(api)
    async with Upstream() as up, serve(up.url, config=config) as proxy:
        up.script = stream(*begun, *(comment("PROCESSING"), pause(0.05)) * 20, hang())
        async with streaming(proxy, long_request(api), api.path) as line:
            await line.until(BEGUN[api.name])
            await line.until(b"PROCESSING")


@each_api
async def test_the_stream_of_a_short_request_is_not_held_back(serve, api):
    begun, _ = split_answer(api)
    async with Upstream() as up, serve(up.url, config={"listen": {"heartbeat_seconds": 3_600}}) as proxy:
        up.script = stream(*begun, hang())
        async with streaming(proxy, api.write(user("Hi."), stream=True), api.path) as line:
            await line.until(BEGUN[api.name])


async def test_the_first_bytes_of_an_answer_that_is_no_stream_are_not_held_back_for_long(serve, config):
    async with Upstream() as up, serve(up.url, config=config) as proxy:
        up.script = Reply(headers=(("content-type", "application/json"),), parts=(b'{"id"', hang()), framing="chunked")
        async with streaming(proxy, CHAT.write(reading(8)), CHAT.path) as line:
            await line.until(b'{"id"', within=20 * HEARTBEAT_SECONDS)


async def test_the_wait_for_the_upstream_is_no_overhead_of_the_proxy(serve):
    begun, rest = split_answer(CHAT)
    config = {"listen": {"heartbeat_seconds": 3_600}, "log": {"format": "json"}}
    async with Upstream() as up, serve(up.url, config=config) as proxy:
        up.script = stream(*begun, pause(0.6), *rest)
        reply = await ask(proxy, long_request(CHAT), CHAT.path)
        assert reply.body.data == b"".join((*begun, *rest))
        (line,) = await until(lambda: log_of(proxy, "request", route="/v1/chat/completions"))
    assert line["overhead_ms"] < 400
