"""Originals in an object store: once, whole, under their tenant, whichever process stops."""

import asyncio
import json
import re
from functools import partial

from proxy.store.transcripts.archive import Archive, StoreFault, read_transcript
from tests.support.completions import text_turn
from tests.support.messages import KEY, chat, user
from tests.support.object_store.conversations import (
    HELLO,
    TURNS,
    messages,
    object_names,
    pending_files,
    turn_request,
    wait_until_sent,
)
from tests.support.object_store.faulty_relay import drop_connection, pass_through
from tests.support.proxy_client import until
from tests.support.transcripts import exchange, history_of, keep, texts
from tests.support.verification import duplicates, torn, verify

pytest_plugins = ("tests.support.object_store.fixtures",)


async def test_a_conversation_goes_under_its_tenant_and_leaves_nothing_behind(
    writing, bucket, spool, stored_conversations
):
    with writing() as writer:
        keep(writer, exchange(TURNS[2], text_turn("Hi.").using(3, 2)))
        await wait_until_sent(spool)
    (name,) = object_names(bucket)
    conversation = history_of(TURNS[2]).conversation
    assert re.fullmatch(rf"team-a/{conversation}/\d{{8}}T\d{{9}}Z-[0-9a-f]{{16}}\.jsonl", name)
    (found,) = stored_conversations()
    assert texts(found.path(found.leaves()[0])) == [message["content"] for message in messages(TURNS[2])]
    assert [json.loads(answer.message)["content"] for answer in found.answers] == ["Hi."]
    assert verify(found, KEY).faults == ()
    assert list((spool / "team-a" / conversation).iterdir()) == []


async def test_an_upload_that_is_repeated_changes_nothing(writing, bucket, spool, stored_conversations, monkeypatch):
    put, tries = bucket.put, []

    def twice(name, file):
        put(name, file)
        tries.append(name)
        if len(tries) < 3:
            raise StoreFault("unreachable", "the answer was lost")

    monkeypatch.setattr(bucket, "put", twice)
    with writing() as writer:
        keep(writer, exchange(TURNS[1]))
        await wait_until_sent(spool)
    assert tries == object_names(bucket) * 3
    assert duplicates(stored_conversations()[0]) == 0


async def test_a_large_segment_goes_at_once_and_a_small_one_when_it_is_old(writing, bucket, spool):
    with writing(upload_seconds=60.0, UPLOAD_BYTES=10_000) as writer:
        keep(writer, exchange(HELLO))
        keep(writer, exchange(chat(user("x" * 20_000))))
        await until(partial(object_names, bucket))
        await asyncio.sleep(0.1)
        assert len(object_names(bucket)) == 1
        assert pending_files(spool) == ["current.jsonl"]
    assert len(object_names(bucket)) == 2


async def test_spooled_turns_are_read_with_uploaded_ones(writing, bucket, spool, stored_conversations):
    with writing() as writer:
        keep(writer, exchange(TURNS[1]))
        await wait_until_sent(spool)
    with writing(upload_seconds=60.0) as writer:
        keep(writer, exchange(TURNS[3]), exchange(chat(user("Something else"))))
        found = {texts(one.messages.values())[0]: one for one in stored_conversations()}
        assert pending_files(spool) == ["current.jsonl"] * 2
    assert found.keys() == {"Hello there", "Something else"}
    assert len(found["Hello there"].messages) == len(messages(TURNS[3]))


async def test_files_that_leave_the_spool_during_a_read_are_not_missed(writing, bucket, spool):
    with writing(upload_seconds=0.3) as writer:
        keep(writer, exchange(TURNS[3]))
        (seen,) = Archive(spool, bucket).find()
        assert seen.is_on_disk
        await wait_until_sent(spool)
    assert len(read_transcript(seen).messages) == len(messages(TURNS[3]))


async def test_every_object_name_begins_with_its_tenant_and_reveals_no_content(writing, bucket):
    strange = ["team-a", "team-b", "../../etc", "a/b", "Zebra Inc. <zebra@example.com>", "x" * 300, "tëam", ".pruned"]
    with writing() as writer:
        keep(writer, *(exchange(chat(user("Zebra in every word")), tenant=tenant) for tenant in strange))
    tenants = {name.split("/")[0] for name in object_names(bucket)}
    assert {"team-a", "team-b"} < tenants
    assert len(tenants) == len(strange)
    for name in object_names(bucket):
        assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*/[0-9a-f]{40}/[0-9TZ]+-[0-9a-f]{16}\.jsonl", name)


async def test_one_worker_sends_for_all_and_another_when_it_is_gone(writing, bucket):
    with writing(upload_seconds=0.05) as first:
        with writing(upload_seconds=60.0) as other:
            keep(other, exchange(HELLO))
            await until(lambda: len(object_names(bucket)) == 1)
            first.uploads.close()
            keep(first, exchange(chat(user("afterwards"))))
        assert len(object_names(bucket)) == 2


async def test_two_workers_that_leave_together_leave_nothing(writing, spool):
    with writing(upload_seconds=60.0) as one, writing(upload_seconds=60.0) as other:
        keep(one, exchange(HELLO))
        keep(other, exchange(chat(user("from the other"))))
        await asyncio.gather(*(asyncio.to_thread(each.close) for each in (one, other)))
        assert pending_files(spool) == []


async def test_workers_may_write_to_one_conversation_while_it_is_sent(writing, stored_conversations, spool):
    turns = [turn_request(turn, "Together") for turn in range(60)]
    with writing(upload_seconds=0.0) as one, writing(upload_seconds=0.0) as other:
        talk = [exchange(turn) for turn in turns]
        await asyncio.gather(*(asyncio.to_thread(keep, writer, *talk) for writer in (one, other)))
        await wait_until_sent(spool)
        assert (one.failures.count, other.failures.count) == (0, 0)
    (found,) = stored_conversations()
    assert len(found.messages) == len(messages(turns[-1]))
    assert (verify(found, KEY).faults, torn(found)) == ((), 0)


async def test_lines_lost_in_a_power_cut_are_sent_with_the_next_turn(writing, relay, spool, stored_conversations):
    relay.now = drop_connection
    with writing() as writer:
        keep(writer, exchange(TURNS[3]))
        await until(lambda: writer.uploads.failures.count)
    (left,) = spool.rglob("*Z-*.jsonl")
    left.write_bytes(left.read_bytes()[:-20])
    relay.now = pass_through
    with writing():
        await wait_until_sent(spool)
    with writing() as writer:
        keep(writer, exchange(TURNS[3]))
        await wait_until_sent(spool)
    (found,) = stored_conversations()
    assert (len(found.messages), verify(found, KEY).faults) == (len(messages(TURNS[3])), ())


async def test_a_shutdown_during_an_outage_reports_the_remaining_files(writing, relay, spool):
    found = []
    relay.now = drop_connection
    with writing(tell=found.append) as writer:
        keep(writer, exchange(HELLO))
    assert re.fullmatch(rf"\d+ bytes of transcripts wait in {spool} for the next start", found[-1])


async def test_a_failing_disk_stops_no_request(writing, spool, warnings):
    spool.write_bytes(b"")
    with writing() as writer:
        assert not writer.keep(history_of(HELLO)).done.result(10)
        await until(lambda: len(warnings) >= 2)
        spool.unlink()
        keep(writer, exchange(HELLO))
        await until(lambda: spool.is_dir() and not pending_files(spool))
