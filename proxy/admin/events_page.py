"""The configuration in force, warnings and faults of all machines that share a state, this one's audit log."""

import json
from collections.abc import Sequence
from hashlib import blake2b
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from proxy import __version__
from proxy.admin.routes import AdminContext, AdminRequest, Json
from proxy.config import Config, InvalidConfig
from proxy.store.activity_log import ActivityLog
from proxy.telemetry import audit
from proxy.telemetry.lines import SEVERITIES


class EventsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    least: Annotated[str, Meta(pattern="^(info|warning|error)$")] = "warning"
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


class AuditQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


# Operators' acts are shown from the audit log. Of other machines there are the newest warnings and errors.
_EVENTS = """
with events as (
    select at, severity, name, conversation, details, dollars, '' as machine from incidents where name != 'admin'
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


def list_events(context: AdminContext, request: AdminRequest) -> Json:
    """List events. Of those in one hour that differ only by their request, list the newest with their number.

    `machine` names another machine; it is empty for this one.
    """
    severities = SEVERITIES[SEVERITIES.index(request.query.least) :]
    parameters = {"severities": json.dumps(severities), "limit": request.query.limit}
    return {"events": [_read_details(row) for row in context.activity_log.query(_EVENTS, parameters)]}


def query_incidents(log: ActivityLog, condition: str, values: Sequence[Any]) -> list[Json]:
    """Return incidents of the log. *condition* is SQL, with an order and a limit."""
    query = f"select at, severity, name, conversation, details, dollars from incidents where {condition}"  # noqa: S608
    return [_read_details(row) for row in log.query(query, values)]


def _read_details(row: Json) -> Json:
    return {**row, "details": json.loads(row["details"])}


def list_acts(context: AdminContext, request: AdminRequest) -> Json:
    context.audit.flush()  # the newest act may still wait to be written
    return {"acts": audit.read_newest(context.audit.path, request.query.limit)}


def show_configuration(context: AdminContext, _: AdminRequest) -> Json:
    config = context.config()
    fields = {"name", "base_url", "models", "policy"}
    return {
        "release": __version__,
        "file": str(context.file) if context.file else None,
        "version": compute_version(config),
        "refused": _find_refused_reload(context),
        "upstreams": [upstream.model_dump(mode="json", include=fields) for upstream in config.upstreams],
        "transcripts": config.transcripts.keep,
        "state": config.state.dir,
        "shared": bool(config.state.url),
    }


def compute_version(config: Config) -> str:
    """Return a hash of all values but secrets. It is the same on every machine."""
    values = json.dumps(config.model_dump(mode="json"), sort_keys=True, default=str)
    return blake2b(values.encode(), digest_size=6).hexdigest()


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
