"""Figures over time and events: totals, warnings and faults, what operators did, the configuration in force.

Money is in dollars, of requests whose upstream told its usage and whose model's prices are known.
"""

import json
import time
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from proxy import __version__
from proxy.admin.context import AdminContext, AdminRequest, Json, Route
from proxy.config import Config, InvalidConfig
from proxy.store.activity_log import DAY_SECONDS, MINUTE_SECONDS, ActivityLog
from proxy.telemetry import audit as audit_log
from proxy.telemetry.activity import MICRODOLLARS_PER_DOLLAR

HOUR_SECONDS = 3600.0
STEPS_SECONDS = (
    MINUTE_SECONDS,
    5 * MINUTE_SECONDS,
    10 * MINUTE_SECONDS,
    1800.0,
    HOUR_SECONDS,
    3 * 3600.0,
    6 * 3600.0,
    12 * 3600.0,
    DAY_SECONDS,
)
"""Lengths that a moment, a step of time in which the pages show figures, may have: spans that people name."""
MOMENTS_MAX = 60
OPEN_SECONDS = 300.0
"""A conversation is open while its last request is not older: so long most providers cache it."""
_SUMMARIES = """
select (select team from turns where turns.conversation = incidents.conversation limit 1) as team,
       count(*) as many, coalesce(sum(dollars), 0) as dollars
from incidents where name = 'summary-ended' and conversation != '' and at >= ? group by 1
"""
_MOMENTS = """
select cast(minute / :every as integer) as place, name, sum(many) as many from minute_counts
where minute >= :since and (:team = '' or team = :team)
      and name in ('requests', 'raw', 'forwarded', 'observed', 'plain', 'paid', 'spent')
group by place, name
"""
ADMIN_ACT = "admin"
"""Name of operators' acts in the activity database; the audit log has them too."""
SEVERITIES = ("info", "warning", "error")
_LAST_RELOAD = """
select name, at, details from incidents
where name in ('config-refused', 'config-reloaded', 'listening', 'draining') order by at desc limit 1
"""


def choose_step(span_seconds: float) -> float:
    """Seconds of a moment, so that a span has at most `MOMENTS_MAX` of them."""
    return float(next(step for step in STEPS_SECONDS if span_seconds / step <= MOMENTS_MAX))


class OverviewQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    hours: Annotated[float, Meta(gt=0, le=744)] = 24.0
    """Span of the moments."""


def show_overview(context: AdminContext, request: AdminRequest) -> Json:
    activity_log, span, now = context.activity_log, request.query.hours * HOUR_SECONDS, time.time()
    every, team = choose_step(span), request.visitor.team
    return {
        "now": now,
        "open": _count_open(activity_log, now, team),
        "hour": _period(_count(activity_log, now - HOUR_SECONDS, team)),
        "day": _period(_count(activity_log, now - DAY_SECONDS, team)),
        "all": _period(_count(activity_log, 0, team)),
        "every": every,  # seconds of a moment
        "moments": list(_moments(activity_log, now - span, now, every, team)),
    }


def _count_open(activity_log: ActivityLog, now: float, team: str) -> int:
    query = "select count(distinct conversation) as many from turns where at > ? and ? in ('', team)"
    return next((row["many"] for row in activity_log.query(query, [now - OPEN_SECONDS, team])), 0)


def _count(activity_log: ActivityLog, since: float, team: str) -> dict[str, int]:
    query = "select name, sum(many) as many from minute_counts where minute >= ? and ? in ('', team) group by name"
    counts = {row["name"]: row["many"] for row in activity_log.query(query, [since, team])}
    if team:  # summaries are counted without a team
        own = next((row for row in activity_log.query(_SUMMARIES, [since]) if row["team"] == team), None)
        spent = round(own["dollars"] * MICRODOLLARS_PER_DOLLAR) if own else 0
        counts |= {"summaries": own["many"] if own else 0, "spent": spent}
    return counts


def _moments(activity_log: ActivityLog, since: float, now: float, every: float, team: str) -> Iterator[Json]:
    """Every moment of the span, also those in which nothing happened."""
    found: dict[int, dict[str, int]] = {}
    for row in activity_log.query(_MOMENTS, {"every": every, "since": since, "team": team}):
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
        "looked_at": sum_of("turns"),
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


class EventsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    least: Annotated[str, Meta(pattern="^(info|warning|error)$")] = "warning"
    """Lowest severity."""
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


class AuditQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


def list_events(context: AdminContext, request: AdminRequest) -> Json:
    severities = SEVERITIES[SEVERITIES.index(request.query.least) :]
    marks = ", ".join("?" * len(severities))
    query = f"select * from incidents where severity in ({marks}) and name != ? order by at desc limit ?"  # noqa: S608
    rows = context.activity_log.query(query, [*severities, ADMIN_ACT, request.query.limit])
    return {"events": [find_event(row) for row in rows]}


def find_event(row: dict[str, Any]) -> Json:
    """An event as the API shows it, from its row."""
    shown = {name: row[name] for name in ("at", "severity", "name", "conversation")}
    return {**shown, "details": json.loads(row["details"]), "dollars": row["dollars"]}


def list_acts(context: AdminContext, request: AdminRequest) -> Json:
    context.audit.flush()  # an act of a moment ago may still wait to be written
    return {"acts": audit_log.read_newest(Path(context.config().state.dir) / audit_log.FILE, request.query.limit)}


def show_configuration(context: AdminContext, _: AdminRequest) -> Json:
    """The configuration in force, without secrets."""
    config = context.config()
    return {
        "release": __version__,
        "file": str(context.file) if context.file else None,
        "version": find_version(config),
        "refused": _refused_reload(context),
        "upstreams": [
            upstream.model_dump(mode="json", include={"name", "base_url", "models", "policy"})
            for upstream in config.upstreams
        ],
        "transcripts": config.transcripts.keep,
        "state": config.state.dir,
        "policies": len(config.all_policies),
        "teams": len(config.teams),
    }


def find_version(config: Config) -> str:
    """A hash of the values, the same on any machine. Of secrets it holds the names only."""
    values = json.dumps(config.model_dump(mode="json"), sort_keys=True, default=str)
    return blake2b(values.encode(), digest_size=6).hexdigest()


def _refused_reload(context: AdminContext) -> Json | None:
    """The last reload, where it was refused and the sources are still not valid."""
    last = next(iter(context.activity_log.query(_LAST_RELOAD)), None)
    if last is None or last["name"] != "config-refused":
        return None
    try:
        context.read()
    except InvalidConfig:
        return {"at": last["at"], "why": json.loads(last["details"])["why"]}
    return None  # the file was put back as it was: nothing changed, so no event tells of it


def show_visitor(_: AdminContext, request: AdminRequest) -> Json:
    """The caller: its name, role and team, and the release."""
    visitor = request.visitor
    return {"who": visitor.who, "role": visitor.role, "team": visitor.team, "release": __version__}


ROUTES = (
    Route("GET", "/me", show_visitor, for_teams=True),
    Route("GET", "/overview", show_overview, OverviewQuery, for_teams=True),
    Route("GET", "/events", list_events, EventsQuery),
    Route("GET", "/audit", list_acts, AuditQuery),
    Route("GET", "/configuration", show_configuration),
)
