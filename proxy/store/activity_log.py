"""The activity log: an SQLite file of what conversations did, for the admin pages.

Four tables: a row for each request (`requests`), one for the accounting of each that was looked at (`turns`), one for
each block, summary or fault (`incidents`), and counts by the minute (`minute_counts`). Names and figures only; what was
said is in the transcripts. Recording never waits: a thread writes what has gathered in a moment into a file that all
workers of a machine share. Nothing depends on the file: one that is broken is set aside, and a new one begins.

Events become records in `proxy/telemetry/activity.py`; the pages read with SQL (`proxy/admin`).
"""

import json
import math
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any

from proxy.events import RequestFinished, TurnEnded
from proxy.lifetime import BackgroundWriter
from proxy.store.clock import SystemClock
from proxy.store.contract import StoreUnavailable, ignore
from proxy.store.sqlite import DatabaseFile

FILE = "chronicle.sqlite"
QUEUED_RECORDS_MAX = 20_000
GATHER_SECONDS = 0.2
LOCK_TIMEOUT_SECONDS = 10.0
CLOSE_SECONDS = 5.0
SWEEP_SECONDS = 600.0
MINUTE_SECONDS = 60
DAY_SECONDS = 24 * 3600.0
INTEGER_LIMIT = 10**13
"""Larger figures are cut to this: the sum over all rows must fit into the 64 bits of an integer of SQLite."""

SCHEMA_VERSION = 4
_SCHEMA = """
create table if not exists turns (
    id integer primary key, at real not null, conversation text not null, tenant text not null, link text not null,
    team text not null, key text not null, tag text not null, model text not null, upstream text not null,
    policy text not null, policy_version text not null, action text not null, reason text not null,
    messages integer not null, tokens_before integer not null, tokens_after integer not null,
    prompt_tokens integer not null, cached_tokens integer, output_tokens integer not null,
    paid_dollars real, plain_dollars real, tokens_would_be integer, would_be_dollars real,
    user text not null default '', session text not null default '');
create index if not exists turns_by_conversation on turns (conversation, at);
create index if not exists turns_by_time on turns (at);
create table if not exists requests (
    id integer primary key, at real not null, request_id text not null, method text not null, route text not null,
    status integer not null, outcome text not null, team text not null, upstream text, model text not null,
    conversation text not null, reason text, compaction text, tokens_before integer not null,
    tokens_after integer not null, tokens_would_be integer not null, bytes_in integer not null,
    bytes_out integer not null, seconds real not null, first_byte_seconds real, overhead_seconds real);
create index if not exists requests_by_time on requests (at);
create index if not exists requests_by_request_id on requests (request_id);
create table if not exists incidents (
    id integer primary key, at real not null, severity text not null, name text not null, conversation text not null,
    dollars real not null, details text not null);
create index if not exists incidents_by_time on incidents (at);
create index if not exists incidents_by_conversation on incidents (conversation, at);
create table if not exists minute_counts (
    minute integer not null, name text not null, team text not null, many integer not null,
    primary key (minute, name, team)) without rowid;
"""
_MIGRATION_FROM_1 = """
insert into turns select null, at, conversation, tenant, link, team, key, tag, model, upstream, policy, version, action,
    reason, messages, before, after, prompt, cached, written, paid, plain, null, null, '', ''
    from turns_1;
insert into incidents select null, at, severity, name, conversation, coalesce(json_extract(told, '$.dollars'), 0), told
    from happenings_1;
insert into minute_counts select minute, name, team, sum(many) from minutes_1 group by minute, name, team;
drop table turns_1;
drop table happenings_1;
drop table minutes_1;
drop table about_1;
"""
_MIGRATION_FROM_2 = """
alter table turns add column tokens_would_be integer;
alter table turns add column would_be_dollars real;
"""
_MIGRATION_FROM_3 = """
alter table turns add column user text not null default '';
alter table turns add column session text not null default '';
"""
_MIGRATIONS = ((2, _MIGRATION_FROM_2), (3, _MIGRATION_FROM_3))
_NOT_STORED = {
    TurnEnded: {"request_id"},
    RequestFinished: {"client", "sent_seconds", "trace", "received_at", "sent_at", "headers_at", "first_byte_at"},
}
_TURN_COLUMNS, _REQUEST_COLUMNS = (
    tuple(name for name in kind.__struct_fields__ if name not in left_out) for kind, left_out in _NOT_STORED.items()
)
_turn_values, _request_values = attrgetter(*_TURN_COLUMNS), attrgetter(*_REQUEST_COLUMNS)
_INCIDENT_COLUMNS = ("severity", "name", "conversation", "dollars", "details")
ROWS_PER_STATEMENT = 64
"""sqlite3 gives the interpreter away for each statement and then asks the busy event loop for it: an insert of one row
costs more waiting than work."""
_ADD_COUNT = """
insert into minute_counts (minute, name, team, many) values (?, ?, ?, ?)
on conflict do update set many = many + excluded.many
"""


@dataclass(frozen=True, slots=True)
class Incident:
    """Something that is not a request: a block, a summary, a fault, an act of an operator."""

    severity: str
    name: str
    conversation: str
    details: Mapping[str, Any]
    dollars: float = 0.0


@dataclass(frozen=True, slots=True)
class CounterDelta:
    """Additions to this minute's counts of a team."""

    counts: Mapping[str, int]
    team: str = ""


@dataclass(frozen=True, slots=True)
class RetentionLimits:
    """How much is kept; of each table the oldest rows go first."""

    turns: int = 100_000
    requests: int = 100_000
    incidents: int = 20_000
    paid_incidents: int = 100_000
    """Summaries that cost something: as many as turns, so that no warning takes their cost out of the sums."""
    seconds: float = 31 * DAY_SECONDS


Row = tuple[Any, ...]
Record = TurnEnded | RequestFinished | Incident | CounterDelta


class ActivityLog:
    """One process's access to the file. `warn` is called from its thread, with a sentence for the operator."""

    def __init__(
        self,
        folder: Path,
        limits: RetentionLimits = RetentionLimits(),
        warn: Callable[[str], None] = ignore,
        clock: SystemClock | None = None,
    ) -> None:
        self.path = folder / FILE
        self._limits = limits
        self._warn = warn
        self._clock = clock or SystemClock()
        self._file = self._open()
        self._swept_at = 0.0
        self._last_warning = ""
        self._writer = BackgroundWriter[tuple[float, tuple[Record, ...]]](
            "activity-log", self._write_records, QUEUED_RECORDS_MAX, GATHER_SECONDS
        )

    @property
    def dropped_records(self) -> int:
        return self._writer.dropped

    def record(self, *records: Record) -> None:
        """Add records to the next batch; with too many waiting they are dropped and counted as one."""
        self._writer.put((self._clock.read(), records), len(records))

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Write what waits, for at most so long."""
        self._writer.close(seconds)

    def query(self, query: str, values: Mapping[str, Any] | Sequence[Any] = ()) -> list[dict[str, Any]]:
        """The rows that a query finds, from any thread; none as long as nothing was recorded."""
        if not self.path.is_file():
            return []
        file = self._open()
        try:
            return file.run(lambda db: _select(db, query, values))
        except StoreUnavailable as fault:
            self._warn(str(fault))
            return []
        finally:
            file.close()

    def _open(self) -> DatabaseFile:
        return DatabaseFile(self.path, self._warn, _prepare, LOCK_TIMEOUT_SECONDS)

    # --- in the thread -----------------------------------------------------------------------------------------------

    def _write_records(self, waiting: Sequence[tuple[float, tuple[Record, ...]]]) -> int:
        try:
            self._file.run(lambda db: self._write(db, [(at, record) for at, records in waiting for record in records]))
        except StoreUnavailable as fault:
            if str(fault) != self._last_warning:
                self._last_warning = str(fault)
                self._warn(f"{fault}: activity is not recorded; requests are not affected")
            return len(waiting)
        self._last_warning = ""
        return 0

    def _write(self, db: sqlite3.Connection, records: Sequence[tuple[float, Record]]) -> None:
        counts: Counter[tuple[int, str, str]] = Counter()
        turns, requests, incidents = list[Row](), list[Row](), list[Row]()
        for at, record in records:
            if isinstance(record, CounterDelta):
                minute = int(at) // MINUTE_SECONDS * MINUTE_SECONDS
                for name, many in record.counts.items():
                    counts[minute, name, record.team] += many
            elif isinstance(record, Incident):
                incidents.append((at, *_incident_values(record)))
            elif isinstance(record, RequestFinished):
                requests.append((at, *map(_to_storable, _request_values(record))))
            else:
                turns.append((at, *map(_to_storable, _turn_values(record))))
        with _transaction(db):
            _insert(db, "turns", _TURN_COLUMNS, turns)
            _insert(db, "requests", _REQUEST_COLUMNS, requests)
            _insert(db, "incidents", _INCIDENT_COLUMNS, incidents)
            db.executemany(_ADD_COUNT, ((*map(_to_storable, key), _to_storable(n)) for key, n in counts.items()))
            self._remove_old_rows(db)

    def _remove_old_rows(self, db: sqlite3.Connection) -> None:
        now = self._clock.read_believed()
        if abs(now - self._swept_at) < SWEEP_SECONDS:  # a clock may be set back
            return
        self._swept_at = now
        oldest = now - self._limits.seconds
        limits = self._limits
        for table, which, most in (
            ("turns", "true", limits.turns),
            ("requests", "true", limits.requests),
            ("incidents", "dollars <= 0", limits.incidents),
            ("incidents", "dollars > 0", limits.paid_incidents),
        ):
            db.execute(f"delete from {table} where at < ?", [oldest])  # noqa: S608
            beyond = f"select at from {table} where {which} order by at desc limit 1 offset ?"  # noqa: S608
            db.execute(f"delete from {table} where {which} and at <= ({beyond})", [most])  # noqa: S608
        db.execute("delete from minute_counts where minute < ?", [oldest])


@contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    """A transaction that takes its lock at once: two writers never wait for each other half way."""
    with db:  # commits at the end of the block, and rolls back where it raises
        db.execute("begin immediate")
        yield


def _select(db: sqlite3.Connection, query: str, values: Mapping[str, Any] | Sequence[Any]) -> list[dict[str, Any]]:
    db.execute("pragma query_only = on")
    db.row_factory = sqlite3.Row
    return [dict(row) for row in db.execute(query, values)]


def _prepare(db: sqlite3.Connection) -> None:
    db.execute("pragma synchronous = off")
    _make_tables(db)  # a file of version 0.1 may not have been written to yet


def _version_of(db: sqlite3.Connection) -> int:
    (version,) = db.execute("pragma user_version").fetchone()
    return int(version)


def _make_tables(db: sqlite3.Connection) -> None:
    """Make the tables where they are missing, and bring those of earlier versions up to date."""
    if _version_of(db) >= SCHEMA_VERSION:
        return
    with _transaction(db):
        version = _version_of(db)
        if version >= SCHEMA_VERSION:  # another worker was first
            return
        for before, script in _MIGRATIONS:
            if 2 <= version <= before:  # noqa: PLR2004 (of version 1 only the rows are taken over, below)
                _run(db, script)
        _run(db, _SCHEMA)
        if db.execute("select 1 from sqlite_master where name = 'minutes_1'").fetchone():
            _run(db, _MIGRATION_FROM_1)
        db.execute(f"pragma user_version = {SCHEMA_VERSION}")


def _run(db: sqlite3.Connection, script: str) -> None:
    # Not executescript(): that would end the transaction first.
    for statement in script.split(";\n"):
        db.execute(statement)


def _insert(db: sqlite3.Connection, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
    """Insert rows of a time and these columns, many by one statement."""
    places = f"(?{', ?' * len(columns)})"
    for start in range(0, len(rows), ROWS_PER_STATEMENT):
        some = rows[start : start + ROWS_PER_STATEMENT]
        values = ", ".join([places] * len(some))
        db.execute(f"insert into {table} (at, {', '.join(columns)}) values {values}", [*chain.from_iterable(some)])  # noqa: S608


def _incident_values(incident: Incident) -> Row:
    details = json.dumps(incident.details, default=str, separators=(",", ":"))
    texts = map(_to_storable, (incident.severity, incident.name, incident.conversation))
    return (*texts, _to_storable(incident.dollars) or 0.0, details)


def _to_storable(value: object) -> object:
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
