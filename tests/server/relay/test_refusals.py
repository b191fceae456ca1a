"""Requests that cannot be relayed: every refusal is an OpenAI error object, and echoes nothing."""

import asyncio
import gzip
import json
from contextlib import AsyncExitStack

import pytest

from proxy.wire.encodings import zstd
from tests.support import http_client
from tests.support.proxy_client import ask, chat, encode_chunked, fault_of, log_of, open_line, request, until, whole_log

pytestmark = pytest.mark.asyncio(loop_scope="module")

CANARY = "sk-canary-0badc0de"
MIB = 1024 * 1024


@pytest.fixture(scope="module")
def config():
    return {"listen": {"max_body_mib": 1, "body_silence_seconds": 0.5, "max_in_flight": 10}}


AUTHORISED = {"authorization": f"Bearer {CANARY}", "x-api-key": CANARY}
LONG = CANARY * 5000


def asks(method="POST", target="/v1/chat/completions", body=None, **headers):
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return request(method, target, {**AUTHORISED, **named}, body)


def raw_request(*lines, body=b""):
    return b"\r\n".join([*lines, b"host: x", f"authorization: Bearer {CANARY}".encode(), b"", body])


POST = b"POST /v1/chat/completions HTTP/1.1"
STREAMED = b"POST /v1/files HTTP/1.1"
CHUNKED = b"transfer-encoding: chunked"
REFUSED = {
    (404, "not_found"): {
        "no such page": asks("GET", f"/nothing?key={CANARY}"),
        "above v1": asks("GET", f"/v1/../{CANARY}"),
        "bare v1": asks("GET", "/v1"),
        "v1 twice": asks(target=f"/v1/v1/chat/completions?key={CANARY}", body=b"{}"),
        "half an escape": asks("GET", f"/v1/%zz{CANARY}"),
    },
    (405, "method_not_allowed"): {
        "a page that is only read": asks("POST", f"/health/live?key={CANARY}", body=b"{}"),
        "metrics are only read": asks("DELETE", "/metrics"),
    },
    (413, "body_too_large"): {
        "too large by its length": asks(content_length=str(MIB + 1)),
        "too large in chunks": asks(transfer_encoding="chunked", body=encode_chunked(*[LONG.encode()] * 12)),
    },
    (415, "unsupported_encoding"): {
        "more than two encodings": asks(content_encoding="gzip, gzip, gzip", content_length="9"),
        "an encoding nobody knows": asks(content_encoding=CANARY, body=b"{}"),
    },
    (431, "headers_too_large"): {
        "a target that is too long": asks("GET", f"/v1/models?key={LONG}"),
        "a header that is too long": asks("GET", "/v1/models", x_long=LONG),
        "too many headers": asks("GET", "/v1/models", **{f"x_{i}": CANARY for i in range(129)}),
    },
    (400, "bad_request"): {
        "not in its encoding": asks(content_encoding="gzip", body=CANARY.encode()),
        "no version": raw_request(f"GET /{CANARY} HTTP/9".encode()),
        "no http": raw_request(CANARY.encode()),
        "a broken method": raw_request(f"G@T\x01 /{CANARY} HTTP/1.1".encode()),
        "a line without a colon": raw_request(POST, CANARY.encode()),
        "a space before the colon": raw_request(POST, f"x-api-key : {CANARY}".encode()),
        "a header over two lines": raw_request(POST, b"x-a: 1", f" {CANARY}".encode()),
        "a null in a header": raw_request(POST, f"x-a: {CANARY}\x00".encode()),
        "a header in no encoding": raw_request(POST, b"x-a: \xff\xfe " + CANARY.encode()),
        "two framings": raw_request(POST, b"content-length: 6", CHUNKED, body=b"0\r\n\r\nX"),
        "two lengths": raw_request(POST, b"content-length: 6", b"content-length: 7", body=b"123456"),
        "one length twice": raw_request(POST, *[b"content-length: 2"] * 2, body=b"{}"),
        "a list of one length": raw_request(POST, b"content-length: 2, 2", body=b"{}"),
        "no length": raw_request(POST, f"content-length: {CANARY}".encode()),
        "a framing nobody knows": raw_request(POST, b"transfer-encoding: gzip", body=b"x"),
        "chunked twice": raw_request(POST, CHUNKED + b", chunked", body=b"0\r\n\r\n"),
        "chunks that are none": raw_request(POST, CHUNKED, body=f"zz\r\n{CANARY}".encode()),
        "chunks that are none, streamed": raw_request(STREAMED, CHUNKED, body=f"zz\r\n{CANARY}".encode()),
        "chunks that end in nothing, streamed": raw_request(STREAMED, CHUNKED, body=f"3\r\nabcXX\r\n{CANARY}".encode()),
    },
}
CASES = [(message, *refusal) for refusal, messages in REFUSED.items() for message in messages.values()]
NAMES = [name for messages in REFUSED.values() for name in messages]


@pytest.mark.parametrize(("message", "status", "code"), CASES, ids=NAMES)
async def test_a_request_that_cannot_be_relayed_is_refused_as_by_openai_and_echoes_nothing(
    up, proxy, message, status, code
):
    reply = await http_client.send(proxy.origin, message)
    assert reply.status == status
    fault = fault_of(reply)
    assert fault["code"] == code
    assert CANARY.encode() not in reply.body.data
    assert not [pair for pair in reply.head.headers if CANARY.encode() in pair[0] + pair[1]]
    assert not [sent for sent in up.requests if sent.arrived], "the upstream never heard of it"
    if status != 405:  # the proxy's own pages are not logged
        (line,) = await until(lambda: log_of(proxy, "request", request_id=fault["request_id"]))
        assert (line["status"], line["outcome"], line["reason"]) == (status, "refused", code)
    assert CANARY not in await whole_log(proxy)


@pytest.mark.parametrize(
    "target", ["/v1/v1/messages", "/v1/v1/messages/count_tokens", "/v1/v1/messages/", "/v1/v1/responses"]
)
async def test_a_base_url_with_v1_too_many_is_refused_with_what_to_do(up, proxy, target):
    reply = await http_client.send(proxy.origin, asks(target=target, body=b"{}"))
    error = json.loads(reply.body.data)
    assert (reply.status, up.requests) == (404, [])
    assert "this path has /v1 twice; remove one from the client's base URL" in error["error"]["message"]
    assert error["error"]["type"] == ("not_found_error" if "messages" in target else "proxy_error")


@pytest.mark.parametrize("target", ["/v1/v1/files", "/v1/v1", "/v1/v1beta/messages"])
async def test_any_other_path_with_v1_twice_is_relayed(up, proxy, target):
    await http_client.send(proxy.origin, asks(target=target, body=b"{}"))
    assert [sent.target for sent in up.requests] == [target]


async def test_encodings_on_two_lines_are_one_list(up, proxy):
    packed = zstd.compress(gzip.compress(chat()))
    lines = [b"content-encoding: gzip", b"content-encoding: zstd", b"content-length: %d" % len(packed)]
    reply = await http_client.send(proxy.origin, raw_request(POST, *lines, body=packed))
    assert (reply.status, up.requests[0].body) == (200, chat())


@pytest.mark.parametrize("path", ["/chat/completions", "/files"], ids=["read-whole", "streamed"])
async def test_chunks_that_turn_bad_on_the_way_are_the_clients_fault(up, proxy, path):
    async with open_line(proxy) as line:
        head = request(target=f"/v1{path}", headers={**AUTHORISED, "transfer-encoding": "chunked"})
        await line.write(head + b"3\r\nabc\r\n")
        await (until(lambda: up.requests) if path == "/files" else asyncio.sleep(0.1))
        await line.write(f"{CANARY}\r\n".encode())
        reply = await line.answer()
    assert reply.status == 400
    assert fault_of(reply)["code"] == "bad_request"
    assert CANARY.encode() not in reply.body.data
    assert not [sent for sent in up.requests if sent.arrived]


@pytest.mark.parametrize("path", ["/chat/completions", "/files"], ids=["read-whole", "streamed"])
async def test_a_body_that_stops_coming_is_given_up_and_its_place_is_free_again(up, proxy, path):
    half = request(target=f"/v1{path}", headers={**AUTHORISED, "content-length": "1000"}) + b"{"
    async with AsyncExitStack() as stack:
        lines = [await stack.enter_async_context(open_line(proxy)) for _ in range(10)]
        for line in lines:
            await line.write(half)
        replies = [await line.answer() for line in lines]
        assert {reply.status for reply in replies} == {408}
        assert {fault_of(reply)["code"] for reply in replies} == {"body_timeout"}
        assert (await ask(proxy, chat(), headers=AUTHORISED)).status == 200


@pytest.mark.seconds
async def test_a_chat_that_comes_byte_by_byte_is_given_up(up, proxy):
    async with open_line(proxy) as line:
        await line.write(request(headers={**AUTHORISED, "content-length": "1000"}))
        for _ in range(8):
            await line.write(b" ")
            await asyncio.sleep(0.1)
        reply = await line.answer()
    assert (reply.status, fault_of(reply)["code"]) == (408, "body_timeout")
    assert not up.requests


async def test_a_head_that_does_not_end_is_refused_before_it_fills_the_memory(up, proxy):
    """Of 128 headers with 64 KiB each, every connection had the proxy hold eight megabytes, without any key."""
    async with open_line(proxy) as line:
        await line.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n")
        for number in range(5):
            await line.write(b"x-%d: %b\r\n" % (number, b"v" * 60_000))
        reply = await line.answer()
    assert reply.status == 431
    assert fault_of(reply)["message"] == "request line and headers larger than 256 KiB in all: send fewer"
    assert not up.requests


async def test_a_head_in_one_burst_is_refused_as_well_and_a_body_in_its_last_read_is_not_counted(up, proxy):
    headers = {**AUTHORISED, **{f"x-{number}": "v" * 60_000 for number in range(6)}}
    async with open_line(proxy) as line:
        await line.write(request(headers=headers, body=b"{}"))
        reply = await line.answer()
    assert (reply.status, fault_of(reply)["code"]) == (431, "headers_too_large")
    assert not up.requests
    begun = request(target="/v1/files", headers={**AUTHORISED, "x-0": "v" * 60_000}, body=b"x" * MIB)
    async with open_line(proxy) as line:
        await line.write(begun[:50_000])
        await asyncio.sleep(0.05)
        await line.write(begun[50_000:])
        assert (await line.answer()).status == 200


async def test_bodies_are_no_part_of_the_head_behind_them(up, proxy):
    large = request(target="/v1/files", headers=AUTHORISED, body=b"x" * MIB)
    unread = request(target="/nothing", body=b"x" * MIB)
    async with open_line(proxy) as line:
        for _ in range(3):
            await line.write(large + large[:100])
            assert (await line.answer()).status == 200
            await line.write(large[100:] + unread)
            assert (await line.answer()).status == 200
            assert (await line.answer()).status == 404
    assert len(up.requests) == 6


@pytest.mark.parametrize("target", ["/v1/messages", "//v1/x/../%6dessages/?beta=true"])
async def test_a_refusal_has_the_shape_of_the_api_whatever_the_spelling_of_its_path(proxy, target):
    refused = await http_client.send(proxy.origin, asks(target=target, content_encoding="gzip", body=b"no gzip"))
    assert refused.status == 400
    error = json.loads(refused.body.data)
    assert (error["type"], error["error"]["type"]) == ("error", "invalid_request_error")


async def test_a_405_names_what_is_allowed(proxy):
    reply = await http_client.send(proxy.origin, asks("PUT", "/metrics"))
    assert reply.head.first("allow") == "GET, HEAD"


async def test_a_body_that_streams_through_has_no_limit(up, proxy):
    reply = await ask(proxy, b"x" * 3 * MIB, "/files")
    assert (reply.status, len(up.requests[0].body)) == (200, 3 * MIB)


async def test_bytes_after_a_smuggling_request_are_never_read(up, proxy):
    hidden = b"GET /v1/hidden HTTP/1.1\r\nhost: x\r\n\r\n"
    smuggling = raw_request(POST, b"content-length: 5", b"transfer-encoding: chunked", body=b"0\r\n\r\n" + hidden)
    async with open_line(proxy) as line:
        await line.write(smuggling)
        assert (await line.answer()).status == 400
        assert await line.within(1) == b"", "and the connection ends"
    assert not up.requests


async def test_after_a_refusal_the_next_request_is_served(up, proxy):
    assert (await http_client.send(proxy.origin, raw_request(CANARY.encode()))).status == 400
    assert (await ask(proxy, chat(), headers=AUTHORISED)).status == 200
    assert up.requests[0].header("authorization") == f"Bearer {CANARY}"


@pytest.mark.parametrize("path", ["/chat/completions", "/messages", "/responses", "/embeddings", "/models"])
async def test_a_team_key_of_another_proxy_is_sent_to_no_upstream(up, proxy, path):
    key = "cp-0123456789-" + "aB_-" * 8
    answer = await ask(proxy, chat(), path, headers={"x-api-key": key, "authorization": "Bearer a"})
    assert answer.status == 401
    assert key.encode() not in answer.body.data
    assert up.requests == []
