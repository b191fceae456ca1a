"""A Redis behind a password, rights, certificates: what works, what is reported, and what never is."""

import time
from contextlib import contextmanager

import pytest
import trustme

from proxy.config.settings import Config
from proxy.config.values import reveal
from proxy.store.contract import Found, StoreUnavailable
from proxy.store.redis import peek
from tests import ROOT
from tests.support.redis_server import RIGHTS, needs_redis, running
from tests.support.running_proxy import free_port
from tests.support.stores import find_block

pytestmark = needs_redis
DOCUMENT = ROOT / "docs" / "shared-state.md"
PASSWORD = "s3cr3t/with:odd@signs"


def url_of(server, user, password):
    odd = password.replace("/", "%2F").replace("@", "%40").replace(":", "%3A")
    return f"redis://{user}:{odd}@127.0.0.1:{server.port}/1"


async def test_a_user_with_the_few_rights_that_are_listed_can_do_everything(server, open_store):
    server.let_in("proxy", PASSWORD)
    store = open_store(url_of(server, "proxy", PASSWORD))
    await store.put_block("t/h1", b"block")
    await store.put_block("t/h1", b"deeper", over=b"block")
    assert await store.claim_fact("t/errand", b"mine", 60)
    await store.write_fact("t/errand", b"done", 60, over=b"mine")
    await store.write_fact("t/gone", b"", 0)
    moved = open_store(url_of(server, "proxy", PASSWORD), clock=lambda: time.time() + 100_000)
    assert await moved.find_first(["t/h1"], ["t/errand"]) == (Found("t/h1", b"deeper"), None)
    assert await store.replace_document("keys", None, await store.load_secret())
    assert await store.read_document("keys") == await store.load_secret()
    assert await peek(url_of(server, "proxy", PASSWORD), ["t/h1"]) == {"t/h1": b"deeper"}
    assert RIGHTS in DOCUMENT.read_text(encoding="utf-8")


async def test_a_password_alone_is_the_default_users(server, open_store):
    server.run("CONFIG", "SET", "requirepass", "open-sesame")
    assert await open_store(f"redis://:open-sesame@127.0.0.1:{server.port}").put_block("t/h1", b"block") == b"block"


@pytest.mark.parametrize("known_as", [("proxy", "wr0ng"), ("nobody", PASSWORD)])
async def test_refused_access_is_reported_without_any_credential(server, open_store, known_as):
    server.let_in("proxy", PASSWORD)
    store = open_store(url_of(server, *known_as))
    with pytest.raises(StoreUnavailable, match="WRONGPASS") as refused:
        await store.load_secret()
    words = [repr(store), str(store), repr(refused.value), repr(refused.value.__cause__)]
    assert not any(secret in text for text in words for secret in (*known_as, PASSWORD[:6]))


async def test_a_missing_password_is_reported(server, open_store):
    server.run("CONFIG", "SET", "requirepass", "open-sesame")
    with pytest.raises(StoreUnavailable, match=r"NOAUTH.*password"):
        await open_store(server.url).load_secret()


async def test_an_unwanted_password_is_reported_and_not_shown(server, open_store):
    with pytest.raises(StoreUnavailable, match="called without any password") as refused:
        await open_store(f"redis://:open-sesame@127.0.0.1:{server.port}").load_secret()
    assert "sesame" not in str(refused.value)


async def test_a_missing_database_is_reported(server, open_store):
    with pytest.raises(StoreUnavailable, match="DB index is out of range"):
        await open_store(server.database(512)).load_secret()


async def test_an_error_that_quotes_the_password_is_reported_without_it(tmp_path, open_store):
    with running(tmp_path, "--rename-command", "AUTH", "") as server:
        assert "open-sesame" in server.run("AUTH", "open-sesame")
        with pytest.raises(StoreUnavailable, match=r"unknown command .AUTH.$") as refused:
            await open_store(f"redis://:open-sesame@127.0.0.1:{server.port}").load_secret()
    assert "sesame" not in str(refused.value)


async def test_a_missing_right_is_reported_and_everything_else_works(server, open_store):
    server.let_in("proxy", PASSWORD, RIGHTS.replace("+set ", "-set "))
    store = open_store(url_of(server, "proxy", PASSWORD))
    for act in (store.put_block("t/h1", b"block"), store.load_secret()):
        with pytest.raises(StoreUnavailable, match=r"NOPERM.*shared-state|no permissions|can.t run"):
            await act
    assert await find_block(store, "t/h1") is None


@pytest.fixture
def authority():
    return trustme.CA()


@pytest.fixture
def tls_files(authority, tmp_path):
    """Options for a server whose certificate is for localhost; the same certificate can be a client's."""
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    issued = authority.issue_cert("localhost", "127.0.0.1")
    issued.private_key_pem.write_to_path(tmp_path / "key.pem")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    files = {"cert": "cert.pem", "key": "key.pem", "ca-cert": "ca.pem"}
    return [part for name, file in files.items() for part in (f"--tls-{name}-file", str(tmp_path / file))]


@contextmanager
def tls_server(folder, files, *options):
    port = free_port()
    with running(folder, "--tls-port", str(port), "--tls-auth-clients", "no", *files, *options) as server:
        yield server, f"localhost:{port}"


async def test_a_connection_can_be_encrypted(tls_files, open_store, tmp_path):
    with tls_server(tmp_path, tls_files) as (_, address):
        config = Config.model_validate({"state": {"url": f"rediss://{address}", "ca_file": str(tmp_path / "ca.pem")}})
        store = open_store(reveal(config.state.url), ca_file=config.state.ca_file, timeout=5.0)
        assert await store.put_block("t/h1", bytes(300_000)) == bytes(300_000)
        assert (await find_block(store, "t/h1")).value == bytes(300_000)
        assert (
            await open_store(f"rediss://{address}?ssl_cert_reqs=none", timeout=5.0).load_secret()
            == await store.load_secret()
        )


async def test_a_client_certificate_is_shown_where_the_server_asks_for_one(tls_files, open_store, tmp_path):
    with tls_server(tmp_path, tls_files, "--tls-auth-clients", "yes") as (_, address):
        ca_file = str(tmp_path / "ca.pem")
        own = f"?ssl_certfile={tmp_path}/cert.pem&ssl_keyfile={tmp_path}/key.pem"
        assert await open_store(f"rediss://{address}{own}", ca_file=ca_file, timeout=5.0).load_secret()
        with pytest.raises(StoreUnavailable):
            await open_store(f"rediss://{address}", ca_file=ca_file, timeout=5.0).load_secret()


async def test_a_certificate_of_an_unknown_authority_is_refused(tls_files, open_store, tmp_path):
    with tls_server(tmp_path, tls_files) as (_, address), pytest.raises(StoreUnavailable, match="certificate"):
        await open_store(f"rediss://{address}", timeout=5.0).load_secret()
