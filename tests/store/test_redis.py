"""What is Redis' own: a server that is stopped, stuck, full or moved, and what goes over the line to it."""

import asyncio
import os
import time
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path

import pytest

from proxy import assembly
from proxy.config import Config
from proxy.store.contract import SECRET_BYTES, Found, StoreLimits, StoreUnavailable
from proxy.store.redis import peek
from proxy.store.redis_client import CHECK_INTERVAL_SECONDS, MAX_CONNECTIONS, STORE_TIMEOUT_SECONDS
from tests.support.proxy_client import PATIENCE_SECONDS
from tests.support.redis_server import needs_redis, running
from tests.support.running_proxy import free_port

pytestmark = needs_redis


@pytest.fixture
async def store(server, opened):
    return opened(server.url)


async def find_block(store, *keys):
    block, _ = await store.find_first(keys)
    return block


async def timed(act):
    """How long it took to be told that the store is out, or nothing."""
    began = time.monotonic()
    try:
        await act
    except StoreUnavailable:
        return time.monotonic() - began
    return None


async def back(store, within=PATIENCE_SECONDS):
    """Until it answers again: so long it took."""
    began = time.monotonic()
    while await timed(store.read_fact("t/any")) is not None:
        assert time.monotonic() - began < within
        await asyncio.sleep(0.02)
    return time.monotonic() - began


# --- out, and back ---


async def test_while_nobody_listens_no_call_waits_and_once_somebody_does_all_is_well(server, store, warnings):
    await store.put_block("t/h1", b"block")
    server.kill()
    assert sum([await timed(find_block(store, "t/h1")) for _ in range(200)]) < 20 * STORE_TIMEOUT_SECONDS
    server.start()
    await back(store)
    assert await store.put_block("t/h1", b"again") == b"again"
    assert 1 <= len(warnings) <= 3
    assert all(str(server.port) in warning for warning in warnings)


async def test_a_stuck_server_is_waited_for_once_and_by_nobody_after_that(server, store):
    await store.put_block("t/h1", b"block")
    server.pause()
    first = await timed(find_block(store, "t/h1"))
    assert STORE_TIMEOUT_SECONDS <= first < PATIENCE_SECONDS
    assert sum([await timed(find_block(store, "t/h1")) for _ in range(200)]) < 20 * STORE_TIMEOUT_SECONDS
    server.resume()
    await back(store)
    assert await find_block(store, "t/h1") == Found("t/h1", b"block")


async def test_all_who_wait_for_a_stuck_server_are_let_go_with_the_first(server, store):
    await store.put_block("t/h1", b"block")
    server.pause()
    waited = await asyncio.gather(*(timed(find_block(store, "t/h1")) for _ in range(50)))
    assert max(waited) < PATIENCE_SECONDS
    server.resume()


async def test_a_reply_that_came_while_the_loop_stood_still_is_not_too_late(server, store, warnings):
    await store.put_block("t/h1", b"block")
    for _ in range(5):
        asked = asyncio.ensure_future(find_block(store, "t/h1"))
        await asyncio.sleep(0)
        time.sleep(STORE_TIMEOUT_SECONDS * 1.2)  # noqa: ASYNC251 (as a large body that is parsed)
        assert await asked == Found("t/h1", b"block")
    assert warnings == []


async def test_a_server_that_is_stuck_from_the_start_is_waited_for_once(server, opened):
    server.pause()
    store = opened(server.url)
    assert await timed(store.load_secret()) < PATIENCE_SECONDS
    assert sum([await timed(store.load_secret()) for _ in range(200)]) < 20 * STORE_TIMEOUT_SECONDS
    server.resume()
    await back(store)
    assert len(await store.load_secret()) == SECRET_BYTES


async def test_no_answer_is_ever_taken_for_that_to_another_question(server, store):
    for number in range(50):
        await store.write_fact(f"t/{number}", b"%d" % number, 600)

    async def asks(number):
        try:
            return await store.read_fact(f"t/{number}") == b"%d" % number
        except StoreUnavailable:
            return True

    async def stutters():
        await asyncio.sleep(0.1)
        server.pause()
        await asyncio.sleep(STORE_TIMEOUT_SECONDS * 1.2)
        server.resume()
        await asyncio.sleep(CHECK_INTERVAL_SECONDS * 1.2)

    stuttering = asyncio.create_task(stutters())
    right = []
    while not stuttering.done():
        right += await asyncio.gather(*(asks(number) for number in range(50)))
        await asyncio.sleep(0.01)
    assert len(right) > 500
    assert all(right)


async def test_who_leaves_while_waiting_shifts_nobody_elses_answer(store):
    await store.write_fact("t/mine", b"mine", 600)
    for _ in range(20):
        leaving = asyncio.create_task(store.read_fact("t/theirs"))
        asked = asyncio.create_task(store.read_fact("t/mine"))
        await asyncio.sleep(0)
        leaving.cancel()
        assert await asked == b"mine"


async def test_a_restart_under_load_is_an_answer_or_a_store_that_is_out_and_nothing_else(server, store):
    async def works():
        for number in range(300):
            try:
                await store.put_block(f"t/{number}", b"block")
                await store.find_first([f"t/{number}"])
            except StoreUnavailable:
                await asyncio.sleep(0.01)

    working = [asyncio.create_task(works()) for _ in range(8)]
    for _ in range(2):
        await asyncio.sleep(0.05)
        server.kill()
        await asyncio.sleep(0.05)
        server.start()
    await asyncio.gather(*working)
    await back(store)


async def test_what_was_saved_stands_again_after_a_restart(server, store):
    await store.put_block("t/h1", b"block")
    await store.replace_document("keys", None, b"document")
    secret = await store.load_secret()
    server.says("CONFIG", "SET", "save", "60 1")
    server.stop()
    server.start()
    await back(store)
    assert await find_block(store, "t/h1") == Found("t/h1", b"block")
    assert (await store.load_secret(), await store.read_document("keys")) == (secret, b"document")


async def test_a_connection_that_was_dropped_while_idle_is_nobodys_loss(server, store, warnings):
    await store.put_block("t/h1", b"block")
    for _ in range(3):
        server.says("CLIENT", "KILL", "TYPE", "normal")
        await asyncio.sleep(0.02)
        assert await find_block(store, "t/h1") == Found("t/h1", b"block")
    assert warnings == []


async def test_a_server_that_is_full_still_tells_what_it_has(server, store, warnings):
    await store.put_block("t/h1", b"block")
    server.says("CONFIG", "SET", "maxmemory", "1")
    with pytest.raises(StoreUnavailable, match=r"OOM.*maxmemory"):
        await store.put_block("t/h2", b"block")
    assert await find_block(store, "t/h1") == Found("t/h1", b"block")
    assert len(warnings) == 1


async def test_a_primary_that_became_a_replica_is_left_for_the_one_that_has_its_name(server, store):
    await store.put_block("t/h1", b"block")
    server.says("REPLICAOF", "127.0.0.1", str(free_port()))
    with pytest.raises(StoreUnavailable, match=r"READONLY.*primary"):
        await store.put_block("t/h2", b"block")
    server.says("REPLICAOF", "NO", "ONE")
    await back(store)
    assert await store.put_block("t/h2", b"block") == b"block"


async def test_a_cluster_is_told_that_it_is_one(tmp_path, opened):
    with running(tmp_path, "--cluster-enabled", "yes", "--cluster-port", str(free_port())) as part:
        part.says("CLUSTER", "ADDSLOTSRANGE", "0", "1")
        store = opened(part.url)
        for act in (
            store.load_secret(),
            store.find_first(["t/h1"]),
            store.put_block("t/h1", b"block"),
            store.read_document("keys"),
        ):
            with pytest.raises(StoreUnavailable, match=r"redis\+cluster://"):
                await act


async def test_a_server_with_too_many_clients_is_told_so(server, opened):
    server.says("CONFIG", "SET", "maxclients", "1")
    with server.connected(), pytest.raises(StoreUnavailable, match="raise its maxclients"):
        await opened(server.url).load_secret()


async def test_an_answer_that_breaks_off_is_no_answer(opened, warnings):
    async def stammers(reader, writer):
        await reader.readuntil(b"\r\n")
        writer.write(b"$32\r\nhalf of a ")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(stammers, "127.0.0.1", 0) as server:
        store = opened(f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        with pytest.raises(StoreUnavailable, match="closed the connection"):
            await store.load_secret()
    assert len(warnings) == 1


def timers(server):
    """Which alarm the system has set for each line to the server, and in how many seconds."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    set_ = [line[5].split(":") for line in lines if line[2].endswith(f":{server.port:04X}") and line[3] == "01"]
    return [(kind, int(when, 16) / os.sysconf("SC_CLK_TCK")) for kind, when in set_]


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="only Linux tells its timers there")
async def test_a_line_that_is_silent_is_tried_before_anybody_has_to_wait_in_vain(server, store):
    await store.load_secret()
    ((kind, seconds),) = timers(server)
    assert kind == "02"  # keep-alive
    assert 0 < seconds <= 30


async def test_something_that_is_no_redis_is_told_so(opened):
    async def talks(reader, writer):
        await reader.read(10)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(talks, "127.0.0.1", 0) as other:
        port = other.sockets[0].getsockname()[1]
        with pytest.raises(StoreUnavailable, match=f"127.0.0.1:{port}/0 speaks another protocol"):
            await opened(f"redis://127.0.0.1:{port}").load_secret()


# --- what goes over the line ---


@asynccontextmanager
async def dribbling(server):
    """The same server behind a line that brings its answers in small pieces."""
    ended = []

    async def relays(reader, writer):
        ended.append(asyncio.current_task())
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", server.port)
        await asyncio.gather(pours(reader, up_writer, 1 << 16), pours(up_reader, writer, 7))

    async def pours(reader, writer, size):
        with suppress(ConnectionError), closing(writer):
            while piece := await reader.read(size):
                writer.write(piece)
                await writer.drain()

    async with await asyncio.start_server(relays, "127.0.0.1", 0) as relay:
        yield f"redis://127.0.0.1:{relay.sockets[0].getsockname()[1]}"
        await asyncio.gather(*ended)


async def test_answers_that_come_in_pieces_are_read_whole(server, opened):
    async with dribbling(server) as url:
        store, value = opened(url, timeout=10.0), bytes(range(256)) * 8 + b"\r\n$-1\r\n"
        await store.put_block("t/h1", value)
        await store.write_fact("t/a", b"", 60)
        found = await store.find_first(["t/h2", "t/h1"], ["t/none"], ["t/a"])
        assert found == (Found("t/h1", value), None, Found("t/a", b""))
        await store.close()


def traffic(server):
    """Bytes it sent, and scripts it was asked for."""
    asked = server.info("commandstats")["cmdstat_evalsha"]
    return int(server.info("stats")["total_net_output_bytes"]), int(asked.split("calls=")[1].split(",")[0])


async def test_a_look_up_is_one_round_trip_and_brings_the_first_of_each_list_only(server, store):
    keys = [f"t/h{number}" for number in range(2_000, 0, -1)]
    for key in keys[300::100]:
        await store.put_block(key, bytes(100_000))
        await store.write_fact(key, bytes(1_000), 600)
    await store.find_first(keys)
    before = traffic(server)
    block, *facts = await store.find_first(keys, keys, ["t/none"], [])
    after = traffic(server)
    assert block.key == facts[0].key == keys[300]
    assert facts[1:] == [None, None]
    assert after[0] - before[0] < 110_000
    assert after[1] - before[1] == 1


@pytest.mark.parametrize(("option", "most"), [("", MAX_CONNECTIONS), ("?max_connections=3", 3)])
async def test_any_number_of_requests_share_a_few_connections(server, opened, option, most):
    store = opened(server.url + option, timeout=10.0)
    before = int(server.info("stats")["total_connections_received"])
    await asyncio.gather(*(store.put_block(f"t/{number}", b"block") for number in range(200)))
    told = int(server.info("stats")["total_connections_received"]) - before - 1  # one asks about them
    assert 1 <= told <= most


# --- how long, and how much ---


async def test_what_may_go_expires_by_itself_and_what_must_stay_does_not(server, opened):
    store = opened(server.url, limits=StoreLimits(block_seconds=1_000))
    await store.put_block("t/h1", b"block")
    await store.write_fact("t/a", b"fact", 60)
    await store.replace_document("keys", None, b"document")
    await store.load_secret()
    ages = {name: int(server.says("TTL", f"cp/1/{name}")[1:]) for name in ("promise/t/h1", "fact/t/a")}
    assert 990 < ages["promise/t/h1"] <= 1_000
    assert 50 < ages["fact/t/a"] <= 60
    assert {server.says("TTL", f"cp/1/{name}") for name in ("document/keys", "secret")} == {":-1"}


async def test_a_use_puts_off_the_expiry(server, opened):
    store = opened(server.url, limits=StoreLimits(block_seconds=1_000))
    await store.put_block("t/h1", b"block")
    server.says("EXPIRE", "cp/1/promise/t/h1", "100")
    assert await find_block(store, "t/h1")
    assert int(server.says("TTL", "cp/1/promise/t/h1")[1:]) == 100  # it is as good as new
    moved = opened(server.url, limits=StoreLimits(block_seconds=1_000), clock=lambda: time.time() + 500)
    assert await find_block(moved, "t/h1")
    assert int(server.says("TTL", "cp/1/promise/t/h1")[1:]) > 990


async def test_what_grew_old_there_is_not_given_back_by_a_worker_that_still_holds_it(server):
    state = {"url": server.url, "days": 0.2 / (24 * 3600)}
    store = assembly.open_store(Config.model_validate({"state": state}), print)
    await store.put_block("t/h1", b"block")
    assert await find_block(store, "t/h1") == Found("t/h1", b"block")
    await asyncio.sleep(0.25)
    assert await find_block(store, "t/h1") is None
    await store.close()


async def test_without_a_clock_the_servers_own_counts(server, store, monkeypatch):
    monkeypatch.setattr(time, "time", lambda: 5.0)
    assert await store.claim_fact("t/errand", b"one", 0.1)
    assert not await store.claim_fact("t/errand", b"two", 0.1)
    await asyncio.sleep(0.12)
    assert await store.claim_fact("t/errand", b"two", 0.1)


async def test_a_server_that_evicts_what_may_expire_keeps_secret_and_documents(server, store):
    secret = await store.load_secret()
    await store.replace_document("keys", None, b"document")
    room = int(server.info("memory")["used_memory"]) + 3_000_000
    server.says("CONFIG", "SET", "maxmemory", str(room))
    server.says("CONFIG", "SET", "maxmemory-policy", "volatile-lru")
    for number in range(100):
        await store.put_block(f"t/{number}", bytes(100_000))
    held = [number for number in range(100) if await find_block(store, f"t/{number}")]
    assert 10 <= len(held) < 50
    assert (await store.load_secret(), await store.read_document("keys")) == (secret, b"document")


async def test_whoever_only_looks_touches_nothing(server, store):
    assert await peek(server.url, ["t/h1"]) == {}
    await store.put_block("t/h1", b"block")
    server.says("EXPIRE", "cp/1/promise/t/h1", "7")
    assert await peek(server.url, ["t/h2", "t/h1"]) == {"t/h1": b"block"}
    assert server.says("TTL", "cp/1/promise/t/h1") in (":7", ":6")
