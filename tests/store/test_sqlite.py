"""What is SQLite's own: a file that breaks, disks that stall, processes that die."""

import asyncio
import gc
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing

import pytest

from proxy.store.contract import FACT_SECONDS_MAX, Found, Keys, Kind, StoreLimits, StoreUnavailable, SystemClock
from proxy.store.sqlite import BUSY_TIMEOUT_SECONDS, SqliteStore, _lock_for_a_moment, may_write, peek
from tests.support.clocks import Clocks, even_clock
from tests.support.stores import when_available

DAY = 24 * 3600.0


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state" / "state.db"


@pytest.fixture
def warnings():
    return []


@pytest.fixture
async def store(path, warnings):
    opened = SqliteStore(path, warn=warnings.append)
    yield opened
    await opened.close()


async def filled_store(path, blocks=200):
    store = SqliteStore(path)
    for number in range(blocks):
        await store.put_block(f"t/{number}", bytes(2000))
    await store.close()


async def test_values_stored_while_the_clock_was_ahead_are_kept_no_longer_than_others(path):
    """It would outlast its lifetime by as much, and what is newer would be removed first where there is too much."""
    year, now = 365 * 24 * 3600.0, [time.time()]
    limits = StoreLimits(block_seconds=1_000.0)
    ahead = SqliteStore(path, limits, clock=SystemClock(lambda: now[0] + year))
    await ahead.put_block("t/block", b"block")
    await ahead.write_fact("t/fact", b"fact", 1_000.0)
    await ahead.close()
    store = SqliteStore(path, limits, clock=even_clock(lambda: now[0]))
    await store.put_block("t/other", b"block")
    now[0] += FACT_SECONDS_MAX + 1
    assert await store.find_first(["t/block", "t/other"], ["t/fact"]) == (None, None)
    await store.close()


@pytest.fixture
def clocks():
    return Clocks(time.time())


@pytest.fixture
async def ahead_store(path, clocks):
    """A store with a block and a fact, and with room for little more, whose clock has just gone ahead by 400 days."""
    limits = StoreLimits(block_bytes=64_000)
    store = SqliteStore(path, limits, clock=clocks.as_system_clock())
    await store.put_block("t/block", b"block")
    await store.write_fact("t/fact", b"fact", 24 * 3600.0)
    clocks.now += 400 * DAY
    yield store
    await store.close()


async def put_blocks(store, clocks, name, seconds, every=600.0):
    """Write so much, while this time passes, that old rows are removed each time."""
    for number in range(int(seconds // every)):
        clocks.pass_time(every)
        await store.put_block(f"t/{name}/{number}", bytes(3_000))


async def test_a_clock_that_is_ahead_for_a_while_removes_no_block(ahead_store, clocks):
    expected = Found("t/block", b"block"), Found("t/fact", b"fact")
    assert await ahead_store.find_first(["t/block"], ["t/fact"]) == expected
    await put_blocks(ahead_store, clocks, "ahead", 3_000.0)
    assert await ahead_store.put_block("t/block", b"another") == b"block"
    clocks.now -= 400 * DAY
    await put_blocks(ahead_store, clocks, "after", 3_000.0)
    assert await ahead_store.find_first(["t/block"], ["t/fact"]) == expected


async def test_of_a_clock_that_stays_ahead_blocks_that_are_in_use_outlive_the_others(ahead_store, clocks):
    await ahead_store.put_block("t/new", b"new")
    await put_blocks(ahead_store, clocks, "ahead", 2 * 3600.0)
    assert await ahead_store.find_first(["t/block"], ["t/fact"]) == (None, None)
    assert (await ahead_store.find_first(["t/new"]))[0] == Found("t/new", b"new")


@pytest.mark.parametrize("damage", ["torn", "no database", "holes"])
async def test_a_broken_file_is_set_aside_and_a_fresh_one_begun(store, path, warnings, damage):
    await filled_store(path)
    whole = path.read_bytes()
    if damage == "torn":
        path.write_bytes(whole[: len(whole) // 3])
    elif damage == "no database":
        path.write_bytes(b"not a database" * 1000)
    else:
        path.write_bytes(whole[:8192] + b"\xff" * (len(whole) - 8192))
    for number in range(200):  # wherever the damage is, one of these meets it
        await store.find_first([f"t/{number}"])
        await store.put_block(f"t/{number}", b"again")
    assert [warning.partition(" (")[0] for warning in warnings] == [f"{path} is broken"]
    assert (await store.find_first(["t/199"]))[0] == Found("t/199", b"again")
    assert path.with_name("state.db.broken").exists()


@pytest.mark.parametrize("damage", ["value = 'text'", "value = 7", "used = 'text'"])
async def test_a_damaged_row_counts_as_none_and_is_written_anew(store, path, damage):
    await filled_store(path, blocks=2)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(f"update blocks_1 set {damage} where key = 't/1'")
    assert (await store.find_first(["t/1", "t/0"]))[0].key == "t/0"
    assert list(peek(path, ["t/0", "t/1"])) == ["t/0"]
    assert await store.put_block("t/1", b"again") == b"again"
    assert await store.find_first(["t/1"]) == (Found("t/1", b"again"), None)


async def test_a_damaged_row_is_removed_like_any_other(store, path):
    await filled_store(path, blocks=2)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("update blocks_1 set value = 'text' where key = 't/1'")
    await store.remove(["t"], lambda _, value: value == b"text")
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("select * from blocks_1 where key = 't/1'").fetchall() == []


async def test_a_file_that_breaks_under_several_workers_is_replaced_once(path, warnings):
    await filled_store(path)
    workers = [SqliteStore(path, warn=warnings.append) for _ in range(3)]
    for worker in workers:
        await worker.find_first(["t/0"])
    for beside in path.parent.glob("state.db-*"):
        beside.unlink()
    path.write_bytes(b"not a database" * 1000)
    found = [await worker.put_block("t/new", b"of worker %d" % number) for number, worker in enumerate(workers)]
    assert set(found) == {b"of worker 0"}
    assert len(warnings) == 1
    for worker in workers:
        await worker.close()


def corrupt(_db):
    fault = sqlite3.DatabaseError("database disk image is malformed")
    fault.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    raise fault


async def test_the_fresh_file_of_a_quicker_worker_is_not_set_aside(store, path, warnings):
    attempts = []

    def corrupt_after_replacement(db):
        attempts.append(db)
        if len(attempts) == 1:
            path.unlink()
            path.touch()
            corrupt(db)
        return "went on"

    await store.put_block("t/h1", b"block")
    assert await store._in_thread(corrupt_after_replacement) == "went on"
    assert warnings == []


async def test_a_file_that_breaks_again_and_again_makes_the_store_unavailable(store):
    with pytest.raises(StoreUnavailable, match="malformed"):
        await store._in_thread(corrupt)
    assert await store.put_block("t/h1", b"block") == b"block"


@pytest.mark.parametrize("ends", [("", "-wal"), ("", "-wal", "-shm"), ("-shm",)])
async def test_a_file_that_was_truncated_is_filled_again(store, path, warnings, ends):
    await store.put_block("t/h1", b"block")
    for end in ends:
        os.truncate(f"{path}{end}", 0)
    await store.put_block("t/h2", b"block")
    assert (await store.find_first(["t/h2"]))[0] == Found("t/h2", b"block")
    assert warnings == []


async def test_a_file_that_was_emptied_under_several_workers_is_begun_again_by_all(path, warnings):
    stores = [SqliteStore(path, warn=warnings.append) for _ in range(2)]
    for number, each in enumerate(stores):
        await each.put_block(f"t/{number}", b"block")
    path.write_bytes(b"")
    stores.append(SqliteStore(path, warn=warnings.append))
    for number, each in enumerate(stores):
        assert await each.put_block(f"t/{number}", b"again") == b"again"
    for each in stores:
        assert await each.find_first(["t/2"]) == (Found("t/2", b"again"), None)
        await each.close()
    assert warnings == []


async def test_files_of_another_process_in_place_of_a_removed_one_are_left_alone(path):
    store = SqliteStore(path)
    await store.put_block("t/h1", b"block")
    other = sqlite3.connect(path)  # so that the store is not the last to close, which would remove the files beside it
    other.execute("select * from blocks_1").fetchall()
    path.rename(path.with_name("moved"))
    path.touch()
    shared = path.with_name(f"{path.name}-shm")
    shared.unlink()
    shared.write_bytes(b"new")
    await store.close()
    assert shared.read_bytes() == b"new"
    other.close()


async def test_where_nothing_can_be_written_the_store_says_so(tmp_path):
    (tmp_path / "file").write_text("in the way")
    store = SqliteStore(tmp_path / "file" / "state.db")
    with pytest.raises(StoreUnavailable, match=r"state\.db"):
        await store.put_block("t/h1", b"block")
    await store.close()


@pytest.fixture
async def locking_process(path):
    """The file with a block in it, and another process that keeps its write lock."""
    before = SqliteStore(path)
    await before.put_block("t/h1", b"block")
    await before.close()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("begin immediate")
    yield other
    other.close()


async def test_a_file_locked_for_too_long_makes_the_store_unavailable_and_no_longer(path, locking_process, monkeypatch):
    monkeypatch.setattr("proxy.store.sqlite.BUSY_TIMEOUT_SECONDS", 0.05)
    store = SqliteStore(path)
    with pytest.raises(StoreUnavailable, match="locked"):
        await store.put_block("t/h2", b"block")
    locking_process.execute("rollback")
    assert await when_available(lambda: store.put_block("t/h2", b"block")) == b"block"
    await store.close()


@pytest.mark.seconds
async def test_while_a_file_is_locked_only_the_first_call_waits(path, locking_process, store):
    began = time.monotonic()
    failed = await asyncio.gather(
        *(store.put_block(f"t/{number}", b"new") for number in range(20)), return_exceptions=True
    )
    assert {type(fault) for fault in failed} == {StoreUnavailable}
    for number in range(200):
        with pytest.raises(StoreUnavailable, match="locked"):
            await store.write_fact(f"t/fact/{number}", b"fact", 60)
    assert BUSY_TIMEOUT_SECONDS <= time.monotonic() - began < 3 * BUSY_TIMEOUT_SECONDS
    assert not may_write(path)
    locking_process.execute("rollback")
    assert may_write(path)
    assert await when_available(lambda: store.put_block("t/new", b"block")) == b"block"


@pytest.mark.seconds
async def test_an_outage_that_begins_as_the_last_one_ends_stays(locking_process, store):
    """The file is locked again between the try that shows it free and the event loop's next turn."""
    with pytest.raises(StoreUnavailable, match="locked"):
        await store.put_block("t/h2", b"block")
    store._breaker._trying.cancel()
    await asyncio.sleep(0.1)
    locking_process.execute("rollback")
    store._breaker.begin_trying()
    await asyncio.sleep(0)
    store._lane._threads.submit(int).result()
    locking_process.execute("begin immediate")
    behind = store._lane._threads.submit(store._run, _lock_for_a_moment)
    assert isinstance(behind.exception(), StoreUnavailable)
    await asyncio.sleep(0.05)
    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match="locked"):
        await store.put_block("t/h4", b"block")
    assert time.monotonic() - began < BUSY_TIMEOUT_SECONDS / 2


@pytest.mark.seconds
async def test_writes_of_other_workers_are_waited_for_without_an_outage(path, store):
    """Each of these holds the lock for a while, as a busy worker may, and far less long than a write waits."""
    await store.put_block("t/h1", b"block")
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    for number in range(10):
        other.execute("begin immediate")
        release = threading.Timer(0.1, other.rollback)
        release.start()
        assert await store.put_block(f"t/{number}", b"block") == b"block"
        release.join()
    other.close()


@pytest.mark.seconds
async def test_an_old_block_is_found_in_a_locked_file(path, locking_process):
    """To record that it was used is a write, and can be done next time."""
    later = SqliteStore(path, clock=SystemClock(lambda: time.time() + 6 * 24 * 3600.0))
    assert (await later.find_first(["t/h1"]))[0] == Found("t/h1", b"block")
    await later.close()


def stalling_clock(released):
    """A clock that the store's thread waits for, as it would for a disk that stalls."""

    def read():
        if threading.current_thread().name.startswith("store"):
            released.wait(10)
        return time.time()

    return SystemClock(read)


async def test_a_write_that_was_given_up_is_not_made_later(path):
    released = threading.Event()
    store = SqliteStore(path, timeout=0.1, clock=stalling_clock(released))
    stuck = asyncio.create_task(store.put_block("t/stuck", b"block"))
    await asyncio.sleep(0.02)
    behind = asyncio.create_task(store.put_block("t/behind", b"block"))
    assert {type(fault) for fault in await asyncio.gather(stuck, behind, return_exceptions=True)} == {StoreUnavailable}
    released.set()
    assert await when_available(lambda: store.put_block("t/next", b"block")) == b"block"
    assert await store.find_first(["t/behind"]) == (None, None)
    await store.close()


async def test_a_disk_that_stalls_is_not_waited_for_and_not_asked_again(path):
    released = threading.Event()
    store = SqliteStore(path, timeout=0.05, clock=stalling_clock(released))
    with pytest.raises(StoreUnavailable, match="did not answer"):
        await store.put_block("t/h1", b"block")
    with pytest.raises(StoreUnavailable, match="did not answer"):
        store.put_block("t/h2", b"block").send(None)  # at once, with nothing awaited
    released.set()
    await store.close()


async def test_a_call_that_fails_after_it_was_given_up_is_no_fault_of_the_proxy(path):
    """asyncio reports an exception that nobody retrieves, and the log had `our-fault` beside `store-failed`."""
    faults = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: faults.append(context["message"]))
    released = threading.Event()
    store = SqliteStore(path, timeout=0.05, clock=stalling_clock(released))
    calls = [store.put_block("t/stuck", b"block"), store.put_block("t/behind", b"block")]
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(fault) for fault in outcomes} == {StoreUnavailable}
    released.set()
    assert await when_available(lambda: store.put_block("t/next", b"block")) == b"block"
    await store.close()
    del outcomes, calls  # their tracebacks hold what was given up
    gc.collect()
    assert faults == []


WRITER = """
import asyncio, sys
from pathlib import Path
from proxy.store.sqlite import SqliteStore

async def main(path, name, count):
    store = SqliteStore(Path(path))
    print((await store.load_secret()).hex(), flush=True)
    for number in range(int(count)):
        told = await store.put_block(f"t/{number}", name.encode() * 100)
        print(number, told[:1].decode(), flush=True)
    await store.close()

asyncio.run(main(*sys.argv[1:]))
"""


def writer(path, name, count):
    command = [sys.executable, "-c", WRITER, str(path), name, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_processes_that_begin_at_once_agree_on_everything(path):
    processes = [writer(path, name, 100) for name in "abcd"]
    found = [process.communicate(timeout=50)[0].splitlines() for process in processes]
    assert [process.returncode for process in processes] == [0] * 4
    assert all(lines == found[0] for lines in found)
    assert len(found[0]) == 101


async def test_acknowledged_writes_survive_a_kill(store, path):
    process = writer(path, "a", 100_000)
    lines = [process.stdout.readline() for _ in range(60)]
    process.send_signal(signal.SIGKILL)
    lines += process.communicate()[0].splitlines()
    acknowledged = [line.split()[0] for line in lines[1:] if len(line.split()) == 2]
    assert len(acknowledged) >= 59
    assert (await store.load_secret()).hex() == lines[0].strip()
    for number in acknowledged:
        assert (await store.find_first([f"t/{number}"]))[0] == Found(f"t/{number}", b"a" * 100)


@pytest.mark.parametrize(("held", "outcome"), [(0.05, b"block"), (5, None)])
async def test_a_fresh_file_another_process_prepares_is_waited_for_but_not_for_ever(path, monkeypatch, held, outcome):
    monkeypatch.setattr("proxy.store.sqlite.BUSY_TIMEOUT_SECONDS", 0.2)
    path.parent.mkdir()
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("begin exclusive")
    release = threading.Timer(held, other.rollback)
    release.start()
    store = SqliteStore(path)
    try:
        assert await store.put_block("t/h1", b"block") == outcome
    except StoreUnavailable:
        assert outcome is None
    release.cancel()
    release.join()
    await store.close()
    other.close()


async def test_a_look_up_finds_what_is_about_to_be_written(store):
    writing = asyncio.create_task(store.write_fact("t/anchor/1", b"new", 60))
    await asyncio.sleep(0)
    _, found = await store.find_first([], ["t/anchor/1"])
    assert found.value == b"new"
    await writing


async def test_a_look_up_asks_for_no_more_keys_than_it_needs(store):
    """A key is written when it is asked for, and each turn of a long conversation would write one for each message."""
    await store.put_block("t/h3", b"block")
    asked = []

    class Names(list):
        def __iter__(self):
            for name in super().__iter__():
                asked.append(name)
                yield name

    names = Names(f"t/h{number}" for number in range(10_000))
    assert await store.find(Keys(Kind.BLOCK, names)) == (Found("t/h3", b"block"),)
    assert len(asked) < 100
    assert await store.find(Keys(Kind.BLOCK, names[4:])) == (None,)


async def test_a_fact_is_written_though_nothing_waits_for_it(store):
    writing = asyncio.create_task(store.write_fact("t/anchor/1", b"new", 60))
    await asyncio.sleep(0)
    writing.cancel()
    assert await store.read_fact("t/anchor/1") == b"new"


async def test_secret_and_documents_of_version_0_3_are_found_and_stay_for_it(path):
    path.parent.mkdir()
    with sqlite3.connect(path) as db:
        db.execute("create table secret_1 (one integer primary key check (one = 1), value blob not null)")
        db.execute("insert into secret_1 values (1, ?)", (b"s" * 33,))
        db.execute("create table documents_1 (key text primary key, value blob not null)")
        db.execute("insert into documents_1 values ('keys', ?)", (b"document",))
    db.close()
    for expected in (b"document", b"newer"):
        store = SqliteStore(path)
        assert await store.load_secret() == b"s" * 33
        assert await store.read_document("keys") == expected
        assert await store.replace_document("keys", expected, b"newer")
        await store.close()
    with sqlite3.connect(path) as db:
        assert db.execute("select value from secret_1").fetchall() == [(b"s" * 33,)]
    db.close()
