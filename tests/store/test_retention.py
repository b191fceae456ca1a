"""What is too old or too much goes, whole conversations at a time, and never one that is being written to."""

import os
import time

import pytest

from proxy.store.contract import MEBIBYTE, SystemClock
from proxy.store.transcripts.archive import Archive, Pruning, Retention
from proxy.store.transcripts.files import open_locked
from tests.support.clocks import Clocks
from tests.support.messages import assistant, chat, user
from tests.support.proxy_client import until
from tests.support.transcripts import exchange, find_only, keep, originals, texts, transcripts

DAY = 24 * 3600.0
NOW = 1_000 * DAY


@pytest.fixture
def folder(tmp_path):
    """Five conversations of about 10 kB; the first was written to five days ago, the last today."""
    with originals(tmp_path) as writer:
        for day in range(5, 0, -1):
            keep(writer, exchange(chat(user(f"{day} days ago" + "x" * 10_000))))
            (newest,) = [path for path in tmp_path.rglob("*.jsonl") if b'"%d days ago' % day in path.read_bytes()]
            os.utime(newest, (NOW - day * DAY, NOW - day * DAY + 60))
    return tmp_path


def days(found):
    return [round((NOW - one.written_at) / DAY) for one in found]


def test_conversations_idle_too_long_are_removed_oldest_first(folder):
    assert days(Archive(folder).find_expired(Retention(days=2.5), NOW)) == [5, 4, 3]
    assert days(Archive(folder).find_expired(Retention(days=9), NOW)) == []


def test_beyond_the_size_limit_the_oldest_conversations_are_removed(folder):
    assert days(Archive(folder).find_expired(Retention(bytes=25_000), NOW)) == [5, 4, 3]
    assert days(Archive(folder).find_expired(Retention(bytes=1), NOW)) == [5, 4, 3, 2, 1]


def test_a_conversation_at_the_bound_stays(folder):
    archive = Archive(folder)
    assert days(archive.find_expired(Retention(days=3), NOW + 60)) == [5, 4]
    assert days(archive.find_expired(Retention(days=3), NOW + 61)) == [5, 4, 3]
    newest, second, *_ = archive.newest_first()
    assert days(archive.find_expired(Retention(bytes=newest.bytes + second.bytes), NOW)) == [5, 4, 3]
    assert days(archive.find_expired(Retention(bytes=newest.bytes + second.bytes - 1), NOW)) == [5, 4, 3, 2]


def test_files_dated_later_than_now_are_no_obstacle_to_the_size_limit(folder):
    """The clock was ahead when they were written."""
    assert days(Archive(folder).find_expired(Retention(bytes=25_000), NOW - 30 * DAY)) == [5, 4, 3]


def test_without_bounds_nothing_goes(folder):
    assert Archive(folder).find_expired(Retention(), NOW) == []


def test_a_removed_conversation_loses_its_folder_too(folder):
    for one in Archive(folder).find_expired(Retention(days=2.5), NOW):
        assert one.remove() == one.bytes
    assert sorted(days(Archive(folder).find())) == [1, 2]
    assert len(list(folder.glob("*/*"))) == 2


def test_a_conversation_written_to_during_retention_stays(folder):
    (oldest,) = Archive(folder).find_expired(Retention(days=4.5), NOW)
    with originals(folder) as writer:
        keep(writer, exchange(chat(user("5 days ago" + "x" * 10_000), assistant("Yes?"), user("I am back."))))
    assert oldest.remove() == 0
    assert oldest.place.exists()


def test_a_conversation_that_comes_back_is_written_whole_again(tmp_path):
    talk = chat(user("hi")), chat(user("hi"), assistant("Hello."), user("And now?"))
    with originals(tmp_path) as writer:
        keep(writer, exchange(talk[0]))
        for one in list(Archive(tmp_path).find()):
            one.remove()
        keep(writer, exchange(talk[1]))
    assert texts(find_only(tmp_path).messages.values()) == ["hi", "Hello.", "And now?"]


def test_a_writer_that_waits_while_its_file_is_removed_starts_it_again(tmp_path, monkeypatch):
    with originals(tmp_path) as writer:
        keep(writer, exchange(chat(user("hi"))))
        (path,) = tmp_path.rglob("*.jsonl")
        file = open_locked(path, os.O_RDWR)
        more = exchange(chat(user("hi"), assistant("Hello."))).history
        waiting = writer.keep(more).done
        time.sleep(0.1)
        path.unlink()
        os.close(file)
        assert waiting.result(timeout=60)
        keep(writer, exchange(chat(user("hi"), assistant("Hello."))))
    assert sorted(texts(find_only(tmp_path).messages.values())) == ["Hello.", "hi"]


async def test_the_writer_sees_to_it_though_the_clock_was_set_back(folder):
    """The clock was a day ahead when the writer began, so the time of its next sweep is still to come."""
    now = [NOW + DAY]
    with originals(folder, days=4.5, clock=SystemClock(lambda: now[0])) as writer:
        await until(lambda: len(list(Archive(folder).find())) == 3)
        now[0] -= DAY
        aged = next(folder.rglob("*.jsonl"))
        os.utime(aged, (NOW - 5 * DAY, NOW - 5 * DAY))
        keep(writer, exchange(chat(user("new"))))
        await until(lambda: not aged.exists())


@pytest.fixture
def clocks():
    return Clocks(NOW)


@pytest.fixture
def ahead_writer(folder, clocks):
    """A writer that began while the clock was right; it keeps what was written to within the last 6 days."""
    with originals(folder, days=6, clock=clocks.as_system_clock()) as writer:
        keep(writer, exchange(chat(user("at the beginning"))))
        yield writer


def write_often(writer, clocks, seconds, every=600.0):
    """Requests that come while this time passes."""
    for number in range(int(seconds // every)):
        clocks.pass_time(every)
        keep(writer, exchange(chat(user(f"{number} at {clocks.elapsed}"))))


def count_old(folder):
    return sum(one.written_at < NOW for one in Archive(folder).find())


async def test_a_clock_that_is_ahead_for_a_while_removes_nothing(folder, ahead_writer, clocks):
    clocks.now += 40 * DAY
    write_often(ahead_writer, clocks, 3_000.0)
    clocks.now -= 40 * DAY
    write_often(ahead_writer, clocks, 3 * 3600.0)
    assert count_old(folder) == 5


async def test_old_originals_go_on_time_while_the_clock_is_right(folder, ahead_writer, clocks):
    for _ in range(2 * 24):
        write_often(ahead_writer, clocks, 3600.0, every=3600.0)
    await until(lambda: count_old(folder) == 4)


async def test_the_size_limit_holds_while_the_clock_is_ahead(tmp_path, clocks):
    clocks.now = time.time()  # as the files have it
    with originals(tmp_path, days=6, mib=100_000 / MEBIBYTE, clock=clocks.as_system_clock()) as writer:
        keep(writer, exchange(chat(user("at the beginning"))))
        clocks.now += 40 * DAY
        for number in range(40):
            keep(writer, exchange(chat(user(f"{number} " + "x" * 10_000))))
        await until(lambda: sum(one.bytes for one in Archive(tmp_path).find()) <= 100_000)
    assert len(transcripts(tmp_path)) >= 5


def test_a_writer_that_has_nothing_to_write_sleeps(tmp_path, monkeypatch):
    looks = []
    monkeypatch.setattr(Pruning, "prune_when_due", lambda _: looks.append("once more"))
    with originals(tmp_path):
        time.sleep(0.1)
    assert len(looks) <= 3


def test_another_process_is_left_to_see_to_it(folder):
    with originals(folder) as writer:
        keep(writer, exchange(chat(user("new"))))
    assert len(list(Archive(folder).find())) == 6
