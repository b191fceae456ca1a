"""Figures over time: the overview, usage by team, model and more, and months.

Money is in dollars, of requests whose usage was reported and whose model's prices are known. Figures are of all
machines that share a state, but for those by tag, user or session: names of people and of their work stay on a machine.
"""

import csv
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from io import StringIO
from operator import itemgetter
from typing import Annotated, Any

from msgspec import Meta

from proxy.admin.routes import AdminContext, AdminRequest, Json, Query
from proxy.store.activity_log import ActivityLog
from proxy.store.usage_sums import DAY_SECONDS, FIGURES, GRAIN_SECONDS, HOUR_SECONDS, HOURS_KEPT_SECONDS

MONTH_SECONDS = 31 * DAY_SECONDS


def choose_step(span_seconds: float) -> float:
    """Return the shortest step by which a span has at most 60 moments, and that sums of usage have."""
    for minutes in (5, 10, 30, 60, 180):
        if span_seconds <= min(60 * minutes * 60, HOURS_KEPT_SECONDS):
            return minutes * 60.0
    return float(DAY_SECONDS)


def list_moments(since: float, now: float, step: float) -> range:
    """Return the numbers of all moments of a span. Moment 3 begins at `3 * step` seconds since 1970."""
    return range(int(since // step) + 1, int(now // step) + 1)


OPEN_SECONDS = 300.0
"""A conversation counts as open for this long: providers keep it in their cache about as long."""


class OverviewQuery(Query, frozen=True):
    hours: Annotated[float, Meta(gt=0, le=744)] = 24.0


def show_overview(context: AdminContext, request: AdminRequest) -> Json:
    log = context.activity_log
    now = time.time()
    span = request.query.hours * HOUR_SECONDS
    step = choose_step(span)
    rows = {row["moment"]: row for row in _read_sums(log, now - span, step)}
    names = ("requests", "tokens_raw", "tokens_unshortened", "refetches", "tokens_forwarded", "tokens_would_be")
    moments = []
    for moment in list_moments(now - span, now, step):
        row = rows.get(moment) or dict.fromkeys(FIGURES, 0)
        saved = row["plain"] - row["paid"] - row["spent"]
        moments.append({"at": moment * step, **{name: row[name] for name in names}, "saved": saved})
    open_conversations = "select distinct conversation from turns where at > ?"
    return {
        "open": len(log.query(open_conversations, [now - OPEN_SECONDS])),
        "hour": _summarize(_read_sums(log, now - HOUR_SECONDS)),
        "day": _summarize(_read_sums(log, now - DAY_SECONDS)),
        "all": _summarize(_read_sums(log, now - MONTH_SECONDS)),
        "every": step,  # seconds of a moment
        "moments": moments,
        "machines": list_machines(log, now - span),
    }


def list_machines(log: ActivityLog, since: float) -> list[Json]:
    """List the machines whose usage is in the sums since a moment, and until when. This one comes first."""
    query = "select name, at, is_own as own from usage_machines where is_own or at >= ? order by is_own desc, name, id"
    return [{**row, "own": bool(row["own"])} for row in log.query(query, [since])]


_SUMMED = ", ".join(f"sum({name}) as {name}" for name in FIGURES)


def _read_sums(log: ActivityLog, since: float, step: float = 1e12, by: str = "''", team: str = "") -> list[Json]:
    """Return the figures of each moment and group. By default there is one moment, and one group without a name."""
    parameters = {"since": since, "step": step, "grain": GRAIN_SECONDS, "team": team}
    # The machine is named because the table's key begins with it: else SQLite would look for a day in all months.
    query = f"""
        select cast(at / :step as integer) as moment, {by} as name, {_SUMMED} from usage_sums
        where machine in (select id from usage_machines) and at > :since - :grain and (:team = '' or team = :team)
        group by moment, name
    """  # noqa: S608
    return log.query(query, parameters)


def _summarize(rows: Sequence[Json]) -> Json:
    """Describe all requests of a span. `tokens_unshortened` leaves out content that agents had to fetch again."""
    sums = rows[0] if rows else dict.fromkeys(FIGURES, 0)
    return {
        **{name: sums[name] for name in FIGURES},
        "looked_at": sums["turns"],
        "failed": sums["failed"] + sums["broke"],
        "cached_share": _divide(sums["tokens_cached"], sums["tokens_read"]),
        "saved": sums["plain"] - sums["paid"] - sums["spent"],
    }


def _divide(part: float, total: float) -> float | None:
    return round(part / total, 4) if total else None


SUMMED_BY = ("team", "model", "policy", "key", "upstream")
LOCAL_BY = ("tag", "user", "session")
GROUPS_LISTED_MAX = 200
"""A list shows this many groups: there may be as many sessions as turns."""
_FIGURES = (
    "turns", "conversations", "tokens_raw", "tokens_unshortened", "tokens_forwarded", "tokens_would_be", "tokens_read",
    "tokens_cached", "tokens_written", "tokens_read_placed", "tokens_cached_placed", "refetches",
    "priced", "paid", "plain", "would_save", "blocks", "spent",
)  # fmt: skip
_TURNS = """
select cast(at / :step as integer) as moment, {by} as name, count(*) as turns,
       sum(conversation != '' and not exists (select 1 from turns as earlier where earlier.at < turns.at
           and earlier.conversation = turns.conversation)) as conversations, sum(tokens_before) as tokens_raw,
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


class UsageQuery(Query, frozen=True):
    hours: Annotated[float, Meta(gt=0, le=744)] = 24.0
    by: Annotated[str, Meta(pattern=rf"^({'|'.join(SUMMED_BY + LOCAL_BY)})\Z")] = "team"
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
    machines = list_machines(log, since)
    if query.by in LOCAL_BY:
        machines = machines[:1]
        rows = [row for text in (_TURNS, _SUMMARIES) for row in log.query(text.format(by=query.by), parameters)]
    else:
        sums = _read_sums(log, since, step, query.by, query.team)
        rows = [row for row in sums if row["turns"] or row["spent"]]
    groups = defaultdict[str, Counter[str]](Counter)
    for row in rows:
        _add(groups[row["name"]], row)
    names = sorted(groups, key=lambda name: (-groups[name]["tokens_raw"], name))
    chart_groups_max = 7  # all others together are one more
    chart_names = [*names[:chart_groups_max], "(others)"] if len(names) > chart_groups_max + 1 else names

    moments = list_moments(since, now, step)
    bars = defaultdict[tuple[int, str], Counter[str]](Counter)
    for row in rows:
        if row["moment"] in moments:
            name = row["name"] if row["name"] in chart_names else "(others)"
            _add(bars[row["moment"], name], row)
    bar_figures = []
    for (moment, name), figures in sorted(bars.items(), key=itemgetter(0)):
        bar_figures.append({"at": moment * step, "group": name, **_describe(figures)})
    total, unlisted = Counter[str](), Counter[str]()
    for name in names:
        _add(total, groups[name])
    unlisted_names = names[GROUPS_LISTED_MAX:]
    for name in unlisted_names:
        _add(unlisted, groups[name])
    # Models whose prices are not known: no sum of money has their requests.
    unpriced_query = """
        select model as name, sum(unpriced) as requests from usage_sums
        where at > :since and (:team = '' or team = :team) and unpriced > 0
        group by model order by requests desc limit 20
    """
    return {
        "every": step,
        "total": _describe(total),
        "groups": [{"name": name, **_describe(groups[name])} for name in names[:GROUPS_LISTED_MAX]],
        "unpriced": log.query(unpriced_query, parameters),
        "others": {"groups": len(unlisted_names), **_describe(unlisted)} if unlisted_names else None,
        "shown": chart_names,
        "moments": bar_figures,
        "places": [moment * step for moment in moments],
        "machines": machines,
    }


class MonthsQuery(Query, frozen=True):
    months: Annotated[int, Meta(ge=1, le=13)] = 13
    by: Annotated[str, Meta(pattern=rf"^({'|'.join(SUMMED_BY)})\Z")] = "team"
    team: str = ""
    format: Annotated[str, Meta(pattern=r"^(json|csv)\Z")] = "json"


def show_months(context: AdminContext, request: AdminRequest) -> Json | str:
    """List the usage of each month (UTC) and team, the newest first. Requests and errors are known by team only."""
    query: MonthsQuery = request.query
    parameters = {"team": query.team, "first": f"-{query.months - 1} months"}
    sql = f"""
        select strftime('%Y-%m', at, 'unixepoch') as month, {query.by} as name, {_SUMMED} from usage_sums
        where at >= cast(strftime('%s', 'now', 'start of month', :first) as integer) and (:team = '' or team = :team)
        group by month, name
        having sum(turns) > 0 or sum(spent) > 0 or ('{query.by}' = 'team' and sum(requests) > 0)
        order by month desc, sum(tokens_raw) desc, name
    """  # noqa: S608
    months = []
    for row in context.activity_log.query(sql, parameters):
        month = {"month": row["month"], query.by: row["name"], **_describe(row), "turns": row["turns"]}
        if query.by == "team":
            errors = row["failed"] + row["broke"] + row["upstream_errors"]
            month |= {"requests": row["requests"], "refused": row["refused"], "errors": errors}
            month |= {name: row[name] for name in ("overflows", "overflows_helped")}
        else:
            del month["requests"]
        months.append(month)
    if query.format == "csv":
        return _write_csv(months)
    oldest = time.time() - query.months * MONTH_SECONDS
    return {"months": months, "machines": list_machines(context.activity_log, oldest)}


def _write_csv(rows: Sequence[Json]) -> str:
    text = StringIO()
    writer = csv.writer(text)
    writer.writerow(rows[0] if rows else ["month"])
    for row in rows:
        values = [round(value, 6) if isinstance(value, float) else value for value in row.values()]
        # A spreadsheet would run a name of a client's making as a formula: https://owasp.org/www-community/attacks/CSV_Injection
        for place, value in enumerate(values):
            if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r", "\n")):
                values[place] = f"'{value}"
        writer.writerow(values)
    return text.getvalue()


def _add(figures: Counter[str], row: Mapping[str, Any]) -> None:
    for name in _FIGURES:
        figures[name] += row.get(name) or 0


def _describe(figures: Mapping[str, float]) -> Json:
    cost = figures["paid"] + figures["spent"]
    return {
        **{name: figures[name] for name in _FIGURES if name != "turns"},
        "requests": figures["turns"],
        "cost": cost,
        "saved": figures["plain"] - cost,
        "cached_share": _divide(figures["tokens_cached"], figures["tokens_read"]),
        "cached_share_placed": _divide(figures["tokens_cached_placed"], figures["tokens_read_placed"]),
        "cached_share_as_sent": _divide(
            figures["tokens_cached"] - figures["tokens_cached_placed"],
            figures["tokens_read"] - figures["tokens_read_placed"],
        ),
    }
