"""Values that no script has written, and replies that no Redis sends: nothing is found, or the store is out."""

import asyncio
import os
import struct
import time
from contextlib import asynccontextmanager, suppress

import pytest

from proxy.store.contract import Found, StoreUnavailable
from tests.support.redis_server import needs_redis

pytestmark = needs_redis
GARBAGE = {
    "plausible-looking": b"garbage that is no deadline",
    "negative": b"\xff" * 40,
    "short": b"xyz",
    "empty": b"",
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
async def test_a_value_without_a_deadline_is_nothing_and_is_overwritten(server, open_store, garbage):
    store = open_store(server.url)
    await store.put_block("t/h1", b"block")
    for key in ("promise/t/h1", "promise/t/h2", "fact/t/a"):
        server.set(f"cp/1/{key}", garbage)
    assert await store.find_first(["t/h2", "t/h1"], ["t/a"]) == (None, None)
    assert await store.put_block("t/h1", b"again") == b"again"
    assert await store.claim_fact("t/a", b"mine", 60)
    assert await store.find_first(["t/h2", "t/h1"], ["t/a"]) == (Found("t/h1", b"again"), Found("t/a", b"mine"))


async def test_a_value_of_another_type_is_nothing_and_is_overwritten(server, open_store):
    store = open_store(server.url)
    await store.put_block("t/h1", b"older")
    for key in ("promise/t/h2", "fact/t/a"):
        server.run("DEL", f"cp/1/{key}")
        server.run("LPUSH", f"cp/1/{key}", "x")
    assert await store.find_first(["t/h2", "t/h1"], ["t/a"]) == (Found("t/h1", b"older"), None)
    assert await store.put_block("t/h2", b"block") == b"block"
    await store.write_fact("t/a", b"fact", 60)
    assert await store.find_first(["t/h2", "t/h1"], ["t/a"]) == (Found("t/h2", b"block"), Found("t/a", b"fact"))


async def test_values_of_version_0_3_are_read(server, open_store):
    store, deadline = open_store(server.url), struct.pack(">d", time.time() + 600)
    old_values = {"promise/t/h1": deadline + b"block", "fact/t/a": deadline + b"fact", "secret": b"s" * 33}
    for key, value in {**old_values, "document/keys": b"document"}.items():
        server.set(f"cp/1/{key}", value)
    assert await store.find_first(["t/h1"], ["t/a"]) == (Found("t/h1", b"block"), Found("t/a", b"fact"))
    assert await store.load_secret() == b"s" * 33
    assert await store.read_document("keys") == b"document"


@pytest.mark.parametrize("garbage", [b"", b"x" * 1_000])
async def test_a_secret_that_no_hash_takes_is_replaced_by_the_one_in_use(server, open_store, garbage):
    store = open_store(server.url)
    server.set("cp/1/secret", garbage)
    assert await store.load_secret(b"h" * 32) == b"h" * 32
    assert await store.load_secret() == b"h" * 32


async def test_a_document_of_another_type_is_kept_and_reported(server, open_store):
    store = open_store(server.url)
    for key in ("document/keys", "secret"):
        server.run("LPUSH", f"cp/1/{key}", "x")
    for act in (
        lambda: store.read_document("keys"),
        lambda: store.replace_document("keys", None, b"new"),
        store.load_secret,
    ):
        with pytest.raises(StoreUnavailable, match="WRONGTYPE"):
            await act()
    assert server.run("TYPE", "cp/1/document/keys") == "+list"


@pytest.mark.parametrize("error", ["ERR AUTH shop%40eu:let-me-in ?", "let-me-in is wrong", "LET-ME-IN", "let-..."])
async def test_an_error_that_repeats_credentials_in_any_form_is_reported_without_them(open_store, error):
    async with answering(f"-{error}\r\n".encode()) as address:
        store = open_store(f"redis://shop%40eu:let-me-in@{address}")
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match=r"refused a command") as refused:
                await store.load_secret()
            assert not any(word in str(refused.value).lower() for word in ("shop", "let-"))


ODD = {
    "HTTP": b"HTTP/1.1 200 OK\r\n\r\nhello",
    "random": os.urandom(4096),
    "endless list": b"*1000000000\r\n",
    "endless string": b"$1000000000\r\n" + b"a" * 65536,
    "nested lists": b"*1\r\n" * 5000,
    "negative": b"*-5\r\n$-7\r\n:9\r\n",
    "huge number": b":" + b"9" * 5000 + b"\r\n",
    "no number": b":nine\r\n",
    "no length": b"$nine\r\n",
    "silence": b"",
    "PONG": b"+PONG\r\n",
    "nil": b"$-1\r\n",
    "numbers": b":1\r\n",
    "errors": b"-ERR no\r\n",
    "error without a word": b"-\r\n",
    "redirection that leads nowhere": b"-MOVED 1 nowhere\r\n",
    "numbers in a list": b"*3\r\n:1\r\n:2\r\n:3\r\n",
    "lists of numbers": b"*2\r\n*2\r\n:1\r\n:1\r\n*2\r\n:1\r\n:1\r\n",
}


@asynccontextmanager
async def answering(reply):
    async def serves(reader, writer):
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                for _ in range(max(1, data.count(b"*"))):
                    writer.write(reply)
                await writer.drain()
        writer.close()

    async with await asyncio.start_server(serves, "127.0.0.1", 0) as server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.mark.timeout(60)
@pytest.mark.parametrize("scheme", ["redis", "redis+sentinel"])
@pytest.mark.parametrize("reply", ODD.values(), ids=ODD)
async def test_a_server_that_replies_oddly_is_out_and_nothing_else(open_store, scheme, reply):
    async with answering(reply) as address:
        store = open_store(f"{scheme}://{address}" + ("/name" if "sentinel" in scheme else ""))
        for _ in range(2):
            for act in (
                store.find_first(["t/h2", "t/h1"], ["t/a"]),
                store.put_block("t/h1", b"block"),
                store.claim_fact("t/a", b"mine", 60),
                store.write_fact("t/a", b"fact", 60),
                store.load_secret(),
                store.read_document("keys"),
                store.replace_document("keys", None, b"new"),
            ):
                with suppress(StoreUnavailable):  # a value that a server might have sent is believed
                    await act
        await store.close()


@pytest.mark.parametrize("place", range(4))
async def test_only_a_place_in_the_list_that_was_asked_for_is_believed(open_store, place):
    async with answering(b"*2\r\n*2\r\n:%d\r\n$1\r\nx\r\n$-1\r\n" % place) as address:
        asked = open_store(f"redis://{address}").find_first(["t/h2", "t/h1"], ["t/a"])
        if place in (1, 2):
            assert await asked == (Found(["t/h2", "t/h1"][place - 1], b"x"), None)
        else:
            with pytest.raises(StoreUnavailable):
                await asked


async def test_a_value_of_another_type_stops_no_deletion(server, open_store):
    store = open_store(server.url)
    await store.put_block("t/h1", b"block")
    server.run("LPUSH", "cp/1/promise/t/h2", "x")
    await store.remove({"t"}, lambda *_: True)
    assert await store.find_first(["t/h1"]) == (None, None)
