"""One file, several worker processes: the store of a single machine. It survives restarts, kills and its own loss.

All calls run in one thread, so the event loop never waits for a disk; a call that takes too long is given up. A file
that turns out to be broken is set aside and a fresh one begun: everything in it can be derived again.

The version of the format is part of the tables' names. A release that changes a table makes a new one beside it, and
one that is rolled back finds its own as it left them.
"""

import asyncio
import json
import secrets
import sqlite3
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import TypeVar

from proxy.store.promises import GRAIN, SECRET_BYTES, Bounds, Found, StoreUnavailable

T = TypeVar("T")

PATIENCE = 2.0  # seconds a request waits for the store before it goes on without
BUSY = 1.0  # seconds a write waits for another process's
BATCH = 500  # keys asked for at once, newest first: the answer nearly always lies in the first batch
SWEEP = 32  # the bounds are kept each time this part of them has been written

_TABLES = """
create table if not exists promises_1 (key text primary key, value blob not null, used real not null);
create table if not exists facts_1 (key text primary key, value blob not null, until real not null);
create table if not exists secret_1 (one integer primary key check (one = 1), value blob not null);
create table if not exists documents_1 (key text primary key, value blob not null);
"""
_PROMISES = "select key, value, used from promises_1 where used > ? and key in (select value from json_each(?))"
_FACTS = "select key, value, until from facts_1 where until > ? and key in (select value from json_each(?))"
_CLAIM = """
insert into facts_1 values (?, ?, ?)
on conflict (key) do update set value = excluded.value, until = excluded.until where facts_1.until <= ? returning key"""
_SETTLE = """
insert into facts_1 values (?, ?, ?)
on conflict (key) do update set value = excluded.value, until = excluded.until
where facts_1.until <= ? or facts_1.value = ? or ? is null"""
_BEYOND = """
delete from {table} where key in (
    select key from (
        select key, sum(length(key) + length(value)) over (order by {age} desc, key) as filled from {table}
    ) where filled > ?)
"""

DEFAULT = Bounds()
_BROKEN = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _silent(_warning: str) -> None:
    """Nobody listens."""


class SqliteStore:
    """`warn` is called from the store's thread, with a sentence for the operator."""

    def __init__(
        self,
        path: Path,
        bounds: Bounds = DEFAULT,
        warn: Callable[[str], None] = _silent,
        clock: Callable[[], float] = time.time,
        patience: float = PATIENCE,
    ) -> None:
        self._file = _File(path, warn)
        self._bounds = bounds
        self._clock = clock
        self._patience = patience
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store")
        self._unswept = bounds.promises  # a fresh process does not know what the last one left

    async def longest(
        self, promises: Sequence[str], facts: Sequence[str] = (), *more: Sequence[str]
    ) -> tuple[Found | None, ...]:
        return await self._in_thread(
            lambda db: (self._promise(db, promises), *(self._fact(db, keys) for keys in (facts, *more)))
        )

    async def put(self, key: str, value: bytes, over: bytes | None = None) -> bytes:
        return await self._in_thread(lambda db: self._put(db, key, value, over))

    async def fact(self, key: str) -> bytes | None:
        found = await self._in_thread(lambda db: self._fact(db, [key]))
        return found.value if found else None

    async def note(self, key: str, value: bytes, seconds: float, over: bytes | None = None) -> None:
        await self._in_thread(lambda db: self._note(db, key, value, seconds, over))

    async def claim(self, key: str, value: bytes, seconds: float) -> bool:
        return await self._in_thread(lambda db: self._claim(db, key, value, seconds))

    async def secret(self, held: bytes | None = None) -> bytes:
        return await self._in_thread(lambda db: _secret(db, held))

    async def document(self, key: str) -> bytes | None:
        return await self._in_thread(lambda db: _document(db, key))

    async def swap(self, key: str, old: bytes | None, new: bytes) -> bool:
        return await self._in_thread(lambda db: _swap(db, key, old, new))

    async def close(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._file.close)
        self._thread.shutdown(wait=False)

    async def _in_thread(self, act: Callable[[sqlite3.Connection], T]) -> T:
        if self._file.busy_for() > self._patience:
            raise StoreUnavailable(f"{self._file.path} is still busy with an earlier call: is the disk slow?")
        try:
            async with asyncio.timeout(self._patience):
                return await asyncio.get_running_loop().run_in_executor(self._thread, self._file.run, act)
        except TimeoutError as late:
            raise StoreUnavailable(
                f"{self._file.path} gave no answer in {self._patience} s: is the disk slow?"
            ) from late

    # --- in the thread ---

    def _promise(self, db: sqlite3.Connection, keys: Sequence[str]) -> Found | None:
        now = self._clock()
        row = _first(db, _PROMISES, now - self._bounds.seconds, keys)
        if row is None:
            return None
        key, value, used = row
        if now - used > self._bounds.seconds / GRAIN:
            db.execute("update promises_1 set used = ? where key = ?", [now, key])
        return Found(key, value)

    def _fact(self, db: sqlite3.Connection, keys: Sequence[str]) -> Found | None:
        row = _first(db, _FACTS, self._clock(), keys)
        return Found(row[0], row[1]) if row else None

    def _put(self, db: sqlite3.Connection, key: str, value: bytes, over: bytes | None) -> bytes:
        now = self._clock()
        if over is not None:
            db.execute("update promises_1 set value = ?, used = ? where key = ? and value = ?", [value, now, key, over])
        db.execute("delete from promises_1 where key = ? and used <= ?", [key, now - self._bounds.seconds])
        db.execute("insert or ignore into promises_1 values (?, ?, ?)", [key, value, now])
        row = _first(db, _PROMISES, now - self._bounds.seconds, [key])
        self._written(db, len(key) + len(value))
        return row[1] if row else value

    def _note(self, db: sqlite3.Connection, key: str, value: bytes, seconds: float, over: bytes | None) -> None:
        now = self._clock()
        db.execute(_SETTLE, [key, value, now + seconds, now, over, over])
        self._written(db, len(key) + len(value))

    def _claim(self, db: sqlite3.Connection, key: str, value: bytes, seconds: float) -> bool:
        now = self._clock()
        claimed = db.execute(_CLAIM, [key, value, now + seconds, now]).fetchone() is not None
        self._written(db, len(key) + len(value) if claimed else 0)
        return claimed

    def _written(self, db: sqlite3.Connection, size: int) -> None:
        self._unswept += size
        if self._unswept > min(self._bounds.promises, self._bounds.facts) // SWEEP:
            self._unswept = 0
            self._sweep(db)

    def _sweep(self, db: sqlite3.Connection) -> None:
        now = self._clock()
        db.execute("delete from promises_1 where used <= ?", [now - self._bounds.seconds])
        db.execute("delete from facts_1 where until <= ?", [now])
        db.execute(_BEYOND.format(table="promises_1", age="used"), [self._bounds.promises])
        db.execute(_BEYOND.format(table="facts_1", age="until"), [self._bounds.facts])


def _first(db: sqlite3.Connection, query: str, since: float, keys: Sequence[str]) -> tuple[str, bytes, float] | None:
    for start in range(0, len(keys), BATCH):
        batch = keys[start : start + BATCH]
        rows: dict[str, tuple[str, bytes, float]] = {
            row[0]: row for row in db.execute(query, [since, json.dumps(batch)])
        }
        for key in batch:
            if key in rows:
                return rows[key]
    return None


def _secret(db: sqlite3.Connection, held: bytes | None) -> bytes:
    db.execute("insert or ignore into secret_1 values (1, ?)", [held or secrets.token_bytes(SECRET_BYTES)])
    return bytes(db.execute("select value from secret_1").fetchone()[0])


def _document(db: sqlite3.Connection, key: str) -> bytes | None:
    row = db.execute("select value from documents_1 where key = ?", [key]).fetchone()
    return row and bytes(row[0])


def _swap(db: sqlite3.Connection, key: str, old: bytes | None, new: bytes) -> bool:
    if old is None:
        return db.execute("insert or ignore into documents_1 values (?, ?)", [key, new]).rowcount == 1
    return db.execute("update documents_1 set value = ? where key = ? and value = ?", [new, key, old]).rowcount == 1


class _File:
    """The database file: opened when needed, opened again when another process replaced it, set aside when broken."""

    def __init__(self, path: Path, warn: Callable[[str], None]) -> None:
        self.path = path
        self._warn = warn
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
            if _code(fault) not in _BROKEN:
                raise StoreUnavailable(f"{self.path}: {fault}") from fault
            self._set_aside(fault)
        try:
            return self._attempt(act)
        except sqlite3.DatabaseError as fault:
            raise StoreUnavailable(f"{self.path}: {fault}") from fault

    def close(self) -> None:
        if self._db:
            self._db.close()
        self._db = None

    def _attempt(self, act: Callable[[sqlite3.Connection], T]) -> T:
        try:
            if self._db is None or self._opened != _inode(self.path):
                self.close()
                self._db = self._open()
            return act(self._db)
        except OSError as fault:
            raise StoreUnavailable(f"{self.path}: {fault.strerror}") from fault

    def _open(self) -> sqlite3.Connection:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path.touch(mode=0o600)  # for this user only; SQLite keeps the mode for what it puts beside it
        self._opened = _inode(self.path)
        db = sqlite3.connect(self.path, timeout=BUSY, isolation_level=None)
        try:
            _write_ahead(db)
            db.execute("pragma synchronous = normal")
            db.executescript(_TABLES)
        except sqlite3.DatabaseError:
            db.close()
            raise
        return db

    def _set_aside(self, fault: sqlite3.DatabaseError) -> None:
        """The newest broken file is kept for a look. If another process was quicker, its fresh one is only opened."""
        self.close()
        if self._opened != _inode(self.path):
            return
        aside = self.path.with_name(self.path.name + ".broken")
        for suffix in ("-wal", "-shm"):
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
        self.path.replace(aside)
        self._warn(f"{self.path} is broken ({fault}): set aside as {aside.name}, a fresh one begun")


def _write_ahead(db: sqlite3.Connection) -> None:
    """Of several processes that begin at once only one may switch a fresh file, and SQLite lets the others not wait."""
    latest = time.monotonic() + BUSY
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


def peek(path: Path, keys: Sequence[str]) -> tuple[bytes | None, dict[str, bytes]]:
    """The secret, and the promises under these keys: for whoever only looks, and must not touch their age."""
    if not path.is_file():
        return None, {}
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", timeout=BUSY, uri=True)) as db:
            secret = db.execute("select value from secret_1").fetchone()
            found = (
                row
                for start in range(0, len(keys), BATCH)
                for row in db.execute(_PROMISES, [0, json.dumps(keys[start : start + BATCH])])
            )
            return secret and bytes(secret[0]), {key: value for key, value, _ in found}
    except sqlite3.DatabaseError as fault:
        raise StoreUnavailable(f"{path}: {fault}") from fault
