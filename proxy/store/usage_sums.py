"""Sums of usage for each machine, by time, team, policy, model, key and upstream: tables in the activity log.

    turns, requests, summaries -> sums of 5 minutes -> after 36 hours: of an hour -> after 8 days: of a day -> 400 days

A sum of rows is the usage of any span, team or month. A machine writes only its own rows; `fleet` copies those of the
others, one hour at a time. They hold no user, no conversation and no text, so deleting a person's data leaves them.
"""

import json
import math
import re
import sqlite3
import zlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec
from msgspec import Struct

T = TypeVar("T")

GRAIN_SECONDS, HOUR_SECONDS, DAY_SECONDS = 300, 3600, 24 * 3600
HOURS_KEPT_SECONDS = 8 * DAY_SECONDS
"""Older rows of an hour are added up to those of a day. The chart of a week needs hours."""
KEPT_SECONDS = 400 * DAY_SECONDS
"""13 months, so that a month can be compared with the same month of the year before."""

FIGURES = (
    # of all requests
    "requests", "refused", "failed", "left", "broke", "upstream_errors",
    # of turns: requests that compaction looked at
    "turns", "conversations", "tokens_raw", "tokens_unshortened", "tokens_forwarded", "tokens_would_be", "tokens_read",
    "tokens_cached", "tokens_written", "tokens_read_placed", "tokens_cached_placed", "refetches", "blocks",
    "priced", "unpriced", "paid", "plain", "would_save",
    # of others
    "summaries", "spent", "overflows", "overflows_helped", "overflows_observed", "faults",
)  # fmt: skip


class UsageNames(NamedTuple):
    """The names by which usage is added up. A name is empty if it is not known or does not matter."""

    team: str = ""
    policy: str = ""
    model: str = ""
    key: str = ""
    upstream: str = ""


class UsageDelta(Struct, frozen=True):
    """Figures to add to the sums of this moment."""

    figures: Mapping[str, float]
    groups: UsageNames = UsageNames()


def _write_query(text: str) -> str:
    """Fill in the names of the columns, and how figures are declared or added up."""
    return text.format(
        groups=", ".join(UsageNames._fields),
        figures=", ".join(FIGURES),
        declared_groups=", ".join(f"{name} text not null" for name in UsageNames._fields),
        declared_figures=", ".join(f"{name} not null default 0" for name in FIGURES),
        places=", ".join("?" * (2 + len(UsageNames._fields) + len(FIGURES))),
        added=", ".join(f"{name} = {name} + excluded.{name}" for name in FIGURES),
    )


SCHEMA = _write_query("""
create table if not exists usage_machines (
    id text primary key, name text not null default '', at real not null default 0, is_own integer not null default 0);
insert into usage_machines (id, is_own)
    select lower(hex(randomblob(8))), 1 where not exists (select 1 from usage_machines where is_own);
create table if not exists usage_revisions (
    machine text not null, part text not null, revision integer not null, primary key (machine, part)) without rowid;
create table if not exists usage_sums (
    machine text not null, at integer not null, {declared_groups}, {declared_figures},
    primary key (machine, at, {groups})) without rowid;
create table if not exists usage_events (
    machine text not null, at real not null, severity text not null, name text not null, details text not null);
""")
"""`usage_events` are those of other machines. The file has its machine's name, so a new file is another machine."""

_ADD = _write_query("""
insert into usage_sums (machine, at, {groups}, {figures}) values ({places}) on conflict do update set {added}
""")

_NEWEST_EVENTS = """
select at, severity, name, details from incidents where severity in ('warning', 'error') order by at desc limit 100
"""


def add(db: sqlite3.Connection, sums: Mapping[tuple[int, UsageNames], Mapping[str, float]]) -> None:
    """Add figures to the rows of this machine, each under the beginning of its five minutes."""
    own_id = read_own_id(db)
    for (at, groups), figures in sums.items():
        db.execute(_ADD, [own_id, at, *groups, *(figures.get(name, 0) for name in FIGURES)])
    _revise(db, own_id, {at - at % HOUR_SECONDS for at, _ in sums})


def fold(db: sqlite3.Connection, now: float) -> None:
    """Add up rows to longer ones as they age, and remove the oldest of all machines.

    A machine adds up its own rows, and those that it has read of machines which are gone: nobody else would.
    """
    aged_rows = "from usage_sums where machine = :machine and at < :end and at % :length != 0"
    add_up = _write_query(
        "insert into usage_sums (machine, at, {groups}, {figures}) "
        "select machine, at - at % :length, {groups}, {figures} " + aged_rows + " on conflict do update set {added}"
    )
    own_id = read_own_id(db)
    # A machine that has published nothing for a month is taken for gone. If it returns, its own sums replace these.
    gone_query = "select id from usage_machines where not is_own and at < ?"
    gone_ids = [machine for (machine,) in db.execute(gone_query, [now - 31 * DAY_SECONDS])]
    for age, length in ((36 * HOUR_SECONDS, HOUR_SECONDS), (HOURS_KEPT_SECONDS, DAY_SECONDS)):
        end = int(now - age) // length * length
        own_rows = {"machine": own_id, "end": end, "length": length}
        hours = {at - at % HOUR_SECONDS for (at,) in db.execute(f"select distinct at {aged_rows}", own_rows)}
        for machine in (own_id, *gone_ids):
            rows = own_rows | {"machine": machine}
            db.execute(add_up, rows)
            db.execute(f"delete {aged_rows}", rows)
        _revise(db, own_id, hours | {hour - hour % length for hour in hours})
    oldest = int(now - KEPT_SECONDS)
    db.execute("delete from usage_sums where at < ?", [oldest])
    db.execute(
        "delete from usage_revisions where part != 'events' and cast(part as integer) < ?", [oldest - DAY_SECONDS]
    )
    # Each new container is a machine of its own, and most of them are gone for good.
    db.execute("delete from usage_machines where not is_own and at < ?", [oldest])
    db.execute("delete from usage_revisions where machine not in (select id from usage_machines)")


def read_own_id(db: sqlite3.Connection) -> str:
    (own_id,) = db.execute("select id from usage_machines where is_own").fetchone()
    return str(own_id)


def _revise(db: sqlite3.Connection, machine: str, hours: set[int]) -> None:
    """Note that these hours have changed. An hour without rows is no longer a part."""
    for hour in hours:
        hour_rows = [machine, hour, hour + HOUR_SECONDS]
        if db.execute("select 1 from usage_sums where machine = ? and at >= ? and at < ?", hour_rows).fetchone():
            db.execute(
                "insert into usage_revisions values (?, ?, 1) on conflict do update set revision = revision + 1",
                [machine, str(hour)],
            )
        else:
            db.execute("delete from usage_revisions where machine = ? and part = ?", [machine, str(hour)])


class Head(Struct):
    """The parts that a machine has published: `events`, and hours by their beginning; each with its revision."""

    machine: str
    name: str
    at: float
    """When the machine last published."""
    parts: dict[
        Annotated[str, msgspec.Meta(pattern=r"^(events|\d{1,11})\Z")], Annotated[int, msgspec.Meta(ge=0, lt=2**62)]
    ]


class _Hour(Struct):
    figures: tuple[str, ...]
    rows: list[tuple[int, UsageNames, list[float]]]


class _PublishedEvent(Struct):
    at: float
    severity: str
    name: str
    details: dict[str, Any]


def read_own_head(db: sqlite3.Connection, name: str, at: float) -> Head:
    db.execute("update usage_machines set name = ?, at = ? where is_own", [name, at])
    own_id = read_own_id(db)
    parts = dict(db.execute("select part, revision from usage_revisions where machine = ?", [own_id]).fetchall())
    # Their newest number would not tell that an older one was deleted with its conversation.
    parts["events"] = zlib.crc32(repr(db.execute(_NEWEST_EVENTS).fetchall()).encode())
    return Head(own_id, name, at, parts)


def read_part(db: sqlite3.Connection, part: str) -> bytes:
    """Return a part of this machine as others read it, without the names of conversations and requests in events."""
    if part == "events":
        events = []
        for at, severity, name, text in db.execute(_NEWEST_EVENTS):
            details = json.loads(text)
            for field, value in details.items():
                # Other machines must not get a name: a deletion here would not reach them.
                if isinstance(value, str):
                    details[field] = re.sub("[0-9a-f]{16,}", "…", value)
            events.append({"at": at, "severity": severity, "name": name, "details": details})
        # Names in an event may be of any kind: half a surrogate pair, an integer of 400 digits.
        return zlib.compress(json.dumps(events, ensure_ascii=False).encode("utf-8", "replace"))
    first_figure = 1 + len(UsageNames._fields)
    hour = _Hour(FIGURES, [])
    query = _write_query("select at, {groups}, {figures} from usage_sums where machine = ? and at >= ? and at < ?")
    for row in db.execute(query, [read_own_id(db), int(part), int(part) + HOUR_SECONDS]):
        hour.rows.append((row[0], UsageNames(*row[1:first_figure]), list(row[first_figure:])))
    return encode(hour)


def find_news(db: sqlite3.Connection, heads: Sequence[Head]) -> list[tuple[Head, list[str]]]:
    """Return the heads that have changed since they were read, each with its parts to read, the newest first."""
    read_at = dict(db.execute("select id, at from usage_machines").fetchall())
    news = []
    for head in heads:
        query = "select part, revision from usage_revisions where machine = ?"
        revisions = dict(db.execute(query, [head.machine]).fetchall())
        stale_parts = [part for part, revision in head.parts.items() if revisions.get(part) != revision]
        if stale_parts or head.at != read_at.get(head.machine):
            news.append((head, sorted(stale_parts, reverse=True)))
    return news


def take_over(db: sqlite3.Connection, head: Head, values: Mapping[str, bytes]) -> None:
    """Replace parts of another machine, and forget those that it no longer has."""
    db.execute(
        """insert into usage_machines (id, name, at) values (?, ?, ?)
        on conflict do update set name = excluded.name, at = excluded.at where not is_own""",
        [head.machine, head.name, head.at],
    )
    # A machine publishes its newest hours first. After a flush, those before them are not gone but on their way.
    first_hour = min((int(part) for part in head.parts if part != "events"), default=math.inf)
    for (part,) in db.execute("select part from usage_revisions where machine = ?", [head.machine]).fetchall():
        if part not in head.parts and (part == "events" or int(part) > first_hour):
            _store_part(db, head.machine, part, None)
    for part, value in values.items():
        _store_part(db, head.machine, part, value)
        revision = [head.machine, part, head.parts[part]]
        db.execute("insert into usage_revisions values (?, ?, ?)", revision)


def _store_part(db: sqlite3.Connection, machine: str, part: str, value: bytes | None) -> None:
    """Replace a part. None removes it, and a value that cannot be read leaves it without rows."""
    db.execute("delete from usage_revisions where machine = ? and part = ?", [machine, part])
    if part == "events":
        db.execute("delete from usage_events where machine = ?", [machine])
        for event in decode(value, list[_PublishedEvent]) or ():
            stored_event = [machine, event.at, event.severity, event.name, json.dumps(event.details)]
            db.execute("insert into usage_events values (?, ?, ?, ?, ?)", stored_event)
        return
    start = int(part)
    hour_rows = [machine, start, start + HOUR_SECONDS]
    db.execute("delete from usage_sums where machine = ? and at >= ? and at < ?", hour_rows)
    hour = decode(value, _Hour) or _Hour((), [])
    for at, groups, figures in hour.rows:
        named_figures = dict(zip(hour.figures, figures, strict=False))
        if start <= at < start + HOUR_SECONDS:
            row: list[float] = []
            for name in FIGURES:
                figure = named_figures.get(name, 0.0)
                # A larger figure stays a float: SQLite refuses an integer of more than 64 bits.
                is_count = figure.is_integer() and abs(figure) < 2**53
                row.append(int(figure) if is_count else figure)
            db.execute(_ADD, [machine, at, *groups, *row])


def encode(value: object) -> bytes:
    return zlib.compress(msgspec.json.encode(value))


def decode(document: bytes | None, kind: type[T]) -> T | None:
    """Decode a document. Return None if there is none, or it cannot be read: it may be of a later version."""
    if document is None:
        return None
    try:
        return msgspec.json.decode(zlib.decompressobj().decompress(document, 32 * 1024 * 1024), type=kind)
    except (zlib.error, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
