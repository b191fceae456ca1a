"""`transcripts …` on an object store: it says the same as on a disk, and what is wrong where it cannot."""

import asyncio
import json
import time
from itertools import count

import pytest

from proxy.cli import main
from proxy.store.contract import SystemClock
from proxy.store.sqlite import SqliteStore
from proxy.store.transcripts import uploads as module
from proxy.store.transcripts.uploads import Uploads
from proxy.store.transcripts.writer import OriginalsWriter
from tests.support.completions import text_turn
from tests.support.messages import KEY, assistant, call, chat, system, user
from tests.support.object_store.faulty_relay import refuse_with
from tests.support.transcripts import exchange, history_of, keep, transcript_settings

pytest_plugins = ("tests.support.object_store.fixtures",)

HELLO = chat(user("Hello there"))
FORKS = [chat(user("Hello there"), assistant("Hi."), user(text)) for text in ("And now?", "No, this: zebra")]
WORK = chat(system("You are terse."), user("Read it."), call("Read", path="a.py", out="a line\n" * 400), user("So?"))
TALK = (
    exchange(HELLO),
    exchange(FORKS[0], text_turn("Now this.").using(120, 7)),
    exchange(FORKS[1]),
    exchange(WORK, text_turn("Let me look.")),
    exchange(HELLO, text_turn("Hello, b."), tenant="team-b"),
)


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch, s3, relay):
    """The usual AWS variables are set; a second is long for a test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.02)
    monkeypatch.setenv("AWS_ENDPOINT_URL", relay.url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3.key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3.secret)


@pytest.fixture
def disk_and_bucket(tmp_path, bucket, monkeypatch):
    """The same talk on a disk and in a bucket, its last part still in the spool; and the key of its chains."""
    moments = count(1_700_000_000, 60)
    on_disk = OriginalsWriter(tmp_path / "disk", transcript_settings(), clock=SystemClock(lambda: next(moments)))
    keep(on_disk, *TALK)
    assert on_disk.close()
    moments = count(1_700_000_000, 60)
    spool = tmp_path / "state" / "spool"
    uploads = Uploads(bucket, spool, transcript_settings(upload_seconds=0.01))
    writer = OriginalsWriter(spool, transcript_settings(), uploads=uploads, clock=SystemClock(lambda: next(moments)))
    for talk in (TALK[:2], TALK[2:4]):
        keep(writer, *talk)
        end = time.monotonic() + 10
        while list(spool.rglob("*.jsonl")) and time.monotonic() < end:
            time.sleep(0.01)
    monkeypatch.setattr(uploads, "_look", lambda **_: None)
    keep(writer, *TALK[4:])
    assert writer.close(0.2)
    asyncio.run(_key(tmp_path / "state" / "promises.sqlite"))
    (tmp_path / "disk.yaml").write_text(f"transcripts: {{dir: {tmp_path}/disk}}\n")
    (tmp_path / "s3.yaml").write_text(f"transcripts: {{dir: {bucket.url}}}\n")


async def _key(place):
    writer = SqliteStore(place)
    await writer.load_secret(KEY)
    await writer.close()


@pytest.fixture
def run(capsysbinary):
    def act(where, *words):
        code = main(["transcripts", *words, "--config", f"{where}.yaml"])
        found = capsysbinary.readouterr()
        return code, found.out.decode(), found.err.decode()

    return act


NAME = history_of(HELLO).conversation[:8]


@pytest.mark.parametrize(
    "words",
    [
        ("list",),
        ("list", "--json"),
        ("show", history_of(WORK).conversation, "--full"),
        ("show", f"team-a/{NAME}"),
        ("search", "zebra"),
        ("search", "nowhere"),
        ("export", f"team-a/{NAME}", "--request"),
        ("prune", "--days", "0.0001"),
    ],
)
def test_the_same_commands_say_the_same(disk_and_bucket, run, words):
    on_disk = run("disk", *words)
    assert on_disk[1] or words[-1] == "nowhere"
    if words[0] == "prune":
        assert run("s3", *words)[1].splitlines()[-1].startswith("0 conversations")  # all of it is new, and stays
    else:
        assert run("s3", *words)[:2] == on_disk[:2]  # on a disk, a note says whether a proxy uses the folder


def test_several_tenants_with_one_conversation_are_separated(disk_and_bucket, run):
    assert run("s3", "show", f"team-b/{history_of(HELLO, 'team-b').conversation}")[1].count("Hello") == 2
    assert "there is no conversation" in run("s3", "show", f"team-c/{NAME}")[2]


def test_old_conversations_are_pruned_from_the_store(disk_and_bucket, run, bucket, monkeypatch):
    now = time.time()
    monkeypatch.setattr("proxy.cli.transcripts.time.time", lambda: now + 3 * 3600)
    code, found, _ = run("s3", "prune", "--days", "0.1", "--yes")
    assert code == 0
    assert len(found.splitlines()) == 4
    assert len(list(bucket.list_objects())) == 0
    assert [json.loads(line)["tenant"] for line in run("s3", "list", "--json")[1].splitlines()] == ["team-b"]


def test_an_empty_place_says_where_it_looked(run, bucket, tmp_path):
    (tmp_path / "s3.yaml").write_text(f"transcripts: {{dir: {bucket.url}}}\n")
    assert run("s3", "list") == (0, f"nothing is kept in {bucket.url}\n", "")


def test_a_failing_store_is_reported_on_one_line(disk_and_bucket, run, relay):
    relay.now = refuse_with(403, "AccessDenied")
    code, found, text = run("s3", "list")
    assert (code, found) == (1, "")
    assert text.count("\n") == 1
    assert "answers 403 AccessDenied" in text
    assert "never-to-be-told" not in text
