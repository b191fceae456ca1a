"""Figures over time: the overview, and usage by team, model, policy, key, upstream, tag, user or session.

Money is in dollars, of requests whose upstream reported its usage and whose model's prices are known. The cost of a
summary belongs to the group of that request of its conversation in which it was made, or for which.
"""

import time
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from proxy.admin.routes import AdminContext, AdminRequest, Json, Route
from proxy.store.activity_log import DAY_SECONDS, MINUTE_SECONDS, ActivityLog
from proxy.telemetry.activity import MICRODOLLARS_PER_DOLLAR

HOUR_SECONDS = 3600.0
MOMENTS_MAX = 60
STEPS_SECONDS = (
    MINUTE_SECONDS,
    5 * MINUTE_SECONDS,
    10 * MINUTE_SECONDS,
    30 * MINUTE_SECONDS,
    HOUR_SECONDS,
    3 * HOUR_SECONDS,
    6 * HOUR_SECONDS,
    12 * HOUR_SECONDS,
    DAY_SECONDS,
)


def choose_step(span_seconds: float) -> float:
    """Return the shortest step by which a span has at most `MOMENTS_MAX` moments."""
    for step in STEPS_SECONDS:
        if span_seconds / step <= MOMENTS_MAX:
            return float(step)
    return DAY_SECONDS


def list_moments(since: float, now: float, step: float) -> range:
    """Moment 3 begins at `3 * step` seconds since 1970."""
    return range(int(since // step) + 1, int(now // step) + 1)


OPEN_SECONDS = 300.0
"""Providers keep a conversation in their cache about this long."""
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
    microdollars = counts.get("plain", 0) - counts.get("paid", 0) - counts.get("spent", 0)
    return microdollars / MICRODOLLARS_PER_DOLLAR


GROUPED_BY = ("team", "model", "policy", "key", "upstream", "tag", "user", "session")
SUMMARY_DELAY_SECONDS = 600.0
"""The turn in which a summary was made may be recorded this much later."""
CHART_GROUPS_MAX = 8
"""All other groups are one."""
GROUPS_LISTED_MAX = 200
"""There may be as many sessions as turns."""
OTHERS = "(others)"
_TURNS = """
select cast(at / :step as integer) as moment, {by} as name, count(*) as requests, sum(tokens_before) as tokens_raw,
       sum(tokens_after) as tokens_forwarded, sum(coalesce(tokens_would_be, tokens_after)) as tokens_would_be,
       sum(case when cached_tokens is null then 0 else prompt_tokens end) as tokens_read,
       sum(coalesce(cached_tokens, 0)) as tokens_cached, sum(output_tokens) as tokens_written,
       count(plain_dollars) as priced, coalesce(sum(case when plain_dollars is null then 0 else paid_dollars end), 0)
       as paid, coalesce(sum(plain_dollars), 0) as plain, sum(action = 'created') as blocks, 0.0 as spent
from turns where at >= :since and (:team = '' or team = :team) group by moment, name
"""
_SUMMARIES = """
select moment, name, sum(dollars) as spent from (
    select cast(at / :step as integer) as moment, dollars,
           (select {by} from turns where turns.conversation = summaries.conversation and (:team = '' or team = :team)
            and turns.at <= latest order by turns.at desc limit 1) as name
    from (select *, at + :delay as latest from incidents
          where name = 'summary-ended' and conversation != '' and at >= :since and dollars > 0) as summaries)
where name is not null group by moment, name
"""
_FIGURES = (
    "requests", "tokens_raw", "tokens_forwarded", "tokens_would_be", "tokens_read", "tokens_cached", "tokens_written",
    "priced", "paid", "plain", "blocks", "spent",
)  # fmt: skip

Figures = dict[str, float]
Row = dict[str, Any]


class UsageQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    hours: Annotated[float, Meta(gt=0, le=744)] = 24.0
    by: Annotated[str, Meta(pattern=rf"^({'|'.join(GROUPED_BY)})\Z")] = "team"
    team: str = ""


def show_usage(context: AdminContext, request: AdminRequest) -> Json:
    query: UsageQuery = request.query
    now = time.time()
    since = now - query.hours * HOUR_SECONDS
    step = choose_step(query.hours * HOUR_SECONDS)
    parameters = {
        "step": step,
        "since": since,
        "team": request.visitor.team or query.team,
        "delay": SUMMARY_DELAY_SECONDS,
    }
    log = context.activity_log
    rows = [*log.query(_TURNS.format(by=query.by), parameters), *log.query(_SUMMARIES.format(by=query.by), parameters)]

    rows_by_name: dict[str, list[Row]] = {}
    for row in rows:
        rows_by_name.setdefault(row["name"], []).append(row)
    groups = {name: _sum_up(rows) for name, rows in rows_by_name.items()}
    names = sorted(groups, key=lambda name: (-groups[name]["tokens_raw"], name))
    chart_names = names
    if len(names) > CHART_GROUPS_MAX:
        chart_names = [*names[: CHART_GROUPS_MAX - 1], OTHERS]
    unlisted_names = names[GROUPS_LISTED_MAX:]
    other_groups = None
    if unlisted_names:
        other_groups = {"groups": len(unlisted_names), **_describe(_sum_up(groups[name] for name in unlisted_names))}
    moments = list_moments(since, now, step)
    return {
        "now": now,
        "every": step,
        "by": query.by,
        "total": _describe(_sum_up(groups.values())),
        "groups": [{"name": name, **_describe(groups[name])} for name in names[:GROUPS_LISTED_MAX]],
        "others": other_groups,
        "shown": chart_names,
        "moments": _describe_moments(rows, chart_names, moments, step),
        "places": [moment * step for moment in moments],
    }


def _describe_moments(rows: list[Row], chart_names: list[str], moments: range, step: float) -> list[Json]:
    rows_by_moment: dict[tuple[int, str], list[Row]] = {}
    for row in rows:
        if row["moment"] in moments:
            name = row["name"] if row["name"] in chart_names else OTHERS
            rows_by_moment.setdefault((row["moment"], name), []).append(row)
    moment_rows: list[Json] = []
    for moment, name in sorted(rows_by_moment):
        moment_rows.append({"at": moment * step, "group": name, **_describe(_sum_up(rows_by_moment[moment, name]))})
    return moment_rows


def _sum_up(rows: Iterable[Mapping[str, Any]]) -> Figures:
    total: Figures = dict.fromkeys(_FIGURES, 0)
    for row in rows:
        for name in _FIGURES:
            total[name] += row.get(name) or 0
    return total


def _describe(figures: Figures) -> Json:
    cost = figures["paid"] + figures["spent"]
    cached_share = None
    if figures["tokens_read"]:
        cached_share = round(figures["tokens_cached"] / figures["tokens_read"], 4)
    return {**figures, "cost": cost, "saved": figures["plain"] - cost, "cached_share": cached_share}


ROUTES = (
    Route("GET", "/overview", show_overview, OverviewQuery, for_teams=True),
    Route("GET", "/usage", show_usage, UsageQuery, for_teams=True),
)
