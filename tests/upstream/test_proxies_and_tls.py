"""The ways to an upstream: through an HTTP proxy, and over TLS with certificates."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field

import pytest
import trustme

from tests.support import http_client
from tests.support.proxy_client import ask, chat, fault_of
from tests.support.scripted_upstream import Upstream, text_turn


@dataclass(slots=True)
class Tunnel:
    """A tiny HTTP proxy: takes CONNECT, and says what it was asked."""

    refuses: bool = False
    asked: list[http_client.Head] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://agent:sk-canary-tunnel@127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await http_client.read_head(reader)
        self.asked.append(head)
        method, target, _ = head.start.decode().split()
        with closing(writer):
            if self.refuses or method != "CONNECT":
                writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n")
                return
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            there, back = await asyncio.open_connection(*target.rsplit(":", 1))
            with closing(back):
                flows = [asyncio.ensure_future(_flow(*line)) for line in ((reader, back), (there, writer))]
                await asyncio.wait(flows, return_when=asyncio.FIRST_COMPLETED)


async def _flow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(1 << 16):
        writer.write(piece)


@asynccontextmanager
async def tunnel(**settings: bool) -> AsyncIterator[Tunnel]:
    made = Tunnel(**settings)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    async with server:
        made.port = server.sockets[0].getsockname()[1]
        yield made


@dataclass(frozen=True, slots=True)
class Authority:
    """Signs for 127.0.0.1, and is in files that a configuration can name."""

    ca: trustme.CA
    file: str
    client: str

    def server(self, *, asks_client: bool = False) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.ca.issue_cert("127.0.0.1").configure_cert(context)
        if asks_client:
            context.verify_mode = ssl.CERT_REQUIRED
            self.ca.configure_trust(context)
        return context


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    folder = tmp_path_factory.mktemp("authority")
    ca = trustme.CA()
    ca.cert_pem.write_to_path(folder / "ca.pem")
    ca.issue_cert("agent@example.com").private_key_and_cert_chain_pem.write_to_path(folder / "client.pem")
    return Authority(ca, str(folder / "ca.pem"), str(folder / "client.pem"))


@pytest.mark.parametrize("around", [{}, {"NO_PROXY": "example.com,127.0.0.1"}])
async def test_an_https_proxy_is_the_way_to_an_https_upstream_unless_no_proxy_leads_past_it(serve, authority, around):
    config = {"upstreams": [{"ca_file": authority.file, "window": 1}]}
    async with Upstream(text_turn("Hi"), tls=authority.server()) as up, tunnel() as way:
        async with serve(up.url, config=config, environment={"HTTPS_PROXY": way.url, **around}) as proxy:
            assert (await ask(proxy, chat())).status == 200
        assert up.requests[0].header("proxy-authorization") is None
        asked = [(head.start.decode(), head.first("proxy-authorization")[:6]) for head in way.asked]
        connect = f"CONNECT {up.origin.removeprefix('https://')} HTTP/1.1"
        assert asked == ([] if around else [(connect, "Basic ")])


async def test_a_proxy_that_refuses_is_named_and_its_password_is_not(serve, authority):
    config = {"upstreams": [{"ca_file": authority.file, "window": 1, "retries": 0}]}
    async with Upstream(tls=authority.server()) as up, tunnel(refuses=True) as way:
        async with serve(up.url, config=config, environment={"https_proxy": way.url}) as proxy:
            reply = await ask(proxy, chat())
        assert reply.status == 502
        assert "check HTTPS_PROXY" in fault_of(reply)["message"]
        assert "sk-canary-tunnel" not in reply.body.data.decode() + proxy.output
        assert not up.requests


async def test_an_upstream_signed_by_an_unknown_authority_is_refused(serve, authority):
    async with (
        Upstream(tls=authority.server()) as up,
        serve(up.url, config={"upstreams": [{"retries": 0, "window": 1}]}) as proxy,
    ):
        reply = await ask(proxy, chat(), headers={"authorization": "Bearer sk-client"})
    assert reply.status == 502
    assert "unable to get local issuer certificate" in fault_of(reply)["message"]
    assert not up.requests


async def test_a_client_certificate_is_shown_to_an_upstream_that_asks(serve, authority):
    trusting = {"ca_file": authority.file, "window": 1, "retries": 0}
    async with Upstream(text_turn("Hi"), tls=authority.server(asks_client=True)) as up:
        async with serve(up.url, config={"upstreams": [{**trusting, "client_cert": authority.client}]}) as proxy:
            assert (await ask(proxy, chat())).status == 200
        async with serve(up.url, config={"upstreams": [trusting]}) as proxy:
            reply = await ask(proxy, chat())
        assert reply.status == 502
        fault_of(reply)
        assert len(up.requests) == 1
