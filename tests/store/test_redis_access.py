"""A Redis behind a password, rights, certificates: who is let in, and what is said of that, and what never is."""

import time
from pathlib import Path

import pytest
import trustme
from redis_server import needs_redis, running
from serving import free_port

from proxy import assembly
from proxy.config import Config
from proxy.store.promises import Found, StoreUnavailable
from proxy.store.redis import peek
from proxy.store.resp import Address

pytestmark = needs_redis
DOCUMENT = Path(__file__).parents[2] / "docs" / "shared-state.md"
PASSWORD = "s3cr3t/with:odd@signs"


async def longest(store, *keys):
    promise, _ = await store.longest(keys)
    return promise


async def test_databases_are_apart(server, opened):
    one, two = opened(server.database(1)), opened(server.database(2))
    await one.put("t/h1", b"block")
    assert await longest(two, "t/h1") is None
    assert await one.secret() != await two.secret()


RIGHTS = "+eval +evalsha +get +set +del +exists +setrange +pexpire +time +mget +ping +select"


def let_in(server, user, password, rights=RIGHTS):
    assert server.says("ACL", "SETUSER", user, "on", f">{password}", "~cp/*", *rights.split()) == "+OK"


def url_of(server, user, password):
    odd = password.replace("/", "%2F").replace("@", "%40").replace(":", "%3A")
    return f"redis://{user}:{odd}@127.0.0.1:{server.port}/1"


async def test_a_user_with_the_few_rights_that_are_listed_can_do_everything(server, opened):
    let_in(server, "proxy", PASSWORD)
    store = opened(url_of(server, "proxy", PASSWORD))
    await store.put("t/h1", b"block")
    await store.put("t/h1", b"deeper", over=b"block")
    assert await store.claim("t/errand", b"mine", 60)
    await store.note("t/errand", b"done", 60, over=b"mine")
    await store.note("t/gone", b"", 0)
    moved = opened(url_of(server, "proxy", PASSWORD), clock=lambda: time.time() + 100_000)
    assert await moved.longest(["t/h1"], ["t/errand"]) == (Found("t/h1", b"deeper"), None)
    assert await store.swap("keys", None, await store.secret())
    assert await store.document("keys") == await store.secret()
    assert await peek(url_of(server, "proxy", PASSWORD), ["t/h1"]) == (await store.secret(), {"t/h1": b"deeper"})
    assert RIGHTS in DOCUMENT.read_text(encoding="utf-8")


async def test_a_password_alone_is_the_default_users(server, opened):
    server.says("CONFIG", "SET", "requirepass", "open-sesame")
    assert await opened(f"redis://:open-sesame@127.0.0.1:{server.port}").put("t/h1", b"block") == b"block"


@pytest.mark.parametrize("known_as", [("proxy", "wr0ng"), ("nobody", PASSWORD)])
async def test_who_is_not_let_in_is_told_why_and_no_credential_is_ever_shown(server, opened, warnings, known_as):
    let_in(server, "proxy", PASSWORD)
    store = opened(url_of(server, *known_as))
    with pytest.raises(StoreUnavailable, match="WRONGPASS") as refused:
        await store.secret()
    said = [repr(store), str(store), repr(refused.value), repr(refused.value.__cause__), *warnings]
    assert not any(secret in text for text in said for secret in (*known_as, PASSWORD[:6]))


async def test_where_a_password_is_wanted_and_none_is_given_this_is_said(server, opened):
    server.says("CONFIG", "SET", "requirepass", "open-sesame")
    with pytest.raises(StoreUnavailable, match=r"NOAUTH.*password"):
        await opened(server.url).secret()


async def test_a_password_that_is_not_wanted_is_said_and_not_shown(server, opened, warnings):
    with pytest.raises(StoreUnavailable, match="it wants none: take it out of the URL"):
        await opened(f"redis://:open-sesame@127.0.0.1:{server.port}").secret()
    assert "sesame" not in "".join(warnings)


async def test_a_database_that_is_not_there_is_said(server, opened):
    with pytest.raises(StoreUnavailable, match=r"DB index is out of range.*number of a database"):
        await opened(server.database(512)).secret()


async def test_an_error_that_quotes_the_password_is_told_without_it(tmp_path, opened, warnings):
    with running(tmp_path, "--rename-command", "AUTH", "") as server:
        assert "open-sesame" in server.says("AUTH", "open-sesame")
        with pytest.raises(StoreUnavailable, match=r"ERR unknown command.*no Sentinel") as refused:
            await opened(f"redis://:open-sesame@127.0.0.1:{server.port}").secret()
    assert "sesame" not in "".join([str(refused.value), *warnings])


async def test_a_right_that_is_lacking_is_told_and_the_rest_goes_on(server, opened):
    let_in(server, "proxy", PASSWORD, RIGHTS.replace("+mget", "-mget"))
    with pytest.raises(StoreUnavailable, match=r"NOPERM.*shared-state"):
        await peek(url_of(server, "proxy", PASSWORD), ["t/h1"])
    assert await opened(url_of(server, "proxy", PASSWORD)).put("t/h1", b"block") == b"block"


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://redis.internal", "redis://redis.internal:6379/0"),
        ("rediss://me:zesam@redis.internal:7000/3", "rediss://redis.internal:7000/3"),
        ("redis://:ze%40sam@[::1]/1", "redis://[::1]:6379/1"),
    ],
)
def test_an_address_is_shown_without_its_credentials(url, address):
    assert str(Address.of(url)) == address
    assert "ze" not in repr(Address.of(url))


@pytest.mark.parametrize(
    "url",
    [
        "http://h",
        "redis://:se/cret@h",
        "redis://:1#secret@h",
        "redis://:1?secret@h",
        "redis://h:secret/0",
        "redis://h/secret",
        "redis://h/-1",
        "redis://h?db=1",
        "secret",
    ],
)
def test_what_is_no_address_is_refused_without_being_quoted(url):
    with pytest.raises(ValueError, match="redis://host:6379/0") as refused:
        Address.of(url)
    assert "secret" not in str(refused.value)
    assert "se" not in str(refused.value).replace("rediss", "")


@pytest.fixture
def authority():
    return trustme.CA()


@pytest.fixture
def encrypted(authority, tmp_path):
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    issued = authority.issue_cert("localhost")
    issued.private_key_pem.write_to_path(tmp_path / "key.pem")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    files = {"cert": "cert.pem", "key": "key.pem", "ca-cert": "ca.pem"}
    options = [part for name, file in files.items() for part in (f"--tls-{name}-file", str(tmp_path / file))]
    port = free_port()
    with running(tmp_path, "--tls-port", str(port), "--tls-auth-clients", "no", *options):
        yield f"rediss://localhost:{port}"


async def test_a_line_can_be_encrypted(encrypted, opened, tmp_path):
    config = Config.model_validate({"state": {"url": encrypted, "ca_file": str(tmp_path / "ca.pem")}})
    store = opened(assembly.state_url(config), tls=assembly.state_tls(config), patience=5.0)
    assert await store.put("t/h1", bytes(300_000)) == bytes(300_000)
    assert (await longest(store, "t/h1")).value == bytes(300_000)


async def test_whose_certificate_nobody_vouches_for_is_not_spoken_to(encrypted, opened):
    with pytest.raises(StoreUnavailable, match="certificate"):
        await opened(encrypted, patience=5.0).secret()
