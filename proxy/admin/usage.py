"""Usage: spend, savings and tokens over time by team, model, policy, key, upstream, tag, user or session.

Money is in dollars, of requests whose upstream reported its usage and whose model's prices are known. The cost of a
summary belongs to the group of that request of its conversation in which it was made, or for which.
"""

import time
from collections.abc import Iterable
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from proxy.admin.moments import HOUR_SECONDS, choose_step, list_moments
from proxy.admin.routes import AdminContext, AdminRequest, Json, Route

GROUPED_BY = ("team", "model", "policy", "key", "upstream", "tag", "user", "session")
SUMMARY_DELAY_SECONDS = 600.0
"""The turn in which a summary was made may be recorded this much later."""
CHART_GROUPS_MAX = 8
"""Groups in the chart: those with the most tokens; all others are one."""
GROUPS_LISTED_MAX = 200
"""Groups in the list. There may be as many sessions as turns."""
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

    groups: dict[str, Figures] = {}
    for row in rows:
        _add(groups.setdefault(row["name"], _make_figures()), row)
    names = sorted(groups, key=lambda name: (-groups[name]["tokens_raw"], name))
    chart_names = names
    if len(names) > CHART_GROUPS_MAX:
        chart_names = [*names[: CHART_GROUPS_MAX - 1], OTHERS]
    unlisted_names = names[GROUPS_LISTED_MAX:]
    others = None
    if unlisted_names:
        others = {"groups": len(unlisted_names), **_describe(_sum_up(groups[name] for name in unlisted_names))}
    moments = list_moments(since, now, step)
    return {
        "now": now,
        "every": step,
        "by": query.by,
        "total": _describe(_sum_up(groups.values())),
        "groups": [{"name": name, **_describe(groups[name])} for name in names[:GROUPS_LISTED_MAX]],
        "others": others,
        "shown": chart_names,
        "moments": _describe_moments(rows, chart_names, moments, step),
        "places": [moment * step for moment in moments],
    }


def _describe_moments(rows: list[dict[str, Any]], chart_names: list[str], moments: range, step: float) -> list[Json]:
    """Return the figures of each moment and group of the chart that has any."""
    figures_by_moment: dict[tuple[int, str], Figures] = {}
    for row in rows:
        name = row["name"] if row["name"] in chart_names else OTHERS
        _add(figures_by_moment.setdefault((row["moment"], name), _make_figures()), row)
    described: list[Json] = []
    for moment, name in sorted(figures_by_moment):
        if moment in moments:
            described.append({"at": moment * step, "group": name, **_describe(figures_by_moment[moment, name])})
    return described


def _make_figures() -> Figures:
    return dict.fromkeys(_FIGURES, 0)


def _add(figures: Figures, row: dict[str, Any]) -> None:
    for name in _FIGURES:
        figures[name] += row.get(name) or 0


def _sum_up(groups: Iterable[Figures]) -> Figures:
    total = _make_figures()
    for figures in groups:
        _add(total, figures)
    return total


def _describe(figures: Figures) -> Json:
    """Return the figures of a group with its cost, saving and cached share."""
    cost = figures["paid"] + figures["spent"]
    cached_share = None
    if figures["tokens_read"]:
        cached_share = round(figures["tokens_cached"] / figures["tokens_read"], 4)
    return {**figures, "cost": cost, "saved": figures["plain"] - cost, "cached_share": cached_share}


ROUTES = (Route("GET", "/usage", show_usage, UsageQuery, for_teams=True),)
