"""The store of one machine: an SQLite file that all worker processes share, and that survives restarts and kills.

1. People and other processes may lock, replace or break the file. It is opened again if it was replaced, begun again if
   it was emptied, and set aside if it is broken: everything in it can be derived again.
2. All calls run in one thread, in their order, so the event loop never waits for a disk.
3. After a call that took too long, or waited a second for a lock of another process, all calls fail at once, until a
   check in the background could write. Every fault is a `StoreUnavailable`.
4. A table's name ends in the version of its format. Blocks were called promises.
"""

import asyncio
import math
import os
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TypeVar

import msgspec

from proxy.foundation.errors import Overloaded
from proxy.foundation.lifetime import Lane
from proxy.store.contract import (
    FACT_SECONDS_MAX,
    RECORDED_USES_PER_LIFETIME,
    Breaker,
    Found,
    Keys,
    Kind,
    Replaced,
    Store,
    StoreLimits,
    StoreUnavailable,
    SystemClock,
    ignore,
)

T = TypeVar("T")
FILE_NAME = "promises.sqlite"
BUSY_TIMEOUT_SECONDS = 1.0
"""How long to wait for the write of another process."""
CHECK_INTERVAL_SECONDS = 0.25
CALLS_WAITING_MAX = 10_000
_TABLES = {Kind.BLOCK: ("blocks_1", "used"), Kind.FACT: ("facts_1", "until"), Kind.DOCUMENT: ("documents_2", "until")}
"""The table of each kind, and the column by which its rows expire."""
_IS_VALID = "typeof({0}.value) = 'blob' and typeof({1}) = 'real' and {1} > :oldest"
"""The condition of a row that has not expired. A value or time of another type was not written by a store."""
_FIND = f"""
    select lists.key, stored.key, stored.value, stored.{{1}} from json_each(:lists) as lists
    join {{0}} as stored on stored.key = (
        select {{0}}.key from json_each(lists.value) as wanted cross join {{0}} on {{0}}.key = wanted.value
        where {_IS_VALID} limit 1)
"""  # noqa: S608
"""The first valid row of each list of keys. A `cross join` keeps the order of the keys."""
_LOCKED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
BROKEN_CODES = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


class DatabaseFile:
    """An SQLite file for one thread at a time. `prepare` makes its tables."""

    def __init__(
        self,
        path: Path,
        warn: Callable[[str], None],
        prepare: Callable[[sqlite3.Connection], None],
        busy_seconds: float,
    ) -> None:
        self.path = path
        self._shared_memory = path.with_name(path.name + "-shm")
        self._warn = warn
        self._prepare = prepare
        self._busy_seconds = busy_seconds
        self._db: sqlite3.Connection | None = None
        self._opened_inode: int | None = None

    def run(self, act: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return self._attempt(act)
        except sqlite3.DatabaseError as fault:
            if find_code(fault) in BROKEN_CODES:
                self.close()
                if self._opened_inode == read_stamp(self.path)[0]:  # or else another process has set it aside
                    aside = self.path.with_name(self.path.name + ".broken")
                    self._remove("-wal", "-shm")
                    self.path.replace(aside)  # for inspection
                    self._warn(f"{self.path} is broken ({fault}): set aside as {aside.name}, a fresh one was made")
            elif find_code(fault) == sqlite3.SQLITE_ERROR:
                self.close()  # the file was emptied: opening makes its tables again
            else:
                raise StoreUnavailable(f"{self.path}: {fault}") from fault
        try:
            return self._attempt(act)
        except sqlite3.DatabaseError as fault:
            raise StoreUnavailable(f"{self.path}: {fault}") from fault

    def close(self) -> None:
        if self._db:
            if self._opened_inode == read_stamp(self.path)[0]:  # otherwise `-shm` belongs to another file
                self._restore_shared_memory()
            self._db.close()
        self._db = None

    def _attempt(self, act: Callable[[sqlite3.Connection], T]) -> T:
        try:
            inode, size = read_stamp(self.path)
            if self._db is not None and self._opened_inode == inode:
                self._restore_shared_memory()
                if size == 0:
                    # Somebody has emptied the file to make room (`> chronicle.sqlite`). This connection would continue
                    # in its log, and its locks keep out all others. It is closed after the files are gone: SQLite
                    # neither writes the log into a file that was removed nor removes the log of a new one.
                    self._remove("", "-wal", "-shm")
                    inode = None
            if self._db is None or self._opened_inode != inode:
                self.close()
                self._db = self._open()
            return act(self._db)
        except OSError as fault:
            raise StoreUnavailable(f"{self.path}: {fault.strerror}") from fault

    def _open(self) -> sqlite3.Connection:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path.touch(mode=0o600)  # for this user only; SQLite gives its other files the same mode
        self._opened_inode, _ = read_stamp(self.path)
        # `transaction` begins transactions, with their lock. The thread that closes may be another one.
        db = sqlite3.connect(self.path, timeout=self._busy_seconds, isolation_level=None, check_same_thread=False)
        try:
            _write_ahead(db, self._busy_seconds)
            # A power failure may take the last writes, and does not break the file:
            # https://sqlite.org/pragma.html#pragma_synchronous
            db.execute("pragma synchronous = normal")
            # Deleted values are overwritten, so that a person's data is gone:
            # https://sqlite.org/pragma.html#pragma_secure_delete
            db.execute("pragma secure_delete = on")
            self._prepare(db)
        except sqlite3.DatabaseError:
            db.close()
            raise
        return db

    def _restore_shared_memory(self) -> None:
        """Fill a truncated `-shm` with zeros: the system kills a process that reads beyond the end of a mapped file.

        Never open it: closing it would release SQLite's own locks (https://sqlite.org/howtocorrupt.html).
        """
        piece_bytes = 32 * 1024  # which SQLite maps at once: https://sqlite.org/walformat.html
        with suppress(OSError):
            if self._shared_memory.stat().st_size < piece_bytes:
                os.truncate(self._shared_memory, 0)
                os.truncate(self._shared_memory, 32 * piece_bytes)

    def _remove(self, *suffixes: str) -> None:
        for suffix in suffixes:
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)


def _write_ahead(db: sqlite3.Connection, busy_seconds: float) -> None:
    """Switch to the write-ahead log (https://sqlite.org/wal.html). SQLite itself does not wait for others here."""
    end = time.monotonic() + busy_seconds
    while True:
        try:
            db.execute("pragma journal_mode = wal")
        except sqlite3.OperationalError as fault:
            if find_code(fault) != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                raise
            time.sleep(0.01)
        else:
            return


def read_stamp(path: Path) -> tuple[int | None, int]:
    """Return the inode and the size of a file, or None and 0 if there is none."""
    try:
        stat = path.stat()
    except FileNotFoundError:
        return None, 0
    return stat.st_ino, stat.st_size


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """Begin a transaction with its lock, so that two writers never wait for each other half way."""
    with db:  # commits, or rolls back
        db.execute("begin immediate")
        yield


def truncate_log(db: sqlite3.Connection) -> None:
    """Empty the write-ahead log, where deleted values are still to be read."""
    db.execute("pragma wal_checkpoint(truncate)").fetchall()


def find_code(fault: sqlite3.Error) -> int:
    return getattr(fault, "sqlite_errorcode", 0) & 0xFF


class SqliteStore(Store):
    """A store in an SQLite file. `warn` is called from the store's thread."""

    def __init__(
        self,
        path: Path,
        limits: StoreLimits = StoreLimits(),
        warn: Callable[[str], None] = ignore,
        clock: SystemClock | None = None,
        timeout: float = 2.0,
    ) -> None:
        super().__init__(limits)
        self._file = DatabaseFile(path, warn, _prepare, BUSY_TIMEOUT_SECONDS)
        self._clock = clock or SystemClock()
        self._timeout = timeout
        self._lane = Lane("store", threads=1, most_waiting=CALLS_WAITING_MAX)
        self._breaker = Breaker(lambda: self._lane.run(self._end_outage), CHECK_INTERVAL_SECONDS)
        # The first write sweeps, because the last process may have left too much.
        self._bytes_since_sweep = limits.block_bytes

    async def find(self, *lists: Keys) -> tuple[Found | None, ...]:
        return await self._in_thread(partial(self._find_first, lists=lists))

    async def put(self, kind: Kind, key: str, value: bytes, seconds: float, replaces: Replaced = None) -> bytes:
        table, column = _TABLES[kind]
        stays = f"{_IS_VALID.format(table, column)} and value is not :old"
        statement = f"""
            insert into {table} values (:key, :value, :stamp) on conflict (key) do update set
                value = iif({stays}, value, excluded.value),
                {column} = iif({stays}, {column}, excluded.{column})
            returning value
        """  # noqa: S608

        def put_row(db: sqlite3.Connection) -> bytes:
            stamp, oldest = self._clock.read_believed() + seconds, self._compute_oldest(kind)
            if kind is Kind.BLOCK:
                stamp = self._clock.read()
            row = {"key": key, "value": value, "stamp": stamp, "oldest": oldest, "old": replaces}
            if replaces == "anything":
                row |= {"oldest": math.inf, "old": None}
            ((stored_value,),) = db.execute(statement, row)
            self._sweep_when_due(db, len(key) + len(value))
            return bytes(stored_value)

        return await self._in_thread(put_row)

    async def remove(self, tenants: Collection[str], is_wanted: Callable[[str, bytes], bool]) -> None:
        for kind in (Kind.BLOCK, Kind.FACT):
            table, _ = _TABLES[kind]
            read = f"select key, cast(value as blob) from {table} where key > ? order by key limit 200"  # noqa: S608
            delete = f"delete from {table} where key in (select value from json_each(?))"  # noqa: S608
            last_key = ""
            while batch := await self._in_thread(partial(_select, query=read, value=last_key)):
                last_key = batch[-1][0]
                wanted = []
                for key, value in batch:
                    if key.partition("/")[0] in tenants and is_wanted(key, value):
                        wanted.append(key)
                    await asyncio.sleep(0)  # requests are served in between
                if wanted:
                    await self._in_thread(partial(_select, query=delete, value=_as_json(wanted)))
        await self._in_thread(truncate_log)

    async def close(self) -> None:
        await self._breaker.close()
        await self._lane.run(self._file.close)
        self._lane.close()

    async def _in_thread(self, act: Callable[[sqlite3.Connection], T]) -> T:
        self._breaker.check()
        try:
            work = self._lane.submit(self._run, act)
        except Overloaded:
            raise StoreUnavailable(f"{CALLS_WAITING_MAX:,} calls wait for {self._file.path}") from None
        # If the caller has left, no code retrieves the exception, and asyncio would report a fault of the proxy.
        work.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            await asyncio.wait([work], timeout=self._timeout)  # the act of a client that left still runs
            if not work.done():
                raise self._breaker.open(f"{self._file.path} did not answer in {self._timeout} s: is the disk slow?")
            return work.result()
        finally:
            self._breaker.begin_trying()

    def _run(self, act: Callable[[sqlite3.Connection], T]) -> T:
        """Run an act, in the store's thread. Acts that waited for one that took too long fail as well."""
        if self._breaker.fault:
            raise StoreUnavailable(self._breaker.fault)
        try:
            return self._file.run(act)
        except StoreUnavailable as fault:
            # Other acts would wait for the same lock as long, so they fail at once.
            if isinstance(fault.__cause__, sqlite3.Error) and find_code(fault.__cause__) in _LOCKED:
                self._breaker.fault = str(fault)
            raise

    def _end_outage(self) -> None:
        """End an outage, in the store's thread. The event loop might end a newer one that began meanwhile."""
        with suppress(StoreUnavailable):
            self._file.run(_lock_for_a_moment)
            self._breaker.fault = ""

    def _find_first(self, db: sqlite3.Connection, lists: Sequence[Keys]) -> tuple[Found | None, ...]:
        results: list[Found | None] = [None] * len(lists)
        # All lists of a table at once: after each statement this thread must win the GIL from a busy event loop.
        for kind in {keys.kind for keys in lists}:
            remaining = [iter(keys.names if keys.kind is kind else ()) for keys in lists]
            for size in (16, None):  # a key that is there is nearly always among the first: a history may have 10,000
                names = [[*islice(rest, size)] for rest in remaining]
                if not any(names):
                    break
                values = {"lists": _as_json(names), "oldest": self._compute_oldest(kind)}
                for place, name, value, used in db.execute(_FIND.format(*_TABLES[kind]), values).fetchall():
                    if kind is Kind.BLOCK:
                        self._record_use(db, name, used)
                    results[place] = Found(name, value)
                    remaining[place] = iter(())
        return tuple(results)

    def _compute_oldest(self, kind: Kind) -> float:
        """Return the latest value of a table's column with which a row has expired.

        Uses have the system's time, and do not expire once a jump is believed.
        """
        if kind is Kind.BLOCK:
            return self._clock.read_believed() - self.limits.block_seconds
        return self._clock.read_believed()

    def _record_use(self, db: sqlite3.Connection, key: str, used: float) -> None:
        now = self._clock.read()
        if now - used <= self.limits.block_seconds / RECORDED_USES_PER_LIFETIME:
            return
        try:
            db.execute("update blocks_1 set used = ? where key = ?", [now, key])
        except sqlite3.OperationalError as fault:
            if find_code(fault) not in _LOCKED:
                raise
            self._breaker.fault = f"{self._file.path}: {fault}"  # the block was found and is used

    def _sweep_when_due(self, db: sqlite3.Connection, new_bytes: int) -> None:
        self._bytes_since_sweep += new_bytes
        if self._bytes_since_sweep <= min(self.limits.block_bytes, self.limits.fact_bytes) // 32:
            return
        self._bytes_since_sweep = 0
        now, believed_now = self._clock.read(), self._clock.read_believed()
        # Rows that were written while the clock was ahead would seem the newest, and outlast the rest.
        db.execute("update blocks_1 set used = :now where used > :now", {"now": now})
        db.execute("update facts_1 set until = :until where until > :until", {"until": believed_now + FACT_SECONDS_MAX})
        for kind, max_bytes in ((Kind.BLOCK, self.limits.block_bytes), (Kind.FACT, self.limits.fact_bytes)):
            table, column = _TABLES[kind]
            statement = f"""
                delete from {table} where {column} <= :oldest or key in (
                    select key from (
                        select key, sum(length(key) + length(value)) over (order by {column} desc, key) as filled
                        from {table}
                    ) where filled > :max_bytes)
            """  # noqa: S608
            db.execute(statement, {"oldest": self._compute_oldest(kind), "max_bytes": max_bytes})


def _as_json(keys: Sequence[str | Sequence[str]]) -> str:
    return msgspec.json.encode(keys).decode()


def _select(db: sqlite3.Connection, query: str, value: str) -> list[tuple[str, bytes]]:
    return db.execute(query, [value]).fetchall()


def _lock_for_a_moment(db: sqlite3.Connection) -> None:
    db.execute("begin immediate")
    db.execute("rollback")


def _prepare(db: sqlite3.Connection) -> None:
    db.executescript("""
        create table if not exists blocks_1 (key text primary key, value blob not null, used real not null);
        create table if not exists facts_1 (key text primary key, value blob not null, until real not null);
        create table if not exists documents_2 (key text primary key, value blob not null, until real not null);
    """)
    # The tables of versions 0.2 and 0.3, and how their rows are taken over. Tables that 0.3 reads again stay.
    old_tables = {
        "promises_1": "insert or ignore into blocks_1 select * from promises_1; drop table promises_1;",
        "secret_1": "insert or ignore into documents_2 select 'secret', value, 9e999 from secret_1;",
        "documents_1": "insert or ignore into documents_2 select 'document/' || key, value, 9e999 from documents_1;",
    }
    for old_table, script in old_tables.items():
        if db.execute("select 1 from sqlite_master where name = ?", [old_table]).fetchone():
            # If two workers do so at once, one may fail: it opens the file again.
            db.executescript(f"begin immediate; {script} commit;")


def may_write(path: Path) -> bool:
    """Return whether the file can be written. It is for commands: a worker asks its store, which restores `-shm`."""
    if not path.is_file():
        return True
    try:
        with closing(sqlite3.connect(path, timeout=CHECK_INTERVAL_SECONDS, isolation_level=None)) as db:
            _lock_for_a_moment(db)
    except sqlite3.DatabaseError as fault:
        return find_code(fault) in (*BROKEN_CODES, sqlite3.SQLITE_ERROR)  # such a file is made again when it is used
    return True


def peek(path: Path, keys: Sequence[str]) -> dict[str, bytes]:
    """Return the blocks under these keys for a command, without recording a use."""
    if not path.is_file():
        return {}
    try:
        with closing(
            sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", timeout=BUSY_TIMEOUT_SECONDS, uri=True)
        ) as db:
            find = _FIND.format(*_TABLES[Kind.BLOCK])
            rows = db.execute(find, {"lists": _as_json([[key] for key in keys]), "oldest": 0})
            return {key: value for _, key, value, _ in rows}
    except sqlite3.DatabaseError as fault:
        raise StoreUnavailable(f"{path}: {fault}") from fault
