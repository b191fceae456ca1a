"""Warnings and faults of this machine, and its audit log."""

import json
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from proxy.admin.routes import AdminContext, AdminRequest, Json, Route
from proxy.telemetry import audit

ADMIN_ACT = "admin"
"""Name of operators' acts in the activity log. They are shown from the audit log."""
SEVERITIES = ("info", "warning", "error")


class EventsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    least: Annotated[str, Meta(pattern="^(info|warning|error)$")] = "warning"
    """Lowest severity."""
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


class AuditQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


def list_events(context: AdminContext, request: AdminRequest) -> Json:
    severities = SEVERITIES[SEVERITIES.index(request.query.least) :]
    marks = ", ".join("?" * len(severities))
    query = f"select * from incidents where severity in ({marks}) and name != ? order by at desc limit ?"  # noqa: S608
    rows = context.activity_log.query(query, [*severities, ADMIN_ACT, request.query.limit])
    return {"events": [describe_event(row) for row in rows]}


def describe_event(row: dict[str, Any]) -> Json:
    """Return an event as the API shows it, from its row in the activity log."""
    return {
        "at": row["at"],
        "severity": row["severity"],
        "name": row["name"],
        "conversation": row["conversation"],
        "details": json.loads(row["details"]),
        "dollars": row["dollars"],
    }


def list_acts(context: AdminContext, request: AdminRequest) -> Json:
    context.audit.flush()  # the newest act may still wait to be written
    path = Path(context.config().state.dir) / audit.FILE
    return {"acts": audit.read_newest(path, request.query.limit)}


ROUTES = (
    Route("GET", "/events", list_events, EventsQuery),
    Route("GET", "/audit", list_acts, AuditQuery),
)
