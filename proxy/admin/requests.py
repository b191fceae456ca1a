"""Requests: the list of all that came, with filters; latency, errors and requests per second over time; one request.

The rows are those of the activity log, the newest 100,000 of each machine. SQLite adds up and ranks them, so that a
long span costs a scan of one table in a thread, and never a loop over rows here.
"""

import time
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from proxy.admin.activity import HOUR_SECONDS, choose_step
from proxy.admin.context import AdminContext, AdminRequest, Json, Route
from proxy.errors import NotFound
from proxy.store.activity_log import ActivityLog

KINDS = {
    "all": "1",
    "ok": "outcome = 'completed' and status < 400",
    "errors": "outcome not in ('completed', 'client-left') or status >= 400",
    "refused": "outcome = 'refused'",
    "upstream-errors": "outcome = 'completed' and status >= 400",
    "failed": "outcome in ('failed', 'upstream-broke')",
    "client-left": "outcome = 'client-left'",
    "compacted": "compaction in ('applied', 'created')",
}
"""Kinds of requests, each as a condition on its row."""
NEIGHBOUR_SECONDS = 120.0
"""A request and the row of its turn are written at most so far apart."""
_COLUMNS = """
id, at, request_id, method, route, status, outcome, team, upstream, model, conversation, reason, compaction,
tokens_before as tokens_raw, tokens_after as tokens_forwarded, bytes_in, bytes_out, seconds, first_byte_seconds,
overhead_seconds
"""
_FILTER = """
at >= :since and (:team = '' or team = :team) and (:model = '' or model = :model)
and (:upstream = '' or upstream = :upstream) and (:conversation = '' or conversation = :conversation)
and seconds >= :slower
and (:text = '' or instr(lower(request_id || ' ' || route || ' ' || conversation || ' ' || model || ' '
     || coalesce(reason, '')), lower(:text)))
"""
_LIST = """
select {columns} from requests where {filter} and ({kind})
and (:before = 0 or id < :before) and id > :after order by id desc limit :limit
"""
_ONE = f"select {_COLUMNS} from requests where request_id = ? and ? in ('', team) order by id desc limit 1"  # noqa: S608
_PERCENTILE = "min(case when {rank} >= {share} * {of} then {value} end)"
_SERIES = """
with wanted as (
    select cast(at / :every as integer) as place, seconds, first_byte_seconds, outcome, status
    from requests where {filter} and ({kind})),
found as (
    select *, row_number() over (partition by place order by seconds) as rank,
           count(*) over (partition by place) as of_all,
           row_number() over (partition by place, first_byte_seconds is null order by first_byte_seconds) as first_rank,
           count(first_byte_seconds) over (partition by place) as of_first
    from wanted)
select place, count(*) as requests, {counts}, {p50} as p50, {p95} as p95, {first50} as first_p50, {first95} as first_p95
from found group by place
"""
_TOTAL = """
with wanted as (
    select at, seconds, overhead_seconds, outcome, status, bytes_in, bytes_out from requests
    where {filter} and ({kind})),
found as (
    select *, row_number() over (order by seconds) as rank, count(*) over () as of_all,
           row_number() over (order by overhead_seconds is null, overhead_seconds) as overhead_rank,
           count(overhead_seconds) over () as of_overhead
    from wanted)
select count(*) as requests, {counts}, {p50} as p50, {p95} as p95, {p99} as p99,
       {overhead} as overhead_p95, coalesce(sum(bytes_in), 0) as bytes_in, coalesce(sum(bytes_out), 0) as bytes_out,
       min(at) as oldest
from found
"""
_COUNTED = ("ok", "refused", "upstream-errors", "failed", "client-left")
"""Kinds that do not overlap: of each request exactly one."""
_TURN = """
select link, policy || '@' || policy_version as policy, key, tag, user, session, prompt_tokens as tokens_read,
       cached_tokens as tokens_cached, output_tokens as tokens_written, paid_dollars as paid,
       plain_dollars - paid_dollars as saved
from turns where conversation = :conversation and team = :team and at between :at - :near and :at + :near
                 and tokens_before = :tokens
order by abs(at - :at) limit 1
"""


class RequestsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    hours: Annotated[float, Meta(gt=0, le=744)] = 24.0
    team: str = ""
    model: str = ""
    upstream: str = ""
    conversation: str = ""
    kind: Annotated[str, Meta(pattern=rf"^({'|'.join(KINDS)})\Z")] = "all"
    slower: Annotated[float, Meta(ge=0)] = 0.0
    """Only requests that took at least so many seconds."""
    text: Annotated[str, Meta(max_length=200)] = ""
    """Part of the request id, path, conversation, model or reason."""
    before: Annotated[int, Meta(ge=0, lt=10**15)] = 0
    """Only requests before this one: the `next` of the page before."""
    after: Annotated[int, Meta(ge=0, lt=10**15)] = 0
    """Only requests after this one: what is new since a list was read."""
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 50


def list_requests(context: AdminContext, request: AdminRequest) -> Json:
    values, kind = _values(request)
    query = _LIST.format(columns=_COLUMNS, filter=_FILTER, kind=kind)
    rows = context.activity_log.query(query, {**values, "limit": values["limit"] + 1})
    shown = rows[: values["limit"]]
    return {"requests": shown, "next": shown[-1]["id"] if len(rows) > len(shown) else None}


def show_traffic(context: AdminContext, request: AdminRequest) -> Json:
    """Totals and moments of the requests that a filter finds, and the names that it may take."""
    values, kind = _values(request)
    now, log, parts = time.time(), context.activity_log, _parts(kind)
    every = choose_step(request.query.hours * HOUR_SECONDS)
    found = {row["place"]: row for row in log.query(_SERIES.format(**parts), {**values, "every": every})}
    (total,) = log.query(_TOTAL.format(**parts), values) or ({},)
    names = ("requests", *_COUNTED)
    return {
        "now": now,
        "every": every,
        "total": {**dict.fromkeys(names, 0), **total},
        "moments": [
            {"at": place * every, **dict.fromkeys(names, 0), **{k: v for k, v in row.items() if k != "place"}}
            for place in range(int(values["since"] // every) + 1, int(now // every) + 1)
            for row in (found.get(place, {}),)
        ],
        "teams": [request.visitor.team] if request.visitor.team else _names(log, "team"),
        "models": _names(log, "model", request.visitor.team),
        "upstreams": _names(log, "upstream", request.visitor.team),
    }


def show_request(context: AdminContext, request: AdminRequest) -> Json:
    """One request, with the accounting of its turn where compaction looked at it."""
    rows = context.activity_log.query(_ONE, [request.names["request"], request.visitor.team])
    if not rows:
        raise NotFound("unknown request: GET /requests lists the newest 100,000 of the last 31 days")
    (row,) = rows
    turn: dict[str, Any] | None = None
    if row["conversation"]:
        near = {"at": row["at"], "near": NEIGHBOUR_SECONDS, "tokens": row["tokens_raw"]}
        own = {"conversation": row["conversation"], "team": row["team"]}
        turn = next(iter(context.activity_log.query(_TURN, {**own, **near})), None)
    return {**row, "turn": turn}


def _values(request: AdminRequest) -> tuple[dict[str, Any], str]:
    """Values for the filter, and the condition of the kind."""
    query: RequestsQuery = request.query
    values = msgspec.to_builtins(query)
    kind = KINDS[values.pop("kind")]
    since = time.time() - values.pop("hours") * HOUR_SECONDS
    return {**values, "team": request.visitor.team or query.team, "since": since}, kind


def _parts(kind: str) -> dict[str, str]:
    def percentile(share: float, value: str = "seconds", rank: str = "rank", of: str = "of_all") -> str:
        return _PERCENTILE.format(rank=rank, share=share, of=of, value=value)

    first = ("first_byte_seconds", "first_rank", "of_first")
    return {
        "filter": _FILTER,
        "kind": kind,
        "counts": ", ".join(f"coalesce(sum({KINDS[name]}), 0) as '{name}'" for name in _COUNTED),
        "p50": percentile(0.5),
        "p95": percentile(0.95),
        "p99": percentile(0.99),
        "first50": percentile(0.5, *first),
        "first95": percentile(0.95, *first),
        "overhead": percentile(0.95, "overhead_seconds", "overhead_rank", "of_overhead"),
    }


def _names(log: ActivityLog, column: str, team: str = "") -> list[str]:
    query = f"select distinct {column} as name from requests where ? in ('', team) order by 1 limit 500"  # noqa: S608
    return [row["name"] for row in log.query(query, [team]) if row["name"]]


ROUTES = (
    Route("GET", "/requests", list_requests, RequestsQuery, for_teams=True),
    Route("GET", "/requests/{request}", show_request, for_teams=True),
    Route("GET", "/traffic", show_traffic, RequestsQuery, for_teams=True),
)
