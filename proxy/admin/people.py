"""Teams, their keys, and the switches that stop compaction for one of them or for all."""

import asyncio
import time
from http import HTTPStatus
from typing import Annotated

import msgspec
from msgspec import Meta

from proxy.access import keys as team_keys
from proxy.access.keys import TeamKey
from proxy.access.registry import EVERYBODY, Registry
from proxy.admin.faults import Flaw, Invalid
from proxy.admin.routes import Asked, Desk, Route, told
from proxy.config import Config
from proxy.config.teams import TEAM_NAME
from proxy.errors import NotFound

DAY_SECONDS = 24 * 3600
TeamName = Annotated[str, Meta(pattern=TEAM_NAME)]


class TeamTold(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    policy: str
    """Empty: the upstream's."""
    upstream: str
    """Empty: the first that serves the model."""
    own_key: bool
    """Whether the upstream is asked with a key of the team's own."""
    open_keys: int
    halted: bool
    """Switched off, alone or with everybody."""


class Teams(msgspec.Struct, frozen=True, kw_only=True):
    teams: list[TeamTold]


class KeyTold(msgspec.Struct, frozen=True, kw_only=True):
    """Never the key itself. Times are seconds since 1970; None is never."""

    id: str
    team: str
    label: str
    state: str
    """open, expired or revoked"""
    created: float
    expires: float | None
    revoked: float | None


class Keys(msgspec.Struct, frozen=True, kw_only=True):
    keys: list[KeyTold]


class KeyWanted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    team: TeamName
    days: Annotated[float, Meta(ge=0, le=36_500)] = 0.0
    """How long it opens; 0 is for ever."""
    label: Annotated[str, Meta(max_length=200)] = ""


class KeyMade(msgspec.Struct, frozen=True, kw_only=True):
    key: str
    """Shown this once."""
    told: KeyTold


class SwitchTold(msgspec.Struct, frozen=True, kw_only=True):
    team: str
    """Empty: everybody."""
    on: bool
    at: float


class Switches(msgspec.Struct, frozen=True, kw_only=True):
    switches: list[SwitchTold]
    """Those that were ever touched; whoever is not named is on."""


class SwitchWanted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    on: bool
    team: Annotated[str, Meta(pattern=f"^$|{TEAM_NAME}")] = EVERYBODY


async def teams(desk: Desk, _: Asked) -> Teams:
    config, registry, now = desk.config(), desk.records.current, time.time()
    open_keys = [key.team for key in registry.keys.values() if not key.fault(now)]
    return Teams(
        teams=[
            TeamTold(
                name=name,
                policy=team.policy,
                upstream=team.upstream,
                own_key=team.key is not None,
                open_keys=open_keys.count(name),
                halted=registry.halts(name),
            )
            for name, team in sorted(config.teams.items())
        ]
    )


async def keys(desk: Desk, _: Asked) -> Keys:
    found = sorted(desk.records.current.keys.values(), key=lambda key: (key.team, -key.created))
    return Keys(keys=[_told(key, time.time()) for key in found])


async def create(desk: Desk, asked: Asked) -> KeyMade:
    wanted: KeyWanted = asked.body
    if wanted.team not in (config := desk.config()).teams:  # a key of one that only a gateway names opens nothing
        raise _unknown(config)
    now = time.time()
    expires = now + wanted.days * DAY_SECONDS if wanted.days else 0.0
    text, key = team_keys.minted(wanted.team, now, expires=expires, label=wanted.label)
    await asyncio.to_thread(desk.records.change, lambda registry: registry.with_key(key))
    told(desk, asked, "create key", key.id, team=key.team, days=wanted.days)
    return KeyMade(key=text, told=_told(key, now))


async def revoke(desk: Desk, asked: Asked) -> KeyTold:
    name, now = asked.names["key"], time.time()

    def revoked(registry: Registry) -> Registry:
        return registry.revoked(name, now)

    try:
        registry = await asyncio.to_thread(desk.records.change, revoked)
    except KeyError:
        raise NotFound("there is no key of this id; /keys lists them") from None
    told(desk, asked, "revoke key", name)
    return _told(registry.keys[name], now)


async def switches(desk: Desk, _: Asked) -> Switches:
    return _switches(desk.records.current)


async def switch(desk: Desk, asked: Asked) -> Switches:
    wanted: SwitchWanted = asked.body
    if wanted.team != EVERYBODY and not (config := desk.config()).knows_team(wanted.team):
        raise _unknown(config)

    def switched(registry: Registry) -> Registry:
        return registry.switched(wanted.team, on=wanted.on, now=time.time())

    registry = await asyncio.to_thread(desk.records.change, switched)
    told(desk, asked, "switch on" if wanted.on else "switch off", wanted.team or "everybody")
    return _switches(registry)


def _switches(registry: Registry) -> Switches:
    found = sorted(registry.switches.items())
    return Switches(switches=[SwitchTold(team=team, on=each.on, at=each.at) for team, each in found])


def _told(key: TeamKey, now: float) -> KeyTold:
    return KeyTold(
        id=key.id,
        team=key.team,
        label=key.label,
        state=key.fault(now) or "open",
        created=key.created,
        expires=key.expires or None,
        revoked=key.revoked or None,
    )


def _unknown(config: Config) -> Invalid:
    known = ", ".join(config.teams) or "none yet"
    return Invalid("there is no such team", [Flaw("team", f"add it to `teams` of the configuration (there: {known})")])


_MISSING = (HTTPStatus.NOT_FOUND,)
ROUTES = (
    Route("GET", "/teams", "The teams of the configuration", teams, Teams),
    Route("GET", "/keys", "Team keys, never the keys themselves", keys, Keys),
    Route("POST", "/keys", "Make a team key; it is in the answer, this once", create, KeyMade, body=KeyWanted),
    Route("DELETE", "/keys/{key}", "Revoke a key, for ever", revoke, KeyTold, faults=_MISSING),
    Route("GET", "/switches", "Who is switched off", switches, Switches),
    Route(
        "PUT", "/switches", "Switch new blocks off or on, for a team or for all", switch, Switches, body=SwitchWanted
    ),
)
