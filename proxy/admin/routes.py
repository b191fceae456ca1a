"""The declaration of a route of the admin API, its arguments and its errors.

    Route("GET", "/teams", list_teams)

Query and body are checked against the types of a `Route` before its function is called. A function that is not `async`
may wait for a disk: it is called in a thread.
"""

from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from proxy.access.records import Records
from proxy.admin.guard import Visitor
from proxy.config import Config, Loaded
from proxy.events import AdminActed, Listener
from proxy.foundation.errors import ProxyError
from proxy.store.activity_log import ActivityLog
from proxy.store.contract import Store
from proxy.store.transcripts.archive import Archive
from proxy.telemetry.audit import AuditLog

Json = dict[str, Any]


class NoQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


class AdminContext(Struct, frozen=True):
    config: Callable[[], Config]
    read: Callable[[], Loaded]
    """Read the configuration and its origins. It raises InvalidConfig if the sources cannot be used."""
    file: Path | None
    records: Records
    store: Store
    replicas_store: Store | None
    """The store with the registry, if replicas share one."""
    archive: Archive
    activity_log: ActivityLog
    audit: AuditLog
    emit: Listener


class AdminRequest(Struct, frozen=True):
    visitor: Visitor
    names: Mapping[str, str]
    """The values of the `{names}` in the path."""
    query: Any
    body: Any


class Route(Struct, frozen=True):
    method: str
    path: str
    answer: Callable[[AdminContext, AdminRequest], Json | str | Awaitable[Json]]
    """The function of the route. If it returns a text, that is sent as CSV."""
    query: type[msgspec.Struct] = NoQuery
    body: Any = None
    """The form of the body, or None if the route takes none."""


def write_audit(
    context: AdminContext, request: AdminRequest, act: str, subject: str, **details: str | float | bool
) -> None:
    visitor = request.visitor
    context.emit(AdminActed(visitor.who, visitor.address, act, subject, "done", tuple(details.items())))


class Unreadable(ProxyError):
    status, code = 503, "unreadable"


class Invalid(ProxyError):
    """A query or body that cannot be used. Nothing was changed."""

    status, code = HTTPStatus.UNPROCESSABLE_ENTITY, "invalid"

    def __init__(self, message: str, field: str, why: str) -> None:
        super().__init__(message)
        self.faults = [{"path": field, "message": why}]
