"""What is too old or too much goes from the store, too; what is gone is not taken for kept; many may prune at once."""

import asyncio
import json
import time

import pytest

from proxy.store.contract import JUMP_SECONDS
from proxy.store.transcripts import archive
from proxy.store.transcripts import uploads as module
from proxy.store.transcripts.archive import Archive, Retention, read_transcript
from proxy.store.transcripts.uploads import Uploads
from proxy.store.transcripts.writer import OriginalsWriter
from tests.support.clocks import Clocks
from tests.support.messages import KEY, assistant, chat, user
from tests.support.proxy_client import until
from tests.support.transcripts import exchange, keep, transcript_settings
from tests.support.verification import duplicates, verify

pytest_plugins = ("tests.support.object_store.fixtures",)

LATER = 3 * 3600.0
DAY = 24 * 3600.0


@pytest.fixture
def spool(tmp_path):
    return tmp_path / "spool"


@pytest.fixture
def write(bucket, spool, monkeypatch):
    """A worker's life: it keeps these and has sent them when this returns."""
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.02)

    def live(*recorded_turns, at=spool):
        uploads = Uploads(bucket, at, transcript_settings(upload_seconds=0.05))
        writer = OriginalsWriter(at, transcript_settings(), uploads=uploads)
        keep(writer, *recorded_turns)
        assert writer.close()

    return live


def recorded_turns(turns, first="Hello"):
    return exchange(
        chat(user(first), *(piece for turn in range(turns) for piece in (assistant("Hm."), user(f"{turn}"))))
    )


def test_conversations_idle_too_long_are_removed(bucket, spool, write):
    write(recorded_turns(0, "one"), recorded_turns(3, "two"))
    now = time.time()
    assert Archive(spool, bucket).prune(Retention(days=1), now + 0.9 * DAY) == 0
    assert Archive(spool, bucket).prune(Retention(days=1), now + 1.1 * DAY) > 0
    assert list(bucket.list_objects()) == []


def test_beyond_the_size_limit_the_oldest_conversations_are_removed_and_never_new_ones(bucket, spool, write):
    write(recorded_turns(0, "one" + "x" * 5_000))
    time.sleep(1.1)  # the store tells whole seconds
    write(recorded_turns(0, "two" + "x" * 5_000))
    assert Archive(spool, bucket).find_expired(Retention(bytes=8_000), time.time()) == []
    (gone,) = Archive(spool, bucket).find_expired(Retention(bytes=8_000), time.time() + LATER)
    assert b"one" in b"".join(gone.lines())


def test_conversations_in_the_spool_stay_with_all_earlier_messages(bucket, spool, write, relay):
    write(recorded_turns(1))
    uploads = Uploads(bucket, spool, transcript_settings(upload_seconds=60.0))
    writer = OriginalsWriter(spool, transcript_settings(), uploads=uploads)
    keep(writer, recorded_turns(2))
    assert Archive(spool, bucket).prune(Retention(bytes=1), time.time() + LATER) == 0
    assert writer.close()
    assert len(list(bucket.list_objects("team-a"))) == 2


def test_a_conversation_written_to_during_the_pruning_stays(bucket, spool, write):
    write(recorded_turns(1))
    (seen,) = Archive(spool, bucket).find()
    time.sleep(1.1)
    write(recorded_turns(2))
    assert seen.remove() == 0
    assert len(list(bucket.list_objects("team-a"))) == 2


def test_a_conversation_that_was_pruned_and_goes_on_is_whole_again_on_every_machine(bucket, write, tmp_path):
    for replica in ("a", "b"):
        write(recorded_turns(3), at=tmp_path / replica)
    assert Archive(tmp_path / "a", bucket).prune(Retention(bytes=1), time.time() + LATER) > 0
    for replica in ("a", "b"):
        write(recorded_turns(4), at=tmp_path / replica)
    (found,) = (read_transcript(one) for one in Archive(tmp_path / "a", bucket).find())
    assert (len(found.messages), duplicates(found), verify(found, KEY).faults) == (9, 9, ())


async def test_many_may_prune_at_once(bucket, spool, write):
    write(*(recorded_turns(1, f"conversation {number}") for number in range(12)))
    prune, later = Archive(spool, bucket).prune, time.time() + 2 * DAY
    await asyncio.gather(*(asyncio.to_thread(prune, Retention(days=1), later) for _ in range(4)))
    assert list(bucket.list_objects()) == []


def test_without_bounds_nothing_is_asked(bucket, spool, relay):
    assert Archive(spool, bucket).prune(Retention(), time.time()) == 0
    assert relay.asked == []


async def test_a_clock_that_is_ahead_for_a_while_removes_nothing(bucket, spool, write, monkeypatch):
    write(recorded_turns(1))
    monkeypatch.setattr(archive, "PRUNE_SECONDS", 0.0)
    clocks = Clocks(time.time())
    uploads = Uploads(bucket, spool, transcript_settings(days=1), clock=clocks.as_system_clock())
    clocks.now += 400 * DAY
    await asyncio.sleep(0.5)  # some sweeps
    assert len(list(bucket.list_objects("team-a"))) == 1
    clocks.pass_time(JUMP_SECONDS)
    await until(lambda: not list(bucket.list_objects("team-a")))
    uploads.close()


def test_of_an_interrupted_pruning_what_is_left_has_no_hole(bucket, spool, write, monkeypatch):
    for turn in range(4):
        write(recorded_turns(turn))
    (seen,) = Archive(spool, bucket).find()
    delete, deleted = bucket.delete, []

    def once(name):
        if deleted:
            raise OSError("killed")
        deleted.append(name)
        delete(name)

    monkeypatch.setattr(bucket, "delete", once)
    with pytest.raises(OSError, match="killed"):
        seen.remove()
    (found,) = (read_transcript(one) for one in Archive(spool, bucket).find())
    texts = [json.loads(text.message)["content"] for text in found.path(found.leaves()[0])]
    assert texts == ["Hello", "Hm.", "0", "Hm.", "1"]
    assert verify(found, KEY).faults == ()
