"""Events: warnings and faults, what operators did, and the configuration in force."""

import asyncio
import json
from datetime import datetime
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from proxy import __version__
from proxy.admin.context import AdminContext, AdminRequest, Json, Route
from proxy.config import Config, InvalidConfig
from proxy.store.activity_log import ActivityLog
from proxy.telemetry import audit as audit_log

ADMIN_ACT = "admin"
"""Name of operators' acts in the activity database; the audit log has them too."""
SEVERITIES = ("info", "warning", "error")
_LAST_RELOAD = """
select name, at, details from incidents
where name in ('config-refused', 'config-reloaded', 'listening', 'draining') order by at desc limit 1
"""


class EventsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    least: Annotated[str, Meta(pattern="^(info|warning|error)$")] = "warning"
    """Lowest severity."""
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


class AuditQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


async def list_events(context: AdminContext, request: AdminRequest) -> Json:
    wanted = SEVERITIES[SEVERITIES.index(request.query.least) :]
    return {"events": await asyncio.to_thread(_events, context.activity_log, wanted, request.query.limit)}


def _events(activity_log: ActivityLog, severities: tuple[str, ...], limit: int) -> list[Json]:
    marks = ", ".join("?" * len(severities))
    query = f"select * from incidents where severity in ({marks}) and name != ? order by at desc limit ?"  # noqa: S608
    return [event_of(row) for row in activity_log.query(query, [*severities, ADMIN_ACT, limit])]


def event_of(row: dict[str, Any]) -> Json:
    """An event as the API shows it, from its row."""
    shown = {name: row[name] for name in ("at", "severity", "name", "conversation")}
    return {**shown, "details": json.loads(row["details"]), "dollars": row["dollars"]}


async def list_acts(context: AdminContext, request: AdminRequest) -> Json:
    await asyncio.to_thread(context.audit.flush)  # an act of a moment ago may still wait to be written
    path = Path(context.config().state.dir) / audit_log.FILE
    acts = await asyncio.to_thread(audit_log.read_newest, path, request.query.limit)
    return {"acts": [{**act, "at": datetime.fromisoformat(act["at"]).timestamp()} for act in acts]}


async def show_configuration(context: AdminContext, _: AdminRequest) -> Json:
    """The configuration in force, without secrets."""
    config = context.config()
    return {
        "release": __version__,
        "file": str(context.file) if context.file else None,
        "version": version_of(config),
        "refused": await asyncio.to_thread(_refused_reload, context),
        "upstreams": [
            {"name": each.name, "base_url": each.base_url, "models": list(each.models), "policy": each.policy}
            for each in config.upstreams
        ],
        "transcripts": config.transcripts.keep,
        "state": config.state.dir,
        "policies": len(config.all_policies),
        "teams": len(config.teams),
    }


def version_of(config: Config) -> str:
    """A hash of the values, the same on any machine. Secrets stand in it by their names only."""
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


ROUTES = (
    Route("GET", "/events", list_events, EventsQuery),
    Route("GET", "/audit", list_acts, AuditQuery),
    Route("GET", "/configuration", show_configuration),
)
