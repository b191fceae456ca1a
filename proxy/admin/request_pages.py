"""Requests: a list with filters, figures over time, and one with its cost. Events, the audit log, the configuration.

The rows are the newest 100,000 of this machine's activity log. SQLite adds up and ranks them. Warnings and faults are
those of all machines that share a state.
"""

import json
import time
from collections.abc import Sequence
from hashlib import blake2b
from typing import Annotated, Any

from msgspec import Meta, to_builtins

from proxy import __version__
from proxy.admin.figures import choose_step, list_moments
from proxy.admin.routes import AdminContext, AdminRequest, Json, Query
from proxy.config.faults import InvalidConfig
from proxy.foundation.errors import NotFound
from proxy.store.activity_log import ActivityLog
from proxy.store.usage_sums import HOUR_SECONDS
from proxy.telemetry import activity
from proxy.telemetry.log import SEVERITIES

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
_COLUMNS = """
id, at, request_id, method, route, status, outcome, team, upstream, model, conversation, reason, compaction,
tokens_before as tokens_raw, tokens_after as tokens_forwarded, bytes_in, bytes_out, seconds, first_byte_seconds,
overhead_seconds
"""
_FILTER = f"""
at >= :since and (:team = '' or team = :team) and (:model = '' or model = :model)
and (:upstream = '' or upstream = :upstream) and (:conversation = '' or conversation = :conversation)
and seconds >= :slower and case :kind {" ".join(f"when '{kind}' then {test}" for kind, test in KINDS.items())} end
and (:text = '' or instr(lower(request_id || ' ' || route || ' ' || conversation || ' ' || model || ' '
     || coalesce(reason, '')), lower(:text)))
"""


class RequestsQuery(Query, frozen=True):
    hours: Annotated[float, Meta(gt=0, le=744)] = 24.0
    team: str = ""
    model: str = ""
    upstream: str = ""
    conversation: str = ""
    kind: Annotated[str, Meta(pattern=rf"^({'|'.join(KINDS)})\Z")] = "all"
    slower: Annotated[float, Meta(ge=0)] = 0.0
    text: Annotated[str, Meta(max_length=200)] = ""
    before: Annotated[int, Meta(ge=0, lt=10**15)] = 0
    """Continue a list: the `next` of the page before."""
    after: Annotated[int, Meta(ge=0, lt=10**15)] = 0
    """List only requests that are newer than this: those since a list was read."""
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 50


def list_requests(context: AdminContext, request: AdminRequest) -> Json:
    limit = request.query.limit
    query = f"""
        select {_COLUMNS} from requests where {_FILTER}
        and (:before = 0 or id < :before) and id > :after order by id desc limit :limit
    """  # noqa: S608
    rows = context.activity_log.query(query, {**_read_filter(request), "limit": limit + 1})
    has_more = len(rows) > limit
    rows = rows[:limit]
    return {"requests": rows, "next": rows[-1]["id"] if has_more else None}


def show_traffic(context: AdminContext, request: AdminRequest) -> Json:
    log = context.activity_log
    step = choose_step(request.query.hours * HOUR_SECONDS)
    parameters = {**_read_filter(request), "step": step}
    outcomes = ("ok", "refused", "upstream-errors", "failed", "client-left")  # each request has exactly one of them
    counts = ", ".join(f"coalesce(sum({KINDS[name]}), 0) as '{name}'" for name in outcomes)
    series_query = f"""
        with requests_in_moments as (select *, cast(at / :step as integer) as moment from requests where {_FILTER}),
        ranked as (
            select *, cume_dist() over (partition by moment order by seconds) as rank,
                   cume_dist() over (partition by moment, first_byte_seconds is null order by first_byte_seconds)
                   as first_rank
            from requests_in_moments)
        select moment, count(*) as requests, {counts}, min(case when rank >= 0.5 then seconds end) as p50,
               min(case when rank >= 0.95 then seconds end) as p95,
               min(case when first_rank >= 0.5 then first_byte_seconds end) as first_p50,
               min(case when first_rank >= 0.95 then first_byte_seconds end) as first_p95
        from ranked group by moment
    """  # noqa: S608
    no_requests = dict.fromkeys(("requests", *outcomes), 0)
    rows_by_moment = {row.pop("moment"): row for row in log.query(series_query, parameters)}
    moments = []
    for moment in list_moments(parameters["since"], time.time(), step):
        figures = rows_by_moment.get(moment, {})
        moments.append({"at": moment * step, **no_requests, **figures})
    total_query = f"""
        with ranked as (
            select *, cume_dist() over (order by seconds) as rank,
                   cume_dist() over (partition by overhead_seconds is null order by overhead_seconds) as overhead_rank
            from requests where {_FILTER})
        select count(*) as requests, {counts}, min(case when rank >= 0.5 then seconds end) as p50,
               min(case when rank >= 0.95 then seconds end) as p95, min(case when rank >= 0.99 then seconds end) as p99,
               min(case when overhead_rank >= 0.95 then overhead_seconds end) as overhead_p95,
               coalesce(sum(bytes_in), 0) as bytes_in, coalesce(sum(bytes_out), 0) as bytes_out, min(at) as oldest
        from ranked
    """  # noqa: S608
    total = dict(no_requests)
    for row in log.query(total_query, parameters):
        total.update(row)
    return {
        "every": step,
        "total": total,
        "moments": moments,
        "teams": list_names(log, "requests", "team"),
        "models": list_names(log, "requests", "model"),
        "upstreams": list_names(log, "requests", "upstream"),
    }


def show_request(context: AdminContext, request: AdminRequest) -> Json:
    return find_request(context.activity_log, request.names["request"])


def find_request(log: ActivityLog, request_id: str) -> Json:
    query = f"select {_COLUMNS} from requests where request_id = ? order by id desc limit 1"  # noqa: S608
    rows = log.query(query, [request_id])
    if not rows:
        raise NotFound("unknown request: the newest 100,000 of the last 31 days are known")
    turn_query = """
        select link, placed, policy || '@' || policy_version as policy, key, tag, user, session,
               prompt_tokens as tokens_read, cached_tokens as tokens_cached, output_tokens as tokens_written,
               paid_dollars as paid, plain_dollars - paid_dollars as saved
        from turns where conversation = :conversation and request_id = :request_id
    """
    turns = log.query(turn_query, rows[0])
    return {**rows[0], "turn": turns[0] if turns else None}


def _read_filter(request: AdminRequest) -> dict[str, Any]:
    query: RequestsQuery = request.query
    since = time.time() - query.hours * HOUR_SECONDS
    return {**to_builtins(query), "since": since}


def list_names(log: ActivityLog, table: str, column: str) -> list[str]:
    query = f"select distinct {column} as name from {table} order by 1 limit 500"  # noqa: S608
    return [row["name"] for row in log.query(query) if row["name"]]


class EventsQuery(Query, frozen=True):
    least: Annotated[str, Meta(pattern="^(info|warning|error)$")] = "warning"
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


class AuditQuery(Query, frozen=True):
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


def list_events(context: AdminContext, request: AdminRequest) -> Json:
    """List events. Of those in one hour that differ only by their request, list the newest with their number.

    `machine` names another machine; it is empty for this one.
    """
    severities = SEVERITIES[SEVERITIES.index(request.query.least) :]
    parameters = {"severities": json.dumps(severities), "limit": request.query.limit}
    # Operators' acts are shown from the audit log. Of other machines there are the newest warnings and errors.
    query = """
        with events as (
            select at, severity, name, conversation, details, dollars, '' as machine from incidents
            where name != 'admin'
            union all
            select usage_events.at, severity, usage_events.name, '', details, 0.0, usage_machines.name
            from usage_events join usage_machines on usage_machines.id = machine)
        select at, since, times, severity, name, conversation, details, dollars, machine from (
            select *, count(*) over equal as times, min(at) over equal as since,
                   row_number() over (equal order by at desc) as number
            from events where severity in (select value from json_each(:severities))
            window equal as (partition by machine, severity, name, conversation, json_remove(details, '$.request_id'),
                                          cast(at / 3600 as integer)))
        where number = 1 order by at desc limit :limit
    """
    return {"events": [_read_details(row) for row in context.activity_log.query(query, parameters)]}


def query_incidents(log: ActivityLog, condition: str, values: Sequence[Any]) -> list[Json]:
    """Return incidents of the log. *condition* is SQL, with an order and a limit."""
    query = f"select at, severity, name, conversation, details, dollars from incidents where {condition}"  # noqa: S608
    return [_read_details(row) for row in log.query(query, values)]


def _read_details(row: Json) -> Json:
    return {**row, "details": json.loads(row["details"])}


def list_acts(context: AdminContext, request: AdminRequest) -> Json:
    context.audit.flush()  # the newest act may still wait to be written
    return {"acts": activity.read_newest(context.audit.path, request.query.limit)}


def show_configuration(context: AdminContext, _: AdminRequest) -> Json:
    config = context.config()
    fields = {"name", "base_url", "models", "policy"}
    values = json.dumps(config.model_dump(mode="json"), sort_keys=True, default=str)  # only the names of secrets
    return {
        "release": __version__,
        "file": str(context.file) if context.file else None,
        "version": blake2b(values.encode(), digest_size=6).hexdigest(),  # equal if two machines have equal values
        "refused": _find_refused_reload(context),
        "upstreams": [upstream.model_dump(mode="json", include=fields) for upstream in config.upstreams],
        "transcripts": config.transcripts.keep,
        "state": config.state.dir,
        "shared": bool(config.state.url),
    }


def _find_refused_reload(context: AdminContext) -> Json | None:
    """Return the last reload if it was refused, and its sources are still invalid."""
    reloads = "name in ('config-refused', 'config-reloaded', 'listening', 'draining') order by at desc limit 1"
    for incident in query_incidents(context.activity_log, reloads, ()):
        if incident["name"] != "config-refused":
            continue
        try:
            context.read()
        except InvalidConfig:
            return {"at": incident["at"], "why": incident["details"]["why"]}
    return None
