"""Originals in an object store: once, whole, under their tenant, whichever process stops."""

import asyncio
import json
import re
import stat
import threading
import time
from functools import partial

from proxy.store.transcripts.archive import Archive, StoreFault, read_transcript
from tests.support.completions import says as tells
from tests.support.messages import KEY, chat, user
from tests.support.object_store.weather import clear, down
from tests.support.object_store.work import HELLO, TURNS, messages, names, sent, talk, waits
from tests.support.proxy_client import until
from tests.support.transcripts import heard, history_of, keep, texts
from tests.support.verification import duplicates, torn, verify

pytest_plugins = ("tests.support.object_store.fixtures",)


# --- once, and whole -------------------------------------------------------------------------------------------------


async def test_a_conversation_goes_under_its_tenant_and_leaves_nothing_behind(writing, bucket, spool, stored):
    with writing() as kept:
        keep(kept, heard(TURNS[2], tells("Hi.").using(3, 2)))
        await sent(spool)
    (name,) = names(bucket)
    conversation = history_of(TURNS[2]).conversation
    assert re.fullmatch(rf"team-a/{conversation}/\d{{8}}T\d{{9}}Z-[0-9a-f]{{16}}\.jsonl", name)
    (found,) = stored()
    assert texts(found.path(found.leaves()[0])) == [message["content"] for message in messages(TURNS[2])]
    assert [json.loads(answer.message)["content"] for answer in found.answers] == ["Hi."]
    assert verify(found, KEY).faults == ()
    assert list((spool / "team-a" / conversation).iterdir()) == []


async def test_each_turn_brings_only_what_is_new(writing, bucket, spool, stored):
    with writing() as kept:
        for turn in TURNS:
            keep(kept, heard(turn))
            await sent(spool)
    assert len(names(bucket)) == len(TURNS)
    assert names(bucket) == sorted(names(bucket))
    (found,) = stored()
    assert (len(found.messages), duplicates(found)) == (len(messages(TURNS[-1])), 0)


async def test_what_several_replicas_write_is_read_once(writing, stored, tmp_path):
    with writing(at=tmp_path / "one") as one, writing(at=tmp_path / "two") as two:
        for turn in TURNS:
            keep(one, heard(turn))
            keep(two, heard(turn))
    (found,) = stored()
    assert len(found.messages) == len(messages(TURNS[-1]))
    assert duplicates(found) == len(found.messages)
    assert verify(found, KEY).faults == ()


async def test_an_upload_that_is_repeated_changes_nothing(writing, bucket, spool, stored, monkeypatch):
    put, tries = bucket.put, []

    def twice(name, file):
        put(name, file)
        tries.append(name)
        if len(tries) < 3:
            raise StoreFault("unreachable", "the answer was lost")

    monkeypatch.setattr(bucket, "put", twice)
    with writing() as kept:
        keep(kept, heard(TURNS[1]))
        await sent(spool)
    assert tries == names(bucket) * 3
    assert duplicates(stored()[0]) == 0


async def test_a_large_segment_goes_at_once_and_a_small_one_when_it_is_old(writing, bucket, spool):
    with writing(upload_seconds=60.0, upload_bytes=10_000) as kept:
        keep(kept, heard(HELLO))
        keep(kept, heard(chat(user("x" * 20_000))))
        await until(partial(names, bucket))
        await asyncio.sleep(0.1)
        assert len(names(bucket)) == 1
        assert waits(spool) == ["current.jsonl"]
    assert len(names(bucket)) == 2


async def test_what_waits_is_read_with_what_is_there(writing, bucket, spool, stored):
    with writing() as kept:
        keep(kept, heard(TURNS[1]))
        await sent(spool)
    with writing(upload_seconds=60.0) as kept:
        keep(kept, heard(TURNS[3]), heard(chat(user("Something else"))))
        found = {texts(one.messages.values())[0]: one for one in stored()}
        assert waits(spool) == ["current.jsonl"] * 2
    assert found.keys() == {"Hello there", "Something else"}
    assert len(found["Hello there"].messages) == len(messages(TURNS[3]))


async def test_what_leaves_the_spool_while_one_reads_is_not_missed(writing, bucket, spool):
    with writing(upload_seconds=0.3) as kept:
        keep(kept, heard(TURNS[3]))
        (seen,) = Archive(spool, bucket).find()
        assert seen.is_on_disk
        await sent(spool)
    assert len(read_transcript(seen).messages) == len(messages(TURNS[3]))


# --- whose -----------------------------------------------------------------------------------------------------------


async def test_every_name_begins_with_its_tenant_and_says_nothing_that_was_said(writing, bucket):
    strange = ["team-a", "team-b", "../../etc", "a/b", "Zebra Inc. <zebra@example.com>", "x" * 300, "tëam", ".pruned"]
    with writing() as kept:
        keep(kept, *(heard(chat(user("Zebra in every word")), tenant=tenant) for tenant in strange))
    tenants = {name.split("/")[0] for name in names(bucket)}
    assert {"team-a", "team-b"} < tenants
    assert len(tenants) == len(strange)
    for name in names(bucket):
        assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*/[0-9a-f]{40}/[0-9TZ]+-[0-9a-f]{16}\.jsonl", name)


async def test_equal_words_of_two_tenants_share_nothing(writing, bucket, stored):
    with writing() as kept:
        keep(kept, heard(HELLO, tells("one"), tenant="team-a"), heard(HELLO, tells("two"), tenant="team-b"))
    assert len({name.split("/")[1] for name in names(bucket)}) == 2
    answers = {one.tenant: [json.loads(answer.message)["content"] for answer in one.answers] for one in stored()}
    assert answers == {"team-a": ["one"], "team-b": ["two"]}


async def test_a_spool_is_for_this_user_only(writing, spool):
    with writing(upload_seconds=60.0) as kept:
        keep(kept, heard(HELLO))
        modes = {stat.filemode(path.stat().st_mode) for path in [spool, *spool.rglob("*")]}
    assert modes == {"drwx------", "-rw-------"}


# --- workers that come and go ----------------------------------------------------------------------------------------


async def test_one_worker_sends_for_all_and_another_when_it_is_gone(writing, bucket):
    with writing(upload_seconds=0.05) as first:
        with writing(upload_seconds=60.0) as other:
            keep(other, heard(HELLO))
            await until(lambda: first.uploads.sent == 1)
            assert other.uploads.sent == 0
            first.uploads.close()
            keep(first, heard(chat(user("afterwards"))))
        assert other.uploads.sent == 1
    assert len(names(bucket)) == 2


async def test_two_workers_that_leave_together_leave_nothing(writing, spool):
    with writing(upload_seconds=60.0) as one, writing(upload_seconds=60.0) as other:
        keep(one, heard(HELLO))
        keep(other, heard(chat(user("from the other"))))
        leaving = [threading.Thread(target=each.close) for each in (one, other)]
        for thread in leaving:
            thread.start()
        for thread in leaving:
            thread.join()
        assert waits(spool) == []


async def test_workers_may_write_to_one_conversation_while_it_is_sent(writing, stored, spool):
    turns = [talk(turn, "Together") for turn in range(60)]
    with writing(upload_seconds=0.0) as one, writing(upload_seconds=0.0) as other:

        def works(kept, mine):
            for turn in mine:
                keep(kept, heard(turn))

        threads = [threading.Thread(target=works, args=each) for each in ((one, turns), (other, turns))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        await sent(spool)
        assert (one.faults, other.faults) == (0, 0)
    (found,) = stored()
    assert len(found.messages) == len(messages(turns[-1]))
    assert (verify(found, KEY).faults, torn(found)) == ((), 0)


async def test_what_a_dead_worker_left_is_sent_and_its_torn_end_does_not_count(writing, sky, spool, stored):
    sky.now = down
    with writing() as kept:
        keep(kept, heard(TURNS[2]))
    (left,) = spool.rglob("*.jsonl")
    current = left.rename(left.with_name("current.jsonl"))
    with current.open("ab") as file:
        file.write(b'{"v":1,"at":"torn')
    sky.now = clear
    with writing():
        await sent(spool)
    (found,) = stored()
    assert (len(found.messages), torn(found)) == (len(messages(TURNS[2])), 1)


async def test_what_a_power_cut_took_from_a_file_is_sent_with_the_next_turn(writing, sky, spool, stored):
    sky.now = down
    with writing() as kept:
        keep(kept, heard(TURNS[3]))
        await until(lambda: kept.uploads.faults)
    (left,) = spool.rglob("*Z-*.jsonl")
    left.write_bytes(left.read_bytes()[:-20])
    sky.now = clear
    with writing():
        await sent(spool)
    with writing() as kept:
        keep(kept, heard(TURNS[3]))
        await sent(spool)
    (found,) = stored()
    assert (len(found.messages), verify(found, KEY).faults) == (len(messages(TURNS[3])), ())


async def test_who_leaves_while_the_store_is_away_says_what_stays(writing, sky, spool):
    told = []
    sky.now = down
    began = time.monotonic()
    with writing(tell=told.append) as kept:
        keep(kept, heard(HELLO))
    assert time.monotonic() - began < 2.0
    assert re.fullmatch(rf"\d+ bytes of transcripts wait in {spool} for the next start", told[-1])


async def test_a_disk_that_fails_stops_nobody(writing, spool, warnings):
    spool.write_bytes(b"")
    with writing() as kept:
        assert not kept.keep(history_of(HELLO)).done.result(10)
        await until(lambda: len(warnings) >= 2)
        spool.unlink()
        keep(kept, heard(HELLO))
        await until(lambda: spool.is_dir() and not waits(spool))
