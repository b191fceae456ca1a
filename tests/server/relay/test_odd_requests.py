"""Requests that are unusual and legal HTTP: they are served like any other, or refused as the standard says."""

import asyncio
import gzip

import pytest

from tests.support import http_client
from tests.support.proxy_client import chat, encode_chunked, fault_of, log_of, open_line, request, until
from tests.support.scripted_upstream import delta, hang, stream

pytestmark = pytest.mark.asyncio(loop_scope="module")

CHAT, FILES = "/v1/chat/completions", "/v1/files"
BODY = chat()
KEY = {"authorization": "Bearer sk-a"}


@pytest.fixture(scope="module")
def config():
    return {"listen": {"max_body_mib": 1}, "log": {"format": "json"}}


def head_of(target=CHAT, method="POST", version="1.1", **headers):
    """The head of a request; a header that is None is left out."""
    given = {"host": "proxy.test", "content-type": "application/json", **KEY, **headers}
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in given.items() if value is not None]
    return "\r\n".join([f"{method} {target} HTTP/{version}", *lines, "", ""]).encode()


def whole(target=CHAT, **headers):
    return head_of(target, **{"content_length": len(BODY), **headers}) + BODY


both_paths = pytest.mark.parametrize("path", [CHAT, FILES], ids=["read-whole", "streamed"])


@both_paths
async def test_a_client_that_waits_is_asked_to_go_on(up, proxy, path):
    async with open_line(proxy) as line:
        await line.write(head_of(path, content_length=len(BODY), expect="100-Continue"))
        assert await line.until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        await line.write(BODY)
        assert (await line.answer()).body.data == BODY
    assert up.requests[0].header("expect") is None


async def test_a_client_that_waits_is_refused_before_it_sends_a_body_that_is_too_large(up, proxy):
    async with open_line(proxy) as line:
        await line.write(head_of(content_length=2 << 20, expect="100-continue"))
        assert (await line.until(b"\r\n")).startswith(b"HTTP/1.1 413 ")


@both_paths
async def test_a_client_of_http_1_0_is_never_asked_to_go_on(up, proxy, path):
    """RFC 9110, 10.1.1: it would take the interim answer for the answer."""
    async with open_line(proxy) as line:
        await line.write(head_of(path, version="1.0", content_length=len(BODY), expect="100-continue") + BODY)
        came = await line.reader.read()
    assert came.startswith(b"HTTP/1.0 200 ")
    assert came.endswith(BODY)


@pytest.mark.parametrize("target", [CHAT, "/v1/responses", "/v1/messages", FILES])
async def test_an_offer_of_http_2_is_passed_over(up, proxy, target):
    """Java's client makes it with each request over plain HTTP."""
    offer = {"connection": "Upgrade, HTTP2-Settings", "upgrade": "h2c", "http2_settings": "AAEAAEAAAAIAAAAB"}
    async with open_line(proxy) as line:
        for _ in range(2):
            await line.write(whole(target, **offer))
            answer = await line.answer()
            assert (answer.status, answer.body.data) == (200, BODY)
    assert not {"upgrade", "http2-settings"} & {name.decode().lower() for name, _ in up.requests[0].headers}


@pytest.mark.parametrize("target", ["/v1/responses", "/v1/realtime?model=gpt-realtime", "/v1/live/sessions"])
async def test_a_websocket_is_refused_and_the_request_by_http_is_served(up, proxy, target):
    wish = {"connection": "Upgrade", "upgrade": "WebSocket", "sec_websocket_version": "13"}
    async with open_line(proxy) as line:
        await line.write(head_of(target, "GET", **wish))
        assert fault_of(await line.answer())["code"] == "upgrade_refused"
        assert not up.requests
        await line.write(whole("/v1/responses"))
        assert (await line.answer()).body.data == BODY


@pytest.mark.parametrize("origin", ["http://proxy.test", "HTTPS://user@Proxy.Test:8800"])
async def test_a_target_that_names_the_server_too_is_served_by_its_path(up, proxy, origin):
    """RFC 9112, 3.2.2: a server must accept it. Clients send it that take the proxy for one of HTTP."""
    answer = await http_client.send(proxy.origin, whole(f"{origin}{CHAT}?a=b"))
    assert (answer.status, answer.body.data) == (200, BODY)
    assert up.requests[0].target == f"{CHAT}?a=b"
    request_id = answer.head.first("x-compaction-request-id")
    (line,) = await until(lambda: log_of(proxy, "request", request_id=request_id))
    assert (line["route"], line["outcome"]) == (CHAT, "completed")


@pytest.mark.parametrize(("target", "status"), [("/health/live", 200), ("", 302), ("?a=b", 302), ("/nothing", 404)])
async def test_own_pages_are_served_under_such_a_target(proxy, target, status):
    answer = await http_client.send(proxy.origin, head_of(f"http://proxy.test{target}", "GET"), method="GET")
    assert answer.status == status


@pytest.mark.parametrize(
    "spelling",
    [f"{CHAT}/", "/v1/chat//completions", f"/{CHAT}//", "/v1/chat/complet%69ons", "/v1/x/../chat/completions"],
)
async def test_another_spelling_of_a_path_is_compacted_like_the_path_itself(up, proxy, spelling):
    answer = await http_client.send(proxy.origin, whole(spelling))
    assert (answer.status, answer.head.first("x-compaction"), up.requests[0].target) == (200, "none", CHAT)
    request_id = answer.head.first("x-compaction-request-id")
    (line,) = await until(lambda: log_of(proxy, "request", request_id=request_id))
    assert line["route"] == CHAT


@pytest.mark.parametrize("path", ["/v1/Chat/completions", "/v1/chat/completions%2F", "/v1/files/"])
async def test_a_path_that_is_none_of_these_is_relayed_as_it_is(up, proxy, path):
    answer = await http_client.send(proxy.origin, whole(path))
    assert (answer.status, answer.head.first("x-compaction"), up.requests[0].target) == (200, None, path)
    assert up.requests[0].body == BODY


@both_paths
@pytest.mark.parametrize("sent", [BODY, gzip.compress(BODY)], ids=["plain", "gzip"])
async def test_chunks_with_extensions_and_trailers_are_one_body_and_the_next_request_is_read_after_them(
    up, proxy, path, sent
):
    encoding = {} if sent == BODY else {"content_encoding": "gzip"}
    chunks = b'%x;a="b c"\r\n%b\r\n1\r\n%b\r\n0\r\nx-sum: 12\r\nauthorization: Bearer sk-other\r\n\r\n'
    framed = chunks % (len(sent) - 1, sent[:-1], sent[-1:])
    async with open_line(proxy) as line:
        await line.write(head_of(path, transfer_encoding="chunked", trailer="x-sum", **encoding))
        for at in range(0, len(framed), 7):
            await line.write(framed[at : at + 7])
            await asyncio.sleep(0.001)
        assert (await line.answer()).status == 200
        await line.write(whole())
        assert (await line.answer()).body.data == BODY
    first, _ = up.requests
    assert first.body == (sent if path == FILES else BODY)
    assert (first.header("authorization"), first.header("x-sum")) == ("Bearer sk-a", None)


@both_paths
async def test_a_body_that_is_compressed_below_its_chunks_is_refused(up, proxy, path):
    """What is forwarded has no such coding: the upstream could not know how to read these bytes."""
    sent = head_of(path, transfer_encoding="gzip, chunked") + encode_chunked(gzip.compress(BODY))
    answer = await http_client.send(proxy.origin, sent)
    assert (answer.status, fault_of(answer)["code"]) == (400, "bad_request")
    assert "Transfer-Encoding" in fault_of(answer)["message"]
    assert up.requests == []


async def test_a_head_of_hundreds_of_kilobytes_is_forwarded_as_it_came(up, proxy):
    large = {f"x-large-{number}": str(number) * 60_000 for number in range(4)}
    answer = await http_client.send(proxy.origin, whole(**large))
    assert answer.status == 200
    assert {name: up.requests[0].header(name) for name in large} == large


async def test_requests_that_are_sent_before_the_first_answer_are_answered_in_their_order(up, proxy):
    texts = [chat(user=str(number)) for number in range(40)]
    async with open_line(proxy) as line:
        await line.write(b"".join(request(target=CHAT, headers=KEY, body=text) for text in texts))
        answers = [await line.answer() for _ in texts]
    assert [answer.body.data for answer in answers] == texts
    assert [sent.body for sent in up.requests] == texts


async def test_a_client_of_http_1_0_gets_a_stream_that_ends_with_its_connection(up, proxy):
    up.script = stream(delta(content="one"), b"data: [DONE]\n\n")
    async with open_line(proxy) as line:
        body = chat(stream=True)
        await line.write(head_of(version="1.0", content_length=len(body)) + body)
        came = await line.reader.read()
    head, _, events = came.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.0 200")
    assert b"chunked" not in head.lower()
    assert b"x-accel-buffering: no" in head.lower()
    assert events.startswith(b"data: ")
    assert events.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("begun", [(), (delta(content="one"),)], ids=["before the answer", "within it"])
async def test_a_client_that_closes_its_sending_half_has_left(up, proxy, begun):
    """As for nginx and aiohttp: the end of what it sends is all that a proxy sees of a client that is gone."""
    up.script = stream(*begun, hang()) if begun else hang()
    async with open_line(proxy) as line:
        await line.write(request(target=CHAT, headers=KEY, body=chat(stream=True)))
        sent = await up.wait_for_request()
        if begun:
            await line.until(b"one")
        line.writer.write_eof()
        await sent.end()
    assert sent.departure is not None
