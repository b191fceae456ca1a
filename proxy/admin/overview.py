"""The overview: totals of an hour, a day and all, and figures over time.

Money is in dollars, of requests whose upstream reported its usage and whose model's prices are known.
"""

import time
from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from proxy.admin.moments import HOUR_SECONDS, choose_step, list_moments
from proxy.admin.routes import AdminContext, AdminRequest, Json, Route
from proxy.store.activity_log import DAY_SECONDS, ActivityLog
from proxy.telemetry.activity import MICRODOLLARS_PER_DOLLAR

OPEN_SECONDS = 300.0
"""A conversation is open until its last request is older: so long most providers keep it in their cache."""
_OPEN = "select count(distinct conversation) as many from turns where at > ? and ? in ('', team)"
_COUNTS = "select name, sum(many) as many from minute_counts where minute >= ? and ? in ('', team) group by name"
# Summaries are counted without a team: theirs is that of their conversation.
_SUMMARIES_OF_TEAM = """
select count(*) as many, coalesce(sum(dollars), 0) as dollars from incidents
where name = 'summary-ended' and conversation != '' and at >= ?
      and ? = (select team from turns where turns.conversation = incidents.conversation limit 1)
"""
_MOMENTS = """
select cast(minute / :step as integer) as moment, name, sum(many) as many from minute_counts
where minute >= :since and (:team = '' or team = :team)
      and name in ('requests', 'raw', 'forwarded', 'observed', 'plain', 'paid', 'spent')
group by moment, name
"""


class OverviewQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    hours: Annotated[float, Meta(gt=0, le=744)] = 24.0
    """Span of the moments."""


def show_overview(context: AdminContext, request: AdminRequest) -> Json:
    log = context.activity_log
    team = request.visitor.team
    now = time.time()
    span = request.query.hours * HOUR_SECONDS
    step = choose_step(span)
    open_count = sum(row["many"] for row in log.query(_OPEN, [now - OPEN_SECONDS, team]))
    return {
        "now": now,
        "open": open_count,
        "hour": _summarize(_read_counts(log, now - HOUR_SECONDS, team)),
        "day": _summarize(_read_counts(log, now - DAY_SECONDS, team)),
        "all": _summarize(_read_counts(log, 0, team)),
        "every": step,  # seconds of a moment
        "moments": _read_moments(log, now - span, now, step, team),
    }


def _read_counts(log: ActivityLog, since: float, team: str) -> dict[str, int]:
    counts = {row["name"]: row["many"] for row in log.query(_COUNTS, [since, team])}
    if team:
        for summaries in log.query(_SUMMARIES_OF_TEAM, [since, team]):
            counts["summaries"] = summaries["many"]
            counts["spent"] = round(summaries["dollars"] * MICRODOLLARS_PER_DOLLAR)
    return counts


def _read_moments(log: ActivityLog, since: float, now: float, step: float, team: str) -> list[Json]:
    """Return every moment of the span, also those in which nothing happened."""
    counts_by_moment: dict[int, dict[str, int]] = {}
    for row in log.query(_MOMENTS, {"step": step, "since": since, "team": team}):
        counts_by_moment.setdefault(row["moment"], {})[row["name"]] = row["many"]
    moments: list[Json] = []
    for moment in list_moments(since, now, step):
        counts = counts_by_moment.get(moment, {})
        moments.append(
            {
                "at": moment * step,
                "requests": counts.get("requests", 0),
                "tokens_raw": counts.get("raw", 0),
                "tokens_forwarded": counts.get("forwarded", 0),
                "tokens_would_be": counts.get("forwarded", 0) - counts.get("observed", 0),
                "saved": _saved_dollars(counts),
            }
        )
    return moments


def _summarize(counts: Mapping[str, int]) -> Json:
    """Return the figures of a span of time, from its counters."""

    def count(*names: str) -> int:
        return sum(counts.get(name, 0) for name in names)

    tokens_read = count("prompt")
    cached_share = None
    if tokens_read:
        cached_share = round(count("cached") / tokens_read, 4)
    return {
        "requests": count("requests"),
        "looked_at": count("turns"),
        "failed": count("failed", "broke"),
        "left": count("left"),
        "tokens_raw": count("raw"),
        "tokens_forwarded": count("forwarded"),
        "tokens_would_be": count("forwarded") - count("observed"),  # if no policy only observed
        "tokens_read": tokens_read,  # as the upstreams counted them
        "tokens_cached": count("cached"),
        "cached_share": cached_share,
        "blocks": count("blocks"),
        "summaries": count("summaries"),
        "priced": count("priced"),
        "paid": count("paid") / MICRODOLLARS_PER_DOLLAR,  # for prompts
        "plain": count("plain") / MICRODOLLARS_PER_DOLLAR,  # for the same histories without the proxy
        "saved": _saved_dollars(counts),
        "would_save": count("would-save") / MICRODOLLARS_PER_DOLLAR,  # more, if no policy only observed
        "spent": count("spent") / MICRODOLLARS_PER_DOLLAR,  # for summaries
        "overflows": count("overflows", "overflows-helped"),
        "overflows_helped": count("overflows-helped"),
        "breakers": count("breakers"),
        "faults": count("failed-open", "our-faults", "store-faults"),
    }


def _saved_dollars(counts: Mapping[str, int]) -> float:
    """Return the plain cost, less the cost of prompts and summaries."""
    microdollars = counts.get("plain", 0) - counts.get("paid", 0) - counts.get("spent", 0)
    return microdollars / MICRODOLLARS_PER_DOLLAR


ROUTES = (Route("GET", "/overview", show_overview, OverviewQuery, for_teams=True),)
