"""The scripted upstream follows its script: what other tests rest on is tested here."""

import asyncio
import json
import zlib
from contextlib import closing

import brotli
import pytest

from proxy.wire.encodings import zstd
from tests.support import http_client
from tests.support.scripted_upstream import (
    DONE,
    Upstream,
    answer,
    by_path,
    call_turn,
    close,
    cut,
    delta,
    echo,
    hang,
    in_turn,
    overflow,
    pace_turn,
    pause,
    raw,
    stream,
    text_turn,
)

# Each opens as much as there is.
OPEN = {
    "gzip": lambda data: zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(data),
    "deflate": lambda data: zlib.decompressobj().decompress(data),
    "br": lambda data: brotli.Decompressor().process(data),
    "zstd": lambda data: zstd.ZstdDecompressor().decompress(data),
}


def ask(body: bytes = b"{}", *headers: tuple[bytes, bytes], method: str = "POST", target: str = "/v1/x") -> bytes:
    return http_client.request_bytes(method, target, (*headers, (b"content-length", b"%d" % len(body))), body)


def ask_chat(**more: object) -> bytes:
    return ask(json.dumps({"model": "m", "messages": [], **more}).encode())


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


async def test_a_turn_is_sent_as_stream_or_body_as_requested(up):
    up.script = text_turn("Let me look.") + call_turn("Read", path="a.py")

    whole = json.loads((await http_client.send(up.url, ask_chat())).body.data)
    streamed = await http_client.send(up.url, ask_chat(stream=True, stream_options={"include_usage": True}))

    message = whole["choices"][0]["message"]
    assert (message["content"], message["tool_calls"][0]["function"]["name"]) == ("Let me look.", "Read")
    assert streamed.body.chunks[-1] == DONE
    assert b'"usage":{' in streamed.body.chunks[-2]
    assert b'"usage"' not in (await http_client.send(up.url, ask_chat(stream=True))).body.data


@pytest.mark.parametrize("framing", ["length", "chunked", "close"])
async def test_every_framing_carries_the_same_body(up, framing):
    up.script = answer(b"abcdef", framing=framing).in_pieces(4)

    came = await http_client.send(up.url, ask())

    assert (came.body.data, came.body.whole) == (b"abcdef", True)
    assert came.body.chunks == ((b"abcd", b"ef") if framing == "chunked" else (b"abcdef",)) or framing == "close"


@pytest.mark.parametrize("encoding", OPEN)
async def test_a_compressed_stream_is_still_a_stream(up, encoding):
    up.script = stream(b"first, ", pause(5), b"second").with_compression(encoding)
    reader, writer = await asyncio.open_connection("127.0.0.1", int(up.origin.rpartition(":")[2]))

    with closing(writer):
        writer.write(ask())
        head = await http_client.read_head(reader)
        size = int(await reader.readline(), 16)
        packed = await reader.readexactly(size)

    assert head.first("content-encoding") == encoding
    assert OPEN[encoding](packed) == b"first, "


async def test_a_compressed_answer_opens_to_the_body(up):
    for encoding, opened in OPEN.items():
        up.script = answer(b"aaaa" * 100).with_compression(encoding)
        assert opened((await http_client.send(up.url, ask())).body.data) == b"aaaa" * 100


@pytest.mark.parametrize("reply", [answer(b"abcdef"), stream(b"abc", b"def")], ids=["length", "chunked"])
@pytest.mark.parametrize("how", [None, close()], ids=["reset", "closed"])
async def test_a_break_comes_at_the_byte_it_was_ordered_for(up, reply, how):
    up.script = reply.broken_at(4, how)

    came = await http_client.send(up.url, ask())

    assert not came.body.whole
    assert b"abcd".startswith(came.body.data)
    assert came.body.data or reply.framing == "length"


async def test_a_cut_before_the_headers_is_no_answer(up):
    up.script = cut()

    with pytest.raises(ConnectionResetError):
        await http_client.send(up.url, ask())


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


async def test_a_client_that_stays_has_not_departed(up):
    up.script = stream(delta(content="a"), pause(0.01), DONE)

    await http_client.send(up.url, ask())
    await up.requests[0].end()

    assert up.requests[0].departure is None


async def test_replies_come_in_turn_and_the_last_one_stays(up):
    up.script = in_turn(overflow("openai-rate"), answer(b"", 500), text_turn("Done."))

    assert [(await http_client.send(up.url, ask_chat())).status for _ in range(4)] == [429, 500, 200, 200]


async def test_scripts_are_chosen_by_path(up):
    up.script = by_path({"/v1/a": answer(b"A")}, otherwise=echo)

    assert (await http_client.send(up.url, ask(target="/v1/a?x=1"))).body.data == b"A"
    assert (await http_client.send(up.url, ask(b"me", target="/v1/b"))).body.data == b"me"


async def test_a_paced_turn_takes_its_time(up):
    up.script = pace_turn(text_turn("one two three"), 0.02)
    began = asyncio.get_running_loop().time()

    await http_client.send(up.url, ask_chat(stream=True))

    assert asyncio.get_running_loop().time() - began >= 5 * 0.02


async def test_raw_bytes_are_all_there_is(up):
    up.script = raw(b"HTTP/1.1 200 Odd\r\nA:b\r\nA :c\r\n\r\n", close())

    assert (await http_client.send(up.url, ask())).head.headers == ((b"A", b"b"), (b"A ", b"c"))


async def test_a_connection_is_used_again_and_counted(up):
    reader, writer = await asyncio.open_connection("127.0.0.1", int(up.origin.rpartition(":")[2]))
    with closing(writer):
        for body in (b"a", b"b"):
            writer.write(ask(body))
            assert (await http_client.read_answer(reader)).body.data == body
        assert (up.accepted, up.connections) == (1, 1)


async def test_a_script_that_fails_fails_the_test():
    upstream = await Upstream(lambda request: request.json["missing"]).__aenter__()
    with pytest.raises(ConnectionResetError):
        await http_client.send(upstream.url, ask())

    with pytest.raises(ExceptionGroup, match="script"):
        await upstream.__aexit__()
