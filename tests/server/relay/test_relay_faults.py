"""Faults on the way: no broken answer looks like a whole one, and each error names the party at fault."""

import asyncio
import json
import re
from dataclasses import replace

import pytest

from tests.support.admin_client import AdminClient
from tests.support.agent import reading
from tests.support.proxy_client import (
    ask,
    chat,
    data_of,
    fault_of,
    log_of,
    open_line,
    request,
    streaming,
    until,
    whole_log,
)
from tests.support.running_proxy import QUIET
from tests.support.scripted_upstream import (
    DONE,
    Upstream,
    answer,
    chunk,
    close,
    cut,
    delta,
    finish,
    hang,
    pause,
    raw,
    stream,
    wait_for,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

# Against a time-out of minutes; a busy machine takes some seconds.
PROMPTLY_SECONDS = 30.0
HEARTBEAT_SECONDS = 0.2
MIB = 1024 * 1024


@pytest.fixture(scope="module")
def config():
    return {"listen": {"heartbeat_seconds": HEARTBEAT_SECONDS, "drain_seconds": 1, "max_body_mib": 1}}


def error_at_the_end(body):
    assert body.endswith(b"\n\n")
    return data_of(body)[-1]["error"]


FLOWING = (delta(content="word"), pause(0.01)) * 500


@pytest.mark.parametrize(
    ("script", "seen", "phase"),
    [
        (hang(), None, "before headers"),
        (stream(hang()), b"\r\n\r\n", "flowing"),
        (stream(delta(content="Hi"), hang()), b"Hi", "silent"),
        (stream(*FLOWING), b"word", "flowing"),
        (answer(b"x" * 100_000).in_pieces(1000).broken_at(50_000, hang()), b"xxxx", "silent"),
    ],
    ids=["before-headers", "after-headers", "silent", "flowing", "not-a-stream"],
)
async def test_when_the_client_leaves_the_upstream_connection_is_closed_promptly(up, proxy, script, seen, phase):
    up.script = script
    async with streaming(proxy) as line:
        asked = await up.wait_for_request()
        if seen:
            await line.until(seen)
        left_at = line.leave()
        await asked.end()
    assert asked.departure.at - left_at < PROMPTLY_SECONDS
    assert asked.departure.phase in (phase, "silent")


async def test_when_the_client_leaves_during_its_upload_the_upstream_connection_is_closed_promptly(up, proxy):
    async with open_line(proxy) as line:
        await line.write(request(target="/v1/files", headers={"content-length": "1000000"}) + b"x" * 1000)
        await until(lambda: up.requests)
        left_at = line.leave()
        await up.requests[0].end()
    assert up.requests[0].departure.at - left_at < PROMPTLY_SECONDS


@pytest.mark.parametrize("lag", [hang(), pause(0.3)], ids=["open", "late-end"])
async def test_a_client_that_closes_after_done_has_had_its_whole_answer(up, proxy, lag):
    """The openai client closes its connection when it reads `[DONE]`, often before the upstream has closed its own."""
    up.script = stream(delta(content="Hi"), finish(), DONE, lag)
    await whole_log(proxy)
    before = len(log_of(proxy, "request", route="/v1/chat/completions"))
    async with streaming(proxy) as line:
        asked = await up.wait_for_request()
        await line.until(b"[DONE]")
        line.leave()
        await asked.end()
    text = await until(lambda: log_of(proxy, "request", route="/v1/chat/completions")[before:])
    assert [each["outcome"] for each in text] == ["completed"]


async def test_an_answer_that_the_client_closed_after_done_is_accounted_like_any_other(serve):
    usage = {"prompt_tokens": 9_000, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 8_000}}
    values = chunk(choices=[], usage=usage)
    async with Upstream(stream(delta(content="Hi"), finish(), values, DONE, hang())) as up:
        settings = {
            "policies": {"default": {"clear_at_least": 1_000, "keep": {"tokens": 1_000}}},
            "upstreams": [{**QUIET, "base_url": up.url}],
        }
        async with serve(None, config=settings) as proxy:
            long = json.dumps({"model": "gpt-5.1", "stream": True, "messages": reading(8)}).encode()
            async with open_line(proxy) as line:
                await line.write(request(body=long))
                await line.until(b"[DONE]")
                line.leave()
            admin = AdminClient(proxy)
            (listed,) = await admin.until("/conversations", lambda found: found["conversations"])
            (turn,) = (await admin.read(f"/conversations/{listed['conversation']}"))["turns"]
            assert (turn["tokens_read"], turn["tokens_cached"], turn["tokens_written"]) == (9_000, 8_000, 5)
            assert turn["action"] == "created"
            assert (await admin.read("/overview"))["day"]["left"] == 0
            assert (await admin.read("/overview"))["day"]["tokens_read"] == 9_000


BEGUN = (delta(role="assistant"), delta(content="Hel"))
BREAKS = {
    "reset": stream(*BEGUN, cut()),
    "closed-in-a-line": stream(*BEGUN, b'data: {"choices":[{"del', close()),
    "ended-without-a-finish": stream(*BEGUN),
    "shorter-than-its-length": stream(*BEGUN, finish(), DONE, framing="length").broken_at(len(b"".join(BEGUN)) + 3),
    "nothing-at-all": stream(),
}


@pytest.mark.parametrize("script", BREAKS.values(), ids=BREAKS)
async def test_a_stream_that_breaks_ends_in_an_error_and_does_not_end_cleanly(up, proxy, script):
    up.script = script
    reply = await ask(proxy, chat(stream=True))
    assert reply.status == 200
    assert not reply.body.whole
    error = error_at_the_end(reply.body.data)
    assert (error["type"], error["code"]) == ("proxy_error", "upstream_broke")
    assert error["message"]


async def test_a_bare_error_object_becomes_an_error_that_clients_raise_on(up, proxy):
    """As of vLLM."""
    bare = b'data: {"object":"error","message":"out of memory","type":"InternalServerError","code":500}\n\n'
    up.script = stream(*BEGUN, bare)
    reply = await ask(proxy, chat(stream=True))
    assert not reply.body.whole
    assert reply.body.data.startswith(b"".join(BEGUN))
    *begun, last = data_of(reply.body.data)
    assert begun == data_of(b"".join(BEGUN)), "what clients would stumble over is held back"
    assert last["error"]["message"] == "out of memory"


@pytest.mark.parametrize("how", [cut(), close()], ids=["reset", "closed"])
@pytest.mark.parametrize("framing", ["length", "chunked"])
async def test_an_answer_that_is_cut_does_not_end_cleanly(up, proxy, framing, how):
    up.script = answer(b"x" * 10_000, framing=framing).broken_at(5000, how)
    reply = await ask(proxy, chat())
    assert reply.status == 200
    assert not reply.body.whole
    assert len(reply.body.data) < 10_000


async def test_an_answer_that_is_cut_does_not_end_cleanly_for_a_client_that_reads_slowly(up, proxy):
    size = 12 * MIB
    up.script = answer(b"x" * size, framing="chunked").in_pieces(256 * 1024).broken_at(size - 1)
    async with streaming(proxy) as line:
        await asyncio.sleep(0.5)
        reply = await line.answer()
    assert not reply.body.whole


@pytest.mark.parametrize(
    "script",
    [
        cut(),
        close(),
        raw(b"SSH-2.0-OpenSSH_9.6\r\n", close()),
        raw(b"HTTP/1.1 200 OK\r\nx: \x00", close()),
        answer(b"x" * 10, framing="length").broken_at(0),
        answer(b"x" * 10, framing="chunked").broken_at(0),
    ],
)
async def test_an_upstream_without_an_answer_in_http_or_without_its_first_byte_is_a_502(up, proxy, script):
    up.script = script
    reply = await ask(proxy, chat())
    assert reply.status == 502
    assert fault_of(reply)["code"] == "upstream_broke"
    assert len(up.requests) == 1, "it may have taken the request: asking again is not safe"


async def test_the_answer_to_head_has_no_body_though_it_is_called_a_stream(up, proxy):
    up.script = stream(*BEGUN, finish(), DONE)  # of which the upstream sends the head
    async with open_line(proxy) as line:
        await line.write(request("HEAD", headers={"connection": "close"}))
        came = await line.within(PROMPTLY_SECONDS)
    head, _, body = came.partition(b"\r\n\r\n")
    assert b"text/event-stream" in head
    assert body == b""


PLANTED_FAULT = """
import sys
from proxy.__main__ import main
from proxy.serve.gateway import Gateway
def fail(*_):
    raise KeyError("part_1 of a conversation")
Gateway._route = fail
sys.exit(main())
"""


@pytest.mark.seconds
async def test_an_internal_error_has_the_shape_of_the_api_that_was_called(serve):
    async with serve("http://127.0.0.1:9", program=("-c", PLANTED_FAULT)) as proxy:
        found = {path: await ask(proxy, chat(), path) for path in ("/chat/completions", "/messages")}
    assert [reply.status for reply in found.values()] == [500, 500]
    shapes = [sorted(json.loads(reply.body.data)) for reply in found.values()]
    assert shapes == [["error"], ["error", "request_id", "type"]]
    assert "part_1" not in proxy.output


async def test_silence_after_the_headers_of_a_stream_is_filled_with_comments(up, proxy):
    enough = asyncio.Event()
    up.script = stream(wait_for(enough), *BEGUN, finish(), DONE)
    async with streaming(proxy) as line:
        await line.until(b": keep-alive\n\n")
        await line.until(b": keep-alive\n\n")
        enough.set()
        rest = await line.until(DONE)
    assert [event for event in (*BEGUN, finish(), DONE) if event not in rest] == []  # each is a chunk
    assert set(re.findall(rb"^:.*\n\n", rest, re.MULTILINE)) <= {b": keep-alive\n\n"}


async def test_a_stream_whose_length_was_announced_arrives_whole_beside_comments(up, proxy):
    """Some gateways between collect a stream, and say how long it is."""
    up.script = stream(delta(content="Hi"), pause(3 * HEARTBEAT_SECONDS), finish(), DONE, framing="length")
    reply = await ask(proxy, chat(stream=True))
    assert b"\n:" in reply.body.data
    assert reply.body.data.endswith(DONE)
    assert reply.head.first("content-length") is None


async def test_a_stream_that_flows_gets_no_comments(up, proxy):
    frames = [delta(content=str(number)) for number in range(8)]
    up.script = stream(*[act for frame in frames for act in (frame, pause(0.05))], DONE)
    for _ in range(10):  # on a busy machine a pause may last longer than it should
        reply = await ask(proxy, chat(stream=True))
        if reply.body.data == b"".join([*frames, DONE]):
            break
    assert reply.body.data == b"".join([*frames, DONE])


async def test_before_the_headers_nothing_is_sent_and_a_429_stays_a_429(up, proxy):
    limited = answer({"error": {"message": "slow down"}}, status=429, headers=[("retry-after", "7")])
    enough = asyncio.Event()
    up.script = replace(limited, parts=(wait_for(enough), limited.head, *limited.parts), headless=True)
    async with streaming(proxy) as line:
        assert await line.within(2 * HEARTBEAT_SECONDS) == b""
        enough.set()
        reply = await line.answer()
    assert reply.status == 429
    assert reply.head.first("retry-after") == "7"
    assert reply.body.data == limited.body


@pytest.mark.parametrize(
    "script",
    [answer(b"0123456789", framing="chunked").in_pieces(5), stream(*BEGUN, finish(), DONE).with_compression("gzip")],
    ids=["json", "compressed"],
)
async def test_an_answer_that_is_no_plain_stream_gets_no_comments(up, proxy, script):
    first, *rest = script.parts
    up.script = replace(script, parts=(first, pause(0.5), *rest))
    reply = await ask(proxy, chat(stream=True))
    assert reply.body.data == script.body


@pytest.mark.seconds
async def test_an_upstream_that_stays_silent_is_given_up_in_each_phase(serve):
    upstream = {"silence_seconds": 0.3, **QUIET}
    async with Upstream() as up, serve(up.url, config={"upstreams": [upstream]}) as proxy:
        up.script = hang()
        reply = await ask(proxy, chat())
        assert reply.status == 504
        faults = [fault_of(reply)]
        up.script = stream(*BEGUN, hang())
        reply = await ask(proxy, chat(stream=True))
        assert not reply.body.whole
        faults.append(error_at_the_end(reply.body.data))
        assert [fault["code"] for fault in faults] == ["upstream_timeout"] * 2
        assert all(
            "0.3 s" in fault["message"] and "`upstreams.silence_seconds`" in fault["message"] for fault in faults
        )
        up.script = answer(b"x" * 10).broken_at(5, hang())
        assert not (await ask(proxy, chat())).body.whole
        assert len(up.requests) == 3
