"""The store of one machine: an SQLite file that all worker processes share, and that survives restarts and kills.

1. All calls run in one thread, in their order, so the event loop never waits for a disk.
2. After a call that took too long, or that another process kept out for a second, all calls fail at once, until a
   check in the background could write.
3. A table's name ends in the version of its format. Blocks were called promises.
"""

import asyncio
import math
import secrets
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from proxy.foundation.errors import Overloaded
from proxy.foundation.threads import Lane
from proxy.store.contract import (
    FACT_SECONDS_MAX,
    NO_DOCUMENT,
    RECORDED_USES_PER_LIFETIME,
    SECRET_BYTES,
    Found,
    StoreLimits,
    StoreUnavailable,
    SystemClock,
    ignore,
)
from proxy.store.database_file import BROKEN_CODES, DatabaseFile, find_code

T = TypeVar("T")

FILE_NAME = "promises.sqlite"
STORE_TIMEOUT_SECONDS = 2.0
BUSY_TIMEOUT_SECONDS = 1.0
"""How long to wait for the write of another process."""
CHECK_INTERVAL_SECONDS = 0.25
CALLS_WAITING_MAX = 10_000
_BLOCKS, _FACTS = ("blocks_1", "used"), ("facts_1", "until")
"""The tables, each with the column by which its rows expire."""
_FIND = "select {0}.key, {0}.value, {1} from json_each(?) as wanted join {0} on {0}.key = wanted.value where {1} > ?"
"""The look-up is a join: keys `in` a list would take two and a half times as long."""
Row = tuple[str, bytes, float]
_LOCKED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


class SqliteStore:
    """`warn` is called from the store's thread."""

    def __init__(
        self,
        path: Path,
        limits: StoreLimits = StoreLimits(),
        warn: Callable[[str], None] = ignore,
        clock: SystemClock | None = None,
        timeout: float = STORE_TIMEOUT_SECONDS,
    ) -> None:
        self._file = DatabaseFile(path, warn, _prepare, BUSY_TIMEOUT_SECONDS)
        self._limits = limits
        self._clock = clock or SystemClock()
        self._timeout = timeout
        self._lane = Lane("store", threads=1, most_waiting=CALLS_WAITING_MAX)
        self._outage = ""
        """The reason why calls fail at once, or empty."""
        self._check: asyncio.Task[None] | None = None
        self._is_closed = False
        # So the first write sweeps: the last process may have left too much.
        self._bytes_since_sweep = limits.block_bytes

    async def find_first(
        self, blocks: Sequence[str], facts: Sequence[str] = (), *fact_lists: Sequence[str]
    ) -> tuple[Found | None, ...]:
        def find(db: sqlite3.Connection) -> tuple[Found | None, ...]:
            return self._find_block(db, blocks), *(self._find_fact(db, keys) for keys in (facts, *fact_lists))

        return await self._in_thread(find)

    async def put_block(self, key: str, value: bytes, over: bytes | None = None) -> bytes:
        return await self._in_thread(lambda db: self._put_block(db, key, value, over))

    async def read_fact(self, key: str) -> bytes | None:
        fact = await self._in_thread(lambda db: self._find_fact(db, [key]))
        if fact is None:
            return None
        return fact.value

    async def write_fact(self, key: str, value: bytes, seconds: float, over: bytes | None = None) -> None:
        now = self._clock.read_believed()
        oldest = math.inf  # replaces any row
        if over is not None:
            oldest = now
        await self._in_thread(lambda db: self._put(db, _FACTS, (key, value, now + seconds), oldest, over))

    async def claim_fact(self, key: str, value: bytes, seconds: float) -> bool:
        now = self._clock.read_believed()
        return await self._in_thread(lambda db: self._put(db, _FACTS, (key, value, now + seconds), now))

    async def load_secret(self, current_secret: bytes | None = None) -> bytes:
        return await self._in_thread(lambda db: _load_secret(db, current_secret))

    async def read_document(self, key: str) -> bytes | None:
        return await self._in_thread(lambda db: _read_document(db, key))

    async def replace_document(self, key: str, old_value: bytes | None, new_value: bytes) -> bool:
        return await self._in_thread(lambda db: _replace_document(db, key, old_value, new_value))

    async def close(self) -> None:
        self._is_closed = True
        if self._check is not None:
            self._check.cancel()
        await self._lane.run(self._file.close)
        self._lane.close()

    async def _in_thread(self, act: Callable[[sqlite3.Connection], T]) -> T:
        if self._outage:
            self._begin_checks()
            raise StoreUnavailable(self._outage)
        try:
            work = self._lane.submit(self._run, act)
        except Overloaded:
            raise StoreUnavailable(f"{CALLS_WAITING_MAX:,} calls wait for {self._file.path}") from None
        # Nobody may be left to retrieve its exception, and asyncio would report that as a fault of the proxy.
        work.add_done_callback(_retrieve_exception)
        try:
            async with asyncio.timeout(self._timeout):
                return await asyncio.shield(work)  # the act of a client that left still runs
        except TimeoutError as late:
            self._outage = f"{self._file.path} did not answer in {self._timeout} s: is the disk slow?"
            raise StoreUnavailable(self._outage) from late
        finally:
            self._begin_checks()

    def _begin_checks(self) -> None:
        if self._outage and not self._is_closed and (self._check is None or self._check.done()):
            self._check = asyncio.get_running_loop().create_task(self._follow_outage())

    async def _follow_outage(self) -> None:
        while self._outage:
            await self._lane.run(self._end_outage)
            if self._outage:
                await asyncio.sleep(CHECK_INTERVAL_SECONDS)

    def _run(self, act: Callable[[sqlite3.Connection], T]) -> T:
        """Run an act, in the thread like all that follows. Acts that waited for one that took too long fail, too."""
        if self._outage:
            raise StoreUnavailable(self._outage)
        try:
            return self._file.run(act)
        except StoreUnavailable as fault:
            # Later acts need not wait as long.
            if isinstance(fault.__cause__, sqlite3.Error) and find_code(fault.__cause__) in _LOCKED:
                self._outage = str(fault)
            raise

    def _end_outage(self) -> None:
        """End an outage from the store's thread: the event loop would also end one that began since."""
        with suppress(StoreUnavailable):
            self._file.run(_lock_for_a_moment)
            self._outage = ""

    def _find_block(self, db: sqlite3.Connection, keys: Sequence[str]) -> Found | None:
        row = _select_first(db, _BLOCKS, self._oldest_use(), keys)
        if row is None:
            return None
        key, value, used = row
        now = self._clock.read()
        if now - used > self._limits.block_seconds / RECORDED_USES_PER_LIFETIME:
            self._record_use(db, key, now)
        return Found(key, value)

    def _oldest_use(self) -> float:
        """Return the oldest use that counts. Uses have the system's time, and do not expire once a jump is believed."""
        return self._clock.read_believed() - self._limits.block_seconds

    def _record_use(self, db: sqlite3.Connection, key: str, now: float) -> None:
        try:
            db.execute("update blocks_1 set used = ? where key = ?", [now, key])
        except sqlite3.OperationalError as fault:
            if find_code(fault) not in _LOCKED:
                raise
            self._outage = f"{self._file.path}: {fault}"  # the block was found and is used

    def _find_fact(self, db: sqlite3.Connection, keys: Sequence[str]) -> Found | None:
        row = _select_first(db, _FACTS, self._clock.read_believed(), keys)
        if row is None:
            return None
        return Found(row[0], row[1])

    def _put_block(self, db: sqlite3.Connection, key: str, value: bytes, over: bytes | None) -> bytes:
        oldest = self._oldest_use()
        if self._put(db, _BLOCKS, (key, value, self._clock.read()), oldest, over):
            return value
        row = _select_first(db, _BLOCKS, oldest, [key])
        if row is None:
            return value
        return row[1]

    def _put(
        self, db: sqlite3.Connection, table: tuple[str, str], row: Row, oldest: float, over: bytes | None = None
    ) -> bool:
        """Write a row unless there is one that has neither expired nor holds `over`."""
        name, column = table
        statement = f"""
            insert into {name} values (?, ?, ?)
            on conflict (key) do update set value = excluded.value, {column} = excluded.{column}
            where {name}.{column} <= ? or {name}.value = ? returning key
        """  # noqa: S608
        is_written = db.execute(statement, [*row, oldest, over]).fetchone() is not None
        if is_written:
            self._bytes_since_sweep += len(row[0]) + len(row[1])
        if self._bytes_since_sweep > min(self._limits.block_bytes, self._limits.fact_bytes) // 32:
            self._bytes_since_sweep = 0
            self._sweep(db)
        return is_written

    def _sweep(self, db: sqlite3.Connection) -> None:
        now, believed_now = self._clock.read(), self._clock.read_believed()
        # Rows of a time when the clock was ahead would be the newest, and outlast the rest by as much.
        db.execute("update blocks_1 set used = :now where used > :now", {"now": now})
        db.execute("update facts_1 set until = :until where until > :until", {"until": believed_now + FACT_SECONDS_MAX})
        db.execute("delete from blocks_1 where used <= ?", [self._oldest_use()])
        db.execute("delete from facts_1 where until <= ?", [believed_now])
        for (name, column), max_bytes in ((_BLOCKS, self._limits.block_bytes), (_FACTS, self._limits.fact_bytes)):
            statement = f"""
                delete from {name} where key in (
                    select key from (
                        select key, sum(length(key) + length(value)) over (order by {column} desc, key) as filled
                        from {name}
                    ) where filled > ?)
            """  # noqa: S608
            db.execute(statement, [max_bytes])


def _retrieve_exception(work: "asyncio.Future[Any]") -> None:
    if not work.cancelled():
        work.exception()


def _select_first(db: sqlite3.Connection, table: tuple[str, str], since: float, keys: Sequence[str]) -> Row | None:
    remaining, sizes = iter(keys), chain((16, 128), repeat(500))  # the answer is nearly always in the first batch
    while batch := [*islice(remaining, next(sizes))]:
        rows: dict[str, Row] = {row[0]: row for row in db.execute(_FIND.format(*table), [_as_json(batch), since])}
        for key in batch:
            if key in rows:
                return rows[key]
    return None


def _as_json(keys: Sequence[str]) -> str:
    return msgspec.json.encode(keys).decode()


def _lock_for_a_moment(db: sqlite3.Connection) -> None:
    db.execute("begin immediate")
    db.execute("rollback")


def _load_secret(db: sqlite3.Connection, current_secret: bytes | None) -> bytes:
    row = db.execute("select value from secret_1").fetchone()
    if row is None:
        secret = current_secret or secrets.token_bytes(SECRET_BYTES)
        db.execute("insert or ignore into secret_1 values (1, ?)", [secret])
        row = db.execute("select value from secret_1").fetchone()
    return bytes(row[0])


def _read_document(db: sqlite3.Connection, key: str) -> bytes | None:
    row = db.execute("select value from documents_1 where key = ?", [key]).fetchone()
    return row and bytes(row[0])


def _replace_document(db: sqlite3.Connection, key: str, old_value: bytes | None, new_value: bytes) -> bool:
    if old_value is None:
        return db.execute("insert or ignore into documents_1 values (?, ?)", [key, new_value]).rowcount == 1
    update = "update documents_1 set value = ? where key = ? and value = ?"
    return db.execute(update, [new_value, key, old_value]).rowcount == 1


def _prepare(db: sqlite3.Connection) -> None:
    db.execute("pragma synchronous = normal")
    db.executescript("""
        create table if not exists blocks_1 (key text primary key, value blob not null, used real not null);
        create table if not exists facts_1 (key text primary key, value blob not null, until real not null);
        create table if not exists secret_1 (one integer primary key check (one = 1), value blob not null);
        create table if not exists documents_1 (key text primary key, value blob not null);
    """)
    if db.execute("select 1 from sqlite_master where name = 'promises_1'").fetchone():  # the blocks of version 0.2
        db.executescript("""
            begin immediate;
            insert or ignore into blocks_1 select * from promises_1;
            drop table promises_1;
            commit;
        """)  # of two workers one fails, and opens the file again


def may_write(path: Path) -> bool:
    """Tell a command if the file can be written. A worker asks its own store, which restores `-shm` first."""
    if not path.is_file():
        return True
    try:
        with closing(sqlite3.connect(path, timeout=CHECK_INTERVAL_SECONDS, isolation_level=None)) as db:
            _replace_document(db, NO_DOCUMENT, b"", b"")
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
            return {key: value for key, value, _ in db.execute(_FIND.format(*_BLOCKS), [_as_json(keys), 0])}
    except sqlite3.DatabaseError as fault:
        raise StoreUnavailable(f"{path}: {fault}") from fault
