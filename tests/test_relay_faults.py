"""When things go wrong on the way: nobody takes a broken answer for a whole one, and each fault says whose it is."""

import asyncio
import json
import re
import socket
from contextlib import contextmanager
from dataclasses import dataclass, replace

import http1
import pytest
import pytest_asyncio
from asking import ask, chat, chunked, connected, data_of, fault_of, log_of, request, streaming, until
from serving import Proxy, free_port
from upstream import (
    DONE,
    Upstream,
    answer,
    close,
    comment,
    cut,
    delta,
    echo,
    error_event,
    event,
    finish,
    hang,
    in_turn,
    pause,
    raw,
    says,
    stream,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

CANARY = "sk-canary-0badc0de"
PROMPTLY = 0.1
QUIET = {"window": 1_000_000}  # what is known is not asked for: these upstreams hear from clients only
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Relay:
    up: Upstream
    proxy: Proxy


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(serve):
    listen = {"heartbeat_seconds": 0.2, "drain_seconds": 1, "max_body_mib": 1}
    async with Upstream() as up, serve(up.url, config={"listen": listen, "upstreams": [QUIET]}) as proxy:
        yield Relay(up, proxy)


@pytest.fixture
def up(running):
    running.up.forget()
    running.up.script = echo
    return running.up


@pytest.fixture
def proxy(running, up):
    return running.proxy


@contextmanager
def noting(seconds):
    """What is in the block takes at least this long."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    yield
    assert loop.time() - began >= seconds


def error_at_the_end(body):
    """The error that the last event of a stream carries."""
    assert body.endswith(b"\n\n")
    return data_of(body)[-1]["error"]


# --- the client leaves -----------------------------------------------------------------------------------------------

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
async def test_when_the_client_leaves_the_upstream_is_told_promptly(up, proxy, script, seen, phase):
    up.script = script
    async with streaming(proxy) as line:
        asked = await up.received()
        if seen:
            await line.until(seen)
        left_at = line.leave()
        await asked.end()
    assert asked.departure.at - left_at < PROMPTLY
    assert asked.departure.phase in (phase, "silent")


async def test_when_the_client_leaves_in_the_middle_of_its_upload_the_upstream_is_told_promptly(up, proxy):
    async with connected(proxy) as line:
        await line.says(request(target="/v1/files", headers={"content-length": "1000000"}) + b"x" * 1000)
        await until(lambda: up.requests)
        left_at = line.leave()
        await up.requests[0].end()
    assert up.requests[0].departure.at - left_at < PROMPTLY


async def test_a_client_that_left_is_told_apart_in_the_log(up, proxy):
    up.script = hang()
    async with streaming(proxy, path="/embeddings") as line:
        asked = await up.received()
        line.leave()
        await asked.end()
    (said,) = await until(lambda: log_of(proxy, "request", route="/v1/embeddings"))
    assert said["outcome"] == "client-left"


# --- the upstream breaks ---------------------------------------------------------------------------------------------

BEGUN = (delta(role="assistant"), delta(content="Hel"))
BREAKS = {
    "reset": stream(*BEGUN, cut()),
    "closed": stream(*BEGUN, close()),
    "closed-in-a-line": stream(*BEGUN, b'data: {"choices":[{"del', close()),
    "ended-without-a-finish": stream(*BEGUN),
    "ended-in-a-line": stream(*BEGUN, b'data: {"choices":[{"del'),
    "ended-by-closing": stream(*BEGUN, framing="close"),
    "shorter-than-its-length": stream(*BEGUN, finish(), DONE, framing="length").broken_at(len(b"".join(BEGUN)) + 3),
    "nothing-at-all": stream(),
    "only-comments": stream(comment("thinking")),
    "nothing-then-reset": stream(pause(0.01), cut()),
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


WHOLE = b"".join(says("A few words, to be cut anywhere.").frames())


@pytest.mark.parametrize("byte", [1, 5, 6, 7, 100, len(WHOLE) // 2, len(WHOLE) // 2 + 1])
async def test_a_stream_cut_at_any_byte_is_relayed_up_to_its_last_whole_line(up, proxy, byte):
    up.script = stream(WHOLE).broken_at(byte)
    reply = await ask(proxy, chat(stream=True))
    assert not reply.body.whole
    whole_lines = WHOLE[: WHOLE.rfind(b"\n", 0, byte) + 1]
    assert reply.body.data.startswith(whole_lines)
    assert error_at_the_end(reply.body.data)["code"] == "upstream_broke"
    assert len(data_of(reply.body.data)) == len(data_of(whole_lines)) + 1


@pytest.mark.parametrize(
    "bare",
    [
        b'data: {"object":"error","message":"out of memory","type":"InternalServerError","code":500}\n\n',
        b'{"error":{"message":"out of memory"}}\n',
        b'{"object":"error","message":"out of memory"}',
    ],
    ids=["vllm", "llama.cpp", "without-its-line-end"],
)
async def test_a_bare_error_object_becomes_an_error_that_clients_raise_on(up, proxy, bare):
    up.script = stream(*BEGUN, bare)
    reply = await ask(proxy, chat(stream=True))
    assert not reply.body.whole
    assert reply.body.data.startswith(b"".join(BEGUN))
    assert error_at_the_end(reply.body.data)["message"] == "out of memory"


@pytest.mark.parametrize(
    "frames",
    [
        (*BEGUN, error_event("overloaded")),
        (*BEGUN, finish(), DONE),
        (*BEGUN, finish()),
        (*BEGUN, event({"choices": [{"delta": {}, "finish_reason": "error"}], "error": {"message": "provider"}})),
    ],
)
async def test_a_stream_that_says_how_it_ended_is_relayed_as_it_is(up, proxy, frames):
    up.script = stream(*frames)
    reply = await ask(proxy, chat(stream=True))
    assert reply.body.whole
    assert reply.body.data == b"".join(frames)


async def test_a_stream_without_a_finish_by_nature_may_end_without_one(up, proxy):
    up.script = stream(b'event: response.completed\ndata: {"type":"response.completed"}\n\n')
    reply = await ask(proxy, chat(stream=True), "/responses")
    assert reply.body.whole


async def test_a_stream_of_any_kind_that_is_cut_ends_in_an_error(up, proxy):
    up.script = stream(b'data: {"type":"response.created"}\n\n', cut())
    reply = await ask(proxy, chat(stream=True), "/responses")
    assert not reply.body.whole
    assert error_at_the_end(reply.body.data)["code"] == "upstream_broke"


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


@pytest.mark.parametrize("framing", ["length", "chunked"])
async def test_an_answer_that_breaks_before_its_first_byte_is_a_502(up, proxy, framing):
    up.script = answer(b"x" * 10, framing=framing).broken_at(0)
    reply = await ask(proxy, chat())
    assert reply.status == 502
    assert fault_of(reply)["code"] == "upstream_broke"


@pytest.mark.parametrize(
    "script", [cut(), close(), raw(b"SSH-2.0-OpenSSH_9.6\r\n", close()), raw(b"HTTP/1.1 200 OK\r\nx: \x00", close())]
)
async def test_an_upstream_that_does_not_answer_in_http_is_a_502(up, proxy, script):
    up.script = script
    reply = await ask(proxy, chat())
    assert reply.status == 502
    assert fault_of(reply)["code"] == "upstream_broke"
    assert len(up.requests) == 1, "it may have taken the request: asking again is not safe"


async def test_after_a_broken_answer_the_next_one_is_whole(up, proxy):
    up.script = in_turn(cut(), stream(*BEGUN, cut()), answer(b"x" * 9).broken_at(3), answer({"ok": True}))
    replies = [await ask(proxy, chat(stream=True)) for _ in range(4)]
    assert [reply.status for reply in replies] == [502, 200, 200, 200]
    assert json.loads(replies[-1].body.data) == {"ok": True}


# --- silence ---------------------------------------------------------------------------------------------------------


async def test_silence_after_the_headers_of_a_stream_is_filled_with_comments(up, proxy):
    up.script = stream(pause(0.9), *BEGUN, finish(), DONE)
    reply = await ask(proxy, chat(stream=True))
    assert reply.body.whole
    assert reply.body.data.endswith(b"".join([*BEGUN, finish(), DONE]))
    assert set(re.findall(rb"^:.*\n\n", reply.body.data, re.MULTILINE)) == {b": keep-alive\n\n"}
    assert 2 <= reply.body.data.count(b": keep-alive\n\n") <= 4


async def test_the_first_comment_comes_when_the_silence_has_lasted_long_enough(up, proxy):
    up.script = stream(delta(content="Hi"), hang())
    async with streaming(proxy) as line:
        await line.until(delta(content="Hi"))
        with noting(0.15):
            await line.until(b": keep-alive\n\n", within=2)


async def test_no_comment_stands_in_the_middle_of_a_line(up, proxy):
    first, second = delta(content="Hel"), delta(content="lo")
    up.script = stream(first[:30], pause(0.5), first[30:], second[:-1], pause(0.5), second[-1:], finish(), DONE)
    reply = await ask(proxy, chat(stream=True))
    assert reply.body.whole
    assert data_of(reply.body.data) == data_of(first + second + finish() + DONE)
    assert reply.body.data.count(b": keep-alive\n") >= 2


async def test_a_stream_that_flows_gets_no_comments(up, proxy):
    frames = [delta(content=str(number)) for number in range(8)]
    up.script = stream(*[act for frame in frames for act in (frame, pause(0.05))], DONE)
    reply = await ask(proxy, chat(stream=True))
    assert reply.body.data == b"".join([*frames, DONE])


async def test_before_the_headers_nothing_is_said_and_a_429_stays_a_429(up, proxy):
    limited = answer({"error": {"message": "slow down"}}, status=429, headers=[("retry-after", "7")])
    up.script = limited.after(0.7)
    async with streaming(proxy) as line:
        assert await line.within(0.5) == b""
        reply = await line.answer()
    assert reply.status == 429
    assert reply.head.first("retry-after") == "7"
    assert reply.body.data == limited.body


@pytest.mark.parametrize(
    "script",
    [
        answer(b"0123456789", framing="chunked").in_pieces(5),
        stream(*BEGUN, finish(), DONE).compressed("gzip"),
    ],
    ids=["json", "compressed"],
)
async def test_what_is_no_plain_stream_gets_no_comments(up, proxy, script):
    first, *rest = script.parts
    up.script = replace(script, parts=(first, pause(0.5), *rest))
    reply = await ask(proxy, chat(stream=True))
    assert reply.body.data == script.body


async def test_an_upstream_that_stays_silent_is_given_up_in_each_phase(serve):
    upstream = {"silence_seconds": 0.3, **QUIET}
    async with Upstream() as up, serve(up.url, config={"upstreams": [upstream]}) as proxy:
        up.script = hang()
        reply = await ask(proxy, chat())
        assert reply.status == 504
        assert fault_of(reply)["code"] == "upstream_timeout"
        up.script = stream(*BEGUN, hang())
        reply = await ask(proxy, chat(stream=True))
        assert not reply.body.whole
        assert error_at_the_end(reply.body.data)["code"] == "upstream_timeout"
        up.script = answer(b"x" * 10).broken_at(5, hang())
        assert not (await ask(proxy, chat())).body.whole
        assert len(up.requests) == 3


# --- no way to the upstream ------------------------------------------------------------------------------------------


@contextmanager
def deaf_port():
    """A port whose queue is full: connections to it are neither taken nor refused."""
    with socket.socket() as server, socket.socket() as first, socket.socket() as second:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for waiting in (first, second):
            waiting.setblocking(False)  # noqa: FBT003
            waiting.connect_ex(server.getsockname())
        yield server.getsockname()[1]


async def unreachable(serve, url, **settings):
    upstream = {"name": "lab", "connect_seconds": 0.3, "retries": 0, **QUIET, **settings}
    async with serve(url, config={"upstreams": [upstream]}) as proxy:
        return await ask(proxy, chat(stream=True), headers={"authorization": f"Bearer {CANARY}"})


async def test_an_upstream_that_refuses_is_a_502(serve):
    reply = await unreachable(serve, f"http://127.0.0.1:{free_port()}/v1")
    assert reply.status == 502
    fault = fault_of(reply)
    assert fault["code"] == "upstream_unreachable"
    assert fault["message"] == 'upstream "lab" (127.0.0.1) does not take connections: Connection refused'


async def test_an_upstream_without_an_address_is_a_502(serve):
    reply = await unreachable(serve, "http://nowhere.invalid/v1")
    assert reply.status == 502
    assert fault_of(reply)["message"] == 'upstream "lab" (nowhere.invalid) has no address: check base_url and DNS'


async def test_an_upstream_that_speaks_no_tls_is_a_502(serve):
    async def speak_plainly(_, writer):
        writer.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(speak_plainly, "127.0.0.1", 0) as plain:
        reply = await unreachable(serve, f"https://127.0.0.1:{plain.sockets[0].getsockname()[1]}/v1")
    assert reply.status == 502
    assert 'no TLS connection to upstream "lab"' in fault_of(reply)["message"]


async def test_an_upstream_that_does_not_take_a_connection_is_a_504(serve):
    with deaf_port() as port:
        reply = await unreachable(serve, f"http://127.0.0.1:{port}/v1")
    assert reply.status == 504
    assert fault_of(reply)["code"] == "upstream_timeout"


# --- once more -------------------------------------------------------------------------------------------------------


async def retries_of(serve, url, **settings):
    async with serve(url, config={"upstreams": [settings | QUIET]}) as proxy:
        reply = await ask(proxy, chat())
        return reply, log_of(proxy, "upstream-retried")


async def test_a_connection_that_fails_is_tried_again_as_often_as_is_said(serve):
    reply, retries = await retries_of(serve, f"http://127.0.0.1:{free_port()}/v1", retries=2)
    assert reply.status == 502
    assert [(said["why"], said["attempt"]) for said in retries] == [
        ("upstream_unreachable", 1),
        ("upstream_unreachable", 2),
    ]


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504])
async def test_an_answer_of_whatever_status_is_handed_on_and_not_asked_for_again(up, proxy, status):
    up.script = answer({"error": {"message": "no"}}, status=status, headers=[("retry-after", "0")])
    reply = await ask(proxy, chat())
    assert reply.status == status
    assert reply.body.data == up.script.body
    assert len(up.requests) == 1


async def test_a_status_that_is_listed_is_asked_for_again_after_its_retry_after(serve):
    config = {"upstreams": [{"retries": 2, "retry_statuses": [429, 503], "retry_wait_seconds": 1, **QUIET}]}
    busy = answer({"error": {}}, status=503, headers=[("retry-after-ms", "150")])
    async with Upstream() as up, serve(up.url, config=config) as proxy:
        up.script = in_turn(busy, answer({"ok": 1}))
        with noting(0.15):
            reply = await ask(proxy, chat())
        assert (reply.status, reply.body.data) == (200, b'{"ok": 1}')
        assert [sent.body for sent in up.requests] == [chat(), chat()]

        up.forget()
        up.script = busy
        reply = await ask(proxy, chat())
        assert (reply.status, len(up.requests)) == (503, 3), "it gives up after its tries, with the last answer"

        for told in (
            {"retry-after": "2"},
            {"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"},
            {"retry-after-ms": "1001"},
        ):
            up.forget()
            up.script = answer({"error": {}}, status=429, headers=told.items())
            reply = await ask(proxy, chat())
            assert (reply.status, len(up.requests)) == (429, 1), "a longer wait is the client's to decide"

        up.forget()
        up.script = busy
        assert (await ask(proxy, b"a file", "/files")).status == 503
        assert len(up.requests) == 1, "a body that streams through can be sent only once"


async def test_without_retries_nothing_is_tried_again(serve):
    reply, retries = await retries_of(serve, f"http://127.0.0.1:{free_port()}/v1", retries=0)
    assert (reply.status, retries) == (502, [])


# --- requests that are none ------------------------------------------------------------------------------------------

AUTHORISED = {"authorization": f"Bearer {CANARY}", "x-api-key": CANARY}
LONG = CANARY * 5000


def asks(method="POST", target="/v1/chat/completions", body=None, **headers):
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return request(method, target, {**AUTHORISED, **named}, body)


def says_raw(*lines, body=b""):
    return b"\r\n".join([*lines, b"host: x", f"authorization: Bearer {CANARY}".encode(), b"", body])


POST = b"POST /v1/chat/completions HTTP/1.1"
REFUSED = {
    "no such page": (asks("GET", f"/nothing?key={CANARY}"), 404, "not_found"),
    "above v1": (asks("GET", f"/v1/../{CANARY}"), 404, "not_found"),
    "bare v1": (asks("GET", "/v1"), 404, "not_found"),
    "half an escape": (asks("GET", f"/v1/%zz{CANARY}"), 404, "not_found"),
    "a page that is only read": (asks("POST", f"/health/live?key={CANARY}", body=b"{}"), 405, "method_not_allowed"),
    "metrics are only read": (asks("DELETE", "/metrics"), 405, "method_not_allowed"),
    "too large by its length": (asks(content_length=str(MIB + 1)), 413, "body_too_large"),
    "too large in chunks": (
        asks(transfer_encoding="chunked", body=chunked(*[CANARY.encode() * 5000] * 12)),
        413,
        "body_too_large",
    ),
    "an encoding nobody knows": (asks(content_encoding=CANARY, body=b"{}"), 415, "unsupported_encoding"),
    "not in its encoding": (asks(content_encoding="gzip", body=CANARY.encode()), 400, "bad_request"),
    "a target that is too long": (asks("GET", f"/v1/models?key={LONG}"), 431, "headers_too_large"),
    "a header that is too long": (asks("GET", "/v1/models", x_long=LONG), 431, "headers_too_large"),
    "no version": (says_raw(f"GET /{CANARY} HTTP/9".encode()), 400, "bad_request"),
    "no http": (says_raw(CANARY.encode()), 400, "bad_request"),
    "a broken method": (says_raw(f"G@T\x01 /{CANARY} HTTP/1.1".encode()), 400, "bad_request"),
    "a line without a colon": (says_raw(POST, CANARY.encode()), 400, "bad_request"),
    "a space before the colon": (says_raw(POST, f"x-api-key : {CANARY}".encode()), 400, "bad_request"),
    "a header over two lines": (says_raw(POST, b"x-a: 1", f" {CANARY}".encode()), 400, "bad_request"),
    "a null in a header": (says_raw(POST, f"x-a: {CANARY}\x00".encode()), 400, "bad_request"),
    "a header in no encoding": (says_raw(POST, b"x-a: \xff\xfe " + CANARY.encode()), 400, "bad_request"),
    "two framings": (
        says_raw(POST, b"content-length: 6", b"transfer-encoding: chunked", body=b"0\r\n\r\nX"),
        400,
        "bad_request",
    ),
    "two lengths": (says_raw(POST, b"content-length: 6", b"content-length: 7", body=b"123456"), 400, "bad_request"),
    "no length": (says_raw(POST, f"content-length: {CANARY}".encode()), 400, "bad_request"),
    "a framing nobody knows": (says_raw(POST, b"transfer-encoding: gzip", body=b"x"), 400, "bad_request"),
    "chunked twice": (says_raw(POST, b"transfer-encoding: chunked, chunked", body=b"0\r\n\r\n"), 400, "bad_request"),
    "chunks that are none": (
        says_raw(POST, b"transfer-encoding: chunked", body=f"zz\r\n{CANARY}".encode()),
        400,
        "bad_request",
    ),
    "chunks that are none, streamed": (
        says_raw(b"POST /v1/files HTTP/1.1", b"transfer-encoding: chunked", body=f"zz\r\n{CANARY}".encode()),
        400,
        "bad_request",
    ),
    "chunks that end in nothing, streamed": (
        says_raw(b"POST /v1/files HTTP/1.1", b"transfer-encoding: chunked", body=f"3\r\nabcXX\r\n{CANARY}".encode()),
        400,
        "bad_request",
    ),
}


@pytest.mark.parametrize(("message", "status", "code"), REFUSED.values(), ids=REFUSED)
async def test_what_cannot_be_relayed_is_refused_in_openais_words_and_echoes_nothing(up, proxy, message, status, code):
    reply = await http1.send(proxy.origin, message)
    assert reply.status == status
    fault = fault_of(reply)
    assert fault["code"] == code
    assert CANARY.encode() not in reply.body.data
    assert not [pair for pair in reply.head.headers if CANARY.encode() in pair[0] + pair[1]]
    assert not [sent for sent in up.requests if sent.arrived], "the upstream never heard of it"


@pytest.mark.parametrize("path", ["/chat/completions", "/files"], ids=["read-whole", "streamed"])
async def test_chunks_that_turn_bad_on_the_way_are_the_clients_fault(up, proxy, path):
    async with connected(proxy) as line:
        head = request(target=f"/v1{path}", headers={**AUTHORISED, "transfer-encoding": "chunked"})
        await line.says(head + b"3\r\nabc\r\n")
        await (until(lambda: up.requests) if path == "/files" else asyncio.sleep(0.1))
        await line.says(f"{CANARY}\r\n".encode())
        reply = await line.answer()
    assert reply.status == 400
    assert fault_of(reply)["code"] == "bad_request"
    assert CANARY.encode() not in reply.body.data
    assert not [sent for sent in up.requests if sent.arrived]


async def test_a_413_says_what_the_limit_is_and_how_to_raise_it(proxy):
    message = fault_of(await http1.send(proxy.origin, asks(content_length=str(MIB + 1))))["message"]
    assert "larger than 1 MiB" in message
    assert "listen.max_body_mib" in message


async def test_a_405_names_what_is_allowed(proxy):
    reply = await http1.send(proxy.origin, asks("PUT", "/metrics"))
    assert reply.head.first("allow") == "GET, HEAD"


async def test_a_body_that_streams_through_has_no_limit(up, proxy):
    reply = await ask(proxy, b"x" * 3 * MIB, "/files")
    assert (reply.status, len(up.requests[0].body)) == (200, 3 * MIB)


async def test_what_stands_behind_a_request_that_smuggles_is_never_read(up, proxy):
    hidden = b"GET /v1/hidden HTTP/1.1\r\nhost: x\r\n\r\n"
    smuggling = says_raw(POST, b"content-length: 5", b"transfer-encoding: chunked", body=b"0\r\n\r\n" + hidden)
    async with connected(proxy) as line:
        await line.says(smuggling)
        assert (await line.answer()).status == 400
        assert await line.within(1) == b"", "and the connection ends"
    assert not up.requests


async def test_every_refusal_leaves_the_proxy_as_well_as_it_was(up, proxy):
    reply = await ask(proxy, chat(), headers=AUTHORISED)
    assert reply.status == 200
    assert up.requests[0].header("authorization") == f"Bearer {CANARY}"
    assert "our-fault" not in proxy.output
    assert CANARY not in proxy.output
