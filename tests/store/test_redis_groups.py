"""Several servers that are one store: a failover by a real Sentinel, and a Cluster of real nodes."""

import asyncio
import time

import pytest

from proxy.store.contract import Found, StoreUnavailable
from proxy.store.redis import peek
from proxy.store.redis_client import STORE_TIMEOUT_SECONDS
from tests import ROOT
from tests.support.redis_groups import cluster, sentinels
from tests.support.redis_server import RIGHTS, needs_redis

pytestmark = [needs_redis, pytest.mark.timeout(120)]
FAILOVER_SECONDS = 60.0
CLUSTER_RIGHTS = "+command +cluster|slots"
DOCUMENT = ROOT / "docs" / "shared-state.md"


async def find_block(store, *keys):
    block, _ = await store.find_first(keys)
    return block


async def seconds_until(act, within):
    """Until the store answers again."""
    began = time.monotonic()
    while True:
        try:
            await act()
        except StoreUnavailable:
            assert time.monotonic() - began < within
            await asyncio.sleep(0.02)
        else:
            return time.monotonic() - began


# --- Sentinel: what waits for one to notice, which takes seconds, is slow ---


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
    await seconds_until(store.load_secret, FAILOVER_SECONDS)
    # A busy machine may take the new primary for gone for a moment, too.
    await seconds_until(lambda: find_block(store, "t/h1"), FAILOVER_SECONDS)
    assert await find_block(store, "t/h1") == Found("t/h1", b"block")
    assert await store.put_block("t/h2", b"later") == b"later"
    assert await store.load_secret() == secret
    assert group.replica.info("replication")["role"] == "master"
    seen = []

    async def look():
        seen.append(await peek(group.url, ["t/h1"]))

    await seconds_until(look, FAILOVER_SECONDS)
    assert seen == [{"t/h1": b"block"}]


@pytest.mark.slow
async def test_a_primary_that_hangs_is_given_up_for_its_replica(group, open_store):
    store = open_store(group.url)
    await store.put_block("t/h1", b"block")
    group.primary.wait_for_replica()
    group.primary.pause()
    await seconds_until(store.load_secret, FAILOVER_SECONDS)
    await seconds_until(lambda: find_block(store, "t/h1"), FAILOVER_SECONDS)
    assert await find_block(store, "t/h1") == Found("t/h1", b"block")
    group.primary.resume()


@pytest.mark.slow
async def test_a_service_unknown_to_the_sentinels_is_reported(group, open_store, warnings):
    store = open_store(group.url.replace("primary-of-tests", "another"))
    with pytest.raises(StoreUnavailable, match="no Sentinel that answers knows a primary of this name"):
        await store.load_secret()
    assert len(warnings) == 1


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


# --- Cluster ---


@pytest.fixture(scope="module")
def cluster_servers(tmp_path_factory):
    with cluster(tmp_path_factory.mktemp("cluster")) as servers:
        yield servers


@pytest.fixture
def nodes(cluster_servers):
    cluster_servers.flush()
    return cluster_servers


def tenants_of(nodes):
    """One tenant for each node, by its port."""
    return {nodes.node_of(f"{{t.team{number}}}").port: f"team{number}" for number in range(40)}


async def test_all_keys_of_a_tenant_are_on_one_node_and_tenants_are_spread(nodes, open_store):
    store = open_store(nodes.url)
    for number in range(20):
        for link in range(3):
            await store.put_block(f"team{number}/block/{link}", b"block")
            await store.write_fact(f"team{number}/anchor/{link}", b"fact", 60)
    where = [{key.partition("{")[2].partition("}")[0] for key in keys} for keys in nodes.keys("cp/1/*")]
    assert all(where)
    assert len(set().union(*where)) == sum(map(len, where)) == 20


async def test_one_look_up_may_ask_for_several_tenants(nodes, open_store):
    store = open_store(nodes.url)
    for number in range(6):
        await store.put_block(f"team{number}/h", b"block %d" % number)
        await store.write_fact(f"team{number}/f", b"fact %d" % number, 60)
    keys = [f"team{number}/h" for number in range(6)]
    assert await find_block(store, *keys[::-1]) == Found("team5/h", b"block 5")
    assert await store.find_first(["none/h", *keys[2:]], ["team4/f"], ["none/f"], ["team1/f", "team3/f"]) == (
        Found("team2/h", b"block 2"),
        Found("team4/f", b"fact 4"),
        None,
        Found("team1/f", b"fact 1"),
    )


async def test_a_node_that_hangs_is_waited_for_once_and_only_by_its_own_tenants(nodes, open_store):
    store, tenants = open_store(nodes.url), tenants_of(nodes)
    for tenant in tenants.values():
        await store.put_block(f"{tenant}/h", b"block")
    hanging = nodes.nodes[0]
    hanging.pause()
    try:
        with pytest.raises(StoreUnavailable):
            await find_block(store, f"{tenants[hanging.port]}/h")
        began = time.monotonic()
        for _ in range(100):
            with pytest.raises(StoreUnavailable):
                await find_block(store, f"{tenants[hanging.port]}/h")
        for port in tenants.keys() - {hanging.port}:
            assert await find_block(store, f"{tenants[port]}/h")
        assert time.monotonic() - began < 10 * STORE_TIMEOUT_SECONDS
    finally:
        hanging.resume()
    await seconds_until(lambda: find_block(store, f"{tenants[hanging.port]}/h"), FAILOVER_SECONDS)


async def test_a_connection_that_was_dropped_while_idle_is_opened_again_unnoticed(nodes, open_store, warnings):
    store = open_store(nodes.url)
    await store.put_block("t/h1", b"block")
    for node in nodes.nodes:
        node.run("CLIENT", "KILL", "TYPE", "normal")
    await asyncio.sleep(0.05)
    assert await find_block(store, "t/h1") == Found("t/h1", b"block")
    assert warnings == []


async def test_a_slot_that_moved_is_followed(nodes, open_store):
    store, tenants = open_store(nodes.url), tenants_of(nodes)
    source, target = nodes.nodes[:2]
    tenant = tenants[source.port]
    await store.put_block(f"{tenant}/h", b"block")
    slot = source.run("CLUSTER", "KEYSLOT", f"{{t.{tenant}}}")[1:]
    owner = {node.port: node.read_string("CLUSTER", "MYID") for node in nodes.nodes}
    try:
        source.run("DEL", f"cp/1/promise/{{t.{tenant}}}/h")
        for node in (target, source, nodes.nodes[2]):
            assert node.run("CLUSTER", "SETSLOT", slot, "NODE", owner[target.port]) == "+OK"
        assert await store.put_block(f"{tenant}/h", b"elsewhere") == b"elsewhere"
        assert target.keys("cp/1/promise/*")
    finally:
        target.flush()
        for node in (source, target, nodes.nodes[2]):
            node.run("CLUSTER", "SETSLOT", slot, "NODE", owner[source.port])


async def test_a_user_of_a_cluster_needs_two_rights_more(nodes, open_store):
    for node in nodes.nodes:
        node.let_in("proxy", "open-sesame", f"{RIGHTS} {CLUSTER_RIGHTS}")
    store = open_store(nodes.url.replace("//", "//proxy:open-sesame@"))
    for number in range(10):
        assert await store.put_block(f"team{number}/h", b"block") == b"block"
        assert await find_block(store, f"team{number}/h")
    assert f"`{CLUSTER_RIGHTS}`" in DOCUMENT.read_text(encoding="utf-8")


async def test_a_server_without_cluster_mode_is_reported(server, open_store):
    with pytest.raises(StoreUnavailable, match="it is no Cluster: write redis://"):
        await open_store(f"redis+cluster://127.0.0.1:{server.port}").load_secret()


async def test_the_blocks_of_a_cluster_can_be_looked_at(nodes, open_store):
    store = open_store(nodes.url)
    for number in range(4):
        await store.put_block(f"team{number}/h", b"block")
    found = await peek(nodes.url, ["team0/h", "team3/h", "none/h"])
    assert found == {"team0/h": b"block", "team3/h": b"block"}


@pytest.mark.slow
async def test_when_a_node_dies_its_replica_takes_over(tmp_path, open_store):
    with cluster(tmp_path, replica=True) as nodes:
        store, tenants = open_store(nodes.url), tenants_of(nodes)
        dying = nodes.nodes[0]
        await store.put_block(f"{tenants[dying.port]}/h", b"block")
        dying.wait_for_replica()
        dying.kill()
        # Each node finds out by itself that the Cluster is whole again, and refuses commands until then.
        for tenant in tenants.values():
            await seconds_until(lambda tenant=tenant: store.put_block(f"{tenant}/h", b"block"), FAILOVER_SECONDS)
            await seconds_until(lambda tenant=tenant: find_block(store, f"{tenant}/h"), FAILOVER_SECONDS)
        assert await find_block(store, f"{tenants[dying.port]}/h") == Found(f"{tenants[dying.port]}/h", b"block")
