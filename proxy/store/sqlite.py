"""The store of one machine: an SQLite file that all worker processes share, and that survives restarts and kills.

All calls run in one thread, so the event loop never waits for a disk; a call that takes too long is given up. Facts
wait some milliseconds for a call that takes them along. After a write that another process kept out for a second, every
further write fails at once until one can be made again; after a call that did not answer in time, reads do, too. A file
that turns out to be broken is set aside and a fresh one is made: everything in it can be derived again.

The version of the format is part of the tables' names. A release that changes a table makes a new one beside it, and
one that is rolled back finds its own as it left them. In version 0.1 a block was a `promise`: the file and a table
still have that name.
"""

import asyncio
import math
import os
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from proxy.store.clock import SystemClock
from proxy.store.contract import (
    FACT_SECONDS_MAX,
    NO_DOCUMENT,
    RECORDED_USES_PER_LIFETIME,
    SECRET_BYTES,
    Found,
    StoreLimits,
    StoreUnavailable,
    ignore,
)

T = TypeVar("T")

FILE_NAME = "promises.sqlite"
STORE_TIMEOUT_SECONDS = 2.0
"""A request waits so long for the store, then goes on without it."""
WRITE_DELAY_SECONDS = 0.005
"""A fact waits so long for a look-up that takes it along: a trip to the thread costs more than the write."""
BUSY_TIMEOUT_SECONDS = 1.0
"""A write waits so long for another process's write."""
CHECK_INTERVAL_SECONDS = 0.25
"""While calls fail at once, it is tried this often whether the file can be written again."""
CHECK_BUSY_SECONDS = 0.05
"""Such a try waits so long for another process's write: reads wait behind it."""
KEYS_PER_QUERY = (16, 128, 500)
"""Newest first: the answer nearly always lies in the first batch. The last figure is that of all further ones."""
SWEEPS_PER_FILLING = 32
"""The limits are enforced each time a 32nd of the smaller one has been written, not at every write."""

_TABLES = """
create table if not exists promises_1 (key text primary key, value blob not null, used real not null);
create table if not exists facts_1 (key text primary key, value blob not null, until real not null);
create table if not exists secret_1 (one integer primary key check (one = 1), value blob not null);
create table if not exists documents_1 (key text primary key, value blob not null);
"""
_BLOCKS, _FACTS = ("promises_1", "used"), ("facts_1", "until")
"""Each table, and the column by which its rows expire."""
_FIND = "select {0}.key, {0}.value, {1} from json_each(?) as wanted join {0} on {0}.key = wanted.value where {1} > ?"
"""A join: to ask for keys `in` a list takes two and a half times as long."""
_PUT = """
insert into {0} values (?, ?, ?) on conflict (key) do update set value = excluded.value, {1} = excluded.{1}
where {0}.{1} <= ? or {0}.value = ? returning key"""
_DELETE_OLDEST = """
delete from {0} where key in (
    select key from (
        select key, sum(length(key) + length(value)) over (order by {1} desc, key) as filled from {0}
    ) where filled > ?)
"""

Act = Callable[[sqlite3.Connection], Any]
Table = tuple[str, str]
Row = tuple[str, bytes, float]
DEFAULT = StoreLimits()
SHARED_MEMORY_LEAST_BYTES = 32 * 1024
"""SQLite maps the file `-shm` in pieces of this size."""
SHARED_MEMORY_BYTES = 1024 * 1024
_BROKEN = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_LOCKED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


@dataclass(slots=True)
class _Job:
    """An act on its way to the thread, and who waits for it."""

    act: Act
    done: asyncio.Future[Any]
    writes: bool
    is_given_up: bool = False
    """True where its caller has waited long enough and goes on without it; one whose client left still counts."""


@dataclass(frozen=True, slots=True)
class _Outage:
    """Why calls fail at once for now, and which."""

    why: str
    reads: bool
    """True where reads fail as well as writes."""


class SqliteStore:
    """Blocks, facts and documents in a file. `warn` is called from the store's thread, with text for operators."""

    def __init__(
        self,
        path: Path,
        limits: StoreLimits = DEFAULT,
        warn: Callable[[str], None] = ignore,
        clock: SystemClock | None = None,
        timeout: float = STORE_TIMEOUT_SECONDS,
    ) -> None:
        self._file = DatabaseFile(path, warn, _prepare, BUSY_TIMEOUT_SECONDS)
        self._limits = limits
        self._clock = clock or SystemClock()
        self._timeout = timeout
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store")
        self._waiting: list[_Job] = []
        self._outage: _Outage | None = None
        self._check: asyncio.Task[None] | None = None
        self._is_closed = False
        # So the first write sweeps: the last process may have left too much.
        self._bytes_since_sweep = limits.block_bytes

    async def find_first(
        self, blocks: Sequence[str], facts: Sequence[str] = (), *more: Sequence[str]
    ) -> tuple[Found | None, ...]:
        return await self._in_thread(
            lambda db: (self._find_block(db, blocks), *(self._find_fact(db, keys) for keys in (facts, *more))),
            writes=False,
        )

    async def put_block(self, key: str, value: bytes, over: bytes | None = None) -> bytes:
        return await self._in_thread(lambda db: self._put_block(db, key, value, over))

    async def read_fact(self, key: str) -> bytes | None:
        found = await self._in_thread(lambda db: self._find_fact(db, [key]), writes=False)
        return found.value if found else None

    async def write_fact(self, key: str, value: bytes, seconds: float, over: bytes | None = None) -> None:
        now = self._clock.read_believed()
        expired = now if over is not None else math.inf  # in place of any row
        await self._in_thread(
            lambda db: self._put(db, _FACTS, (key, value, now + seconds), expired, over), WRITE_DELAY_SECONDS
        )

    async def claim_fact(self, key: str, value: bytes, seconds: float) -> bool:
        now = self._clock.read_believed()
        return await self._in_thread(lambda db: self._put(db, _FACTS, (key, value, now + seconds), now))

    async def load_secret(self, held: bytes | None = None) -> bytes:
        known = await self._in_thread(_read_secret, writes=False)
        return known if known is not None else await self._in_thread(lambda db: _load_secret(db, held))

    async def read_document(self, key: str) -> bytes | None:
        return await self._in_thread(lambda db: _read_document(db, key), writes=False)

    async def replace_document(self, key: str, old: bytes | None, new: bytes) -> bool:
        return await self._in_thread(lambda db: _replace_document(db, key, old, new))

    async def close(self) -> None:
        self._is_closed = True
        if self._check is not None:
            self._check.cancel()
        self._run_waiting()
        await asyncio.get_running_loop().run_in_executor(self._thread, self._file.close)
        self._thread.shutdown(wait=False)

    async def _in_thread(self, act: Callable[[sqlite3.Connection], T], delay: float = 0.0, *, writes: bool = True) -> T:
        """Run an act in the thread: now, or after this delay unless another one goes there before."""
        if self._file.busy_for() > self._timeout:
            raise StoreUnavailable(f"{self._file.path} is still busy with an earlier call: is the disk slow?")
        if (outage := self._outage) is not None and (writes or outage.reads):
            self._begin_checks()
            raise StoreUnavailable(outage.why)
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        job = _Job(act, done, writes)
        self._waiting.append(job)
        if delay:
            loop.call_later(delay, self._run_waiting)
        else:
            self._run_waiting()
        try:
            async with asyncio.timeout(self._timeout):
                return await done
        except TimeoutError as late:
            job.is_given_up = True
            self._outage = _Outage(
                f"{self._file.path} did not answer in {self._timeout} s: is the disk slow?", reads=True
            )
            raise StoreUnavailable(self._outage.why) from late
        finally:
            self._begin_checks()

    def _run_waiting(self) -> None:
        """Take every act that waits to the thread, in one trip."""
        if self._waiting:
            jobs, self._waiting = self._waiting, []
            report = partial(_report, asyncio.get_running_loop(), [job.done for job in jobs])
            # Not as a future of the event loop: that would be a fifth of the cost of the trip.
            self._thread.submit(self._run_all, jobs).add_done_callback(report)

    def _begin_checks(self) -> None:
        if self._outage is not None and not self._is_closed and (self._check is None or self._check.done()):
            self._check = asyncio.get_running_loop().create_task(self._follow_outage())

    async def _follow_outage(self) -> None:
        while self._outage is not None:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._end_outage)
            if self._outage is not None:
                await asyncio.sleep(CHECK_INTERVAL_SECONDS)

    # --- in the thread ---

    def _run_all(self, jobs: Sequence[_Job]) -> list[Any]:
        return [self._run(job) for job in jobs]

    def _run(self, job: _Job) -> Any:  # noqa: ANN401 (what the act returns)
        outage = self._outage
        if job.is_given_up or (outage is not None and (job.writes or outage.reads)):
            return StoreUnavailable(outage.why if outage is not None else "given up")
        try:
            return self._file.run(job.act)
        except StoreUnavailable as fault:
            # So the acts behind it do not wait as long, each for itself.
            if isinstance(fault.__cause__, sqlite3.Error) and _code(fault.__cause__) in _LOCKED:
                self._outage = _Outage(str(fault), reads=not job.writes)
            return fault

    def _end_outage(self) -> None:
        """End the outage if the file can be written again; for reads, if it can be read.

        Here and not in the event loop, because acts begin outages here: the loop would also end one that began since.
        """
        outage = self._outage
        try:
            self._file.run(_lock_for_a_moment)
        except StoreUnavailable as fault:
            if outage is not None and outage.reads and self._may_read():
                self._outage = _Outage(str(fault), reads=False)
        else:
            self._outage = None

    def _may_read(self) -> bool:
        try:
            self._file.run(_read_secret)
        except StoreUnavailable:
            return False
        return True

    def _find_block(self, db: sqlite3.Connection, keys: Sequence[str]) -> Found | None:
        row = _select_first(db, _BLOCKS, self._oldest_use(), keys)
        if row is None:
            return None
        key, value, used = row
        now = self._clock.read()
        if now - used > self._limits.block_seconds / RECORDED_USES_PER_LIFETIME and self._outage is None:
            self._record_use(db, key, now)
        return Found(key, value)

    def _oldest_use(self) -> float:
        """The time of day at which a block has expired unless it was used since.

        Uses are written down as the system shows the time, so that blocks in use do not expire once a jump is believed.
        """
        return self._clock.read_believed() - self._limits.block_seconds

    def _record_use(self, db: sqlite3.Connection, key: str, now: float) -> None:
        try:
            db.execute("update promises_1 set used = ? where key = ?", [now, key])
        except sqlite3.OperationalError as fault:
            if _code(fault) not in _LOCKED:
                raise
            self._outage = _Outage(f"{self._file.path}: {fault}", reads=False)  # the block was found and is used

    def _find_fact(self, db: sqlite3.Connection, keys: Sequence[str]) -> Found | None:
        row = _select_first(db, _FACTS, self._clock.read_believed(), keys)
        return Found(row[0], row[1]) if row else None

    def _put_block(self, db: sqlite3.Connection, key: str, value: bytes, over: bytes | None) -> bytes:
        expired = self._oldest_use()
        if self._put(db, _BLOCKS, (key, value, self._clock.read()), expired, over):
            return value
        row = _select_first(db, _BLOCKS, expired, [key])
        return row[1] if row else value

    def _put(self, db: sqlite3.Connection, table: Table, row: Row, expired: float, over: bytes | None = None) -> bool:
        """Write a row in place of none, or of one that has expired or holds `over`; True where it was written."""
        is_written = db.execute(_PUT.format(*table), [*row, expired, over]).fetchone() is not None
        self._count_written(db, len(row[0]) + len(row[1]) if is_written else 0)
        return is_written

    def _count_written(self, db: sqlite3.Connection, size: int) -> None:
        self._bytes_since_sweep += size
        if self._bytes_since_sweep > min(self._limits.block_bytes, self._limits.fact_bytes) // SWEEPS_PER_FILLING:
            self._bytes_since_sweep = 0
            self._sweep(db)

    def _sweep(self, db: sqlite3.Connection) -> None:
        now, believed = self._clock.read(), self._clock.read_believed()
        # What was stored while the clock was ahead would be the newest, and outlast the rest by as much.
        db.execute("update promises_1 set used = :now where used > :now", {"now": now})
        db.execute("update facts_1 set until = :until where until > :until", {"until": believed + FACT_SECONDS_MAX})
        db.execute("delete from promises_1 where used <= ?", [self._oldest_use()])
        db.execute("delete from facts_1 where until <= ?", [believed])
        db.execute(_DELETE_OLDEST.format(*_BLOCKS), [self._limits.block_bytes])
        db.execute(_DELETE_OLDEST.format(*_FACTS), [self._limits.fact_bytes])


def _report(loop: asyncio.AbstractEventLoop, waiting: Sequence[asyncio.Future[Any]], work: Future[list[Any]]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(_settle, waiting, work)


def _settle(waiting: Iterable[asyncio.Future[Any]], work: Future[list[Any]]) -> None:
    """Hand each result, or the fault of all, to who waits for it still."""
    fault = work.exception()
    results = repeat(fault) if fault is not None else work.result()
    for done, result in zip(waiting, results, strict=False):
        if done.done():  # given up
            continue
        if isinstance(result, BaseException):
            done.set_exception(result)
        else:
            done.set_result(result)


def _select_first(db: sqlite3.Connection, table: Table, since: float, keys: Sequence[str]) -> Row | None:
    left, lengths = iter(keys), chain(KEYS_PER_QUERY, repeat(KEYS_PER_QUERY[-1]))
    while batch := [*islice(left, next(lengths))]:
        rows: dict[str, Row] = {row[0]: row for row in db.execute(_FIND.format(*table), [_as_json(batch), since])}
        for key in batch:
            if key in rows:
                return rows[key]
    return None


def _as_json(keys: Sequence[str]) -> str:
    return msgspec.json.encode(keys).decode()


def _lock_for_a_moment(db: sqlite3.Connection) -> None:
    db.execute(f"pragma busy_timeout = {CHECK_BUSY_SECONDS * 1000:.0f}")
    try:
        db.execute("begin immediate")
        db.execute("rollback")
    finally:
        db.execute(f"pragma busy_timeout = {BUSY_TIMEOUT_SECONDS * 1000:.0f}")


def _read_secret(db: sqlite3.Connection) -> bytes | None:
    row = db.execute("select value from secret_1").fetchone()
    return row and bytes(row[0])


def _load_secret(db: sqlite3.Connection, held: bytes | None) -> bytes:
    db.execute("insert or ignore into secret_1 values (1, ?)", [held or secrets.token_bytes(SECRET_BYTES)])
    return bytes(db.execute("select value from secret_1").fetchone()[0])


def _read_document(db: sqlite3.Connection, key: str) -> bytes | None:
    row = db.execute("select value from documents_1 where key = ?", [key]).fetchone()
    return row and bytes(row[0])


def _replace_document(db: sqlite3.Connection, key: str, old: bytes | None, new: bytes) -> bool:
    if old is None:
        return db.execute("insert or ignore into documents_1 values (?, ?)", [key, new]).rowcount == 1
    return db.execute("update documents_1 set value = ? where key = ? and value = ?", [new, key, old]).rowcount == 1


def _prepare(db: sqlite3.Connection) -> None:
    db.execute("pragma synchronous = normal")
    db.executescript(_TABLES)


Prepare = Callable[[sqlite3.Connection], None]


class DatabaseFile:
    """An SQLite file: opened when needed, opened again when another process replaced it, set aside when broken."""

    def __init__(self, path: Path, warn: Callable[[str], None], prepare: Prepare, busy_seconds: float) -> None:
        self.path = path
        self._shared_memory = path.with_name(path.name + "-shm")
        self._warn = warn
        self._prepare = prepare
        self._busy_seconds = busy_seconds
        self._db: sqlite3.Connection | None = None
        self._opened: int | None = None
        self._busy_since: float | None = None

    def busy_for(self) -> float:
        since = self._busy_since
        return time.monotonic() - since if since else 0.0

    def run(self, act: Callable[[sqlite3.Connection], T]) -> T:
        self._busy_since = time.monotonic()
        try:
            return self._run(act)
        finally:
            self._busy_since = None

    def _run(self, act: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return self._attempt(act)
        except sqlite3.DatabaseError as fault:
            if _code(fault) in _BROKEN:
                self._set_aside(fault)
            elif _code(fault) == sqlite3.SQLITE_ERROR:
                self.close()  # the file was emptied, and its tables are gone: opening makes them again
            else:
                raise StoreUnavailable(f"{self.path}: {fault}") from fault
        try:
            return self._attempt(act)
        except sqlite3.DatabaseError as fault:
            raise StoreUnavailable(f"{self.path}: {fault}") from fault

    def close(self) -> None:
        if self._db:
            if self._opened == _inode(self.path):  # else `-shm` is that of another file, which may just be made
                self._restore_shared_memory()
            self._db.close()
        self._db = None

    def _attempt(self, act: Callable[[sqlite3.Connection], T]) -> T:
        try:
            if self._db is None or self._opened != _inode(self.path):
                self.close()
                self._db = self._open()
            else:
                self._restore_shared_memory()
            return act(self._db)
        except OSError as fault:
            raise StoreUnavailable(f"{self.path}: {fault.strerror}") from fault

    def _open(self) -> sqlite3.Connection:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path.touch(mode=0o600)  # for this user only; SQLite keeps the mode for what it puts beside it
        self._opened = _inode(self.path)
        # One thread at a time; after a fault it may be another one.
        db = sqlite3.connect(self.path, timeout=self._busy_seconds, isolation_level=None, check_same_thread=False)
        try:
            _write_ahead(db, self._busy_seconds)
            self._prepare(db)
        except sqlite3.DatabaseError:
            db.close()
            raise
        return db

    def _restore_shared_memory(self) -> None:
        """Restore `-shm` where it was truncated: the system kills a process that reads beyond the end of a mapped file.

        Filled with zeros it is an index that SQLite makes again from the log. It is never opened here: closing it would
        release the locks that SQLite holds on it.
        """
        with suppress(OSError):
            if self._shared_memory.stat().st_size < SHARED_MEMORY_LEAST_BYTES:
                os.truncate(self._shared_memory, 0)
                os.truncate(self._shared_memory, SHARED_MEMORY_BYTES)

    def _set_aside(self, fault: sqlite3.DatabaseError) -> None:
        """Keep the broken file for inspection. If another process was quicker, its fresh one is only opened."""
        self.close()
        if self._opened != _inode(self.path):
            return
        aside = self.path.with_name(self.path.name + ".broken")
        for suffix in ("-wal", "-shm"):
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
        self.path.replace(aside)
        self._warn(f"{self.path} is broken ({fault}): set aside as {aside.name}, a fresh one was made")


def _write_ahead(db: sqlite3.Connection, busy_seconds: float) -> None:
    """Switch to the write-ahead log. Of several processes only one may, and SQLite does not let the others wait."""
    latest = time.monotonic() + busy_seconds
    while True:
        try:
            db.execute("pragma journal_mode = wal")
        except sqlite3.OperationalError as fault:
            if _code(fault) != sqlite3.SQLITE_BUSY or time.monotonic() > latest:
                raise
            time.sleep(0.01)
        else:
            return


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return None


def _code(fault: sqlite3.Error) -> int:
    return getattr(fault, "sqlite_errorcode", 0) & 0xFF


def may_write(path: Path) -> bool:
    """True where this file can be written: it is not read-only, and not locked for longer than writes of workers take.

    For commands. A worker asks its own store, which restores `-shm` first.
    """
    if not path.is_file():
        return True
    try:
        with closing(sqlite3.connect(path, timeout=CHECK_INTERVAL_SECONDS, isolation_level=None)) as db:
            _replace_document(db, NO_DOCUMENT, b"", b"")
    except sqlite3.DatabaseError as fault:
        return _code(fault) in (*_BROKEN, sqlite3.SQLITE_ERROR)  # such a file is made again when it is used
    return True


def peek(path: Path, keys: Sequence[str]) -> dict[str, bytes]:
    """The blocks under these keys, for commands that only look: a block stays as old as it is."""
    if not path.is_file():
        return {}
    try:
        with closing(
            sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", timeout=BUSY_TIMEOUT_SECONDS, uri=True)
        ) as db:
            return {key: value for key, value, _ in db.execute(_FIND.format(*_BLOCKS), [_as_json(keys), 0])}
    except sqlite3.DatabaseError as fault:
        raise StoreUnavailable(f"{path}: {fault}") from fault
