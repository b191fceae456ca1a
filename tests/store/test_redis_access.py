"""A Redis behind a password, rights, certificates: what works, what is reported, and what never is."""

import time
from contextlib import contextmanager

import pytest
import trustme

from proxy import assembly
from proxy.config import Config
from proxy.store.contract import Found, StoreUnavailable
from proxy.store.redis import peek
from tests import ROOT
from tests.support.redis_groups import wait_until
from tests.support.redis_server import RIGHTS, needs_redis, running
from tests.support.running_proxy import free_port

pytestmark = needs_redis
DOCUMENT = ROOT / "docs" / "shared-state.md"
PASSWORD = "s3cr3t/with:odd@signs"


async def find_block(store, *keys):
    block, _ = await store.find_first(keys)
    return block


async def test_databases_are_apart(server, opened):
    one, two = opened(server.database(1)), opened(server.database(2))
    await one.put_block("t/h1", b"block")
    assert await find_block(two, "t/h1") is None
    assert await one.load_secret() != await two.load_secret()


def url_of(server, user, password):
    odd = password.replace("/", "%2F").replace("@", "%40").replace(":", "%3A")
    return f"redis://{user}:{odd}@127.0.0.1:{server.port}/1"


async def test_a_user_with_the_few_rights_that_are_listed_can_do_everything(server, opened):
    server.let_in("proxy", PASSWORD)
    store = opened(url_of(server, "proxy", PASSWORD))
    await store.put_block("t/h1", b"block")
    await store.put_block("t/h1", b"deeper", over=b"block")
    assert await store.claim_fact("t/errand", b"mine", 60)
    await store.write_fact("t/errand", b"done", 60, over=b"mine")
    await store.write_fact("t/gone", b"", 0)
    moved = opened(url_of(server, "proxy", PASSWORD), clock=lambda: time.time() + 100_000)
    assert await moved.find_first(["t/h1"], ["t/errand"]) == (Found("t/h1", b"deeper"), None)
    assert await store.replace_document("keys", None, await store.load_secret())
    assert await store.read_document("keys") == await store.load_secret()
    assert await peek(url_of(server, "proxy", PASSWORD), ["t/h1"]) == {"t/h1": b"deeper"}
    assert RIGHTS in DOCUMENT.read_text(encoding="utf-8")


async def test_a_password_alone_is_the_default_users(server, opened):
    server.says("CONFIG", "SET", "requirepass", "open-sesame")
    assert await opened(f"redis://:open-sesame@127.0.0.1:{server.port}").put_block("t/h1", b"block") == b"block"


@pytest.mark.parametrize("known_as", [("proxy", "wr0ng"), ("nobody", PASSWORD)])
async def test_who_is_not_let_in_is_told_why_and_no_credential_is_ever_shown(server, opened, warnings, known_as):
    server.let_in("proxy", PASSWORD)
    store = opened(url_of(server, *known_as))
    with pytest.raises(StoreUnavailable, match="WRONGPASS") as refused:
        await store.load_secret()
    said = [repr(store), str(store), repr(refused.value), repr(refused.value.__cause__), *warnings]
    assert not any(secret in text for text in said for secret in (*known_as, PASSWORD[:6]))


async def test_where_a_password_is_wanted_and_none_is_given_this_is_said(server, opened):
    server.says("CONFIG", "SET", "requirepass", "open-sesame")
    with pytest.raises(StoreUnavailable, match=r"NOAUTH.*password"):
        await opened(server.url).load_secret()


async def test_a_password_that_is_not_wanted_is_said_and_not_shown(server, opened, warnings):
    with pytest.raises(StoreUnavailable, match="it has no password: take it out of the URL"):
        await opened(f"redis://:open-sesame@127.0.0.1:{server.port}").load_secret()
    assert "sesame" not in "".join(warnings)


async def test_a_database_that_is_not_there_is_said(server, opened):
    with pytest.raises(StoreUnavailable, match=r"DB index is out of range.*number of a database"):
        await opened(server.database(512)).load_secret()


async def test_an_error_that_quotes_the_password_is_told_without_it(tmp_path, opened, warnings):
    with running(tmp_path, "--rename-command", "AUTH", "") as server:
        assert "open-sesame" in server.says("AUTH", "open-sesame")
        with pytest.raises(StoreUnavailable, match=r"ERR unknown command.*Sentinel needs") as refused:
            await opened(f"redis://:open-sesame@127.0.0.1:{server.port}").load_secret()
    assert "sesame" not in "".join([str(refused.value), *warnings])


async def test_a_right_that_is_lacking_is_told_and_the_rest_goes_on(server, opened):
    server.let_in("proxy", PASSWORD, RIGHTS.replace("+set ", "-set "))
    store = opened(url_of(server, "proxy", PASSWORD))
    for act in (store.put_block("t/h1", b"block"), store.load_secret()):
        with pytest.raises(StoreUnavailable, match=r"lacks a right.*shared-state"):
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
def encrypted(folder, files, *options):
    port = free_port()
    with running(folder, "--tls-port", str(port), "--tls-auth-clients", "no", *files, *options) as server:
        yield server, f"localhost:{port}"


async def test_a_connection_can_be_encrypted(tls_files, opened, tmp_path):
    with encrypted(tmp_path, tls_files) as (_, address):
        config = Config.model_validate({"state": {"url": f"rediss://{address}", "ca_file": str(tmp_path / "ca.pem")}})
        store = opened(assembly.state_url(config), ca_file=config.state.ca_file, timeout=5.0)
        assert await store.put_block("t/h1", bytes(300_000)) == bytes(300_000)
        assert (await find_block(store, "t/h1")).value == bytes(300_000)
        assert (
            await opened(f"rediss://{address}?ssl_cert_reqs=none", timeout=5.0).load_secret()
            == await store.load_secret()
        )


async def test_connections_to_a_cluster_can_be_encrypted(tls_files, opened, tmp_path):
    options = ("--tls-cluster", "yes", "--cluster-enabled", "yes", "--cluster-port", str(free_port()))
    with encrypted(tmp_path, tls_files, *options) as (server, address):
        server.says("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
        wait_until(lambda: "cluster_state:ok" in server.told("CLUSTER", "INFO"))
        store = opened(f"rediss+cluster://{address}", ca_file=str(tmp_path / "ca.pem"), timeout=5.0)
        assert await store.put_block("t/h1", b"block") == b"block"
        assert await find_block(store, "t/h1") == Found("t/h1", b"block")


async def test_a_client_certificate_is_shown_where_the_server_asks_for_one(tls_files, opened, tmp_path):
    with encrypted(tmp_path, tls_files, "--tls-auth-clients", "yes") as (_, address):
        ca_file = str(tmp_path / "ca.pem")
        own = f"?ssl_certfile={tmp_path}/cert.pem&ssl_keyfile={tmp_path}/key.pem"
        assert await opened(f"rediss://{address}{own}", ca_file=ca_file, timeout=5.0).load_secret()
        with pytest.raises(StoreUnavailable):
            await opened(f"rediss://{address}", ca_file=ca_file, timeout=5.0).load_secret()


@pytest.mark.parametrize("scheme", ["rediss", "rediss+cluster"])
async def test_a_certificate_of_an_unknown_authority_is_refused(tls_files, opened, tmp_path, scheme):
    with encrypted(tmp_path, tls_files) as (_, address), pytest.raises(StoreUnavailable, match="certificate"):
        await opened(f"{scheme}://{address}", timeout=5.0).load_secret()
