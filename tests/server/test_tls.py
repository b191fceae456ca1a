"""The proxy's own TLS: a renewed certificate is served without a restart, and mutual TLS lets in known clients only."""

import asyncio
import ssl

import pytest
import trustme

from tests.support.proxy_client import chat, log_of, request, until
from tests.support.running_proxy import serving

pytestmark = pytest.mark.slow


def write(authority, place):
    """A new certificate for this host, each file replaced as a whole, as an ACME client does."""
    issued = authority.issue_cert("127.0.0.1")
    for name, blob in (("cert.pem", issued.cert_chain_pems[0]), ("key.pem", issued.private_key_pem)):
        blob.write_to_path(place / "new")
        (place / "new").replace(place / name)


def client_context(authority, certificate=None):
    context = ssl.create_default_context()
    authority.configure_trust(context)
    if certificate is not None:
        certificate.configure_cert(context)
    return context


async def connect(port, context):
    return await asyncio.open_connection("127.0.0.1", port, ssl=context)


async def serial_of(port, context):
    _, writer = await connect(port, context)
    found = writer.get_extra_info("ssl_object").getpeercert()["serialNumber"]
    writer.close()
    return found


async def ask_over(connection):
    reader, writer = connection
    try:
        writer.write(request(body=chat()))
        line = await reader.readline()
        return int(line.split()[1])
    finally:
        writer.close()


@pytest.fixture
def authority():
    return trustme.CA()


@pytest.fixture
def place(tmp_path, authority):
    write(authority, tmp_path)
    return tmp_path


def settings(place, up, **more):
    listen = {"tls_cert": str(place / "cert.pem"), "tls_key": str(place / "key.pem"), **more}
    return {"listen": listen, "upstreams": [{"base_url": up.url, "window": 100_000}], "log": {"format": "json"}}


@pytest.fixture
def over_tls(monkeypatch):
    """Readiness cannot be asked for in plain HTTP: it is ready once it listens."""

    async def listens(proxy):
        return "listening" in proxy.output

    monkeypatch.setattr("tests.support.running_proxy._is_ready", listens)


async def test_a_renewed_certificate_is_served_and_open_connections_go_on(up, authority, place, over_tls):
    context = client_context(authority)
    async with serving(None, place=place, config=settings(place, up)) as proxy:
        first = await serial_of(proxy.port, context)
        standing = await connect(proxy.port, context)
        write(authority, place)
        assert await until(lambda: log_of(proxy, "certificate-reloaded"))
        assert await serial_of(proxy.port, context) != first
        assert await ask_over(standing) == 200
        # The key of another certificate, as in the middle of a renewal that went wrong.
        second = await serial_of(proxy.port, context)
        authority.issue_cert("127.0.0.1").private_key_pem.write_to_path(place / "key.pem")
        (line,) = await until(lambda: log_of(proxy, "certificate-refused"))
        assert "cert.pem" in line["why"]
        assert await serial_of(proxy.port, context) == second
        write(authority, place)
        assert await until(lambda: log_of(proxy, "certificate-reloaded")[1:])
        assert await serial_of(proxy.port, context) not in (first, second)


async def test_with_mutual_tls_only_clients_with_a_certificate_get_in(up, authority, place, over_tls):
    clients = trustme.CA()
    clients.cert_pem.write_to_path(place / "clients.pem")
    config = settings(place, up, client_ca=str(place / "clients.pem"))
    async with serving(None, place=place, config=config) as proxy:
        known = client_context(authority, clients.issue_cert("agent@example.com"))
        assert await ask_over(await connect(proxy.port, known)) == 200
        for stranger in (None, trustme.CA().issue_cert("agent@example.com")):
            with pytest.raises((ssl.SSLError, ConnectionError, IndexError)):
                await ask_over(await connect(proxy.port, client_context(authority, stranger)))
    assert len(up.requests) == 1
