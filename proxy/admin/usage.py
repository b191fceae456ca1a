"""Usage: spend, savings and tokens over time by team, model, policy, key, upstream, tag, user or session.

Money is in dollars, of requests whose upstream reported its usage and whose model's prices are known. The cost of a
summary belongs to the group of the request of its conversation that it was made in, or for.
"""

import time
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from proxy.admin.activity import HOUR_SECONDS, choose_step
from proxy.admin.context import AdminContext, AdminRequest, Json, Route

GROUPED_BY = ("team", "model", "policy", "key", "upstream", "tag", "user", "session")
SUMMARY_DELAY_SECONDS = 600.0
"""The turn in which a summary was made may be recorded so much later."""
GROUPS_MAX = 8
"""The number of groups in the chart, those with the most tokens; all others are one group."""
GROUPS_LISTED_MAX = 200
"""The number of groups listed in figures. There may be as many sessions as turns."""
OTHERS = "(others)"
_TURNS = """
select cast(at / :every as integer) as place, {by} as name, count(*) as requests, sum(tokens_before) as tokens_raw,
       sum(tokens_after) as tokens_forwarded, sum(coalesce(tokens_would_be, tokens_after)) as tokens_would_be,
       sum(case when cached_tokens is null then 0 else prompt_tokens end) as tokens_read,
       sum(coalesce(cached_tokens, 0)) as tokens_cached, sum(output_tokens) as tokens_written,
       count(plain_dollars) as priced, coalesce(sum(case when plain_dollars is null then 0 else paid_dollars end), 0)
       as paid, coalesce(sum(plain_dollars), 0) as plain, sum(action = 'created') as blocks, 0.0 as spent
from turns where at >= :since and (:team = '' or team = :team) group by place, name
"""
_SUMMARIES = """
select place, name, sum(dollars) as spent from (
    select cast(at / :every as integer) as place, dollars,
           (select {by} from turns where turns.conversation = summaries.conversation and (:team = '' or team = :team)
            and turns.at <= latest order by turns.at desc limit 1) as name
    from (select *, at + :delay as latest from incidents
          where name = 'summary-ended' and conversation != '' and at >= :since and dollars > 0) as summaries)
where name is not null group by place, name
"""
_FIGURES = (
    "requests", "tokens_raw", "tokens_forwarded", "tokens_would_be", "tokens_read", "tokens_cached", "tokens_written",
    "priced", "paid", "plain", "blocks", "spent",
)  # fmt: skip


class UsageQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    hours: Annotated[float, Meta(gt=0, le=744)] = 24.0
    by: Annotated[str, Meta(pattern=rf"^({'|'.join(GROUPED_BY)})\Z")] = "team"
    team: str = ""


def show_usage(context: AdminContext, request: AdminRequest) -> Json:
    query: UsageQuery = request.query
    now, span = time.time(), query.hours * HOUR_SECONDS
    every = choose_step(span)
    values = {"every": every, "since": now - span, "team": request.visitor.team or query.team}
    values["delay"] = SUMMARY_DELAY_SECONDS
    log = context.activity_log
    rows = [*log.query(_TURNS.format(by=query.by), values), *log.query(_SUMMARIES.format(by=query.by), values)]
    totals = _add_up(rows, lambda row: row["name"])
    largest = sorted(totals, key=lambda name: (-totals[name]["tokens_raw"], name))
    listed_names = set(largest[: GROUPS_MAX if len(largest) <= GROUPS_MAX else GROUPS_MAX - 1])

    def find_group(name: str) -> str:
        return name if name in listed_names else OTHERS

    in_figures = largest[:GROUPS_LISTED_MAX]
    at = _add_up(rows, lambda row: (row["place"], find_group(row["name"])))
    places = range(int((now - span) // every) + 1, int(now // every) + 1)
    return {
        "now": now,
        "every": every,
        "by": query.by,
        "total": _show(_add_up(rows, lambda _: "")[""]) if rows else _show(dict.fromkeys(_FIGURES, 0)),
        "groups": [{"name": name, **_show(totals[name])} for name in in_figures],
        "others": _show_others([totals[name] for name in largest[len(in_figures) :]]),
        "shown": [
            *(name for name in largest if name in listed_names),
            *([OTHERS] if listed_names < set(largest) else []),
        ],
        "moments": [
            {"at": place * every, "group": name, **_show(at[place, name])}
            for place in places
            for name in sorted({*listed_names, OTHERS}, key=str)
            if (place, name) in at
        ],
        "places": [place * every for place in places],
    }


def _add_up(rows: Iterable[dict[str, Any]], key_of: Any) -> dict[Any, dict[str, float]]:  # noqa: ANN401
    found: dict[Any, dict[str, float]] = {}
    for row in rows:
        sums = found.setdefault(key_of(row), dict.fromkeys(_FIGURES, 0))
        for name in _FIGURES:
            sums[name] += row.get(name) or 0
    return found


def _show(sums: dict[str, float]) -> Json:
    """Figures of a group: what was spent in all, and what is left of the difference."""
    read = sums["tokens_read"]
    return {
        **sums,
        "cost": sums["paid"] + sums["spent"],
        "saved": sums["plain"] - sums["paid"] - sums["spent"],
        "cached_share": round(sums["tokens_cached"] / read, 4) if read else None,
    }


def _show_others(groups: Sequence[dict[str, float]]) -> Json | None:
    """The number and the sums of the groups that are not listed; None where all are."""
    return {"groups": len(groups), **_show(_add_up(groups, lambda _: "")[""])} if groups else None


ROUTES = (Route("GET", "/usage", show_usage, UsageQuery, for_teams=True),)
