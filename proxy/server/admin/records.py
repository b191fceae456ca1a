"""What was recorded: faults and warnings, acts of operators, the configuration's state, words that were said."""

import asyncio
import json
from dataclasses import asdict
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from proxy import __version__
from proxy.config import Config
from proxy.server.admin import shelf
from proxy.server.admin.routes import Asked, Desk, Originals, Route
from proxy.store.chronicle import Chronicle
from proxy.telemetry import audit as audit_log

SEARCH_SECONDS = 10.0


class Event(msgspec.Struct, frozen=True, kw_only=True):
    at: float
    severity: str
    name: str
    conversation: str
    machine: str
    details: dict[str, Any]


class Events(msgspec.Struct, frozen=True, kw_only=True):
    events: list[Event]
    """The newest first."""


class EventsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    least: Annotated[str, Meta(pattern="^(info|warning|error)$")] = "warning"
    """Severity."""
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


class Act(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was done by the admin pages of this machine."""

    at: str
    who: str
    address: str
    act: str
    subject: str
    outcome: str
    details: dict[str, Any]


class Acts(msgspec.Struct, frozen=True, kw_only=True):
    acts: list[Act]
    """The newest first."""


class ActsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    at: float
    why: str


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    """What is in force, without its secrets."""

    release: str
    file: str | None
    version: str
    """The same for equal values, on any machine."""
    refused: Refused | None
    """The last reload, if it was refused: what was in force before still is."""
    upstreams: list[dict[str, Any]]
    transcripts: str
    state: str
    policies: int
    teams: int


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    conversation: str
    at: str
    role: str
    seen: str
    before: str
    found: str
    after: str


class Found(msgspec.Struct, frozen=True, kw_only=True):
    hits: list[Hit]
    whole: bool
    """Whether everything was looked through: a search ends after some hits, and after some seconds."""


class SearchQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    text: Annotated[str, Meta(max_length=500)] = ""
    case: bool = False
    tenant: Annotated[str, Meta(max_length=200)] = ""
    limit: Annotated[int, Meta(ge=1, le=500)] = 50


async def events(desk: Desk, asked: Asked) -> Events:
    severities = ("info", "warning", "error")
    wanted = severities[severities.index(asked.query.least) :]
    rows = await asyncio.to_thread(_events, desk.chronicle, wanted, asked.query.limit)
    return Events(events=rows)


def _events(chronicle: Chronicle, severities: tuple[str, ...], limit: int) -> list[Event]:
    marks = ", ".join("?" * len(severities))
    query = f"select * from happenings_1 where severity in ({marks}) order by at desc limit ?"  # noqa: S608
    return [
        Event(
            at=row["at"],
            severity=row["severity"],
            name=row["name"],
            conversation=row["conversation"],
            machine=row["writer"],
            details=json.loads(row["told"]),
        )
        for row in chronicle.rows(query, [*severities, limit])
    ]


async def audit(desk: Desk, asked: Asked) -> Acts:
    path = Path(desk.config().state.dir) / audit_log.FILE
    return Acts(acts=msgspec.convert(await asyncio.to_thread(audit_log.told, path, asked.query.limit), list[Act]))


async def configuration(desk: Desk, _: Asked) -> Configuration:
    config = desk.config()
    return Configuration(
        release=__version__,
        file=str(desk.file) if desk.file else None,
        version=version(config),
        refused=await asyncio.to_thread(_refused, desk.chronicle),
        upstreams=[
            {"name": each.name, "base_url": each.base_url, "models": list(each.models), "policy": each.policy}
            for each in config.upstreams
        ],
        transcripts=config.transcripts.keep,
        state=config.state.dir,
        policies=len(config.all_policies),
        teams=len(config.teams),
    )


def version(config: Config) -> str:
    """Secrets stand in it by their names only."""
    told = json.dumps(config.model_dump(mode="json"), sort_keys=True, default=str)
    return blake2b(told.encode(), digest_size=6).hexdigest()


def _refused(chronicle: Chronicle) -> Refused | None:
    query = "select * from happenings_1 where name in ('config-refused', 'config-reloaded') order by at desc limit 1"
    last = next(iter(chronicle.rows(query)), None)
    if last is None or last["name"] != "config-refused":
        return None
    return Refused(at=last["at"], why=json.loads(last["told"])["why"])


async def search(desk: Desk, asked: Asked) -> Found:
    query: SearchQuery = asked.query
    if not query.text:
        return Found(hits=[], whole=True)
    hits, whole = await asyncio.to_thread(_searched, desk.originals, query)
    return Found(hits=hits, whole=whole)


def _searched(originals: Originals, query: SearchQuery) -> tuple[list[Hit], bool]:
    found, whole = shelf.searched(
        originals, query.text, case=query.case, tenant=query.tenant, most=query.limit, seconds=SEARCH_SECONDS
    )
    return [msgspec.convert({k: v for k, v in asdict(hit).items() if k != "tenant"}, Hit) for hit in found], whole


ROUTES = (
    Route("GET", "/events", "Warnings and errors, the newest first", events, Events, EventsQuery),
    Route("GET", "/audit", "What was done by the admin pages of this machine", audit, Acts, ActsQuery),
    Route(
        "GET", "/configuration", "What is in force, and the last reload that was refused", configuration, Configuration
    ),
    Route("GET", "/search", "Find words in the saved originals", search, Found, SearchQuery),
)
