"""What is Redis' own: a server that is stopped, stuck, full or moved, and what goes over the line to it."""

import asyncio
import os
import time
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path

import pytest

from proxy import assembly
from proxy.config.settings import Config
from proxy.store import redis
from proxy.store.contract import SECRET_BYTES, Found, StoreLimits, StoreUnavailable
from proxy.store.redis import CHECK_INTERVAL_SECONDS, MAX_CONNECTIONS, STORE_TIMEOUT_SECONDS, peek
from tests.support.proxy_client import PATIENCE_SECONDS, log_of, page, until
from tests.support.redis_server import needs_redis, running
from tests.support.running_proxy import free_port
from tests.support.stores import find_block, when_available

pytestmark = needs_redis


@pytest.fixture
async def store(server, open_store):
    return open_store(server.url)


async def seconds_to_failure(act):
    """How long it took to be told that the store is out, or nothing."""
    began = time.monotonic()
    try:
        await act
    except StoreUnavailable:
        return time.monotonic() - began
    return None


async def test_while_the_server_is_down_no_call_waits_and_afterwards_all_works(server, store):
    await store.put_block("t/h1", b"block")
    server.kill()
    assert sum([await seconds_to_failure(find_block(store, "t/h1")) for _ in range(200)]) < 20 * STORE_TIMEOUT_SECONDS
    server.start()
    assert await when_available(lambda: store.put_block("t/h1", b"again")) == b"again"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_server_that_does_not_run_is_reported_with_what_to_do(open_store, host):
    url = f"redis://{host}:{free_port()}/0"
    store = open_store(url)
    with pytest.raises(StoreUnavailable) as refused:
        await store.load_secret()
    assert str(refused.value).startswith(f"{url} cannot be reached: [Errno ")
    assert str(refused.value).endswith("; check `state.url` and that the server runs")


async def test_a_name_without_an_address_is_reported_with_what_to_do(open_store):
    with pytest.raises(StoreUnavailable) as refused:
        await open_store("redis://nowhere.invalid:6379/0", timeout=PATIENCE_SECONDS).load_secret()
    why = str(refused.value)
    assert why.endswith("; check `state.url` and that the server runs")
    assert "cannot be reached: " in why
    assert "OSError" not in why


@pytest.mark.seconds
async def test_a_proxy_says_that_its_redis_is_back_once_for_each_outage(up, serve, tmp_path):
    """The alert's all-clear: somebody who was woken by `store-failed` looks for it."""
    with running(tmp_path) as redis:
        config = {"state": {"url": redis.url}, "log": {"format": "json"}}
        async with serve(up.url, config=config) as proxy:
            for outages in (1, 2):
                failures = len(log_of(proxy, "store-failed"))
                redis.kill()
                await until(lambda failures=failures: len(log_of(proxy, "store-failed")) > failures)
                assert len(log_of(proxy, "store-back")) == outages - 1
                redis.start()
                (*_, line) = await until(lambda outages=outages: log_of(proxy, "store-back")[outages - 1 :])
                assert line["what"] == f"{redis.url} answers again"
                assert line["level"] == "info"
            assert (await page(proxy, "/health/ready")).status == 200
            assert len(log_of(proxy, "store-back")) == 2


@pytest.mark.parametrize("is_connected", [True, False], ids=["later", "from the start"])
async def test_a_stuck_server_is_waited_for_once_by_all_and_by_no_later_call(server, store, is_connected):
    if is_connected:
        await store.load_secret()
    server.pause()
    waited = await asyncio.gather(*(seconds_to_failure(store.load_secret()) for _ in range(50)))
    assert STORE_TIMEOUT_SECONDS <= max(waited) < PATIENCE_SECONDS
    assert sum([await seconds_to_failure(store.load_secret()) for _ in range(200)]) < 20 * STORE_TIMEOUT_SECONDS
    server.resume()
    assert len(await when_available(store.load_secret)) == SECRET_BYTES


async def test_a_reply_that_arrived_while_the_loop_was_blocked_is_not_too_late(server, store):
    await store.put_block("t/h1", b"block")
    for _ in range(5):
        asked = asyncio.ensure_future(find_block(store, "t/h1"))
        await asyncio.sleep(0)
        time.sleep(STORE_TIMEOUT_SECONDS * 1.2)  # noqa: ASYNC251 (as a large body that is parsed)
        assert await asked == Found("t/h1", b"block")


async def test_no_answer_is_ever_taken_for_that_to_another_question(server, store):
    for number in range(50):
        await store.write_fact(f"t/{number}", b"%d" % number, 600)

    async def asks(number):
        try:
            return await store.read_fact(f"t/{number}") == b"%d" % number
        except StoreUnavailable:
            return True

    async def pause_briefly():
        await asyncio.sleep(0.1)
        server.pause()
        await asyncio.sleep(STORE_TIMEOUT_SECONDS * 1.2)
        server.resume()
        await asyncio.sleep(CHECK_INTERVAL_SECONDS * 1.2)

    stuttering = asyncio.create_task(pause_briefly())
    right = []
    while len(right) <= 500 or not stuttering.done():
        right += await asyncio.gather(*(asks(number) for number in range(50)))
        await asyncio.sleep(0.01)
    assert all(right)


async def test_a_call_cancelled_while_waiting_does_not_shift_the_answers_of_others(store):
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
    await when_available(store.load_secret)


async def test_a_connection_dropped_while_idle_fails_no_call(server, store):
    await store.put_block("t/h1", b"block")
    for _ in range(3):
        server.run("CLIENT", "KILL", "TYPE", "normal")
        await asyncio.sleep(0.02)
        assert await find_block(store, "t/h1") == Found("t/h1", b"block")


async def test_a_full_server_still_returns_stored_values(server, store):
    await store.put_block("t/h1", b"block")
    server.run("CONFIG", "SET", "maxmemory", "1")
    with pytest.raises(StoreUnavailable, match=r"OOM.*maxmemory"):
        await store.put_block("t/h2", b"block")
    assert await find_block(store, "t/h1") == Found("t/h1", b"block")


async def test_a_primary_that_became_a_replica_is_left_for_the_one_that_has_its_name(server, store):
    await store.put_block("t/h1", b"block")
    server.run("REPLICAOF", "127.0.0.1", str(free_port()))
    with pytest.raises(StoreUnavailable, match="READONLY"):
        await store.put_block("t/h2", b"block")
    server.run("REPLICAOF", "NO", "ONE")
    assert await when_available(lambda: store.put_block("t/h2", b"block")) == b"block"


async def test_a_redis_cluster_is_reported_as_one(tmp_path, open_store):
    with running(tmp_path, "--cluster-enabled", "yes", "--cluster-port", str(free_port())) as part:
        part.run("CLUSTER", "ADDSLOTSRANGE", "0", "1")
        store = open_store(part.url)
        for act in (
            store.load_secret(),
            store.find_first(["t/h1"]),
            store.put_block("t/h1", b"block"),
            store.read_document("keys"),
        ):
            with pytest.raises(StoreUnavailable, match=r"CLUSTERDOWN|MOVED|cluster"):
                await act


async def test_a_server_with_too_many_clients_is_reported(server, open_store):
    server.run("CONFIG", "SET", "maxclients", "1")
    with server.open_connection(), pytest.raises(StoreUnavailable, match="max number of clients"):
        await open_store(server.url).load_secret()


async def test_an_answer_that_breaks_off_is_no_answer(open_store):
    async def reply_half(reader, writer):
        await reader.readuntil(b"\r\n")
        writer.write(b"$32\r\nhalf of a ")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(reply_half, "127.0.0.1", 0) as server:
        store = open_store(f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        with pytest.raises(StoreUnavailable, match="closed the connection"):
            await store.load_secret()


def timers(server):
    """Which alarm the system has set for each line to the server, and in how many seconds."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    set_ = [line[5].split(":") for line in lines if line[2].endswith(f":{server.port:04X}") and line[3] == "01"]
    return [(kind, int(when, 16) / os.sysconf("SC_CLK_TCK")) for kind, when in set_]


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="only Linux tells its timers there")
async def test_an_idle_connection_is_checked_before_a_call_has_to_wait(server, store):
    await store.load_secret()
    ((kind, seconds),) = timers(server)
    assert kind == "02"  # keep-alive
    assert 0 < seconds <= 30


async def test_a_server_that_is_no_redis_is_reported(open_store):
    async def reply_http(reader, writer):
        await reader.read(10)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(reply_http, "127.0.0.1", 0) as other:
        port = other.sockets[0].getsockname()[1]
        with pytest.raises(StoreUnavailable, match=f"127.0.0.1:{port}/0 speaks another protocol"):
            await open_store(f"redis://127.0.0.1:{port}").load_secret()


@asynccontextmanager
async def slow_line(server):
    """The same server behind a line that brings its answers in small pieces."""
    ended = []

    async def relay_connection(reader, writer):
        ended.append(asyncio.current_task())
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", server.port)
        await asyncio.gather(copy_in_pieces(reader, up_writer, 1 << 16), copy_in_pieces(up_reader, writer, 7))

    async def copy_in_pieces(reader, writer, size):
        with suppress(ConnectionError), closing(writer):
            while piece := await reader.read(size):
                writer.write(piece)
                await writer.drain()

    async with await asyncio.start_server(relay_connection, "127.0.0.1", 0) as relay:
        yield f"redis://127.0.0.1:{relay.sockets[0].getsockname()[1]}"
        await asyncio.gather(*ended)


async def test_answers_that_come_in_pieces_are_read_whole(server, open_store):
    async with slow_line(server) as url:
        store, value = open_store(url, timeout=10.0), bytes(range(256)) * 8 + b"\r\n$-1\r\n"
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


async def test_any_number_of_requests_share_a_few_connections(server, open_store):
    store = open_store(server.url, timeout=10.0)
    before = int(server.info("stats")["total_connections_received"])
    await asyncio.gather(*(store.put_block(f"t/{number}", b"block") for number in range(200)))
    connections = int(server.info("stats")["total_connections_received"]) - before - 1  # one asks about them
    assert 1 <= connections <= MAX_CONNECTIONS


async def test_expendable_keys_expire_by_themselves_and_the_others_do_not(server, open_store):
    store = open_store(server.url, limits=StoreLimits(block_seconds=1_000))
    await store.put_block("t/h1", b"block")
    await store.write_fact("t/a", b"fact", 60)
    await store.replace_document("keys", None, b"document")
    await store.load_secret()
    ages = {name: int(server.run("TTL", f"cp/1/{name}")[1:]) for name in ("promise/t/h1", "fact/t/a")}
    assert 990 < ages["promise/t/h1"] <= 1_000
    assert 50 < ages["fact/t/a"] <= 60
    assert {server.run("TTL", f"cp/1/{name}") for name in ("document/keys", "secret")} == {":-1"}


async def test_a_use_puts_off_the_expiry(server, open_store):
    store = open_store(server.url, limits=StoreLimits(block_seconds=1_000))
    await store.put_block("t/h1", b"block")
    server.run("EXPIRE", "cp/1/promise/t/h1", "100")
    assert await find_block(store, "t/h1")
    assert int(server.run("TTL", "cp/1/promise/t/h1")[1:]) == 100  # it is as good as new
    moved = open_store(server.url, limits=StoreLimits(block_seconds=1_000), clock=lambda: time.time() + 500)
    assert await find_block(moved, "t/h1")
    assert int(server.run("TTL", "cp/1/promise/t/h1")[1:]) > 990


async def test_an_expired_value_is_not_restored_by_a_worker_that_still_holds_it(server):
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
    server.run("CONFIG", "SET", "maxmemory", str(room))
    server.run("CONFIG", "SET", "maxmemory-policy", "volatile-lru")
    for number in range(100):
        await store.put_block(f"t/{number}", bytes(100_000))
    held = [number for number in range(100) if await find_block(store, f"t/{number}")]
    assert 10 <= len(held) < 50
    assert (await store.load_secret(), await store.read_document("keys")) == (secret, b"document")


@pytest.mark.parametrize("lua", ["5.1", "5.4"])
async def test_a_look_up_of_a_command_changes_no_value(server, store, lua, monkeypatch):
    if lua == "5.4":  # it has no number of this name
        strict = "local tonumber = function(text) if text ~= 'inf' then return tonumber(text) end end"
        for script in ("FIND", "PUT"):
            monkeypatch.setattr(redis, script, strict + getattr(redis, script))
    assert await peek(server.url, ["t/h1"]) == {}
    await store.put_block("t/h1", b"block")
    server.run("EXPIRE", "cp/1/promise/t/h1", "7")
    assert await peek(server.url, ["t/h2", "t/h1"]) == {"t/h1": b"block"}
    assert server.run("TTL", "cp/1/promise/t/h1") in (":7", ":6")
