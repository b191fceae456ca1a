"""Requests: a list with filters; latency, errors and requests over time; one request with its cost.

The rows are those of the activity log, the newest 100,000 of each machine. SQLite adds up and ranks them, so that a
long span costs a scan of one table in a thread, and not a loop over rows here.
"""

import time
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from proxy.admin.figures import HOUR_SECONDS, choose_step, list_moments
from proxy.admin.routes import AdminContext, AdminRequest, Json, Route
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
TURN_DISTANCE_SECONDS = 120.0
"""A request and its turn are recorded at most this far apart."""
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
_PERCENTILE = "min(case when {rank} >= {share} * {total} then {value} end)"
_SERIES = """
with wanted as (
    select cast(at / :step as integer) as moment, seconds, first_byte_seconds, outcome, status
    from requests where {filter} and ({kind})),
ranked as (
    select *, row_number() over (partition by moment order by seconds) as rank,
           count(*) over (partition by moment) as total,
           row_number() over (partition by moment, first_byte_seconds is null order by first_byte_seconds)
           as first_rank,
           count(first_byte_seconds) over (partition by moment) as first_total
    from wanted)
select moment, count(*) as requests, {counts}, {p50} as p50, {p95} as p95, {first50} as first_p50,
       {first95} as first_p95
from ranked group by moment
"""
_TOTAL = """
with wanted as (
    select at, seconds, overhead_seconds, outcome, status, bytes_in, bytes_out from requests
    where {filter} and ({kind})),
ranked as (
    select *, row_number() over (order by seconds) as rank, count(*) over () as total,
           row_number() over (order by overhead_seconds is null, overhead_seconds) as overhead_rank,
           count(overhead_seconds) over () as overhead_total
    from wanted)
select count(*) as requests, {counts}, {p50} as p50, {p95} as p95, {p99} as p99,
       {overhead} as overhead_p95, coalesce(sum(bytes_in), 0) as bytes_in, coalesce(sum(bytes_out), 0) as bytes_out,
       min(at) as oldest
from ranked
"""
OUTCOMES = ("ok", "refused", "upstream-errors", "failed", "client-left")
"""Each request is of exactly one of these kinds."""
_TURN = """
select link, policy || '@' || policy_version as policy, key, tag, user, session, prompt_tokens as tokens_read,
       cached_tokens as tokens_cached, output_tokens as tokens_written, paid_dollars as paid,
       plain_dollars - paid_dollars as saved
from turns where conversation = :conversation and team = :team and at between :at - :distance and :at + :distance
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
    text: Annotated[str, Meta(max_length=200)] = ""
    before: Annotated[int, Meta(ge=0, lt=10**15)] = 0
    """The `next` of the page before."""
    after: Annotated[int, Meta(ge=0, lt=10**15)] = 0
    """Only requests that are new since a list was read."""
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 50


def list_requests(context: AdminContext, request: AdminRequest) -> Json:
    parameters, kind = _read_filter(request)
    limit = request.query.limit
    query = _LIST.format(columns=_COLUMNS, filter=_FILTER, kind=kind)
    rows = context.activity_log.query(query, {**parameters, "limit": limit + 1})
    has_more = len(rows) > limit
    rows = rows[:limit]
    return {"requests": rows, "next": rows[-1]["id"] if has_more else None}


def show_traffic(context: AdminContext, request: AdminRequest) -> Json:
    """Return totals and moments of the requests that pass a filter, and the names that it may take."""
    parameters, kind = _read_filter(request)
    log = context.activity_log
    team = request.visitor.team
    now = time.time()
    step = choose_step(request.query.hours * HOUR_SECONDS)
    fragments = _make_fragments(kind)
    no_requests = dict.fromkeys(("requests", *OUTCOMES), 0)

    rows_by_moment = {}
    for row in log.query(_SERIES.format(**fragments), {**parameters, "step": step}):
        rows_by_moment[row.pop("moment")] = row
    moments = [
        {"at": moment * step, **no_requests, **rows_by_moment.get(moment, {})}
        for moment in list_moments(parameters["since"], now, step)
    ]
    total = dict(no_requests)
    for row in log.query(_TOTAL.format(**fragments), parameters):
        total.update(row)
    return {
        "now": now,
        "every": step,
        "total": total,
        "moments": moments,
        "teams": [team] if team else list_names(log, "requests", "team"),
        "models": list_names(log, "requests", "model", team),
        "upstreams": list_names(log, "requests", "upstream", team),
    }


def show_request(context: AdminContext, request: AdminRequest) -> Json:
    log = context.activity_log
    rows = log.query(_ONE, [request.names["request"], request.visitor.team])
    if not rows:
        raise NotFound("unknown request: GET /requests lists the newest 100,000 of the last 31 days")
    row = rows[0]
    turn: dict[str, Any] | None = None
    if row["conversation"]:
        parameters = {
            "conversation": row["conversation"],
            "team": row["team"],
            "at": row["at"],
            "distance": TURN_DISTANCE_SECONDS,
            "tokens": row["tokens_raw"],
        }
        turn = next(iter(log.query(_TURN, parameters)), None)
    return {**row, "turn": turn}


def _read_filter(request: AdminRequest) -> tuple[dict[str, Any], str]:
    """Return the parameters of `_FILTER`, and the condition of the kind."""
    query: RequestsQuery = request.query
    parameters = msgspec.to_builtins(query)
    parameters["team"] = request.visitor.team or query.team
    parameters["since"] = time.time() - query.hours * HOUR_SECONDS
    return parameters, KINDS[query.kind]


def _make_fragments(kind: str) -> dict[str, str]:

    def percentile(share: float, value: str = "seconds", prefix: str = "") -> str:
        return _PERCENTILE.format(rank=f"{prefix}rank", total=f"{prefix}total", share=share, value=value)

    return {
        "filter": _FILTER,
        "kind": kind,
        "counts": ", ".join(f"coalesce(sum({KINDS[name]}), 0) as '{name}'" for name in OUTCOMES),
        "p50": percentile(0.5),
        "p95": percentile(0.95),
        "p99": percentile(0.99),
        "first50": percentile(0.5, "first_byte_seconds", "first_"),
        "first95": percentile(0.95, "first_byte_seconds", "first_"),
        "overhead": percentile(0.95, "overhead_seconds", "overhead_"),
    }


def list_names(log: ActivityLog, table: str, column: str, team: str = "") -> list[str]:
    query = f"select distinct {column} as name from {table} where ? in ('', team) order by 1 limit 500"  # noqa: S608
    return [row["name"] for row in log.query(query, [team]) if row["name"]]


ROUTES = (
    Route("GET", "/requests", list_requests, RequestsQuery, for_teams=True),
    Route("GET", "/requests/{request}", show_request, for_teams=True),
    Route("GET", "/traffic", show_traffic, RequestsQuery, for_teams=True),
)
