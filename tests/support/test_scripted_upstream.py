"""The scripted upstream follows its script: what other tests rest on is tested here."""

import asyncio

import pytest

from tests.support import http_client
from tests.support.scripted_upstream import (
    Upstream,
    answer,
    close,
    delta,
    hang,
    pause,
    stream,
)


def ask(body: bytes = b"{}", *headers: tuple[bytes, bytes], method: str = "POST", target: str = "/v1/x") -> bytes:
    return http_client.request_bytes(method, target, (*headers, (b"content-length", b"%d" % len(body))), body)


async def test_a_request_is_kept_as_it_came(up):
    await http_client.send(
        up.url, ask(b"\xff\x00", (b"x-TAG", b"b"), (b"X-Tag", b"a"), method="PUT", target="/v1/%7e?a=%20")
    )

    (kept,) = up.requests
    assert (kept.method, kept.target, kept.path, kept.body) == ("PUT", "/v1/%7e?a=%20", "/v1/%7e", b"\xff\x00")
    assert kept.headers == ((b"x-TAG", b"b"), (b"X-Tag", b"a"), (b"content-length", b"2"))


async def test_a_chunked_request_is_put_together_and_its_chunks_are_remembered(up):
    message = http_client.request_bytes(
        "POST", "/v1/x", ((b"Transfer-Encoding", b"chunked"),), b"2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"
    )

    came = await http_client.send(up.url, message)

    assert (up.requests[0].body, up.requests[0].chunks, came.body.data) == (b"abc", (b"ab", b"c"), b"abc")


async def test_an_answer_is_nothing_but_what_the_script_says(up):
    up.script = answer(b"hm", 418, [("X-a", "1"), ("x-A", "2")])

    came = await http_client.send(up.url, ask())

    assert came.head.start == b"HTTP/1.1 418 I'm a Teapot"
    assert came.head.headers == ((b"X-a", b"1"), (b"x-A", b"2"), (b"content-length", b"2"))
    assert came.body.data == b"hm"


@pytest.mark.parametrize("framing", ["length", "chunked", "close"])
async def test_every_framing_carries_the_same_body(up, framing):
    up.script = answer(b"abcdef", framing=framing).in_pieces(4)

    came = await http_client.send(up.url, ask())

    assert (came.body.data, came.body.whole) == (b"abcdef", True)
    assert came.body.chunks == ((b"abcd", b"ef") if framing == "chunked" else (b"abcdef",)) or framing == "close"


@pytest.mark.parametrize("reply", [answer(b"abcdef"), stream(b"abc", b"def")], ids=["length", "chunked"])
@pytest.mark.parametrize("how", [None, close()], ids=["reset", "closed"])
async def test_a_break_comes_at_the_byte_it_was_ordered_for(up, reply, how):
    up.script = reply.broken_at(4, how)

    came = await http_client.send(up.url, ask())

    assert not came.body.whole
    assert b"abcd".startswith(came.body.data)
    assert came.body.data or reply.framing == "length"


@pytest.mark.parametrize(
    ("script", "phase"),
    [
        (hang(), "before headers"),
        (answer().after(5), "before headers"),
        (stream(delta(content="a"), hang()), "silent"),
        (stream(*[delta(content="a" * 1000), pause(0.001)] * 5000), "flowing"),
    ],
    ids=["hanging", "late", "silent", "flowing"],
)
async def test_the_upstream_notices_when_and_in_which_phase_its_client_left(up, script, phase):
    up.script = script
    asking = asyncio.create_task(http_client.send(up.url, ask()))
    request = await up.wait_for_request()
    await asyncio.sleep(0.05)
    left_at = asyncio.get_running_loop().time()
    asking.cancel()

    await request.end()

    assert request.departure.phase == phase
    assert 0 <= request.departure.at - left_at < 3


async def test_a_script_that_fails_fails_the_test():
    upstream = await Upstream(lambda request: request.json["missing"]).__aenter__()
    with pytest.raises(ConnectionResetError):
        await http_client.send(upstream.url, ask())

    with pytest.raises(ExceptionGroup, match="script"):
        await upstream.__aexit__()
