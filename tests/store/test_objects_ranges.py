"""Ranges of a file as objects: each line is sent once, or once more after a fault, and read once."""

import os
import re
import time

import pytest

from proxy.store.transcripts.archive import Archive, read_transcript
from proxy.store.transcripts.files import StoredObject, StoreFault, find_ids, list_files
from proxy.store.transcripts.uploads import TranscriptSettings, Uploads, lock_spool
from proxy.store.transcripts.writer import OriginalsWriter
from tests.support.completions import text_turn
from tests.support.messages import KEY, assistant, chat, user
from tests.support.transcripts import exchange, history_of, keep, originals
from tests.support.verification import duplicates, verify

NAME = r"\d{8}T\d{9}Z-[0-9a-f]{16}-(\d{12})-(\d{12})\.jsonl"


class MemoryBucket:
    """An object store in a dictionary: these tests are about the spool."""

    url = "memory://"

    def __init__(self):
        self.objects = {}
        self.fault = None

    def put(self, name, data):
        self.objects[name] = data
        if self.fault is not None:  # the answer is lost
            raise self.fault

    def get(self, name):
        return self.objects[name]

    def delete(self, name):
        del self.objects[name]

    def list_objects(self, folder="", *, after=""):
        for name in sorted(self.objects):
            if name.startswith(folder) and name > after:
                yield StoredObject(name, len(self.objects[name]), time.time())


def request(turns):
    return chat(user("Hello"), *(piece for number in range(turns) for piece in (assistant("Hm."), user(f"{number}"))))


@pytest.fixture
def spool(tmp_path):
    return tmp_path / "spool"


@pytest.fixture
def place(spool):
    return spool / "team-a" / history_of(request(0)).conversation


@pytest.fixture
def memory_bucket():
    return MemoryBucket()


@pytest.fixture
def process(spool, memory_bucket):
    """A process that writes a turn of the conversation, and sends it before this returns."""
    uploads = Uploads(memory_bucket, spool, TranscriptSettings(upload_seconds=0.01))
    writer = OriginalsWriter(spool, uploads=uploads)

    def turn(number, answer=None):
        keep(writer, exchange(request(number), answer))
        wait_until(lambda: list_sent_ids(memory_bucket)[-1:] == history_of(request(number)).links[-1:])
        wait_until(lambda: uploads.waiting_bytes == 0)

    yield turn
    assert writer.close()


def wait_until(is_done):
    end = time.monotonic() + 10
    while not is_done():
        assert time.monotonic() < end
        time.sleep(0.005)


def send_all(bucket, spool):
    """All that a process does between its start and its end."""
    return Uploads(bucket, spool, TranscriptSettings(upload_seconds=60.0)).close()


def list_sent_ids(bucket):
    return [name for data in list(bucket.objects.values()) for name in find_ids(data.splitlines(keepends=True))]


def list_ranges(bucket):
    names = [name.rpartition("/")[2] for name in bucket.objects]
    return [tuple(map(int, re.fullmatch(NAME, name).groups())) for name in names]


def read(spool, bucket):
    (saved,) = Archive(spool, bucket).find()
    return read_transcript(saved)


def age(path, seconds):
    os.utime(path, (time.time() - seconds, time.time() - seconds))


def test_each_upload_is_what_is_new_in_the_file_which_stays(process, place, memory_bucket):
    for number in range(3):
        process(number)
    (path,) = list_files(place)
    ranges = list_ranges(memory_bucket)
    assert [start for start, _ in ranges] == [0, *(end for _, end in ranges[:-1])]
    assert ranges[-1][1] == path.stat().st_size
    assert b"".join(memory_bucket.objects.values()) == path.read_bytes()


def test_a_file_is_removed_after_a_rest_and_the_next_turn_is_written_whole(process, place, memory_bucket):
    process(1)
    age(place / "current.jsonl", 3601)
    wait_until(lambda: not place.exists())
    process(2)
    assert list_sent_ids(memory_bucket) == history_of(request(1)).links + history_of(request(2)).links


def test_the_rest_of_a_conversation_that_is_not_sent_is_kept(spool, place, memory_bucket):
    with originals(spool) as writer:
        keep(writer, exchange(request(1)))
    age(place / "current.jsonl", 7200)
    memory_bucket.fault = StoreFault("no answer")
    assert not send_all(memory_bucket, spool)
    assert len(list_files(place)) == 1


def test_what_was_sent_more_than_an_hour_ago_is_sent_again_before_what_is_new(process, spool, place, memory_bucket):
    """In between, another replica may have removed the conversation from the store."""
    process(1, text_turn("Yes."))
    memory_bucket.objects.clear()
    age(place / "current.sent", 3601)
    process(2)
    assert list_ranges(memory_bucket)[0][0] == 0
    found = read(spool, memory_bucket)
    assert (len(found.messages), len(found.answers), verify(found, KEY).faults) == (5, 1, ())


def test_lines_that_were_sent_twice_are_read_once(process, spool, place, memory_bucket):
    process(1, text_turn("Yes."))
    wait_until(lambda: b'"answer"' in b"".join(memory_bucket.objects.values()))
    (place / "current.sent").unlink()  # as if the process had been killed before it was written
    process(2)
    found = read(spool, memory_bucket)
    assert (len(found.messages), len(found.answers), duplicates(found)) == (5, 1, 3)


def test_an_upload_whose_answer_is_lost_is_repeated_under_its_name(spool, memory_bucket):
    with originals(spool) as writer:
        keep(writer, exchange(request(1)))
    memory_bucket.fault = StoreFault("no answer")
    for _ in range(3):
        assert not send_all(memory_bucket, spool)
    memory_bucket.fault = None
    assert send_all(memory_bucket, spool)
    assert len(memory_bucket.objects) == 1


def test_a_torn_line_is_not_sent(spool, place, memory_bucket):
    with originals(spool) as writer:
        keep(writer, exchange(request(1)))
    with (place / "current.jsonl").open("ab") as file:
        file.write(b'{"v":1,"at":"torn')
    assert send_all(memory_bucket, spool)
    assert b"torn" not in b"".join(memory_bucket.objects.values())
    assert list_sent_ids(memory_bucket) == history_of(request(1)).links
    assert not place.exists()


def test_a_torn_line_alone_is_nothing(spool, place, memory_bucket):
    place.mkdir(parents=True)
    (place / "current.jsonl").write_bytes(b'{"v":1,"at":"torn')
    assert send_all(memory_bucket, spool)
    assert memory_bucket.objects == {}
    assert not place.exists()


def test_a_new_file_does_not_go_on_from_the_note_of_an_old_one(spool, place, memory_bucket):
    place.mkdir(parents=True)
    (place / "current.sent").write_text("20261121T090000Z-1a2b3c4d5e6f7081 300\n")
    with originals(spool) as writer:
        keep(writer, exchange(request(1)))
    assert send_all(memory_bucket, spool)
    assert list_sent_ids(memory_bucket) == history_of(request(1)).links


def test_a_spool_that_is_too_large_keeps_no_sent_files(spool, memory_bucket):
    uploads = Uploads(memory_bucket, spool, TranscriptSettings(upload_seconds=0.01, spool_bytes=30_000))
    writer = OriginalsWriter(spool, uploads=uploads)
    for number in range(5):
        keep(writer, exchange(chat(user(f"{number} " + "x" * 10_000))))
        wait_until(lambda: uploads.waiting_bytes == 0)
    wait_until(lambda: sum(path.stat().st_size for path in spool.rglob("*.jsonl")) <= 30_000)
    assert list(spool.rglob("*.jsonl"))
    assert len(memory_bucket.objects) == 5
    assert writer.close()


def test_a_large_file_is_sent_in_parts_of_whole_lines(spool, memory_bucket, monkeypatch):
    monkeypatch.setattr("proxy.store.transcripts.uploads.OBJECT_BYTES", 500)
    with originals(spool) as writer:
        keep(writer, exchange(request(20)), exchange(chat(user("Hello"), assistant("x" * 2_000), user("Go on."))))
    assert send_all(memory_bucket, spool)
    assert len(memory_bucket.objects) > 5
    assert all(data.endswith(b"}\n") for data in memory_bucket.objects.values())
    assert len(read(spool, memory_bucket).messages) == 43


def test_only_one_process_sends_at_a_time(spool):
    with lock_spool(spool) as one, lock_spool(spool) as other:
        assert (one, other) == (True, False)
    with lock_spool(spool) as again:
        assert again
