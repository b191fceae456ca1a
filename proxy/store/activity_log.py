"""The activity log: an SQLite file about past requests, for the admin pages.

It holds names and figures, and no messages. `turns` are requests that compaction looked at. A thread writes batches
into a file that all workers share. A broken file is set aside. Sums of usage (`usage_sums.py`) outlive the rows.

Events become records in `proxy/telemetry/activity.py`; the pages read with SQL (`proxy/admin`).
"""

import json
import math
import sqlite3
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct

from proxy.events import RequestFinished, TurnEnded
from proxy.foundation.lifetime import BackgroundWriter
from proxy.store import usage_sums
from proxy.store.contract import RareReports, StoreUnavailable, SystemClock, ignore
from proxy.store.sqlite import DatabaseFile, read_stamp, transaction, truncate_log
from proxy.store.usage_sums import DAY_SECONDS, GRAIN_SECONDS, SCHEMA, UsageDelta, UsageNames

T = TypeVar("T")

FILE = "chronicle.sqlite"
QUEUED_RECORDS_MAX = 20_000
GATHER_SECONDS = 0.2
SWEEP_SECONDS = 600.0
REPORT_SECONDS = 300.0
READ_BUSY_SECONDS = 1.0
"""Readers wait only for a process that has locked the whole file."""

SCHEMA_VERSION = 8
_SCHEMA = """
create table if not exists turns (
    id integer primary key, at real not null, conversation text not null, tenant text not null, link text not null,
    team text not null, key text not null, tag text not null, model text not null, upstream text not null,
    policy text not null, policy_version text not null, action text not null, reason text not null,
    messages integer not null, tokens_before integer not null, tokens_after integer not null,
    prompt_tokens integer not null, cached_tokens integer, output_tokens integer not null,
    paid_dollars real, plain_dollars real, answer_dollars real, tokens_would_be integer, would_be_dollars real,
    tokens_unshortened integer not null, refetches integer not null,
    user text not null default '', session text not null default '', placed text not null default '',
    arm text not null default '', asked_by_user integer not null default 0, request_id text not null);
create index if not exists turns_by_conversation on turns (conversation, at);
create index if not exists turns_by_time on turns (at);
create table if not exists requests (
    id integer primary key, at real not null, request_id text not null, method text not null, route text not null,
    status integer not null, outcome text not null, team text not null, upstream text, model text not null,
    conversation text not null, reason text, compaction text, tokens_before integer not null,
    tokens_after integer not null, tokens_would_be integer not null, refetches integer not null,
    bytes_in integer not null,
    bytes_out integer not null, seconds real not null, first_byte_seconds real, overhead_seconds real);
create index if not exists requests_by_time on requests (at);
create index if not exists requests_by_request_id on requests (request_id);
create table if not exists incidents (
    id integer primary key, at real not null, severity text not null, name text not null, conversation text not null,
    dollars real not null, details text not null);
create index if not exists incidents_by_time on incidents (at);
create index if not exists incidents_by_conversation on incidents (conversation, at);
"""


_TURN_COLUMNS = [name for name in TurnEnded.__struct_fields__ if name != "is_first"]
_NOT_STORED = ("client", "sent_seconds", "trace", "headers_seconds", "received_at")
_REQUEST_COLUMNS = [name for name in RequestFinished.__struct_fields__ if name not in _NOT_STORED]
_read_turn, _read_request = attrgetter(*_TURN_COLUMNS), attrgetter(*_REQUEST_COLUMNS)
LARGEST_FIGURE = 10**13
"""The sum over all rows must fit into the 64 bits of an integer of SQLite."""


class Incident(Struct, frozen=True):
    """A block, summary, fault, or act of an operator."""

    severity: str
    name: str
    conversation: str
    details: Mapping[str, Any]
    dollars: float = 0.0


class RetentionLimits(Struct, frozen=True):
    """Rows to keep of each table, newest first."""

    turns: int = 100_000
    requests: int = 100_000
    incidents: int = 20_000
    paid_incidents: int = 100_000
    """Incidents with a cost are counted apart, so that warnings do not push the cost of summaries out of the sums."""
    seconds: float = 31 * DAY_SECONDS


Row = tuple[Any, ...]
Record = TurnEnded | RequestFinished | Incident | UsageDelta


class ActivityLog:
    """A writer of records and a reader of rows. `warn` is called from its thread, with a sentence for the operator."""

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
        self._file = DatabaseFile(self.path, self._warn, _prepare, busy_seconds=10.0)
        self._unreadable_until = 0.0
        self._swept_at = 0.0
        self._reports = RareReports(warn)
        self.writer = BackgroundWriter[tuple[float, tuple[Record, ...]]](
            "activity-log", self._write_records, QUEUED_RECORDS_MAX, GATHER_SECONDS
        )

    def record(self, *records: Record) -> None:
        """Add records to the next batch. If too many wait, drop them and count one."""
        self.writer.put((self._clock.read(), records), len(records))

    def flush(self) -> None:
        """Wait for the records that were added until now, five seconds at most."""
        self.writer.flush(5.0)

    def delete(self, conversations: Sequence[tuple[str, str]]) -> None:
        """Delete the rows of conversations, each with its tenant. Raise StoreUnavailable if that failed."""
        names = [[name] for _, name in conversations]

        def delete_rows(db: sqlite3.Connection) -> None:
            with transaction(db):
                db.executemany("delete from turns where tenant = ? and conversation = ?", conversations)
                for table in ("requests", "incidents"):
                    db.executemany(f"delete from {table} where conversation = ?", names)  # noqa: S608
            truncate_log(db)

        self.flush()
        self.run(delete_rows)

    def run(self, act: Callable[[sqlite3.Connection], T], busy_seconds: float = 10.0) -> T:
        """Return what *act* returns, from any thread. Raise StoreUnavailable if that failed."""
        file = DatabaseFile(self.path, self._warn, _prepare, busy_seconds)
        try:
            return file.run(act)
        finally:
            file.close()

    def close(self, seconds: float = 5.0) -> None:
        self.writer.close(seconds)

    def query(self, query: str, values: Mapping[str, Any] | Sequence[Any] = ()) -> list[dict[str, Any]]:
        """Return the rows that any process wrote, from any thread; none if the file is missing, empty or locked."""
        if time.monotonic() < self._unreadable_until:
            return []
        try:
            return self.query_or_fail(query, values)
        except StoreUnavailable as fault:
            # A page makes up to ten queries. After one that found the file locked, the others are not tried.
            self._unreadable_until = time.monotonic() + 2.0
            self._warn(str(fault))
            return []

    def query_or_fail(self, query: str, values: Mapping[str, Any] | Sequence[Any] = ()) -> list[dict[str, Any]]:
        """Return the rows as `query` does, but raise StoreUnavailable if the file cannot be read."""
        _, size = read_stamp(self.path)
        if not size or not self.path.is_file():
            return []
        return self.run(lambda db: _select(db, query, values), READ_BUSY_SECONDS)

    def _write_records(self, waiting: Sequence[tuple[float, tuple[Record, ...]]]) -> int:
        try:
            self._file.run(lambda db: self._write(db, waiting))
        except StoreUnavailable as fault:
            text = f"{fault}: activity is not recorded; requests are not affected"
            self._reports.add(text, REPORT_SECONDS, cause=text)
            return len(waiting)
        return 0

    def _write(self, db: sqlite3.Connection, waiting: Sequence[tuple[float, tuple[Record, ...]]]) -> None:
        sums = defaultdict[tuple[int, UsageNames], dict[str, float]](dict)
        turns, requests, incidents = list[Row](), list[Row](), list[Row]()
        for at, records in waiting:
            for record in records:
                if isinstance(record, UsageDelta):
                    start = int(at) // GRAIN_SECONDS * GRAIN_SECONDS
                    figures = sums[start, UsageNames(*map(replace_surrogates, record.groups))]
                    for name, amount in record.figures.items():
                        figures[name] = figures.get(name, 0) + (_limit(amount) or 0)
                elif isinstance(record, Incident):
                    details = json.dumps(record.details, default=str, separators=(",", ":"))
                    texts = _make_storable((record.severity, record.name, record.conversation))
                    incidents.append((at, *texts, _limit(record.dollars) or 0.0, details))
                elif isinstance(record, RequestFinished):
                    requests.append((at, *_make_storable(_read_request(record))))
                else:
                    turns.append((at, *_make_storable(_read_turn(record))))
        with transaction(db):
            _insert(db, "turns", _TURN_COLUMNS, turns)
            _insert(db, "requests", _REQUEST_COLUMNS, requests)
            _insert(db, "incidents", ("severity", "name", "conversation", "dollars", "details"), incidents)
            if sums:
                usage_sums.add(db, sums)
            self._remove_old_rows(db)

    def _remove_old_rows(self, db: sqlite3.Connection) -> None:
        now = self._clock.read_believed()
        if abs(now - self._swept_at) < SWEEP_SECONDS:  # abs: a clock may be set back
            return
        self._swept_at = now
        oldest = now - self._limits.seconds
        limits = self._limits
        for table, condition, max_rows in (
            ("turns", "true", limits.turns),
            ("requests", "true", limits.requests),
            ("incidents", "dollars <= 0", limits.incidents),
            ("incidents", "dollars > 0", limits.paid_incidents),
        ):
            db.execute(f"delete from {table} where at < ?", [oldest])  # noqa: S608
            newest = f"select at from {table} where {condition} order by at desc limit 1 offset ?"  # noqa: S608
            db.execute(f"delete from {table} where {condition} and at <= ({newest})", [max_rows])  # noqa: S608
        db.execute("delete from usage_events where at < ?", [oldest])  # a machine that is gone takes none of them back
        usage_sums.fold(db, now)


def _select(db: sqlite3.Connection, query: str, values: Mapping[str, Any] | Sequence[Any]) -> list[dict[str, Any]]:
    db.execute("pragma query_only = on")
    db.row_factory = sqlite3.Row
    return [dict(row) for row in db.execute(query, values)]


def _prepare(db: sqlite3.Connection) -> None:
    """Make the tables. Those of another version are dropped, because they hold history only, except for the sums."""
    if _read_version(db) == SCHEMA_VERSION:
        return
    with transaction(db):
        if _read_version(db) == SCHEMA_VERSION:  # another worker was first
            return
        tables = "select name from sqlite_master where type = 'table' and name not like 'usage%'"
        for (table,) in db.execute(tables).fetchall():
            db.execute(f'drop table "{table}"')
        for statement in (_SCHEMA + SCHEMA).split(";\n"):  # executescript() would end the transaction first
            db.execute(statement)
        db.execute(f"pragma user_version = {SCHEMA_VERSION}")


def _read_version(db: sqlite3.Connection) -> int:
    (version,) = db.execute("pragma user_version").fetchone()
    return int(version)


def _insert(db: sqlite3.Connection, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
    placeholders = f"(?{', ?' * len(columns)})"
    # After each statement sqlite3 must win the GIL from a busy event loop: single rows would mostly wait.
    for start in range(0, len(rows), 64):
        batch = rows[start : start + 64]
        values = ", ".join([placeholders] * len(batch))
        db.execute(f"insert into {table} (at, {', '.join(columns)}) values {values}", [*chain.from_iterable(batch)])  # noqa: S608


def _make_storable(values: Iterable[str | float | None]) -> list[str | float | None]:
    """Return values that SQLite can store: names and figures from clients and upstreams may be of any size."""
    storable = [*values]
    for place, value in enumerate(storable):
        if isinstance(value, str):
            if not value.isascii():
                storable[place] = replace_surrogates(value)
        elif value is not None and not -LARGEST_FIGURE <= value <= LARGEST_FIGURE:
            storable[place] = _limit(value)
    return storable


def replace_surrogates(text: str) -> str:
    """Replace halves of surrogate pairs, which a client may send in a name, and SQLite and protobuf cannot hold."""
    return text.encode("utf-8", "replace").decode()


def _limit(value: float) -> float | None:
    """Cut a figure."""
    if not math.isfinite(value):
        return None
    return max(-LARGEST_FIGURE, min(LARGEST_FIGURE, value))
