"""An object store with faults: nothing is lost, no request is delayed, and each fault is reported once."""

import asyncio
import re
import time

import pytest

from proxy.store.transcripts import uploads as module
from proxy.store.transcripts.archive import StoreFault
from tests.support.messages import chat, user
from tests.support.object_store.weather import changing, clear, down, refusing, slow
from tests.support.object_store.work import HELLO, TURNS, names, sent, waits
from tests.support.proxy_client import until
from tests.support.transcripts import heard, history_of, keep
from tests.support.verification import duplicates

pytest_plugins = ("tests.support.object_store.fixtures",)


# --- bad weather -----------------------------------------------------------------------------------------------------


async def test_while_the_store_is_away_everything_waits_and_then_goes(writing, spool, sky, stored, warnings):
    told = []
    sky.now = down
    with writing(tell=told.append) as kept:
        for number in range(30):
            keep(kept, heard(chat(user(f"conversation {number}"))))
        await until(lambda: kept.uploads.faults >= 4)
        assert len(waits(spool)) == 30
        sky.now = clear
        await sent(spool)
    assert len(stored()) == 30
    (warning,) = warnings
    assert re.search(
        r"transcripts wait in .*spool: the object store at .* cannot be reached .*: check `transcripts.dir`", warning
    )
    (good,) = told
    assert re.search(r"takes transcripts again, after \d+ seconds", good)


async def test_the_waits_grow_so_that_a_store_in_trouble_is_left_alone(writing, sky, monkeypatch):
    monkeypatch.setattr(module, "LONGEST_PAUSE_SECONDS", 60.0)
    sky.now = down
    with writing() as kept:
        keep(kept, *(heard(chat(user(f"conversation {number}"))) for number in range(20)))
        await until(lambda: kept.uploads.faults)
        await asyncio.sleep(0.1)  # those that were on their way
        asked = len(sky.asked)
        await asyncio.sleep(0.6)
        assert len(sky.asked) == asked


async def test_a_store_that_fails_now_and_then_gets_it_all(writing, spool, sky, stored, warnings):
    sky.now = changing(refusing(503, "SlowDown"), clear, refusing(500, "InternalError"), clear, down)
    with writing() as kept:
        for turn in TURNS:
            keep(kept, heard(turn), heard(chat(user(f"beside {len(turn)}"))))
        await sent(spool)
    assert len(stored()) == 5
    assert [duplicates(one) for one in stored()] == [0] * 5
    assert len(warnings) <= 3


async def test_a_slow_store_delays_nobody(writing, sky, stored, spool):
    sky.now = slow(3.0)
    with writing() as kept:
        keep(kept, heard(HELLO))
        await until(lambda: sky.asked)
        began = time.monotonic()
        keep(kept, *(heard(chat(user(f"conversation {number}"))) for number in range(20)))
        assert time.monotonic() - began < 2
        sky.now = clear
        await sent(spool)
    assert len(stored()) == 21


async def test_a_store_that_hangs_delays_nobody_and_leaving_is_not_held_up(s3, writing, spool):
    impatient = s3.bucket(prefix=f"hangs-{id(spool)}", timeout_seconds=0.2)
    s3.stop()
    try:
        with writing(to=impatient) as kept:
            keep(kept, *(heard(chat(user(f"conversation {number}"))) for number in range(5)))
            began = time.monotonic()
        assert time.monotonic() - began < 10
    finally:
        s3.go_on()
    assert len(waits(spool)) == 5


async def test_refused_credentials_are_told_once_and_nothing_of_them(s3, writing, spool, warnings, stored):
    with writing(to=s3.bucket(prefix="other", secret="guessed-0000")) as kept:
        for turn in TURNS:
            keep(kept, heard(turn))
        await until(lambda: kept.uploads.faults >= 3)
    (warning,) = warnings
    assert "answers 403 SignatureDoesNotMatch for s3://transcripts/other: check `transcripts.dir`" in warning
    assert not [secret for secret in (s3.key, s3.secret, "guessed-0000") if secret in warning]
    with writing():
        await sent(spool)
    assert len(stored()) == 1


async def test_a_bucket_that_nobody_made_is_asked_for(s3, writing, spool, warnings):
    with writing(to=s3.bucket(name="not-yet-there")) as kept:
        keep(kept, heard(HELLO))
        await until(lambda: warnings)
    assert "answers 404 NoSuchBucket" in warnings[0]
    assert len(waits(spool)) == 1


async def test_one_segment_that_is_refused_does_not_hold_up_the_others(writing, bucket, spool, monkeypatch):
    put, refused = bucket.put, history_of(HELLO).conversation

    def picky(name, file):
        if refused in name:
            raise StoreFault("EntityTooLarge", "too large")
        put(name, file)

    monkeypatch.setattr(bucket, "put", picky)
    with writing(parallel_uploads=1) as kept:
        keep(kept, heard(HELLO))
        await until(lambda: kept.uploads.faults)
        keep(kept, *(heard(chat(user(f"conversation {number}"))) for number in range(10)))
        await until(lambda: len(waits(spool)) == 1)
    assert len(names(bucket)) == 10


# --- a full spool ----------------------------------------------------------------------------------------------------


async def test_what_is_too_much_for_the_spool_is_counted_and_comes_with_the_next_turn(writing, sky, stored, warnings):
    sky.now = down
    with writing(spool_bytes=100_000) as kept:
        done = [kept.keep(history_of(chat(user(f"{number} " + "x" * 20_000)))).done.result(10) for number in range(10)]
        assert done == [True] * 5 + [False] * 5
        assert kept.faults == 5
        assert "raise `transcripts.spool_mib`" in warnings[-1]
        sky.now = clear
        await until(lambda: kept.uploads.waiting_bytes == 0)
        keep(kept, *(heard(chat(user(f"{number} " + "x" * 20_000))) for number in range(10)))
    assert [duplicates(one) for one in stored()] == [0] * 10


async def test_the_bound_is_for_all_workers_of_a_disk_together(writing, sky):
    sky.now = down
    with writing(spool_bytes=100_000) as one, writing(spool_bytes=100_000) as other:
        keep(one, *(heard(chat(user(f"{number} " + "x" * 20_000))) for number in range(5)))
        await until(lambda: other.uploads.waiting_bytes > 100_000)
        assert not other.keep(history_of(HELLO)).done.result(10)


# --- a fault of our own ----------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("function", ["close_file", "lock_spool", "is_closed"])
async def test_a_fault_of_our_own_costs_one_thread_and_no_transcript(writing, spool, stored, monkeypatch, function):
    right, tries = getattr(module, function), []

    def wrong(*given):
        tries.append(given)
        if len(tries) < 3:
            raise LookupError
        return right(*given)

    monkeypatch.setattr(module, function, wrong)
    with writing() as kept:
        keep(kept, heard(HELLO))
        await sent(spool)
    assert len(stored()) == 1
