"""The overview: totals of the last hour and day, of each team, and figures over time.

Money is in dollars, of requests whose upstream told its usage and whose model's prices are known.
"""

import asyncio
import time
from collections.abc import Iterator, Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from proxy.admin.context import AdminContext, AdminRequest, Json, Route
from proxy.store.activity_log import DAY_SECONDS, MINUTE_SECONDS, ActivityLog
from proxy.telemetry.activity import MICRODOLLARS_PER_DOLLAR

HOUR_SECONDS = 3600.0
STEPS_SECONDS = (
    MINUTE_SECONDS,
    5 * MINUTE_SECONDS,
    10 * MINUTE_SECONDS,
    1800.0,
    3600.0,
    3 * 3600.0,
    6 * 3600.0,
    12 * 3600.0,
    DAY_SECONDS,
)
"""Lengths that a moment of the picture may have: spans that people name."""
OPEN_SECONDS = 300.0
"""A conversation is open while its last request is not older: so long most providers cache it."""
MOMENTS_LIMIT = 60
_SUMMARIES = """
select (select team from turns where turns.conversation = incidents.conversation limit 1) as team,
       count(*) as many, coalesce(sum(dollars), 0) as dollars
from incidents where name = 'summary-ended' and at >= ? group by 1
"""
_MOMENTS = """
select cast(minute / :every as integer) as place, name, sum(many) as many from minute_counts
where minute >= :since and name in ('requests', 'raw', 'forwarded', 'observed', 'plain', 'paid', 'spent')
group by place, name
"""


class OverviewQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    hours: Annotated[float, Meta(gt=0, le=744)] = 24.0
    """Span of the moments."""


async def show_overview(context: AdminContext, request: AdminRequest) -> Json:
    return await asyncio.to_thread(_overview, context.activity_log, request.query.hours * HOUR_SECONDS, time.time())


def _overview(activity_log: ActivityLog, span: float, now: float) -> Json:
    every = float(next(step for step in STEPS_SECONDS if span / step <= MOMENTS_LIMIT))
    return {
        "now": now,
        "open": _count_open(activity_log, now),
        "hour": _period(_count(activity_log, now - HOUR_SECONDS)),
        "day": _period(_count(activity_log, now - DAY_SECONDS)),
        "all": _period(_count(activity_log, 0)),
        "every": every,  # seconds of a moment
        "moments": list(_moments(activity_log, now - span, now, every)),
        "teams": _teams(activity_log, now - DAY_SECONDS),
    }


def _count_open(activity_log: ActivityLog, now: float) -> int:
    query = "select count(distinct conversation) as many from turns where at > ?"
    return next((row["many"] for row in activity_log.query(query, [now - OPEN_SECONDS])), 0)


def _count(activity_log: ActivityLog, since: float) -> dict[str, int]:
    query = "select name, sum(many) as many from minute_counts where minute >= ? group by name"
    return {row["name"]: row["many"] for row in activity_log.query(query, [since])}


def _teams(activity_log: ActivityLog, since: float) -> dict[str, Json]:
    """The last day by team, with the summaries of its conversations."""
    query = """select team, name, sum(many) as many from minute_counts
               where minute >= ? and team != '' group by team, name"""
    found: dict[str, dict[str, int]] = {}
    for row in activity_log.query(query, [since]):
        found.setdefault(row["team"], {})[row["name"]] = row["many"]
    for row in activity_log.query(_SUMMARIES, [since]):
        spent = round(row["dollars"] * MICRODOLLARS_PER_DOLLAR)
        found.setdefault(row["team"] or "", {}).update(summaries=row["many"], spent=spent)
    return {team: _period(counts) for team, counts in sorted(found.items()) if team}


def _moments(activity_log: ActivityLog, since: float, now: float, every: float) -> Iterator[Json]:
    """Every moment of the span, also those in which nothing happened."""
    found: dict[int, dict[str, int]] = {}
    for row in activity_log.query(_MOMENTS, {"every": every, "since": since}):
        found.setdefault(row["place"], {})[row["name"]] = row["many"]
    for place in range(int(since // every) + 1, int(now // every) + 1):
        counts = found.get(place, {})
        yield {
            "at": place * every,
            "requests": counts.get("requests", 0),
            "tokens_raw": counts.get("raw", 0),
            "tokens_forwarded": counts.get("forwarded", 0),
            "tokens_would_be": counts.get("forwarded", 0) - counts.get("observed", 0),
            "saved": _saved_dollars(counts),
        }


def _period(counts: Mapping[str, int]) -> Json:
    """Figures of a span of time, from its counters."""

    def sum_of(*names: str) -> int:
        return sum(counts.get(name, 0) for name in names)

    read, cached = sum_of("prompt"), sum_of("cached")
    return {
        "requests": sum_of("requests"),
        "chats": sum_of("chats"),
        "looked_at": sum_of("turns"),
        "refused": sum_of("refused"),
        "failed": sum_of("failed", "broke"),
        "left": sum_of("left"),
        "tokens_raw": sum_of("raw"),
        "tokens_forwarded": sum_of("forwarded"),
        "tokens_would_be": sum_of("forwarded") - sum_of("observed"),  # had no policy only observed
        "tokens_read": read,  # by the upstreams' own usage
        "tokens_cached": cached,
        "cached_share": round(cached / read, 4) if read else None,
        "blocks": sum_of("blocks"),
        "summaries": sum_of("summaries"),
        "priced": sum_of("priced"),
        "paid": sum_of("paid") / MICRODOLLARS_PER_DOLLAR,  # for prompts
        "plain": sum_of("plain") / MICRODOLLARS_PER_DOLLAR,  # for the same histories without the proxy
        "saved": _saved_dollars(counts),
        "would_save": sum_of("would-save") / MICRODOLLARS_PER_DOLLAR,  # more, had no policy only observed
        "spent": sum_of("spent") / MICRODOLLARS_PER_DOLLAR,  # for summaries
        "overflows": sum_of("overflows", "overflows-helped"),
        "overflows_helped": sum_of("overflows-helped"),
        "breakers": sum_of("breakers"),
        "faults": sum_of("failed-open", "our-faults", "store-faults"),
    }


def _saved_dollars(counts: Mapping[str, int]) -> float:
    """Dollars: what is left of the difference once the summaries are paid."""
    return (counts.get("plain", 0) - counts.get("paid", 0) - counts.get("spent", 0)) / MICRODOLLARS_PER_DOLLAR


ROUTES = (Route("GET", "/overview", show_overview, OverviewQuery),)
