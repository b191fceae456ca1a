"""No way to the upstream, answers that break off, and trying once more: only what is safe, as often as configured."""

import asyncio
import socket
from contextlib import contextmanager

import pytest

from proxy.config.settings import Upstream as Settings
from proxy.foundation.errors import UpstreamBroke
from proxy.upstream.client import Call, Client
from tests.support.proxy_client import ask, chat, data_of, fault_of, log_of, until
from tests.support.running_proxy import QUIET, free_port
from tests.support.scripted_upstream import answer, close, cut, delta, raw, stream

CANARY = "sk-canary-0badc0de"


@contextmanager
def unaccepting_port():
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


NOWHERE = {
    f"127.0.0.1:{free_port()}": "cannot connect: Connection refused; is the server running? check base_url",
    "nowhere.invalid": "host name not found: check base_url and DNS",
}


@pytest.mark.parametrize("host", NOWHERE, ids=["refused", "no address"])
async def test_an_upstream_that_refuses_or_has_no_address_is_a_502(serve, host):
    reply = await unreachable(serve, f"http://{host}/v1")
    assert (reply.status, fault_of(reply)["code"]) == (502, "upstream_unreachable")
    assert fault_of(reply)["message"] == f'upstream "lab" ({host}): {NOWHERE[host]}'


async def test_an_upstream_without_tls_is_a_502(serve):
    async def reply_without_tls(_, writer):
        writer.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(reply_without_tls, "127.0.0.1", 0) as plain:
        port = plain.sockets[0].getsockname()[1]
        reply = await unreachable(serve, f"https://127.0.0.1:{port}/v1")
    assert reply.status == 502
    message = fault_of(reply)["message"]
    assert message.startswith(f'upstream "lab" (127.0.0.1:{port}): TLS failed: ')
    assert message.endswith("name the server's authority in `upstreams.ca_file`")


async def test_an_upstream_that_does_not_take_a_connection_is_a_504(serve):
    with unaccepting_port() as port:
        reply = await unreachable(serve, f"http://127.0.0.1:{port}/v1")
    assert reply.status == 504
    assert fault_of(reply)["code"] == "upstream_timeout"
    assert f"(127.0.0.1:{port}) took no connection within 0.3 s (connect_seconds)" in fault_of(reply)["message"]
    assert fault_of(reply)["message"].endswith("; is the server running? check base_url")


@pytest.mark.parametrize("retries", [0, 2])
async def test_a_failed_connection_is_retried_as_often_as_configured(serve, retries):
    async with serve(
        f"http://127.0.0.1:{free_port()}/v1", config={"upstreams": [{"retries": retries, **QUIET}]}
    ) as proxy:
        assert (await ask(proxy, chat())).status == 502
    attempts = [(line["why"], line["attempt"]) for line in log_of(proxy, "upstream-retried")]
    assert attempts == [("upstream_unreachable", number) for number in range(1, 1 + retries)]


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504])
async def test_an_answer_of_whatever_status_is_handed_on_and_not_asked_for_again(up, proxy, status):
    up.script = answer({"error": {"message": "no"}}, status=status, headers=[("retry-after", "0")])
    reply = await ask(proxy, chat())
    assert reply.status == status
    assert reply.body.data == up.script.body
    assert len(up.requests) == 1


@pytest.mark.parametrize("peeks", [False, True])
@pytest.mark.parametrize("end", [cut(), close()], ids=["reset", "closed too early"])
async def test_data_before_the_end_is_read_before_the_fault_even_if_the_beginning_was_read_before(up, end, peeks):
    up.script = stream(delta(content="Half"), end)
    call = Call("GET", "/models", "", (), None)
    async with Client(Settings(base_url=up.url), lambda _: None) as client, client.send(call, None) as reply:
        if peeks:
            assert await reply.peek(lambda _: False) is None
        else:
            await until(lambda: reply._response.content.exception() is not None)  # nothing else tells it
        chunks = reply.chunks()
        assert await anext(chunks) == delta(content="Half")
        with pytest.raises(UpstreamBroke):
            await anext(chunks)


async def test_a_stream_that_names_its_encoding_identity_ends_in_an_error_where_it_breaks_off(serve, up):
    up.script = stream(delta(content="Half"), close(), headers=(("content-encoding", "identity"),))
    async with serve(up.url) as proxy:
        reply = await ask(proxy, chat(stream=True))
    (first, last) = data_of(reply.body.data)
    assert first["choices"][0]["delta"] == {"content": "Half"}
    assert "error" in last


async def test_a_switch_of_protocols_is_no_answer(up):
    up.script = raw(b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n")
    call = Call("GET", "/models", "", (), None)
    async with Client(Settings(base_url=up.url), lambda _: None) as client:
        with pytest.raises(UpstreamBroke, match="another protocol"):
            await client.open(call, None)
