"""How it goes: totals, the last hour and day, and a row of moments for the picture."""

import asyncio
import time
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from proxy.admin.routes import Asked, Desk, Route
from proxy.store.chronicle import DAY, MINUTE, Chronicle
from proxy.telemetry.witness import MICRO

HOUR = 3600.0
STEPS = (MINUTE, 5 * MINUTE, 10 * MINUTE, 0.5 * HOUR, HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY)
"""Spans that people name; a moment is one of them."""
OPEN_SECONDS = 300.0
"""A conversation is open while its last request is not older: so long its upstream remembers it."""
MOMENTS = 60
_SUMMARIES = """
select (select team from turns_1 where turns_1.conversation = happenings_1.conversation limit 1) as team,
       count(*) as many, coalesce(sum(json_extract(told, '$.dollars')), 0) as dollars
from happenings_1 where name = 'summary-ended' and at >= ? group by 1
"""


class Period(msgspec.Struct, frozen=True, kw_only=True):
    """What happened in some time. Money is in dollars, of requests whose upstream told its usage and whose model's
    prices are known (`priced` of them).
    """

    requests: int
    chats: int
    looked_at: int
    refused: int
    failed: int
    left: int
    tokens_raw: int
    tokens_forwarded: int
    tokens_read: int
    """By the upstreams' own usage, and"""
    tokens_cached: int
    """so many of them were in their caches."""
    cached_share: float | None
    blocks: int
    summaries: int
    priced: int
    paid: float
    """For prompts."""
    plain: float
    """For the same histories, had nothing stood in between."""
    saved: float
    """What is left of the difference once the summaries are paid."""
    spent: float
    """For summaries."""
    overflows: int
    overflows_helped: int
    breakers: int
    faults: int


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    at: float
    requests: int
    tokens_raw: int
    tokens_forwarded: int
    saved: float


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    now: float
    open: int
    """Conversations."""
    hour: Period
    day: Period
    all: Period
    """As far as the chronicle reaches: 31 days."""
    every: float
    """Seconds of a moment."""
    moments: list[Moment]
    teams: dict[str, Period]
    """The last day, by team; with the summaries of its conversations."""


class OverviewQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    hours: Annotated[float, Meta(gt=0, le=744)] = 24.0
    """What the moments span."""


async def overview(desk: Desk, asked: Asked) -> Overview:
    return await asyncio.to_thread(_overview, desk.chronicle, asked.query.hours * HOUR, time.time())


def _overview(chronicle: Chronicle, span: float, now: float) -> Overview:
    every = float(next(step for step in STEPS if span / step <= MOMENTS))
    return Overview(
        now=now,
        open=_open(chronicle, now),
        hour=period(_counted(chronicle, now - HOUR)),
        day=period(_counted(chronicle, now - DAY)),
        all=period(_counted(chronicle, 0)),
        every=every,
        moments=list(_moments(chronicle, now - span, now, every)),
        teams=_teams(chronicle, now - DAY),
    )


def _open(chronicle: Chronicle, now: float) -> int:
    query = "select count(distinct conversation) as many from turns_1 where at > ?"
    return next((row["many"] for row in chronicle.rows(query, [now - OPEN_SECONDS])), 0)


def _counted(chronicle: Chronicle, since: float) -> dict[str, int]:
    query = "select name, sum(many) as many from minutes_1 where minute >= ? group by name"
    return {row["name"]: row["many"] for row in chronicle.rows(query, [since])}


def _teams(chronicle: Chronicle, since: float) -> dict[str, Period]:
    query = "select team, name, sum(many) as many from minutes_1 where minute >= ? and team != '' group by team, name"
    found: dict[str, dict[str, int]] = {}
    for row in chronicle.rows(query, [since]):
        found.setdefault(row["team"], {})[row["name"]] = row["many"]
    for row in chronicle.rows(_SUMMARIES, [since]):
        found.setdefault(row["team"] or "", {}).update(summaries=row["many"], spent=round(row["dollars"] * MICRO))
    found.pop("", None)  # nobody's team
    return {team: period(counted) for team, counted in sorted(found.items())}


def _moments(chronicle: Chronicle, since: float, now: float, every: float) -> Iterable[Moment]:
    """Every moment of the span, also those in which nothing happened."""
    query = (
        "select cast(minute / :every as integer) as place, name, sum(many) as many from minutes_1 "
        "where minute >= :since and name in ('requests', 'raw', 'forwarded', 'plain', 'paid', 'spent') "
        "group by place, name"
    )
    found: dict[int, dict[str, int]] = {}
    for row in chronicle.rows(query, {"every": every, "since": since}):
        found.setdefault(row["place"], {})[row["name"]] = row["many"]
    for place in range(int(since // every) + 1, int(now // every) + 1):
        many = found.get(place, {})
        yield Moment(
            at=place * every,
            requests=many.get("requests", 0),
            tokens_raw=many.get("raw", 0),
            tokens_forwarded=many.get("forwarded", 0),
            saved=_saved(many),
        )


def period(many: Mapping[str, int]) -> Period:
    read, cached = many.get("prompt", 0), many.get("cached", 0)
    return Period(
        requests=many.get("requests", 0),
        chats=many.get("chats", 0),
        looked_at=many.get("turns", 0),
        refused=many.get("refused", 0),
        failed=many.get("failed", 0) + many.get("broke", 0),
        left=many.get("left", 0),
        tokens_raw=many.get("raw", 0),
        tokens_forwarded=many.get("forwarded", 0),
        tokens_read=read,
        tokens_cached=cached,
        cached_share=round(cached / read, 4) if read else None,
        blocks=many.get("blocks", 0),
        summaries=many.get("summaries", 0),
        priced=many.get("priced", 0),
        paid=many.get("paid", 0) / MICRO,
        plain=many.get("plain", 0) / MICRO,
        saved=_saved(many),
        spent=many.get("spent", 0) / MICRO,
        overflows=many.get("overflows", 0) + many.get("overflows-helped", 0),
        overflows_helped=many.get("overflows-helped", 0),
        breakers=many.get("breakers", 0),
        faults=sum(many.get(name, 0) for name in ("failed-open", "our-faults", "store-faults")),
    )


def _saved(many: Mapping[str, Any]) -> float:
    return float(many.get("plain", 0) - many.get("paid", 0) - many.get("spent", 0)) / MICRO


_DOES = "Totals, the last hour and day, and moments over time"
ROUTES = (Route("GET", "/overview", _DOES, overview, Overview, OverviewQuery),)
