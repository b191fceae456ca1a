"""The spool: what is closed never changes, and what was sent is not sent again."""

import os
import re
import time

import pytest

from proxy.store.contract import read_elapsed
from proxy.store.transcripts import uploads as module
from proxy.store.transcripts.archive import Archive, StoredObject
from proxy.store.transcripts.files import TranscriptFolder, close_file, find_ids, is_closed, list_files, open_locked
from proxy.store.transcripts.uploads import Uploads
from proxy.store.transcripts.writer import OriginalsWriter
from tests.support.messages import assistant, chat, user
from tests.support.proxy_client import until
from tests.support.transcripts import history_of, originals, transcript_settings

CLOSED = r"\d{8}T\d{9}Z-[0-9a-f]{16}\.jsonl"


class MemoryBucket:
    """An object store in a dictionary: these tests are about the spool."""

    url = "memory://"

    def __init__(self):
        self.objects = {}

    def put(self, name, file):
        self.objects[name] = file.read_bytes()

    def list_objects(self, folder="", *, after=""):
        names = [name for name in sorted(self.objects) if name.startswith(f"{folder}/".lstrip("/")) and name > after]
        return iter([StoredObject(name, len(self.objects[name]), 1.0) for name in names])


def request(turns):
    return chat(user("Hello"), *(piece for number in range(turns) for piece in (assistant("Hm."), user(f"{number}"))))


@pytest.fixture
def place(tmp_path):
    return tmp_path / "team-a" / history_of(request(0)).conversation


@pytest.fixture
def write(tmp_path):
    """A turn of one conversation, written by a process of its own."""

    def turn(number):
        with originals(tmp_path) as writer:
            assert writer.keep(history_of(request(number))).done.result(10)

    return turn


@pytest.fixture
def memory_bucket():
    return MemoryBucket()


@pytest.fixture
def send(tmp_path, memory_bucket):
    """Everything that waits is closed and sent."""

    def all_of_it():
        assert Uploads(memory_bucket, tmp_path, transcript_settings(upload_seconds=60.0)).close()

    return all_of_it


def ids(path):
    return list(find_ids(path.read_bytes().splitlines(keepends=True)))


def test_a_closed_file_never_changes_and_the_next_turn_begins_another(write, place):
    write(1)
    file = open_locked(place / "current.jsonl", os.O_RDWR)
    closed = close_file(place / "current.jsonl")
    os.close(file)
    before = closed.read_bytes()
    write(2)
    assert re.fullmatch(CLOSED, closed.name)
    assert is_closed(closed)
    assert closed.read_bytes() == before
    assert [path.name for path in list_files(place)] == [closed.name, "current.jsonl"]
    assert len(ids(place / "current.jsonl")) == 2


def test_only_what_is_old_or_large_is_closed(tmp_path, write, place, memory_bucket, monkeypatch):
    monkeypatch.setattr(module, "LOOK_SECONDS", 60.0)
    monkeypatch.setattr(module, "UPLOAD_BYTES", 10_000)
    uploads = Uploads(memory_bucket, tmp_path, transcript_settings(upload_seconds=5.0))
    uploads._leaving.set()
    uploads._thread.join(10)
    write(1)
    uploads._look()
    monkeypatch.setattr(module.time, "monotonic", lambda at=time.monotonic: at() + 4.9)
    uploads._look()
    assert memory_bucket.objects == {}
    monkeypatch.setattr(module.time, "monotonic", lambda at=time.monotonic: at() + 0.2)
    uploads._look()
    (name,) = memory_bucket.objects
    assert re.fullmatch(f"team-a/{place.name}/{CLOSED}", name)


def test_a_file_that_is_closed_while_a_turn_is_made_ready_is_left_as_it_is(tmp_path, write, place):
    """The lock is the file's: it cannot be closed while lines for it are made, and after that it has another name."""
    write(1)
    known = []

    def make_lines(ids_there):
        known.append(len(ids_there))
        return {"new": b'{"v":1,"at":"new","after":"x","seen":"","message":{}}\n'}

    folder = TranscriptFolder(tmp_path)
    assert folder.append("team-a", place.name, make_lines)
    file = open_locked(place / "current.jsonl", os.O_RDWR)
    closed = close_file(place / "current.jsonl")
    os.close(file)
    assert folder.append("team-a", place.name, lambda _: {"newer": b'{"v":1,"at":"newer"}\n'})
    assert (known, len(ids(closed)), len(ids(place / "current.jsonl"))) == ([3], 4, 1)


def test_sent_lines_are_removed_and_not_written_again_within_the_hour(tmp_path, place, memory_bucket, monkeypatch):
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.02)
    uploads = Uploads(memory_bucket, tmp_path, transcript_settings(upload_seconds=0.02))
    writer = OriginalsWriter(tmp_path, transcript_settings(), uploads=uploads)

    def turn(number):
        assert writer.keep(history_of(request(number))).done.result(10)
        end = time.monotonic() + 10
        while list_files(place) and time.monotonic() < end:
            time.sleep(0.01)
        assert list_files(place) == []

    for number in range(3):
        turn(number)
    sent = b"".join(memory_bucket.objects.values())
    assert sorted(find_ids(sent.splitlines(keepends=True))) == sorted(
        link.hex() for link in history_of(request(2)).links[1:]
    )
    monkeypatch.setattr("proxy.store.transcripts.files.read_elapsed", lambda: read_elapsed() + 3601)
    turn(3)
    newest = list(memory_bucket.objects.values())[-1]
    assert list(find_ids(newest.splitlines(keepends=True))) == [link.hex() for link in history_of(request(3)).links[1:]]
    assert writer.close()


def test_a_file_with_a_torn_end_is_sent_with_all_that_is_whole(write, place, memory_bucket, send):
    write(1)
    with (place / "current.jsonl").open("ab") as file:
        file.write(b'{"v":1,"at":"torn')
    send()
    (sent,) = memory_bucket.objects.values()
    assert list(find_ids(sent.splitlines(keepends=True))) == [link.hex() for link in history_of(request(1)).links[1:]]


def test_a_torn_line_alone_is_nothing(place, memory_bucket, send):
    place.mkdir(parents=True)
    (place / "current.jsonl").write_bytes(b'{"v":1,"at":"torn')
    send()
    assert memory_bucket.objects == {}
    assert list_files(place) == []


async def test_a_store_that_takes_files_again_is_reported_once(tmp_path, write, memory_bucket, monkeypatch):
    def refuse(name, file):
        raise OSError("out")

    for seconds in ("LOOK_SECONDS", "FIRST_PAUSE_SECONDS", "LONGEST_PAUSE_SECONDS"):
        monkeypatch.setattr(module, seconds, 0.01)
    write(0)
    told, put = [], memory_bucket.put
    memory_bucket.put = refuse
    uploads = Uploads(memory_bucket, tmp_path, transcript_settings(upload_seconds=0.01), report=told.append)
    await until(lambda: uploads.failures.count > 1)
    assert told == []
    memory_bucket.put = put
    await until(lambda: told)
    assert uploads.close()
    assert [line.partition(", ")[0] for line in told] == ["the object store takes transcripts again"]


def test_an_object_of_another_kind_or_at_another_place_is_no_conversation(tmp_path, memory_bucket):
    names = ["team-a/c1/1.jsonl", "team-a/c1/notes.txt", "team-a/1.jsonl", "1.jsonl", "team-a/c1/deep/1.jsonl"]
    memory_bucket.objects = dict.fromkeys(names, b"line\n")
    assert [(one.place, one.bytes) for one in Archive(tmp_path, memory_bucket).find()] == [(tmp_path / "team-a/c1", 5)]


def test_only_one_process_sends_at_a_time(tmp_path):
    with module.lock_spool(tmp_path) as one, module.lock_spool(tmp_path) as other:
        assert (one, other) == (True, False)
    with module.lock_spool(tmp_path) as again:
        assert again


def test_what_a_killed_process_left_of_a_removal_is_not_sent(tmp_path):
    folder = tmp_path / "team-a" / (".removed-" + "f" * 40)
    folder.mkdir(parents=True)
    (folder / "current.jsonl").write_bytes(b"{}\n")
    bucket = MemoryBucket()
    assert Uploads(bucket, tmp_path, transcript_settings(upload_seconds=0.0)).close()
    assert bucket.objects == {}
