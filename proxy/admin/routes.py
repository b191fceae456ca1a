"""What a row of the API is, and what it is handed.

A row says what comes in (path, query, body) and what goes out as types; they are checked at the door and described in
the document, so that neither can say otherwise than the code.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from proxy.access.records import Records
from proxy.access.registry import Published
from proxy.admin.faults import Flaw, Invalid
from proxy.admin.guard import Visitor
from proxy.config import Config, Loaded
from proxy.events import AdminActed, Listener
from proxy.store.chronicle import Chronicle
from proxy.store.promises import Store
from proxy.store.transcripts.retention import Stored
from proxy.telemetry.audit import AuditListener

PREFIX = "/admin/api"
_NAME = re.compile(r"\{(\w+)\}")


class Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """No query, or no answer."""


Originals = Callable[[str, str], Iterable[Stored]]
"""The conversations that are kept: those whose name begins like this, of the tenant whose folder is called so."""


@dataclass(frozen=True, slots=True)
class Desk:
    """What the admin pages of a worker work with."""

    config: Callable[[], Config]
    """The one in force."""
    read: Callable[[], Loaded]
    """What the sources of the configuration say now. InvalidConfig: nothing that could be used."""
    tried: Callable[[Published], Loaded] | None
    """What they would say with this published. None: this proxy's configuration is not to be changed."""
    file: Path | None
    records: Records
    store: Store
    originals: Originals
    chronicle: Chronicle
    audit: AuditListener
    emit: Listener


@dataclass(frozen=True, slots=True)
class Asked:
    """One request, checked."""

    visitor: Visitor
    names: Mapping[str, str]
    """What stands in the places of the path."""
    query: Any
    body: Any


Act = Callable[[Desk, Asked], Awaitable[Any]]


@dataclass(frozen=True)
class Route:
    """One thing that can be asked for."""

    method: str
    path: str
    does: str
    act: Act
    answer: Any
    query: type[msgspec.Struct] = Nothing
    body: Any = None
    faults: Sequence[int] = field(default=())
    """Statuses of refusals beside those that everything may have."""

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        return re.compile(_NAME.sub(r"(?P<\1>[^/]+)", self.path))

    @property
    def names(self) -> list[str]:
        return _NAME.findall(self.path)


def asked_as(kind: Any, value: Mapping[str, str]) -> Any:  # noqa: ANN401 (whatever the row says)
    """The query as the row wants it."""
    try:
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError as fault:
        raise Invalid("the query is not what is asked for", [flaw_of(fault)]) from None


def flaw_of(fault: msgspec.ValidationError) -> Flaw:
    message, _, path = str(fault).partition(" - at `$")
    return Flaw(path.strip("`.") or "$", message)


def told(desk: Desk, asked: Asked, act: str, subject: str, **details: str | float | bool) -> None:
    """Into the audit log: it was done."""
    desk.emit(AdminActed(asked.visitor.who, asked.visitor.address, act, subject, "done", tuple(details.items())))
