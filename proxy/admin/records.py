"""What was recorded: faults and warnings, acts of operators, the configuration's state, words that were said."""

import asyncio
import json
import time
from dataclasses import asdict
from datetime import datetime
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from proxy import __version__
from proxy.admin import shelf
from proxy.admin.routes import Asked, Desk, Originals, Route
from proxy.config import Config, InvalidConfig
from proxy.store.chronicle import DAY, Chronicle
from proxy.telemetry import audit as audit_log

SEARCH_SECONDS = 10.0
ADMIN = "admin"
"""How the acts of operators are called in the log and in the chronicle."""
_LAST_RELOADS = """
select * from (select *, max(at) from happenings_1
               where name in ('config-refused', 'config-reloaded', 'listening', 'draining') group by writer)
where name = 'config-refused' and (writer = :mine or at > :since) order by at desc
"""


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
    """Something that was done by the admin pages."""

    at: float
    who: str
    address: str
    act: str
    subject: str
    outcome: str
    details: dict[str, Any]
    machine: str
    """Empty: this one."""


class Acts(msgspec.Struct, frozen=True, kw_only=True):
    acts: list[Act]
    """The newest first."""


class ActsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    at: float
    why: str
    machine: str


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    """What is in force, without its secrets."""

    release: str
    machine: str
    """The name of this one, as events carry it; empty as long as nothing was written down."""
    file: str | None
    version: str
    """The same for equal values, on any machine."""
    refused: list[Refused]
    """The last reload of each machine on which it was refused: what was in force there before still is."""
    upstreams: list[dict[str, Any]]
    transcripts: str
    state: str
    policies: int
    teams: int


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    conversation: str
    title: str
    at: str
    """The message, by its link."""
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
    query = f"select * from happenings_1 where severity in ({marks}) and name != ? order by at desc limit ?"  # noqa: S608
    return [event_of(row) for row in chronicle.rows(query, [*severities, ADMIN, limit])]


def event_of(row: dict[str, Any]) -> Event:
    """A line of the chronicle."""
    return msgspec.convert({**row, "machine": row["writer"], "details": json.loads(row["told"])}, Event)


async def audit(desk: Desk, asked: Asked) -> Acts:
    path = Path(desk.config().state.dir) / audit_log.FILE
    await asyncio.to_thread(desk.audit.flush)  # what was done a moment ago is asked for, too
    return Acts(acts=await asyncio.to_thread(_acts, path, desk.chronicle, asked.query.limit))


def _acts(path: Path, chronicle: Chronicle, limit: int) -> list[Act]:
    """Of this machine as its audit log has them; of the others as their chronicles have told."""
    query = "select * from happenings_1 where name = ? and writer != ? order by at desc limit ?"
    there = [event_of(row) for row in chronicle.rows(query, [ADMIN, chronicle.name(), limit])]
    here = audit_log.told(path, limit)
    acts = [{**each, "at": datetime.fromisoformat(each["at"]).timestamp(), "machine": ""} for each in here]
    acts += [{**each.details, "at": each.at, "machine": each.machine} for each in there]
    return sorted(msgspec.convert(acts, list[Act]), key=lambda act: act.at, reverse=True)[:limit]


async def configuration(desk: Desk, _: Asked) -> Configuration:
    config = desk.config()
    machine, refused = await asyncio.to_thread(_refused, desk)
    return Configuration(
        release=__version__,
        machine=machine,
        file=str(desk.file) if desk.file else None,
        version=version(config),
        refused=refused,
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


def _refused(desk: Desk) -> tuple[str, list[Refused]]:
    """The name of this machine, and where the last reload was refused.

    Here the sources are asked anew: whoever puts a file back as it was has changed nothing that would be told. Another
    machine that has said nothing more for a day may be gone.
    """
    mine = desk.chronicle.name()
    rows = desk.chronicle.rows(_LAST_RELOADS, {"mine": mine, "since": time.time() - DAY})
    told = [Refused(at=row["at"], why=json.loads(row["told"])["why"], machine=row["writer"]) for row in rows]
    return mine, [each for each in told if each.machine != mine or not _is_right(desk)]


def _is_right(desk: Desk) -> bool:
    try:
        desk.read()
    except InvalidConfig:
        return False
    return True


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
    Route("GET", "/audit", "What operators did by the admin pages", audit, Acts, ActsQuery),
    Route("GET", "/configuration", "What is in force, and what was refused", configuration, Configuration),
    Route("GET", "/search", "Find words in the saved originals", search, Found, SearchQuery),
)
