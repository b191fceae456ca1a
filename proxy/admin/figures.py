"""Figures over time: the overview, and usage by team, model and more.

Money is in dollars, of requests whose usage was reported and whose model's prices are known. The cost of a summary
belongs to the group of the request in which it was made, or for which.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from operator import itemgetter
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from proxy.admin.routes import AdminContext, AdminRequest, Json
from proxy.store.activity_log import DAY_SECONDS, MINUTE_SECONDS, ActivityLog
from proxy.telemetry.activity import MICRODOLLARS_PER_DOLLAR

HOUR_SECONDS = 3600.0


def choose_step(span_seconds: float) -> float:
    """Return the shortest step by which a span has at most 60 moments."""
    for minutes in (1, 5, 10, 30, 60, 180, 360, 720):
        if span_seconds <= 60 * minutes * MINUTE_SECONDS:
            return float(minutes * MINUTE_SECONDS)
    return DAY_SECONDS


def list_moments(since: float, now: float, step: float) -> range:
    """Return the numbers of all moments of a span. Moment 3 begins at `3 * step` seconds since 1970."""
    return range(int(since // step) + 1, int(now // step) + 1)


OPEN_SECONDS = 300.0
"""A conversation counts as open for this long: providers keep it in their cache about as long."""


class OverviewQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    hours: Annotated[float, Meta(gt=0, le=744)] = 24.0


def show_overview(context: AdminContext, request: AdminRequest) -> Json:
    log = context.activity_log
    now = time.time()
    span = request.query.hours * HOUR_SECONDS
    step = choose_step(span)
    open_conversations = "select distinct conversation from turns where at > ?"
    return {
        "open": len(log.query(open_conversations, [now - OPEN_SECONDS])),
        "hour": _summarize(_read_counts(log, now - HOUR_SECONDS)),
        "day": _summarize(_read_counts(log, now - DAY_SECONDS)),
        "all": _summarize(_read_counts(log, 0)),
        "every": step,  # seconds of a moment
        "moments": _read_moments(log, now - span, now, step),
    }


def _read_counts(log: ActivityLog, since: float) -> Counter[str]:
    counts = Counter[str]()
    query = "select name, sum(many) as many from minute_counts where minute >= ? group by name"
    for row in log.query(query, [since]):
        counts[row["name"]] = row["many"]
    return counts


def _read_moments(log: ActivityLog, since: float, now: float, step: float) -> list[Json]:
    counts_by_moment = defaultdict[int, Counter[str]](Counter)
    query = """
        select cast(minute / :step as integer) as moment, name, sum(many) as many from minute_counts
        where minute >= :since
              and name in ('requests', 'raw', 'unshortened', 'refetches', 'forwarded', 'observed', 'plain', 'paid',
                           'spent')
        group by moment, name
    """
    for row in log.query(query, {"step": step, "since": since}):
        counts_by_moment[row["moment"]][row["name"]] = row["many"]
    moments: list[Json] = []
    for moment in list_moments(since, now, step):
        counts = counts_by_moment[moment]
        moments.append(
            {
                "at": moment * step,
                "requests": counts["requests"],
                "tokens_raw": counts["raw"],
                "tokens_unshortened": counts["unshortened"],
                "refetches": counts["refetches"],
                "tokens_forwarded": counts["forwarded"],
                "tokens_would_be": counts["forwarded"] - counts["observed"],
                "saved": _saved_dollars(counts),
            }
        )
    return moments


def _summarize(counts: Counter[str]) -> Json:
    return {
        "requests": counts["requests"],
        "looked_at": counts["turns"],
        "failed": counts["failed"] + counts["broke"],
        "left": counts["left"],
        "tokens_raw": counts["raw"],
        "tokens_unshortened": counts["unshortened"],  # without the proxy: less what shortening made agents fetch again
        "refetches": counts["refetches"],
        "tokens_forwarded": counts["forwarded"],
        "tokens_would_be": counts["forwarded"] - counts["observed"],  # if no policy only observed
        "tokens_read": counts["prompt"],  # as the upstreams counted them
        "tokens_cached": counts["cached"],
        "cached_share": _divide(counts["cached"], counts["prompt"]),
        "blocks": counts["blocks"],
        "summaries": counts["summaries"],
        "priced": counts["priced"],
        "paid": counts["paid"] / MICRODOLLARS_PER_DOLLAR,  # for prompts
        "plain": counts["plain"] / MICRODOLLARS_PER_DOLLAR,  # for the same histories without the proxy
        "saved": _saved_dollars(counts),
        "would_save": counts["would-save"] / MICRODOLLARS_PER_DOLLAR,  # more, if no policy only observed
        "spent": counts["spent"] / MICRODOLLARS_PER_DOLLAR,  # for summaries
        "overflows": counts["overflows"] + counts["overflows-helped"],
        "overflows_helped": counts["overflows-helped"],
        "overflows_observed": counts["overflows-observed"],  # of a policy that only observes
        "faults": counts["failed-open"] + counts["our-faults"] + counts["store-faults"],
    }


def _divide(part: float, total: float) -> float | None:
    return round(part / total, 4) if total else None


def _saved_dollars(counts: Counter[str]) -> float:
    return (counts["plain"] - counts["paid"] - counts["spent"]) / MICRODOLLARS_PER_DOLLAR


GROUPED_BY = ("team", "model", "policy", "key", "upstream", "tag", "user", "session")
CHART_GROUPS_MAX = 7
"""A chart shows this many groups; all others together are one more."""
GROUPS_LISTED_MAX = 200
"""A list shows this many groups: there may be as many sessions as turns."""
_TURNS = """
select cast(at / :step as integer) as moment, {by} as name, count(*) as requests, sum(tokens_before) as tokens_raw,
       sum(tokens_unshortened) as tokens_unshortened, sum(refetches) as refetches,
       sum(tokens_after) as tokens_forwarded, sum(coalesce(tokens_would_be, tokens_after)) as tokens_would_be,
       sum(case when cached_tokens is null then 0 else prompt_tokens end) as tokens_read,
       sum(coalesce(cached_tokens, 0)) as tokens_cached, sum(output_tokens) as tokens_written,
       sum(case when cached_tokens is null or placed = '' then 0 else prompt_tokens end) as tokens_read_placed,
       sum(case when placed = '' then 0 else coalesce(cached_tokens, 0) end) as tokens_cached_placed,
       count(plain_dollars) as priced, coalesce(sum(case when plain_dollars is null then 0 else paid_dollars end), 0)
       as paid, coalesce(sum(plain_dollars), 0) as plain,
       total(paid_dollars - would_be_dollars) as would_save, sum(action = 'created') as blocks, 0.0 as spent
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
    "requests", "tokens_raw", "tokens_unshortened", "tokens_forwarded", "tokens_would_be", "tokens_read",
    "tokens_cached", "tokens_written", "tokens_read_placed", "tokens_cached_placed", "refetches",
    "priced", "paid", "plain", "would_save", "blocks", "spent",
)  # fmt: skip


_UNPRICED = """
select model as name, count(*) as requests from turns
where at >= :since and (:team = '' or team = :team) and plain_dollars is null and cached_tokens is not null
group by model order by requests desc limit 20
"""


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
        "team": query.team,
        "delay": 600.0,  # seconds by which the turn of a summary may be recorded later
    }
    log = context.activity_log
    rows = [*log.query(_TURNS.format(by=query.by), parameters), *log.query(_SUMMARIES.format(by=query.by), parameters)]
    groups = defaultdict[str, Counter[str]](Counter)
    for row in rows:
        _add(groups[row["name"]], row)
    names = sorted(groups, key=lambda name: (-groups[name]["tokens_raw"], name))
    chart_names = [*names[:CHART_GROUPS_MAX], "(others)"] if len(names) > CHART_GROUPS_MAX + 1 else names

    moments = list_moments(since, now, step)
    bars = defaultdict[tuple[int, str], Counter[str]](Counter)
    for row in rows:
        if row["moment"] in moments:
            name = row["name"] if row["name"] in chart_names else "(others)"
            _add(bars[row["moment"], name], row)
    bar_figures = []
    for (moment, name), figures in sorted(bars.items(), key=itemgetter(0)):
        bar_figures.append({"at": moment * step, "group": name, **_describe(figures)})
    total, others = Counter[str](), Counter[str]()
    for name in names:
        _add(total, groups[name])
    unlisted_names = names[GROUPS_LISTED_MAX:]
    for name in unlisted_names:
        _add(others, groups[name])
    return {
        "every": step,
        "total": _describe(total),
        "groups": [{"name": name, **_describe(groups[name])} for name in names[:GROUPS_LISTED_MAX]],
        "unpriced": log.query(_UNPRICED, parameters),  # models whose prices are not known: no sum of money has them
        "others": {"groups": len(unlisted_names), **_describe(others)} if unlisted_names else None,
        "shown": chart_names,
        "moments": bar_figures,
        "places": [moment * step for moment in moments],
    }


def _add(figures: Counter[str], row: Mapping[str, Any]) -> None:
    for name in _FIGURES:
        figures[name] += row.get(name) or 0


def _describe(figures: Counter[str]) -> Json:
    cost = figures["paid"] + figures["spent"]
    return {
        **{name: figures[name] for name in _FIGURES},
        "cost": cost,
        "saved": figures["plain"] - cost,
        "cached_share": _divide(figures["tokens_cached"], figures["tokens_read"]),
        "cached_share_placed": _divide(figures["tokens_cached_placed"], figures["tokens_read_placed"]),
        "cached_share_as_sent": _divide(
            figures["tokens_cached"] - figures["tokens_cached_placed"],
            figures["tokens_read"] - figures["tokens_read_placed"],
        ),
    }
