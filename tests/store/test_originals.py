"""The originals: whole, once, and never in the way of a request."""

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

from proxy.history.messages import Message
from proxy.history.request import Request
from proxy.store.contract import SystemClock
from proxy.store.transcripts import files
from proxy.store.transcripts import writer as writer_module
from proxy.store.transcripts.files import History, TranscriptFolder
from proxy.store.transcripts.writer import OriginalsWriter
from tests.support.messages import chat, user
from tests.support.proxy_client import until
from tests.support.transcripts import history_of, transcript_settings


def history(*texts):
    return history_of(chat(*map(user, texts)))


@pytest.fixture
def warnings():
    return []


@pytest.fixture
def writer(tmp_path, warnings):
    made = []

    def start(clock=None):
        made.append(OriginalsWriter(tmp_path, transcript_settings(), warnings.append, clock=clock))
        return made[-1]

    yield start
    for originals in made:
        assert originals.close()


def keep(originals, *histories):
    written = []
    for one in histories:
        done = originals.keep(one).done
        originals.hurry()
        written.append(done.result(timeout=60))
    return written


def lines(folder):
    return [json.loads(line) for file in sorted(folder.rglob("*.jsonl")) for line in file.read_bytes().splitlines()]


def texts(folder):
    return [line["message"]["content"] for line in lines(folder)]


def test_a_history_that_is_sent_again_writes_only_what_is_new_one_message_a_line(tmp_path, writer):
    begun, longer = history("one", "two"), history("one", "two", "three", "four")
    originals = writer(clock=SystemClock(lambda: 0))
    assert keep(originals, begun, begun, longer) == [True] * 3
    assert texts(Path(originals.locate("team-a", begun.conversation))) == texts(tmp_path)
    assert texts(tmp_path) == ["one", "two", "three", "four"]
    assert {line["seen"] for line in lines(tmp_path)} == {"1970-01-01T00:00:00.000Z"}


def test_a_message_is_kept_byte_for_byte(tmp_path, writer):
    raw = rb'{"role":"user", "content":"\u00e9\/\ud83d", "n":1e400,"big":123456789012345678901234567890}'
    keep(writer(), History("t", [b"h0", b"h1"], Request(raw, (Message(raw, "user"),), (0,))))
    (file,) = tmp_path.rglob("*.jsonl")
    assert file.read_bytes().endswith(b'"message":' + raw + b"}\n")


def test_after_a_restart_a_torn_last_line_and_what_is_new_are_written(tmp_path, writer):
    keep(writer(), history("one", "two", "three" * 50_000))
    (file,) = tmp_path.rglob("*.jsonl")
    file.write_bytes(file.read_bytes()[:-70_000])
    keep(writer(), history("one", "two", "three" * 50_000, "four"))
    assert texts(tmp_path) == ["one", "two", "three" * 50_000, "four"]


def test_a_file_that_is_one_torn_line_is_started_again(tmp_path, writer):
    keep(writer(), history("one"))
    (file,) = tmp_path.rglob("*.jsonl")
    file.write_bytes(b'{"v":1,"at":"' + b"x" * 200_000)
    keep(writer(), history("one"))
    assert texts(tmp_path) == ["one"]


@pytest.mark.parametrize("tenant", ["..", "../../etc", "/etc", "", ".", "a/b", "x" * 300, "tëam", "a\0b"])
def test_no_tenant_and_no_conversation_leads_out_of_the_folder(tmp_path, writer, tenant):
    folder = tmp_path / "inner"
    originals = OriginalsWriter(folder, transcript_settings())
    assert keep(originals, history_of(chat(user("one")), tenant)) == [True]
    assert originals.close()
    assert [file.relative_to(folder).parts for file in tmp_path.rglob("*.jsonl")] != []
    assert all(len(file.relative_to(folder).parts) == 3 for file in tmp_path.rglob("*.jsonl"))


def test_hashes_of_many_conversations_are_forgotten_and_read_again(tmp_path, writer, monkeypatch):
    monkeypatch.setattr(files, "REMEMBERED_BYTES", 2_500)
    originals = writer()
    many = [history(f"conversation {number}", "two", "three") for number in range(20)]
    keep(originals, *many, *many)
    assert len(texts(tmp_path)) == 60
    assert len(originals._folder._known) == 3


def count_calls(monkeypatch, act):
    """How often this asks the system about files and folders."""
    calls = []
    with monkeypatch.context() as patched:
        for name in ("stat", "lstat", "fstat", "scandir", "listdir", "open"):
            real = getattr(os, name)
            patched.setattr(
                os, name, lambda *args, _real=real, _name=name, **more: calls.append(_name) or _real(*args, **more)
            )
        act()
    return Counter(calls)


def test_an_append_asks_no_more_of_the_system_among_many_conversations_and_files(tmp_path, writer, monkeypatch):
    originals = writer()
    keep(originals, history("one"), history("one", "two"))
    among_few = count_calls(monkeypatch, lambda: keep(originals, history("one", "two", "three")))
    for number in range(2_000):
        place = tmp_path / "team-a" / f"{number:040}"
        place.mkdir()
        (place / "current.jsonl").write_bytes(b"")
    keep(originals, *(history(*(f"{word}" for word in range(length))) for length in range(1, 100)))
    many = [f"{word}" for word in range(100)]
    assert count_calls(monkeypatch, lambda: keep(originals, history(*many))) <= among_few
    assert among_few["scandir"] + among_few["listdir"] == 0


@pytest.fixture
def patient(monkeypatch):
    """What nobody waits for is gathered for longer than a test takes."""
    monkeypatch.setattr(writer_module, "GATHER_SECONDS", 60.0)


@pytest.mark.usefixtures("patient")
def test_what_nobody_waits_for_is_gathered_until_somebody_does(tmp_path, writer):
    originals = writer()
    first, second = originals.keep(history("one")).done, originals.keep(history("one", "two")).done
    with pytest.raises(TimeoutError):
        first.result(timeout=0.05)
    originals.hurry()
    assert first.result(timeout=30)
    assert second.result(timeout=30)
    assert keep(originals, history("one", "two", "three")) == [True]
    assert texts(tmp_path) == ["one", "two", "three"]


@pytest.mark.usefixtures("patient")
def test_what_fills_half_of_the_queue_is_gathered_no_longer(writer, monkeypatch):
    monkeypatch.setattr(writer_module, "QUEUE_BYTES", 3_000)
    originals = writer()
    first, second = (originals.keep(history(f"{number}" * 1_000)).done for number in range(2))
    assert first.result(timeout=30)
    assert second.result(timeout=30)


@pytest.mark.usefixtures("patient")
def test_the_end_of_the_process_waits_for_nothing_to_gather(tmp_path, writer):
    originals = writer()
    originals.keep(history("one"))
    assert originals.close(seconds=30.0)
    assert texts(tmp_path) == ["one"]


def test_messages_after_an_unwritten_turn_are_written_with_it(tmp_path, writer, monkeypatch):
    originals = writer()
    keep(originals, history("one"))
    write, full = TranscriptFolder._write, [OSError(28, "No space left on device")]
    released = threading.Event()

    def fails_once(*line):
        released.wait(10)
        if full:
            raise full.pop()
        write(*line)

    monkeypatch.setattr(TranscriptFolder, "_write", fails_once)
    second, third = originals.keep(history("one", "two")), originals.keep(history("one", "two", "three"))
    released.set()
    assert (second.done.result(timeout=60), third.done.result(timeout=60)) == (False, True)
    assert texts(tmp_path) == ["one", "two", "three"]


async def test_a_write_fault_is_reported_until_the_disk_is_back(tmp_path, writer, monkeypatch):
    monkeypatch.setattr(writer_module, "PROBE_SECONDS", 0.02)
    originals = writer()
    assert originals.problem == ""
    place = tmp_path / "team-a"
    place.write_bytes(b"")  # no folder can be made in place of a file
    with monkeypatch.context() as patched:
        patched.setattr(TranscriptFolder, "check_writable", lambda _: (_ for _ in ()).throw(OSError("still full")))
        assert keep(originals, history("one")) == [False]
        assert "File exists" in originals.problem or "Not a directory" in originals.problem
        await asyncio.sleep(0.1)
        assert originals.problem
    await until(lambda: not originals.problem)


async def test_a_slow_disk_delays_no_request(tmp_path, writer, monkeypatch, warnings):
    released = threading.Event()
    append = TranscriptFolder._write
    monkeypatch.setattr(TranscriptFolder, "_write", lambda *line: released.wait(10) and append(*line))
    monkeypatch.setattr(writer_module, "QUEUE_BYTES", 3_000)
    originals = writer()
    began = asyncio.get_running_loop().time()
    stored = [originals.keep(history(f"{number}" * 1_000)).done for number in range(5)]
    assert asyncio.get_running_loop().time() - began < 60
    assert [one.done() for one in stored] == [False, False, True, True, True]
    assert originals.failures.count == 3
    assert len(warnings) == 1
    released.set()
    assert [await asyncio.wrap_future(one) for one in stored] == [True, True, False, False, False]
    assert await asyncio.wrap_future(originals.keep(history("4" * 1_000)).done)


def test_a_disk_that_fails_each_request_is_reported_once_in_a_while_and_at_each_new_cause(
    writer, monkeypatch, warnings
):
    """Each report is a row of the activity log, which keeps so many."""
    faults = [OSError(28, "No space left"), OSError(5, "Input/output error")]
    paths = iter(range(100))

    def fail(*_):
        raise OSError(faults[0].errno, faults[0].strerror, f"conversation-{next(paths)}.jsonl")

    monkeypatch.setattr(TranscriptFolder, "_write", fail)
    originals = writer()
    keep(originals, *(history(f"{number}") for number in range(20)))
    assert (originals.failures.count, len(warnings)) == (20, 1)
    del faults[0]
    keep(originals, history("a"), history("b"))
    assert (originals.failures.count, len(warnings)) == (22, 2)
    monkeypatch.setattr(writer_module, "REPORT_SECONDS", 0.0)
    keep(originals, history("c"))
    assert len(warnings) == 3


async def test_a_client_that_stops_waiting_does_not_undo_the_writing(tmp_path, writer, monkeypatch):
    released = threading.Event()
    append = TranscriptFolder._write
    monkeypatch.setattr(TranscriptFolder, "_write", lambda *line: released.wait(10) and append(*line))
    originals = writer()
    first = originals.keep(history("in the way"))
    second = originals.keep(history("one"))
    second.done.cancel()
    released.set()
    assert first.done.result(timeout=60)
    assert keep(originals, history("two")) == [True]
    assert sorted(texts(tmp_path)) == ["in the way", "one", "two"]


FULL = """
import resource, signal, sys
from pathlib import Path
from proxy.history.messages import Message
from proxy.history.request import Request
from proxy.store.transcripts.files import History
from proxy.store.transcripts.writer import OriginalsWriter
from proxy.config.settings import Transcripts

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
originals = OriginalsWriter(Path(sys.argv[1]), Transcripts())
sources = [b'{"role":"user","content":"%d %s"}' % (number, b"x" * 1000) for number in range(300)]
request = Request(b"", tuple(Message(source, "user") for source in sources), ())
history = History("t", [b"h%d" % number for number in range(301)], request)
full = originals.keep(history).done.result()
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
failures = originals.failures.count
print(full, failures, originals.keep(history).done.result(), originals.close())
"""


def test_a_disk_that_was_full_for_a_while_leaves_no_gap_and_no_half_line(tmp_path):
    found = subprocess.run([sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["False", "1", "True", "True"]
    assert [line["at"] for line in lines(tmp_path)] == [(b"h%d" % number).hex() for number in range(1, 301)]
