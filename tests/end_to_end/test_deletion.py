"""A person's data can be deleted: afterwards no file and no key of any store holds the text, the name or the id."""

import asyncio
import sqlite3
import time
import zlib
from contextlib import closing

import pytest

from proxy.access.registry import Records
from proxy.store.deletions import Deletion
from tests.support.admin_client import AdminClient, team_key, until_open
from tests.support.agent import Agent, reading
from tests.support.commands import run_command
from tests.support.messages import assistant, user
from tests.support.proxy_client import PATIENCE_SECONDS, until
from tests.support.redis_server import needs_redis, running
from tests.support.running_proxy import serving
from tests.support.scripted_upstream import delta, raw, stream, text_turn, wait_for
from tests.support.summary_model import account

pytest_plugins = ("tests.support.object_store.fixtures",)
pytestmark = pytest.mark.seconds

MARKER, USER = "Zweitausfertigung", "ann@example.com"
SMALL = {"clear_at_least": 3_000, "keep": {"tokens": 1_000}}
SETTINGS = {
    "upstreams": [{"window": 1_000_000}],
    "policies": {"default": SMALL},
    "transcripts": {"keep": "all"},
    "teams": {"red": {}, "blue": {}},
}


def find(stored, *texts):
    """The names of what is stored that hold one of these texts; what they hold besides does not matter."""
    return [f"{name}: {text}" for name, data in stored for text in texts if text.encode() in data]


def find_in_files(folder, *texts):
    return find([(str(path), path.read_bytes()) for path in sorted(folder.rglob("*")) if path.is_file()], *texts)


def find_in_redis(redis, *texts):
    stored = [(key, redis.get(key)) for key in redis.keys("*")]
    opened = [(key, zlib.decompress(value) if value.startswith(b"x\x9c") else value) for key, value in stored]
    return find([(key, key.encode() + value) for key, value in opened], *texts)


def find_in_bucket(bucket, *texts):
    names = [item.name for item in bucket.list_objects()]
    return find([(name, name.encode() + bucket.get(name)) for name in names], *texts)


def run_transcripts(proxy, *words):
    """One of the commands on transcripts, at the state of this proxy."""
    return run_command("transcripts", *words, "--state", str(proxy.state), place=proxy.place)


class Person:
    """Somebody of a team with an agent, whose conversation is saved and shortened."""

    def __init__(self, proxy, up, key, marker, user):
        self.agent, self.marker, self.user = Agent(proxy, up, key), marker, user
        self.conversation = ""

    async def work(self, files=12):
        history = reading(files, task=f"Mend the {self.marker}.")
        steps = await self.agent.work(history, user=self.user)
        self.conversation = steps[-1].header("x-compaction-conversation")
        assert steps[-1].compaction in ("applied", "created")

    @property
    def texts(self):
        return self.marker, self.user, self.conversation


async def two_people(proxy, up, key, user=USER):
    ann, bob = (Person(proxy, up, key, *names) for names in ((MARKER, user), ("Nebensache", "bob@example.com")))
    up.script = text_turn("Go on.")
    end = time.monotonic() + 0.5  # each worker looks five times a second, and one may take all that is asked
    while time.monotonic() < end:
        await until_open(proxy, key)
    for person in (ann, bob):
        await person.work()
    return ann, bob


async def until_gone(find, *texts):
    """Wait until nothing of it is found, and say what is left if that takes too long."""
    end = time.monotonic() + PATIENCE_SECONDS
    while found := find(*texts):
        assert time.monotonic() < end, found
        await asyncio.sleep(0.1)


def of_files(proxy):
    return lambda *texts: find_in_files(proxy.state, *texts)


@pytest.mark.parametrize("store", ["sqlite", "memory"])
@pytest.mark.parametrize("by", ["--user", "--conversation"])
async def test_a_command_deletes_a_persons_data_from_every_file_and_nobody_elses(serve, up, store, by):
    config = {**SETTINGS, "state": {"store": store}}
    async with serve(up.url, "--workers", "2" if store == "sqlite" else "1", config=config) as proxy:
        ann, bob = await two_people(proxy, up, team_key(proxy, "red"))
        await until(lambda: all(find_in_files(proxy.state, text) for text in ann.texts))
        named = {"--user": USER, "--conversation": f"team.red/{ann.conversation}"}[by]
        listed = await run_transcripts(proxy, "list", "--user", USER)
        assert [ann.conversation in listed.out, bob.conversation in listed.out] == [True, False]
        ended = await run_transcripts(proxy, "delete", by, named, "--yes")
        assert (ended.code, ended.out) == (0, "deleted here: 1 conversation\n")
        assert find_in_files(proxy.state, *ann.texts) == []
        assert all(find_in_files(proxy.state, text) for text in bob.texts)
        assert "delete conversations" in (proxy.state / "audit.jsonl").read_text()
        await bob.agent.send(reading(12, task=f"Mend the {bob.marker}."), user=bob.user)
        await ann.work()  # a deleted conversation begins anew, and is kept again
        await until(lambda: find_in_files(proxy.state, ann.marker))


@pytest.mark.parametrize("acts_before", [0, 2], ids=["before headers", "flowing"])
async def test_an_answer_that_ends_after_the_order_brings_nothing_back(serve, up, acts_before):
    async with serve(up.url, config=SETTINGS) as proxy:
        ann, bob = await two_people(proxy, up, team_key(proxy, "red"))
        held, word = asyncio.Event(), "Nachtrag"
        acts = list(stream(delta(content=word), *text_turn(word).frames()).acts())
        up.script = raw(*acts[:acts_before], wait_for(held), *acts[acts_before:])
        history = reading(30, task=f"Mend the {MARKER}.")
        asking = asyncio.create_task(ann.agent.send(history, user=USER, stream=True))
        await until(lambda: up.requests[-1].json.get("stream"))
        ended = await run_transcripts(proxy, "delete", "--user", USER, "--yes")
        assert (ended.code, ended.out) == (0, "deleted here: 1 conversation\n")
        held.set()
        assert (await asking).compaction == "created"
        up.script = text_turn("Nachwort")
        await bob.agent.send(reading(14, task=f"Mend the {bob.marker}."), user=bob.user)
        await until(lambda: find_in_files(proxy.state, "Nachwort") and find_in_files(proxy.state, ann.conversation))
        assert find_in_files(proxy.state, MARKER, USER, word, "part_29") == []


@pytest.mark.parametrize(
    ("words", "path"), [(user("/compact"), ""), ([], "/chat/completions/compact")], ids=["command", "path"]
)
async def test_the_block_and_the_summary_of_a_request_that_only_compacts_are_deleted_by_user(serve, up, words, path):
    config = {**SETTINGS, "transcripts": {"keep": "off"}}
    async with serve(up.url, config=config) as proxy:
        up.script = text_turn(account(words=f"The {MARKER} is to be mended."))
        key = team_key(proxy, "red")
        await until_open(proxy, key)
        history = [*reading(24, task=f"Mend the {MARKER}."), *assistant("Done."), *words]
        answered = await Agent(proxy, up, key).send(history, path=path, user=USER)
        assert (answered.answer.status, len(answered.bodies)) == (200, 1), "a model has written a summary"
        await until(lambda: find_in_files(proxy.state, USER))
        assert find_in_files(proxy.state, MARKER)
        ended = await run_transcripts(proxy, "delete", "--user", USER, "--yes")
        assert (ended.code, ended.out) == (0, "deleted here: 1 conversation\n")
        assert find_in_files(proxy.state, MARKER, USER) == []


@pytest.mark.parametrize("messages", [2, 14], ids=["small", "not shortened"])
async def test_a_history_whose_answer_begins_after_the_order_is_not_kept(serve, up, messages):
    async with serve(up.url, config=SETTINGS) as proxy:
        ann, bob = await two_people(proxy, up, team_key(proxy, "red"))
        held, word = asyncio.Event(), "Nachtrag"
        up.script = raw(wait_for(held), *stream(delta(content=word), *text_turn(word).frames()).acts())
        asking = asyncio.create_task(
            ann.agent.send(reading(messages, task=f"Mend the {MARKER}."), user=USER, stream=True)
        )
        await until(lambda: up.requests[-1].json.get("stream"))
        ended = await run_transcripts(proxy, "delete", "--user", USER, "--yes")
        assert ended.code == 0
        held.set()
        await asking
        up.script = text_turn("Nachwort")
        await bob.agent.send(reading(14, task=f"Mend the {bob.marker}."), user=bob.user)
        await until(lambda: find_in_files(proxy.state, "Nachwort"))
        assert find_in_files(proxy.state, MARKER, USER, word) == []


@pytest.mark.parametrize("is_upgraded", [False, True])
async def test_a_proxy_that_is_down_obeys_at_its_start_also_if_it_was_upgraded_since(serve, up, is_upgraded):
    async with serve(up.url, config=SETTINGS) as proxy:
        ann, bob = await two_people(proxy, up, team_key(proxy, "red"))
    assert find_in_files(proxy.state, *ann.texts)
    if is_upgraded:
        (proxy.state / "deletions.json").unlink()  # version 0.3 writes none
    Records(proxy.state).change(lambda known: known.with_deletion(Deletion.order(user=USER)))
    async with serving(up.url, config=SETTINGS, place=proxy.place) as proxy:
        await until_gone(of_files(proxy), *ann.texts)
    assert all(find_in_files(proxy.state, text) for text in bob.texts)


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (("--user", "an@example.com"), "user an@example.com"),
        (("--conversation", "team.red/" + 16 * "f"), "conversation " + 16 * "f"),
        (("--team", "green", "--user", USER), f"user {USER}, team green"),
    ],
)
async def test_an_order_that_covers_nothing_is_refused(serve, up, words, names):
    async with serve(up.url, config=SETTINGS) as proxy:
        ann, _ = await two_people(proxy, up, team_key(proxy, "red"))
        await until(lambda: find_in_files(proxy.state, ann.user))
        ended = await run_transcripts(proxy, "delete", *words, "--yes")
        assert (ended.code, ended.out) == (1, "")
        assert f"nothing was deleted: this machine has no conversation of {names}" in ended.complaint
        assert Records(proxy.state).current.deletions == ()
        asked = await run_transcripts(proxy, "delete", "--user", USER)
        assert (asked.code, asked.out) == (1, "")
        assert f"all conversations of user {USER} (1 conversation of this machine) on every replica" in asked.complaint


async def test_where_no_proxy_runs_the_command_itself_deletes(serve, up):
    async with serve(up.url, config=SETTINGS) as proxy:
        ann, bob = await two_people(proxy, up, team_key(proxy, "red"))
    words = ("delete", "--team", "red", "--yes")
    with closing(sqlite3.connect(proxy.state / "chronicle.sqlite", isolation_level=None)) as other:
        other.execute("pragma locking_mode = exclusive")
        other.execute("begin exclusive")
        refused = await run_transcripts(proxy, *words)
    assert refused.code == 1
    assert "not deleted here before the next start" in refused.complaint
    ended = await run_transcripts(proxy, *words)
    assert (ended.code, ended.out) == (0, "deleted here: 2 conversations\n")
    assert find_in_files(proxy.state, *ann.texts, *bob.texts) == []


async def test_a_user_whose_name_is_stored_without_a_secret_and_cut_is_found_by_the_whole_name(serve, up):
    name = "ann sk-proj-abcd1234efgh5678ijkl9012mnop3456 " + "x" * 250
    async with serve(up.url, config=SETTINGS) as proxy:
        ann, bob = await two_people(proxy, up, team_key(proxy, "red"), user=name)
        await until(lambda: find_in_files(proxy.state, "ann [redacted: "))
        listed = await run_transcripts(proxy, "list", "--user", name)
        assert [ann.conversation in listed.out, bob.conversation in listed.out] == [True, False]
        ended = await run_transcripts(proxy, "delete", "--yes", "--user", name)
        assert (ended.code, ended.out) == (0, "deleted here: 1 conversation\n")
        assert "stored without secrets and shortened" in ended.complaint
        assert find_in_files(proxy.state, ann.marker, ann.conversation) == []
        await ann.work()
        answer = await AdminClient(proxy).read("/deletions", method="POST", body={"user": name})
        assert answer["user"].startswith("ann [redacted: ")
        await until_gone(of_files(proxy), ann.marker, ann.conversation)
        assert all(find_in_files(proxy.state, text) for text in bob.texts)


@needs_redis
async def test_replicas_over_one_redis_delete_everywhere(serve, up, tmp_path):
    with running(tmp_path) as redis:
        config = {**SETTINGS, "state": {"url": redis.url}}
        async with serve(up.url, "--workers", "2", config=config) as first, serve(up.url, config=config) as second:
            key = team_key(first, "red")
            ann, bob = await two_people(first, up, key)
            await until_open(second, key)
            await Person(second, up, key, MARKER, USER).work()
            await until(lambda: all(find_in_files(second.state, text) for text in ann.texts))
            assert find_in_redis(redis, *ann.texts)
            own = ("delete", "--yes", "--config", str(first.place / "proxy.yaml"))
            for user, deleted in ((USER, "1 conversation"), ("nobody", "0 conversations")):
                ended = await run_transcripts(first, *own, "--user", user)
                assert (ended.code, ended.out) == (0, f"deleted here: {deleted}\n")
            await until_gone(of_files(second), *ann.texts)
            await until(lambda: redis.keys("cp/1/document/usage/*/*"))  # sums of what both have served are there
            await until_gone(lambda *texts: find_in_redis(redis, *texts), *ann.texts)
            assert find_in_files(first.state, *ann.texts) == []
            assert find_in_redis(redis, bob.conversation)


async def test_an_object_store_and_its_spool_are_emptied_of_it(serve, up, bucket, s3, relay):
    transcripts = {"keep": "all", "dir": bucket.url, "endpoint": relay.url, "upload_seconds": 0.5}
    environment = {"AWS_ACCESS_KEY_ID": s3.key, "AWS_SECRET_ACCESS_KEY": s3.secret}
    async with serve(up.url, config={**SETTINGS, "transcripts": transcripts}, environment=environment) as proxy:
        ann, bob = await two_people(proxy, up, team_key(proxy, "red"))
        await until(lambda: all(find_in_bucket(bucket, text) for text in (MARKER, "Nebensache")))
        admin = AdminClient(proxy)
        await admin.read_error(422, "POST", "/deletions", body={})
        await admin.read("/deletions", method="POST", body={"conversation": ann.conversation})
        await until_gone(lambda *texts: find_in_bucket(bucket, *texts), *ann.texts)
        await until_gone(of_files(proxy), *ann.texts)
        assert find_in_bucket(bucket, bob.marker)
