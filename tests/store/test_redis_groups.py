"""Several servers that are one store: a failover by a real Sentinel."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from proxy.store.contract import Found, StoreUnavailable
from proxy.store.redis import peek
from tests.support.redis_server import PATIENCE, RedisServer, needs_redis, running
from tests.support.running_proxy import free_port
from tests.support.stores import find_block, when_available

pytestmark = [needs_redis, pytest.mark.timeout(120)]
SERVICE = "primary-of-tests"


@dataclass(frozen=True, slots=True)
class SentinelGroup:
    primary: RedisServer
    replica: RedisServer
    sentinel: RedisServer

    @property
    def url(self) -> str:
        """The first of the two Sentinels does not exist."""
        return f"redis+sentinel://127.0.0.1:{free_port()},127.0.0.1:{self.sentinel.port}/{SERVICE}/0"


@contextmanager
def sentinels(folder: Path, *options: str) -> Iterator[SentinelGroup]:
    """A primary with a replica, and a Sentinel."""
    with ExitStack() as stack:
        primary, replica = (
            stack.enter_context(running(_make_folder(folder / name), *options)) for name in ("one", "two")
        )
        replica.run("REPLICAOF", "127.0.0.1", str(primary.port))
        wait_until(lambda: replica.info("replication").get("master_link_status") == "up")
        config = _make_folder(folder / "sentinel") / "sentinel.conf"
        config.write_text(
            f"sentinel monitor {SERVICE} 127.0.0.1 {primary.port} 1\n"
            f"sentinel down-after-milliseconds {SERVICE} 400\n"
            f"sentinel failover-timeout {SERVICE} 2000\n"
        )
        sentinel = RedisServer(config.parent, config=config)
        sentinel.start()
        stack.callback(sentinel.stop)
        wait_until(lambda: sentinel.info("sentinel").get("master0", "").find("slaves=1") > 0)
        yield SentinelGroup(primary, replica, sentinel)


def wait_until(is_so) -> None:
    within = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < within, is_so
        time.sleep(0.02)


def _make_folder(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def group(tmp_path):
    with sentinels(tmp_path) as servers:
        yield servers


@pytest.mark.slow
async def test_after_a_failover_the_new_primary_is_used_with_all_stored_values(group, open_store):
    store = open_store(group.url)
    secret = await store.load_secret()
    await store.put_block("t/h1", b"block")
    group.primary.wait_for_replica()
    group.primary.kill()
    await when_available(store.load_secret)
    # A busy machine may take the new primary for gone for a moment, too.
    assert await when_available(lambda: find_block(store, "t/h1")) == Found("t/h1", b"block")
    assert await store.put_block("t/h2", b"later") == b"later"
    assert await store.load_secret() == secret
    assert group.replica.info("replication")["role"] == "master"
    assert await when_available(lambda: peek(group.url, ["t/h1"])) == {"t/h1": b"block"}


@pytest.mark.slow
async def test_a_primary_that_hangs_is_given_up_for_its_replica(group, open_store):
    store = open_store(group.url)
    await store.put_block("t/h1", b"block")
    group.primary.wait_for_replica()
    group.primary.pause()
    await when_available(store.load_secret)
    assert await when_available(lambda: find_block(store, "t/h1")) == Found("t/h1", b"block")
    group.primary.resume()


@pytest.mark.slow
async def test_a_service_unknown_to_the_sentinels_is_reported(group, open_store):
    store = open_store(group.url.replace("primary-of-tests", "another"))
    with pytest.raises(StoreUnavailable, match="no Sentinel that answers knows a primary of this name"):
        await store.load_secret()


@pytest.mark.slow
async def test_sentinels_have_users_of_their_own(group, open_store):
    group.primary.let_in("proxy", "open-sesame")
    group.sentinel.let_in("guard", "let-me-see", "+sentinel|masters", "resetkeys")
    assert group.sentinel.run("ACL", "SETUSER", "default", "-sentinel|masters") == "+OK"
    url = group.url.replace("//", "//proxy:open-sesame@")
    store = open_store(f"{url}?sentinel_username=guard&sentinel_password=let-me-see")
    assert await store.put_block("t/h1", b"block") == b"block"
    with pytest.raises(StoreUnavailable, match=r"NOPERM|no permissions"):
        await open_store(url).load_secret()
