"""Several servers that are one store: a failover by a real Sentinel."""

import pytest

from proxy.store.contract import Found, StoreUnavailable
from proxy.store.redis import peek
from tests.support.redis_groups import sentinels
from tests.support.redis_server import needs_redis
from tests.support.stores import find_block, when_available

pytestmark = [needs_redis, pytest.mark.timeout(120)]


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
    with pytest.raises(StoreUnavailable, match=r"NOPERM|lacks a right"):
        await open_store(url).load_secret()
