"""An object store with faults: nothing is lost, no request is delayed, and each fault is reported once."""

import asyncio
import re

import pytest

from proxy.store.contract import MEBIBYTE
from proxy.store.transcripts import uploads as module
from proxy.store.transcripts.archive import StoreFault
from tests.support.messages import chat, user
from tests.support.object_store.conversations import HELLO, TURNS, object_names, pending_files, wait_until_sent
from tests.support.object_store.faulty_relay import alternate, drop_connection, pass_through, refuse_with
from tests.support.proxy_client import until
from tests.support.transcripts import exchange, history_of, keep
from tests.support.verification import duplicates

pytest_plugins = ("tests.support.object_store.fixtures",)


async def test_while_the_store_is_away_everything_waits_and_then_goes(
    writing, spool, relay, stored_conversations, warnings
):
    found = []
    relay.now = drop_connection
    with writing(tell=found.append) as writer:
        for number in range(30):
            keep(writer, exchange(chat(user(f"conversation {number}"))))
        await until(lambda: writer.uploads.failures.count >= 4)
        assert len(pending_files(spool)) == 30
        relay.now = pass_through
        await wait_until_sent(spool)
    assert len(stored_conversations()) == 30
    (warning,) = warnings
    assert re.search(
        r"transcripts wait in .*spool: the object store at .* cannot be reached .*: check `transcripts.dir`", warning
    )
    (good,) = found
    assert re.search(r"takes transcripts again, after \d+ seconds", good)


async def test_the_waits_grow_so_that_a_store_in_trouble_is_left_alone(writing, relay, monkeypatch):
    monkeypatch.setattr(module, "LONGEST_PAUSE_SECONDS", 60.0)
    relay.now = drop_connection
    with writing() as writer:
        keep(writer, *(exchange(chat(user(f"conversation {number}"))) for number in range(20)))
        await until(lambda: writer.uploads.failures.count)
        await asyncio.sleep(0.1)  # those that were on their way
        asked = len(relay.asked)
        await asyncio.sleep(0.6)
        assert len(relay.asked) == asked


async def test_a_store_that_fails_now_and_then_gets_it_all(writing, spool, relay, stored_conversations, warnings):
    relay.now = alternate(
        refuse_with(503, "SlowDown"), pass_through, refuse_with(500, "InternalError"), pass_through, drop_connection
    )
    with writing() as writer:
        for turn in TURNS:
            keep(writer, exchange(turn), exchange(chat(user(f"beside {len(turn)}"))))
        await wait_until_sent(spool)
    assert len(stored_conversations()) == 5
    assert [duplicates(one) for one in stored_conversations()] == [0] * 5
    assert len(warnings) <= 3


async def test_a_store_that_hangs_delays_no_request_and_no_shutdown(s3, writing, spool):
    impatient = s3.bucket(prefix=f"hangs-{id(spool)}", timeout_seconds=0.2)
    s3.stop()
    try:
        with writing(to=impatient) as writer:
            keep(writer, *(exchange(chat(user(f"conversation {number}"))) for number in range(5)))
    finally:
        s3.resume_process()
    assert len(pending_files(spool)) == 5


@pytest.fixture
def refuse(bucket, monkeypatch):
    """Refuse all files of these conversations. The names of all that are asked for are returned, as they come."""

    def begin(*histories):
        put, asked, refused = bucket.put, [], [history_of(history).conversation for history in histories]

        def refuse_some(name, file):
            asked.append(name)
            if any(conversation in name for conversation in refused):
                raise StoreFault("EntityTooLarge", "too large")
            put(name, file)

        monkeypatch.setattr(bucket, "put", refuse_some)
        return asked

    return begin


@pytest.fixture
def long_pauses(writing, monkeypatch):
    """Which `writing` makes short."""
    for name in ("FIRST_PAUSE_SECONDS", "LONGEST_PAUSE_SECONDS"):
        monkeypatch.setattr(module, name, 600.0)


@pytest.mark.usefixtures("long_pauses")
@pytest.mark.parametrize("parallel", [1, 4])
async def test_the_pause_of_a_refused_segment_is_no_pause_of_the_others(writing, bucket, spool, refuse, parallel):
    """Neither of those that come with it, nor of those that come while it waits to be tried again."""
    asked = refuse(HELLO)
    with writing(UPLOADS_AT_ONCE_MAX=parallel) as writer:
        with module.lock_spool(spool, waits=True):  # they are sent together
            keep(writer, exchange(HELLO), *(exchange(chat(user(f"conversation {number}"))) for number in range(10)))
        await until(lambda: len(object_names(bucket)) == 10)
        keep(writer, *(exchange(chat(user(f"another {number}"))) for number in range(5)))
        await until(lambda: len(object_names(bucket)) == 15)
        assert sum(history_of(HELLO).conversation in name for name in asked) == 1
    assert len(pending_files(spool)) == 1


@pytest.mark.usefixtures("long_pauses")
async def test_a_store_that_fails_for_a_moment_is_not_left_alone_for_as_long_as_a_refused_segment(
    writing, bucket, spool, refuse, monkeypatch
):
    refuse(HELLO)
    with writing() as writer:
        with module.lock_spool(spool, waits=True):  # they are sent together
            keep(writer, exchange(HELLO), exchange(chat(user("One."))))
        await until(lambda: writer.uploads.failures.count)
        put, faults = bucket.put, [StoreFault("SlowDown", "later")]

        def fail_once(name, file):
            if faults:
                raise faults.pop()
            put(name, file)

        monkeypatch.setattr(bucket, "put", fail_once)
        monkeypatch.setattr(module, "FIRST_PAUSE_SECONDS", 0.01)
        keep(writer, exchange(chat(user("Another."))))
        await until(lambda: len(object_names(bucket)) == 2)


@pytest.mark.usefixtures("long_pauses")
async def test_a_store_that_refuses_two_in_a_row_is_left_alone(writing, spool, refuse):
    histories = [chat(user(f"conversation {number}")) for number in range(10)]
    asked = refuse(*histories)
    with writing(UPLOADS_AT_ONCE_MAX=1) as writer:
        with module.lock_spool(spool, waits=True):
            keep(writer, *map(exchange, histories))
        await until(lambda: writer.uploads.failures.count)
        await asyncio.sleep(0.2)
        assert len(asked) == writer.uploads.failures.count == 2
    assert len(pending_files(spool)) == 10


async def test_turns_beyond_the_spools_limit_are_counted_and_sent_with_the_next_turn(
    writing, relay, stored_conversations, warnings
):
    relay.now = drop_connection
    with writing(spool_mib=100_000 / MEBIBYTE) as writer:
        done = [
            writer.keep(history_of(chat(user(f"{number} " + "x" * 20_000)))).done.result(10) for number in range(10)
        ]
        assert done == [True] * 5 + [False] * 5
        assert writer.failures.count == 5
        assert any("raise `transcripts.spool_mib`" in warning for warning in warnings)
        relay.now = pass_through
        await until(lambda: writer.uploads.waiting_bytes == 0)
        for number in range(10):  # one by one: a busy machine may upload more slowly than this writes
            keep(writer, exchange(chat(user(f"{number} " + "x" * 20_000))))
            await until(lambda: writer.uploads.waiting_bytes == 0)
    assert [duplicates(one) for one in stored_conversations()] == [0] * 10


async def test_the_bound_is_for_all_workers_of_a_disk_together(writing, relay):
    relay.now = drop_connection
    with writing(spool_mib=100_000 / MEBIBYTE) as one, writing(spool_mib=100_000 / MEBIBYTE) as other:
        for number in range(5):
            keep(one, exchange(chat(user(f"{number} " + "x" * 20_000))))
        await until(lambda: other.uploads.waiting_bytes > 100_000)
        assert not other.keep(history_of(HELLO)).done.result(10)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("function", ["close_file", "lock_spool", "is_closed"])
async def test_a_fault_of_our_own_costs_one_thread_and_no_transcript(
    writing, spool, stored_conversations, monkeypatch, function
):
    right, tries = getattr(module, function), []

    def wrong(*given):
        tries.append(given)
        if len(tries) < 3:
            raise LookupError
        return right(*given)

    monkeypatch.setattr(module, function, wrong)
    with writing() as writer:
        keep(writer, exchange(HELLO))
        await wait_until_sent(spool)
    assert len(stored_conversations()) == 1
