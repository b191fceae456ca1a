"""An SQLite file that people and other processes may lock, replace or break. Every fault is a `StoreUnavailable`.

It is opened again if it was replaced, begun again if it was emptied, and set aside if it is broken: everything in it
can be derived again.
"""

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from proxy.store.contract import StoreUnavailable

T = TypeVar("T")
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
                self._set_aside(fault)
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
                    self._remove_files()
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
        db = sqlite3.connect(self.path, timeout=self._busy_seconds, isolation_level=None, check_same_thread=False)
        try:
            _write_ahead(db, self._busy_seconds)
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

    def _remove_files(self) -> None:
        """Remove a file that somebody has emptied to make room (`> chronicle.sqlite`), so that opening makes a new one.

        A connection to the emptied file would continue in its log, and its locks keep out all others. It is closed
        after the files are gone: SQLite neither writes the log into a file that was removed nor removes the log of a
        new one.
        """
        for suffix in ("", "-wal", "-shm"):
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)

    def _set_aside(self, fault: sqlite3.DatabaseError) -> None:
        """Keep the broken file for inspection, unless another process was quicker."""
        self.close()
        if self._opened_inode != read_stamp(self.path)[0]:
            return
        aside = self.path.with_name(self.path.name + ".broken")
        for suffix in ("-wal", "-shm"):
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
        self.path.replace(aside)
        self._warn(f"{self.path} is broken ({fault}): set aside as {aside.name}, a fresh one was made")


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
