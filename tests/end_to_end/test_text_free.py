"""A team whose policy says `store_text: false`: its histories are shortened, and none of its words is ever stored.

A second team does the same without that setting: what is looked for is found of it, in each of its forms.
"""

import base64
import json
import re
import sqlite3
import zlib
from contextlib import AsyncExitStack, closing
from itertools import pairwise

import pytest

from tests.support.admin_client import AdminClient, team_key, until_open
from tests.support.agent import Agent, compactions, page, turns
from tests.support.commands import run_command
from tests.support.messages import call, history, system, tool, user
from tests.support.proxy_client import log_of, until
from tests.support.proxy_client import page as own_page
from tests.support.redis_server import needs_redis, running
from tests.support.running_proxy import serving
from tests.support.scripted_upstream import Upstream, answer, call_turn, text_turn
from tests.support.summary_model import account, asks_for_summary

pytest_plugins = ("tests.support.object_store.fixtures",)
pytestmark = pytest.mark.seconds

SECRET, KNOWN = "Zweitausfertigung", "Nebensache"
"""Each word that a team sends, or gets from a model, begins with its own."""
ROLES = ("system", "user", "assistant", "argument", "result", "answer", "summary", "recall")
"""Where words are that must reach the stores of the other team."""
WORKERS = 2
RECALL = "recall_earlier_output"


def make_config(**more):
    return {
        "listen": {"workers": WORKERS},
        "upstreams": [{"window": 1_000_000}],
        "policies": {
            "default": {"clear_at_least": 3_000, "keep": {"tokens": 1_000}, "recall": "on"},
            "text-free": {"store_text": False},
        },
        "transcripts": {"keep": "all", "redact": False},
        "teams": {"quiet": {"policy": "text-free"}, "open": {}},
        "log": {"level": "debug", "format": "json"},
        **more,
    }


def make_work(word, files=16):
    def read(number):
        out = f"{page(number, 2_600)}\nAssertionError: {word}-result"
        return call("Read", out=out, preamble=f"{word}-assistant", path=f"src/{word}-argument_{number}.py")

    return history(system(f"You are {word}-system."), user(f"Mend the tests. {word}-user"), *map(read, range(files)))


TOOLS = [tool("Read", path="string")]


def answer_team(request):
    """A model that writes summaries, and recalls once if it is told to."""
    word = SECRET if SECRET.encode() in request.body else KNOWN
    if asks_for_summary(request):
        return text_turn(account(words=f"{word}-summary says that the tests of part_1 pass; part_2 is next."))
    if request.body and "Recall it" in json.dumps(request.json["messages"][-1]["content"]):
        return call_turn(RECALL, search=f"{word}-recall")
    return text_turn(f"{word}-answer")


async def make_keys(*proxies):
    """Make a key for each team, and wait until each worker of all replicas knows it."""
    for proxy in proxies:
        await until(lambda: len(log_of(proxy, "listening")) == WORKERS)  # noqa: B023 (awaited here)
    keys = {team: team_key(proxies[0], team) for team in ("quiet", "open")}
    for proxy in proxies:
        for key in [*keys.values()] * 20:
            await until_open(proxy, key)
    return keys


async def live(proxy, up, word, key):
    """Shorten, summarize, recall and compact, as an agent and its user may ask for it."""
    agent, work = Agent(proxy, up, key), make_work(word)
    steps = await agent.work(work, tools=TOOLS, user="ann@example.com")
    focus = {"x-compaction": "force", "x-compaction-focus": f"{word}-focus"}
    steps.append(await agent.send(work, focus, tools=TOOLS))
    steps.append(await agent.send([*work, *user(f"Recall it, {word}-recall.")], tools=TOOLS))
    steps.append(await agent.send([*work, *user("/compact")], tools=TOOLS))
    for mode in ("observe", "bypass", "off"):
        steps.append(await agent.send([*work, *user(f"{word}-{mode}")], {"x-compaction": mode}, tools=TOOLS))
    assert {step.answer.status for step in steps} == {200}
    assert "applied" in {step.compaction for step in steps}


def encodings(word):
    """A word as bytes, in hexadecimal, and in base64 at each of its three offsets."""
    plain = word.encode()
    yield plain
    yield plain.hex().encode()
    for offset in range(3):
        yield base64.b64encode(bytes(offset) + plain)[4:-4]


def list_forms(data):
    """Data, and what is compressed in it."""
    yield data
    for found in re.finditer(rb"\x1f\x8b\x08|\x78[\x01\x5e\x9c\xda]", data):
        try:
            yield zlib.decompressobj(wbits=47).decompress(data[found.start() :])
        except zlib.error:
            continue


def list_stored(proxy):
    """All files of a proxy, its log among them; of a database also the values, which pages may part."""
    for path in sorted(proxy.place.rglob("*")):
        if path.is_file():
            yield path.name, path.read_bytes()
        if path.suffix == ".sqlite":
            with closing(sqlite3.connect(path)) as db:
                for (table,) in db.execute("select name from sqlite_master where type = 'table'").fetchall():
                    yield f"{path.name} {table}", repr(db.execute(f"select * from {table}").fetchall()).encode()


def find(word, stored):
    wanted = set(encodings(word))
    return {name for name, data in stored for form in list_forms(data) if any(each in form for each in wanted)}


async def check(stored, *proxies):
    """Nothing of the one team is stored, and all of the other."""

    def list_missing():
        return [role for role in ROLES if not find(f"{KNOWN}-{role}", stored())]

    await until(lambda: not list_missing())
    assert find(SECRET, stored()) == set()
    for proxy in proxies:
        admin = AdminClient(proxy)
        assert SECRET not in json.dumps([await admin.read(path) for path in ("/overview", "/conversations", "/events")])
        assert SECRET.encode() not in (await own_page(proxy, "/metrics")).body.data


async def search(proxy, text, **environment):
    words = ("transcripts", "search", text, "--config", "proxy.yaml", "--state", "state")
    return (await run_command(*words, place=proxy.place, **environment)).code == 0


async def delete(proxy, **conditions):
    order = (await AdminClient(proxy).read("/deletions", method="POST", body=conditions))["id"]
    await until(lambda: order in (proxy.state / "deletions.json").read_text())


async def test_two_workers_write_no_word_of_the_team_to_a_file(serve, up):
    up.script = answer_team
    async with serve(up.url, config=make_config()) as proxy:
        keys = await make_keys(proxy)
        await live(proxy, up, SECRET, keys["quiet"])
        await live(proxy, up, KNOWN, keys["open"])
        await check(lambda: list_stored(proxy), proxy)
        assert await search(proxy, f"{KNOWN}-user")
        assert not await search(proxy, f"{SECRET}-user")
        await delete(proxy, team="quiet")
        await live(proxy, up, SECRET, keys["quiet"])
        await check(lambda: list_stored(proxy), proxy)
    assert find(SECRET, list_stored(proxy)) == set()


@pytest.fixture
def object_store(bucket, s3, relay):
    """A bucket, the settings of a proxy that writes to it, and the variables with its credentials."""
    settings = {"keep": "all", "redact": False, "dir": bucket.url, "endpoint": relay.url, "upload_seconds": 0.5}
    return bucket, settings, {"AWS_ACCESS_KEY_ID": s3.key, "AWS_SECRET_ACCESS_KEY": s3.secret}


@needs_redis
async def test_two_replicas_write_no_word_of_the_team_to_redis_an_object_store_or_a_collector(
    serve, up, tmp_path, object_store
):
    up.script = answer_team
    bucket, transcripts, environment = object_store
    async with AsyncExitStack() as stack:
        redis = stack.enter_context(running(tmp_path))
        collector = await stack.enter_async_context(Upstream(answer(b"")))
        config = make_config(
            state={"url": redis.url},
            transcripts=transcripts,
            otel={"endpoint": collector.origin},
            hooks=[{"url": f"{collector.origin}/hook", "events": ["compaction-ended", "summary-ended"]}],
        )
        proxies = []
        for _ in range(2):
            started = serve(up.url, config=config, environment=environment)
            proxies.append(await stack.enter_async_context(started))
        first, second = proxies
        keys = await make_keys(*proxies)
        for proxy in proxies:
            await live(proxy, up, SECRET, keys["quiet"])
            await live(proxy, up, KNOWN, keys["open"])

        def list_everything():
            for proxy in proxies:
                yield from list_stored(proxy)
            yield from ((key, key.encode() + redis.get(key)) for key in redis.keys("*"))
            yield from ((item.name, item.name.encode() + bucket.get(item.name)) for item in bucket.list_objects())
            yield from ((request.path, request.body) for request in collector.requests)

        await check(list_everything, *proxies)
        assert await search(first, f"{KNOWN}-user", **environment)
        assert not await search(first, f"{SECRET}-user", **environment)
        await delete(second, user="ann@example.com")
        await live(first, up, SECRET, keys["quiet"])
        await live(first, up, KNOWN, keys["open"])
        await check(list_everything, *proxies)
        assert {request.path for request in collector.requests} == {"/v1/traces", "/hook"}


async def serve_agent(stack, proxy, up):
    running_proxy = await stack.enter_async_context(proxy)
    key = team_key(running_proxy, "quiet")
    await until_open(running_proxy, key)
    return Agent(running_proxy, up, key)


def is_stable(steps):
    """Unless a block is made, what was forwarded before is forwarded again, and only more after it."""
    pairs = pairwise(steps)
    return all(step.compaction == "created" or step.extends(earlier) for earlier, step in pairs)


async def test_a_restart_costs_one_rewrite_and_no_request(serve, up):
    up.script = answer_team
    config, requests = make_config(listen={}), list(turns(make_work(SECRET, files=24)))
    async with AsyncExitStack() as stack:
        agent = await serve_agent(stack, serve(up.url, config=config), up)
        before = [await agent.send(messages, tools=TOOLS) for messages in requests[:-4]]
    async with serving(up.url, config=config, place=agent.proxy.place) as proxy:
        agent = Agent(proxy, up, agent.key)
        after = [await agent.send(messages, tools=TOOLS) for messages in requests[-4:]]
    assert is_stable(before)
    assert is_stable(after)
    assert compactions(after) == ["created", "applied", "applied", "applied"]
    assert {step.answer.status for step in before + after} == {200}


async def test_a_deletion_removes_the_blocks_of_one_person_from_the_memory_of_the_worker(serve, up):
    up.script = answer_team
    async with AsyncExitStack() as stack:
        agent = await serve_agent(stack, serve(up.url, config=make_config(listen={})), up)

        async def send_all():
            people = ("ann", "bob")
            return [(await agent.send(make_work(name), tools=TOOLS, user=name)).compaction for name in people]

        assert await send_all() == ["created", "created"]
        assert await send_all() == ["applied", "applied"]
        await delete(agent.proxy, user="ann")
        assert await send_all() == ["created", "applied"]
