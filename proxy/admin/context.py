"""Context, request and declaration of an admin API route.

A route is a function from an `AdminContext` and an `AdminRequest` to a JSON value; one that is not `async`
may wait for a disk and is called in a thread of the admin pages. Query and body are checked against the types that its
`Route` names before it is called.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import msgspec

from proxy.access.records import Records
from proxy.admin.guard import READS, Visitor
from proxy.config import Config, Loaded
from proxy.errors import ProxyError
from proxy.events import AdminActed, Listener
from proxy.store.activity_log import ActivityLog
from proxy.store.contract import Store
from proxy.store.transcripts.archive import Archive
from proxy.telemetry.audit import AuditListener

Json = dict[str, Any]
Values = ParamSpec("Values")
Result = TypeVar("Result")
_THREADS = ThreadPoolExecutor(4, thread_name_prefix="admin")


async def run_in_admin_thread(
    function: Callable[Values, Result], *values: Values.args, **named: Values.kwargs
) -> Result:
    """Call a function that reads much, in a thread of the admin pages.

    The event loop's own threads stay free: they decode the bodies of requests, and turn the switches.
    """
    return await asyncio.get_running_loop().run_in_executor(_THREADS, partial(function, *values, **named))


class NoQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Query of a route that takes none."""


@dataclass(frozen=True, slots=True)
class AdminContext:
    """Services of one worker for the routes."""

    config: Callable[[], Config]
    """The configuration in force."""
    read: Callable[[], Loaded]
    """Read the configuration's sources again. InvalidConfig: they cannot be used."""
    check: Callable[[str], None]
    """Check a text that the file may get. InvalidConfig: the proxy would refuse it."""
    file: Path | None
    records: Records
    store: Store
    archive: Archive
    activity_log: ActivityLog
    audit: AuditListener
    emit: Listener


@dataclass(frozen=True, slots=True)
class AdminRequest:
    """One request, authenticated and checked."""

    visitor: Visitor
    names: Mapping[str, str]
    """Values of the `{names}` in the route's path."""
    query: Any
    body: Any


@dataclass(frozen=True, slots=True)
class Route:
    """One method and path below /admin/api, and the function that answers it."""

    method: str
    path: str
    answer: Callable[[AdminContext, AdminRequest], Json | Awaitable[Json]]
    query: type[msgspec.Struct] = NoQuery
    body: Any = None
    """Type of the JSON body; None: the route takes none."""
    for_teams: bool = False
    """Whether a key of one team may use it; the route then keeps to `visitor.team`."""
    changes: bool | None = None
    """Whether it changes something, for which a role of `read` is too little. None: unless the method only reads."""

    @property
    def needs_write(self) -> bool:
        return self.method not in READS if self.changes is None else self.changes


def write_audit(
    context: AdminContext, request: AdminRequest, act: str, subject: str, **details: str | float | bool
) -> None:
    """Write into the audit log that something was done."""
    visitor = request.visitor
    context.emit(AdminActed(visitor.who, visitor.address, act, subject, "done", tuple(details.items())))


class Unreadable(ProxyError):
    """A disk or store that cannot be read or written."""

    status, code = 503, "unreadable"


@dataclass(frozen=True, slots=True)
class Flaw:
    """One thing that is wrong, and where."""

    path: str
    message: str


class Invalid(ProxyError):
    """A query or body that cannot be used, with everything that is wrong with it. Nothing was changed."""

    status, code = HTTPStatus.UNPROCESSABLE_ENTITY, "invalid"

    def __init__(self, message: str, flaws: Iterable[Flaw] = ()) -> None:
        super().__init__(message)
        self.flaws = tuple(flaws)
