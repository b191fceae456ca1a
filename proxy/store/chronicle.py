"""What conversations did: a line for each request that was looked at, one for whatever went wrong or was made, and how
many requests there were in each minute. Figures and names only: what anybody said stands in the transcripts.

Nobody waits for it. Whoever has something to tell hands it over and goes on; a thread writes what has come in the
last moments in one go, into a file of the state directory that all workers of this machine share. What is too much to
wait is left out, what is too old or too much to keep goes. Nothing else depends on it: a file that is broken is
thrown away, and the chronicle begins anew.
"""

import math
import queue
import secrets
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proxy.events import TurnEnded

FILE = "chronicle.sqlite"
WAITING = 20_000
GATHER_SECONDS = 0.2
BUSY_SECONDS = 10.0
SWEEP_SECONDS = 600.0
MINUTE = 60
DAY = 24 * 3600.0
INTEGER_LIMIT = 10**13
"""Larger figures are cut to this: the sum over all lines must fit into the 64 bits of an integer of SQLite."""

_TABLES = """
create table if not exists about_1 (id integer primary key check (id = 1), name text not null);
create table if not exists turns_1 (
    writer text not null, number integer not null, at real not null, conversation text not null, tenant text not null,
    link text not null, team text not null, key text not null, tag text not null, model text not null,
    upstream text not null, policy text not null, version text not null, action text not null, reason text not null,
    messages integer not null, before integer not null, after integer not null, prompt integer not null,
    cached integer, written integer not null, paid real, plain real,
    primary key (writer, number)) without rowid;
create index if not exists turns_1_of on turns_1 (conversation, at);
create index if not exists turns_1_at on turns_1 (at);
create table if not exists happenings_1 (
    writer text not null, number integer not null, at real not null, severity text not null, name text not null,
    conversation text not null, told text not null,
    primary key (writer, number)) without rowid;
create index if not exists happenings_1_at on happenings_1 (at);
create index if not exists happenings_1_of on happenings_1 (conversation, at);
create table if not exists minutes_1 (
    writer text not null, minute integer not null, name text not null, team text not null, many integer not null,
    primary key (minute, name, team, writer)) without rowid;
"""
_TURN = (
    "at", "conversation", "tenant", "link", "team", "key", "tag", "model", "upstream", "policy", "version", "action",
    "reason", "messages", "before", "after", "prompt", "cached", "written", "paid", "plain",
)  # fmt: skip
_HAPPENING = ("at", "severity", "name", "conversation", "told")
_COLUMNS = {"turns_1": _TURN, "happenings_1": _HAPPENING}


@dataclass(frozen=True, slots=True)
class Happening:
    """Something that is not a request: a block, a summary, a fault. `told` is JSON."""

    severity: str
    name: str
    conversation: str
    told: str


@dataclass(frozen=True, slots=True)
class Tally:
    """So many of each of these, now, of a team's."""

    counts: Mapping[str, int]
    team: str = ""


@dataclass(frozen=True, slots=True)
class Lasting:
    """How much is kept; of each kind of line the oldest go first."""

    turns: int = 100_000
    happenings: int = 20_000
    seconds: float = 31 * DAY


Line = TurnEnded | Happening | Tally


def _silent(_warning: str) -> None:
    """Nobody listens."""


@dataclass(slots=True)
class _Batch:
    turns: list[tuple[float, TurnEnded]] = field(default_factory=list)
    happenings: list[tuple[float, Happening]] = field(default_factory=list)
    minutes: Counter[tuple[int, str, str]] = field(default_factory=Counter)

    def add(self, at: float, item: Line) -> None:
        if isinstance(item, Tally):
            minute = int(at) // MINUTE * MINUTE
            for name, many in item.counts.items():
                self.minutes[minute, name, item.team] += many
        elif isinstance(item, Happening):
            self.happenings.append((at, item))
        else:
            self.turns.append((at, item))


class Chronicle:
    """One process's hand on the file. `warn` is called from its thread, with a sentence for the operator."""

    def __init__(
        self,
        folder: Path,
        lasting: Lasting = Lasting(),
        warn: Callable[[str], None] = _silent,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.path = folder / FILE
        self.lost = 0
        self._lasting = lasting
        self._warn = warn
        self._clock = clock
        self._waiting: queue.Queue[tuple[float, Line] | None] = queue.Queue(WAITING)
        self._swept = 0.0
        self._leaving = threading.Event()
        self._thread = self._start_thread()

    def tell(self, item: Line) -> None:
        """Hand a line over; too many of them at once, and it is left out."""
        if not self._thread.is_alive() and not self._leaving.is_set():
            # An unforeseen fault has ended it (the process reports that): its lines are lost, later ones need not be.
            self._thread = self._start_thread()
        try:
            self._waiting.put_nowait((self._clock(), item))
        except queue.Full:
            self.lost += 1

    def close(self, seconds: float = 5.0) -> None:
        """Write what waits, for so long."""
        self._leaving.set()
        with suppress(queue.Full):
            self._waiting.put(None, timeout=seconds)
        self._thread.join(seconds)

    # --- reading, from any thread ------------------------------------------------------------------------------------

    def rows(self, query: str, values: Mapping[str, Any] | Sequence[Any] = ()) -> list[dict[str, Any]]:
        """What a query finds; nothing as long as nothing was told."""
        if not self.path.is_file():
            return []
        try:
            with closing(sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None)) as db:
                db.execute("pragma query_only = on")
                db.row_factory = sqlite3.Row
                return [dict(row) for row in db.execute(query, values)]
        except sqlite3.DatabaseError as fault:
            self._warn(f"{self.path} cannot be read: {fault}")
            return []

    def name(self) -> str:
        """The name of this machine, as its lines carry it; empty while there are none."""
        found = self.rows("select name from about_1")
        return str(found[0]["name"]) if found else ""

    def _start_thread(self) -> threading.Thread:
        thread = threading.Thread(target=self._work, name="chronicle", daemon=True)
        thread.start()
        return thread

    # --- in the thread -----------------------------------------------------------------------------------------------

    def _work(self) -> None:
        told_of = ""
        for batch in self._batches():
            try:
                self._write(batch)
            except (sqlite3.Error, OSError) as fault:
                if str(fault) != told_of:
                    told_of = str(fault)
                    self._warn(f"{self.path}: {fault}: what conversations did is not written down")
                if isinstance(fault, sqlite3.DatabaseError) and _is_broken(fault):
                    self._begin_anew()
            else:
                told_of = ""

    def _batches(self) -> Iterator[_Batch]:
        """What has come in the last moments, together."""
        while (first := self._waiting.get()) is not None:
            self._leaving.wait(GATHER_SECONDS)
            batch, last = _Batch(), False
            batch.add(*first)
            with suppress(queue.Empty):
                while (item := self._waiting.get_nowait()) is not None:
                    batch.add(*item)
                last = True
            yield batch
            if last:
                return

    def _write(self, batch: _Batch) -> None:
        with closing(self._opened()) as db, _all_or_nothing(db):
            db.execute("insert or ignore into about_1 values (1, ?)", [secrets.token_hex(4)])
            (mine,) = db.execute("select name from about_1").fetchone()
            now = self._clock()
            turns = ([at, *(_storable(getattr(turn, name)) for name in _TURN[1:])] for at, turn in batch.turns)
            _append(db, "turns_1", mine, now, turns)
            lines = (
                [at, each.severity, each.name, _storable(each.conversation), _storable(each.told)]
                for at, each in batch.happenings
            )
            _append(db, "happenings_1", mine, now, lines)
            db.executemany(
                "insert into minutes_1 (writer, minute, name, team, many) values (?, ?, ?, ?, ?) "
                "on conflict do update set many = many + excluded.many",
                ([mine, *map(_storable, key), _storable(many)] for key, many in batch.minutes.items()),
            )
            self._sweep(db)

    def _sweep(self, db: sqlite3.Connection) -> None:
        now = self._clock()
        if now - self._swept < SWEEP_SECONDS:
            return
        self._swept = now
        for table, most in (("turns_1", self._lasting.turns), ("happenings_1", self._lasting.happenings)):
            db.execute(f"delete from {table} where at < ?", [now - self._lasting.seconds])  # noqa: S608
            beyond = f"select at from {table} order by at desc limit 1 offset ?"  # noqa: S608
            db.execute(f"delete from {table} where at <= ({beyond})", [most])  # noqa: S608
        db.execute("delete from minutes_1 where minute < ?", [now - self._lasting.seconds])

    def _opened(self) -> sqlite3.Connection:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path.touch(mode=0o600)
        db = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None)
        try:
            db.execute("pragma journal_mode = wal")
            db.execute("pragma synchronous = off")
            db.executescript(_TABLES)
        except sqlite3.DatabaseError:
            db.close()
            raise
        return db

    def _begin_anew(self) -> None:
        for suffix in ("", "-wal", "-shm"):
            self.path.with_name(FILE + suffix).unlink(missing_ok=True)


class _all_or_nothing:  # noqa: N801 (it reads as a word)
    """A transaction that takes its lock at once: two writers never wait for each other half way."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def __enter__(self) -> None:
        self._db.execute("begin immediate")

    def __exit__(self, kind: object, *_: object) -> None:
        self._db.execute("commit" if kind is None else "rollback")


def _storable(value: object) -> object:
    """A value as the database can store and add it up; names and figures come from clients and upstreams."""
    match value:
        case str() if not value.isascii():
            return value.encode("utf-8", "replace").decode()  # half a surrogate pair
        case int():
            return max(-INTEGER_LIMIT, min(INTEGER_LIMIT, value))
        case float() if not math.isfinite(value):
            return None
        case _:
            return value


def _append(db: sqlite3.Connection, table: str, writer: str, now: float, rows: Iterable[Sequence[Any]]) -> None:
    """With the writer's next numbers: they only ever rise, also once all lines before have gone."""
    (top,) = db.execute(f"select max(number) from {table} where writer = ?", [writer]).fetchone()  # noqa: S608
    numbered = ([writer, number, *row] for number, row in enumerate(rows, max(top or 0, int(now * 1000)) + 1))
    _insert(db, table, ("writer", "number", *_COLUMNS[table]), numbered)


def _insert(db: sqlite3.Connection, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    marks = ", ".join("?" * len(columns))
    db.executemany(f"insert or ignore into {table} ({', '.join(columns)}) values ({marks})", rows)  # noqa: S608


def _is_broken(fault: sqlite3.DatabaseError) -> bool:
    code = getattr(fault, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
