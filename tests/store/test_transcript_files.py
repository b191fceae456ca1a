"""Transcripts on disk: files that rotate, several writers, answers beside the chain, the proof that it holds."""

import fcntl
import json
import os
import threading
import time
from pathlib import Path

import pytest

from proxy.recall import find_text
from proxy.store.contract import SystemClock
from proxy.store.transcripts.files import TranscriptFolder, parse
from proxy.store.transcripts.writer import Recording
from proxy.wire.answer_assembly import Assembly
from proxy.wire.chat_api import CHAT_FORMAT
from proxy.wire.redaction import redaction
from tests.support.completions import delta, finish, text_turn
from tests.support.cost_growth import assert_grows_in_proportion
from tests.support.messages import KEY, assistant, call, chat, system, user
from tests.support.proxy_client import until
from tests.support.transcripts import exchange, find_only, history_of, keep, originals, texts, transcripts
from tests.support.verification import duplicates, verify

CANARY = "sk-canary-7d1e5a"
HELLO = chat(user("hi"))
MORE = chat(user("hi"), assistant("Hello."), user("And now?"))


def growing(turns, size=500):
    """The requests of a conversation that goes on for so long."""
    talk = [user("Begin.")]
    for number in range(turns):
        talk.append(assistant(f"{number} " + "x" * size) + user(f"Go on {number}."))
        yield exchange(chat(*talk))


def paths(folder):
    return sorted(path.relative_to(folder).parts[2] for path in folder.rglob("*.jsonl"))


def _raise(fault):
    raise fault


def raw(folder):
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*.jsonl")))


def test_a_line_of_another_format_is_none(tmp_path):
    with originals(tmp_path) as writer:
        keep(writer, exchange(chat(user("hi"))))
    *_, line = raw(tmp_path).splitlines(keepends=True)
    assert parse(line).message == b'{"role": "user", "content": "hi"}'
    assert parse(line.replace(b'{"v":1,', b'{"v":2,')) is None


def test_the_closed_files_of_version_0_2_are_read_and_not_written_again(tmp_path):
    with originals(tmp_path) as writer:
        keep(writer, *growing(5))
    (current,) = tmp_path.rglob("*.jsonl")
    current.rename(current.with_name("20261121T090000123Z-1a2b3c4d5e6f7081.jsonl"))
    with originals(tmp_path) as writer:
        keep(writer, *growing(8))
    assert len(paths(tmp_path)) == 2
    assert (duplicates(find_only(tmp_path)), len(find_only(tmp_path).messages)) == (0, 17)


@pytest.mark.parametrize(("sync", "synced"), [("never", 0), ("always", 3)])
def test_how_often_the_disk_is_asked_to_hold_on_is_a_setting(tmp_path, monkeypatch, sync, synced):
    asked = []
    monkeypatch.setattr(os, "fsync", lambda number: asked.append(str(Path(f"/proc/self/fd/{number}").readlink())))
    with originals(tmp_path, fsync=sync) as writer:
        keep(writer, *growing(3))
    assert len([path for path in asked if path.endswith(".jsonl")]) == synced
    assert bool([path for path in asked if not path.endswith(".jsonl")]) == bool(synced)


def test_with_fsync_always_lines_are_synced_before_they_count_as_written(tmp_path, monkeypatch):
    def fails(number):
        raise OSError(5, "Input/output error")

    with originals(tmp_path, fsync="always") as writer:
        monkeypatch.setattr(os, "fsync", fails)
        assert not writer.keep(history_of(HELLO)).done.result(timeout=60)
        monkeypatch.undo()
        assert writer.keep(history_of(HELLO)).done.result(timeout=60)
    assert duplicates(find_only(tmp_path)) == 0


def test_two_at_once_do_not_write_the_same(tmp_path):
    with originals(tmp_path) as one, originals(tmp_path) as other:
        waiting = [writer.keep(turn.history).done for turn in growing(30) for writer in (one, other)]
        assert all(done.result(timeout=60) for done in waiting)
    found = find_only(tmp_path)
    assert (len(found.messages), duplicates(found)) == (61, 0)
    assert len(texts(found.path(found.leaves()[0]))) == 61
    assert verify(found, KEY).faults == ()


def test_a_writer_waits_for_the_lock_of_another(tmp_path):
    with originals(tmp_path) as writer:
        keep(writer, exchange(HELLO))
        (path,) = tmp_path.rglob("*.jsonl")
        with path.open("ab") as half:
            fcntl.flock(half, fcntl.LOCK_EX)
            half.write(b'{"v":1,"at":"half a line')
            half.flush()
            done = writer.keep(history_of(MORE)).done
            time.sleep(0.1)
            assert not done.done()
            half.write(b' that is whole in the end"}\n')
        assert done.result(timeout=60)
    assert b"half a line that is whole in the end" in raw(tmp_path)


def test_a_file_that_is_a_link_to_nothing_is_a_fault(tmp_path):
    folder = TranscriptFolder(tmp_path)
    place = folder.locate("team-a", "c0ffee")
    place.mkdir(parents=True)
    (place / "current.jsonl").symlink_to(tmp_path / "nowhere" / "file")
    with pytest.raises(FileNotFoundError):
        folder.append("team-a", "c0ffee", dict)


async def test_an_internal_fault_is_counted_and_the_next_history_is_written(tmp_path, monkeypatch):
    printed, warned = [], []
    monkeypatch.setattr(threading, "excepthook", printed.append)
    with originals(tmp_path, warn=warned.append) as writer:
        broken = writer.keep_later(1, lambda: 1 / 0)
        assert not broken.done.result(timeout=60)
        await until(lambda: writer.failures.count == len(warned) == len(printed) == 1)
        keep(writer, exchange(HELLO))
    assert texts(find_only(tmp_path).messages.values()) == ["hi"]


def test_every_message_knows_under_which_system_prompt_it_came(tmp_path):
    with originals(tmp_path) as writer:
        keep(
            writer,
            exchange(chat(system("Monday."), user("hi"))),
            exchange(chat(system("Tuesday."), user("hi"), assistant("yo"))),
        )
        keep(writer, exchange(chat(system("Monday."), user("hi"), assistant("yo"), user("again"))))
    found = find_only(tmp_path)
    led = [texts(found.head_of(text)) for text in found.messages.values()]
    assert led == [["Monday."], ["Tuesday."], ["Monday."]]
    assert len(found.heads) == raw(tmp_path).count(b'"head"') == 2


def test_the_link_of_a_message_on_several_lines_covers_all_of_them(tmp_path):
    pretty = json.dumps({"model": "m", "messages": user("a\nb")}, indent=1).encode().replace(b"\n", b"\r\n")
    with originals(tmp_path) as writer:
        keep(writer, exchange(pretty))
    assert b"\r" not in raw(tmp_path)
    (text,) = find_only(tmp_path).messages.values()
    assert (texts([text]), text.altered) == (["a\nb"], ("line-breaks",))
    report = verify(find_only(tmp_path), KEY)
    assert (report.faults, report.derived, report.altered) == ((), 0, 1)


def test_every_choice_is_a_line_and_the_first_holds_the_usage(tmp_path):
    body = {"choices": [{"index": at, "message": {"role": "assistant", "content": str(at)}} for at in (0, 1)]}
    with originals(tmp_path) as writer:
        recording = Recording(writer, writer.keep(history_of(HELLO)), Assembly(CHAT_FORMAT, "application/json"))
        recording.feed(json.dumps({**body, "usage": {"prompt_tokens": 7}}).encode())
        assert recording.end(ended=True).result(timeout=60)
    answers = find_only(tmp_path).answers
    assert [(text.choice, text.usage) for text in answers] == [(0, {"prompt_tokens": 7}), (1, {})]


def test_an_error_within_an_answer_is_written_beside_it_without_its_secrets(tmp_path):
    with originals(tmp_path, redaction=redaction()) as writer:
        recording = Recording(writer, writer.keep(history_of(HELLO)), Assembly(CHAT_FORMAT, "text/event-stream"))
        recording.feed(delta(content="Well") + b'data: {"error":{"type":"x","message":"bad key ' + CANARY.encode())
        recording.feed(b'","code":null}}\n\n')
        assert recording.end(ended=True).result(timeout=60)
    (text,) = find_only(tmp_path).answers
    assert text.error == {"type": "x", "message": "bad key [redacted: api-key]", "code": None}


def test_an_answer_to_what_could_not_be_written_is_not_written_either(tmp_path, monkeypatch):
    with originals(tmp_path) as writer:
        append, full = TranscriptFolder._write, [OSError(28, "No space left on device")]
        monkeypatch.setattr(TranscriptFolder, "_write", lambda *line: _raise(full.pop()) if full else append(*line))
        recording = Recording(writer, writer.keep(history_of(HELLO)), Assembly(CHAT_FORMAT, "text/event-stream"))
        recording.feed(finish())
        assert not recording.end(ended=True).result(timeout=60)
        keep(writer, exchange(MORE))
    assert find_only(tmp_path).answers == []


def test_a_long_answer_is_taken_apart_while_it_comes_and_never_held_whole(tmp_path):
    with originals(tmp_path) as writer:
        assembly = Assembly(CHAT_FORMAT, "text/event-stream")
        recording = Recording(writer, writer.keep(history_of(HELLO)), assembly)
        largest = 0
        for number in range(3_000):
            recording.feed(delta(content=f"word {number} " + "x" * 100))
            largest = max(largest, recording._size)
        assert recording.end(ended=True).result(timeout=60)
    assert largest < 70_000
    (text,) = find_only(tmp_path).answers
    assert json.loads(text.message)["content"].count("word") == 3_000
    assert not text.cut


def test_an_answer_is_handed_to_the_thread_in_pieces_of_64_kib(tmp_path):
    with originals(tmp_path) as writer:
        recording = Recording(writer, writer.keep(history_of(HELLO)), Assembly(CHAT_FORMAT, "text/event-stream"))
        recording.feed(b":" * (64 * 1024 - 1))
        assert recording._size == 64 * 1024 - 1
        recording.feed(b"\n")
        assert recording._size == 0
        recording.end(ended=False).result(timeout=60)


def test_a_piece_of_an_answer_that_found_no_room_makes_it_a_cut_one(tmp_path):
    with originals(tmp_path) as writer:
        recording = Recording(writer, writer.keep(history_of(HELLO)), Assembly(CHAT_FORMAT, "text/event-stream"))
        recording.feed(delta(content="begins"))
        writer._room, room = 0, writer._room
        recording.feed(delta(content="x" * 70_000))
        writer._room = room
        recording.feed(delta(content="ends") + finish())
        assert recording.end(ended=True).result(timeout=60)
    (text,) = find_only(tmp_path).answers
    assert text.cut


FORK = chat(user("hi"), assistant("Hello."), user("No, this."))


@pytest.fixture
def forked_conversation(tmp_path):
    moments = iter(range(1, 100))
    with originals(tmp_path, clock=SystemClock(lambda: next(moments))) as writer:
        keep(writer, exchange(HELLO), exchange(MORE, text_turn("Now this.")), exchange(FORK))
    return tmp_path


def test_a_fork_shares_its_trunk_and_the_newest_leaf_comes_first(forked_conversation):
    found = find_only(forked_conversation)
    assert [texts(found.path(leaf))[-1] for leaf in found.leaves()] == ["No, this.", "And now?"]
    assert texts(found.path(found.leaves()[1])) == ["hi", "Hello.", "And now?"]
    assert len(found.messages) == 4


def test_conversations_and_tenants_are_separated(tmp_path):
    with originals(tmp_path) as writer:
        keep(writer, exchange(HELLO), exchange(chat(user("other"))), exchange(HELLO, tenant="a team/ö"))
    found = transcripts(tmp_path)
    assert sorted(one.tenant for one in found) == ["a team/ö", "team-a", "team-a"]
    assert all(verify(one, KEY).faults == () and verify(one, KEY).derived == 1 for one in found)


def lines_of(folder):
    (path,) = folder.rglob("*.jsonl")
    return path, path.read_bytes().splitlines(keepends=True)


def test_the_judge_finds_a_message_that_was_changed_and_one_that_is_missing(forked_conversation):
    path, lines = lines_of(forked_conversation)
    path.write_bytes(b"".join(lines).replace(b"And now?", b"And then?"))
    report = verify(find_only(forked_conversation), KEY)
    assert report.faults == (f"message {history_of(MORE).links[-1].hex()[:16]} is not what it was",)
    path.write_bytes(b"".join(line for line in lines if b'"Hello."' not in line))
    report = verify(find_only(forked_conversation), KEY)
    assert ["which is in no file" in fault for fault in report.faults] == [True] * 2


@pytest.mark.parametrize("harm", [b"\0\0\0\0\n", b'{"v":1,"at":"x"}\n', b"{}\n", b'{"v":9,"at":"x","message":{}}\n'])
def test_an_unreadable_line_is_found(forked_conversation, harm):
    path, lines = lines_of(forked_conversation)
    path.write_bytes(b"".join([*lines[:2], harm, *lines[2:]]))
    assert verify(find_only(forked_conversation), KEY).faults == ("1 lines cannot be read",)


def test_the_cost_of_a_search_grows_with_what_is_searched(tmp_path):
    """A search without case took the product of both lengths: 500 letters held a worker of the admin pages for 9 s."""

    def make(count):
        folder = tmp_path / str(count)
        with originals(folder) as kept:
            keep(kept, exchange(chat(user("go"), call("Read", path="/a", out="a" * 1_000 * count), user("on"))))
        return find_only(folder), "a" * count + "b"

    def search(made):
        transcript, text = made
        assert not list(transcript.search(find_text(text)))

    assert [role for _, role, _, _ in make(1)[0].search(find_text("aaa"))] == ["tool"]
    assert_grows_in_proportion(search, make, 120)
