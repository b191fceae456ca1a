"""The spool: what is sealed never changes, and what is sent is remembered for as long as that is safe."""

import os
import threading
import time

import pytest
from chat import chat, says, user
from transcribed import history_of

from proxy.store.originals import Keeping, Originals
from proxy.store.transcripts import spool as module
from proxy.store.transcripts.files import SENT, Files, locked
from proxy.store.transcripts.lines import ids_in
from proxy.store.transcripts.spool import Spool, intact, sealed_in


@pytest.fixture
def spool(tmp_path):
    return Spool(tmp_path, seconds=5.0, rotate=10_000, sync="rotate")


@pytest.fixture
def write(tmp_path):
    """A turn of one conversation, written by a process of its own."""

    def turn(number, writer="w0"):
        kept = Originals(tmp_path, writer, Keeping())
        pieces = [piece for each in range(number) for piece in (says("Hm."), user(f"{each}"))]
        assert kept.keep(history_of(chat(user("Hello"), *pieces))).done.result(10)
        assert kept.close()

    return turn


@pytest.fixture
def place(tmp_path):
    return tmp_path / "team-a" / history_of(chat(user("Hello"))).conversation


def sealed(spool):
    """All that waits, sealed now."""
    (place,) = spool.ready(spool.look(), every=True)
    return sealed_in(place)


def ids(path):
    return list(ids_in(path.read_bytes().splitlines(keepends=True)))


def test_what_is_sealed_is_named_by_what_stands_in_it_and_the_next_turn_begins_another(spool, write, place):
    write(1)
    (segment,) = sealed(spool)
    assert intact(segment)
    write(2)
    assert intact(segment)
    assert sorted(path.name for path in place.glob("*.jsonl")) == [segment.name, "w0.1.jsonl"]
    assert spool.name(segment) == f"team-a/{place.name}/{segment.name}"


def test_only_what_is_old_or_large_is_sealed(spool, write, place, monkeypatch):
    write(1)
    assert spool.ready(spool.look()) == []
    monkeypatch.setattr(module.time, "monotonic", lambda at=time.monotonic: at() + 4.9)
    assert spool.ready(spool.look()) == []
    monkeypatch.setattr(module.time, "monotonic", lambda at=time.monotonic: at() + 0.2)
    assert spool.ready(spool.look()) == [place]
    assert len(sealed_in(place)) == 1


def test_a_writer_that_waits_while_its_file_is_sealed_leaves_that_as_it_is(spool, write, place):
    write(1)
    (path,) = place.glob("*.jsonl")
    with locked(path, os.O_RDWR):
        waiting = threading.Thread(target=write, args=[2])
        waiting.start()
        time.sleep(0.2)
        path.rename(segment := path.with_name("20261121T090000000Z-w0-0123456789abcdef.jsonl"))
        size = segment.stat().st_size
    waiting.join()
    assert segment.stat().st_size == size
    assert len(ids(segment)) + len(ids(path)) == 5


def test_a_writer_whose_file_is_sealed_between_two_looks_looks_again(spool, write, tmp_path, place):
    write(1)
    looks = []

    def lines(known):
        looks.append(len(known))
        if len(looks) == 1:
            sealed(spool)
        return {"new": b'{"v":1,"at":"new","after":"x","seen":"","message":{}}\n'}

    assert Files(tmp_path, "w0").add(place, lines) > 0
    assert looks == [3, 3]


def test_what_is_sent_is_remembered_and_gone(spool, write, place):
    write(1)
    (segment,) = sealed(spool)
    known = ids(segment)
    spool.sent(segment)
    assert [path.name for path in place.iterdir()] == [SENT]
    assert ids(place / SENT) == known
    write(1)
    assert list(place.glob("*.jsonl")) == []
    write(2)
    assert len(ids(place / "w0.1.jsonl")) == 2


def test_what_is_sent_makes_room_on_a_full_disk_though_that_remembers_nothing(spool, write, place):
    write(1)
    (segment,) = sealed(spool)
    (place / SENT).symlink_to("/dev/full")
    spool.sent(segment)
    assert [path.name for path in place.iterdir()] == [SENT]
    (place / SENT).unlink()
    write(1)
    assert len(ids(place / "w0.1.jsonl")) == 3


def test_a_memory_with_a_torn_end_goes_on(spool, write, place):
    write(1)
    spool.sent(sealed(spool)[0])
    with (place / SENT).open("ab") as file:
        file.write(b'{"v":1,"at":"torn')
    write(2)
    spool.sent(sealed(spool)[0])
    assert len(ids(place / SENT)) == 5


def test_of_a_segment_that_goes_on_where_nothing_is_remembered_nothing_is(spool, write, place):
    write(1)
    spool.sent(sealed(spool)[0])
    write(2)
    (place / SENT).unlink()
    spool.sent(sealed(spool)[0])
    assert not (place / SENT).exists()
    write(3)
    assert len(ids(place / "w0.1.jsonl")) == 7


def test_a_memory_that_is_not_believed_any_more_begins_anew_with_its_conversation(spool, write, place):
    write(1)
    spool.sent(sealed(spool)[0])
    with (place / SENT).open("ab") as file:
        file.write(b'{"v":1,"at":"long-ago"}\n')
    os.utime(place / SENT, (0, 0))
    write(2)
    (segment,) = sealed(spool)
    assert len(ids(segment)) == 5
    spool.sent(segment)
    assert {*ids(place / SENT)} == ids_of(2)


def ids_of(turn):
    pieces = [piece for each in range(turn) for piece in (says("Hm."), user(f"{each}"))]
    return set(history_of(chat(user("Hello"), *pieces)).chain)


def test_what_is_nothing_but_a_torn_line_is_nothing(spool, place):
    place.mkdir(parents=True)
    (place / "w0.1.jsonl").write_bytes(b'{"v":1,"at":"torn')
    assert sealed(spool) == []
    assert list(place.glob("*.jsonl")) == []


def test_one_process_has_the_lock_until_it_leaves(tmp_path):
    one, other = (Spool(tmp_path, 5.0, 10_000, "rotate") for _ in range(2))
    assert one.take()
    assert one.take()
    assert not other.take()
    one.leave()
    assert other.take()
    other.leave()
