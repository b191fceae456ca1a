"""The scripted upstream follows its script: what other tests rest on is tested here."""

import asyncio

import pytest

from tests.support import http_client
from tests.support.scripted_upstream import (
    Upstream,
    answer,
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
