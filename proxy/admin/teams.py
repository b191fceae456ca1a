"""Teams, their keys, and the switches that stop compaction for one of them or for all."""

import asyncio
import time
from typing import Annotated

import msgspec
from msgspec import Meta

from proxy.access.records import EVERYBODY, Registry, TeamKey, create_team_key
from proxy.admin.context import AdminContext, AdminRequest, Flaw, Invalid, Json, Route, write_audit
from proxy.admin.guard import OtherTeam
from proxy.config import Config
from proxy.config.settings import TEAM_NAME
from proxy.errors import NotFound


class NewKey(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of `POST /keys`."""

    team: Annotated[str, Meta(pattern=TEAM_NAME)]
    days: Annotated[float, Meta(ge=0, le=36_500)] = 0.0
    """How long it is valid; 0: for ever."""
    label: Annotated[str, Meta(max_length=200)] = ""


class NewSwitch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of `PUT /switches`."""

    on: bool
    team: Annotated[str, Meta(pattern=f"^$|{TEAM_NAME}")] = EVERYBODY


_KEY_USE = "select key, max(at) as last from turns where key != '' group by key"


def list_teams(context: AdminContext, request: AdminRequest) -> Json:
    registry, now = context.records.current, time.time()
    valid = [key.team for key in registry.keys.values() if not key.why_invalid(now)]
    teams = [
        {
            "name": name,
            "policy": team.policy,  # empty: the upstream's
            "upstream": team.upstream,  # empty: the first that serves the model
            "own_key": team.key is not None,
            "open_keys": valid.count(name),
            "halted": registry.is_halted(name),
        }
        for name, team in sorted(context.config().teams.items())
        if request.visitor.may_see(name)
    ]
    return {"teams": teams}


def list_keys(context: AdminContext, request: AdminRequest) -> Json:
    keys = sorted(context.records.current.keys.values(), key=lambda key: (key.team, -key.created))
    used = {row["key"]: row for row in context.activity_log.query(_KEY_USE)}
    return {
        "keys": [
            {**_describe_key(key, time.time()), "last_used": used.get(key.id, {}).get("last")}
            for key in keys
            if request.visitor.may_see(key.team)
        ]
    }


async def create_key(context: AdminContext, request: AdminRequest) -> Json:
    wanted: NewKey = request.body
    config, now = context.config(), time.time()
    _check_team(request, wanted.team)
    if wanted.team not in config.teams:  # a team that only a gateway's header names takes no keys
        raise _unknown_team(config)
    text, key = create_team_key(wanted.team, now, days=wanted.days, label=wanted.label)
    await asyncio.to_thread(context.records.change, lambda registry: registry.with_key(key))
    write_audit(context, request, "create key", key.id, team=key.team, days=wanted.days)
    return {"key": text, "told": _describe_key(key, now)}


async def revoke_key(context: AdminContext, request: AdminRequest) -> Json:
    key_id, now = request.names["key"], time.time()

    def change(registry: Registry) -> Registry:
        # Here and not before: this worker may not have read yet whose key it is.
        if (known := registry.keys.get(key_id)) is not None:
            _check_team(request, known.team)
        return registry.with_key_revoked(key_id, now)

    try:
        registry = await asyncio.to_thread(context.records.change, change)
    except KeyError:
        raise NotFound("unknown key id: GET /keys lists all") from None
    write_audit(context, request, "revoke key", key_id)
    return _describe_key(registry.keys[key_id], now)


def list_switches(context: AdminContext, request: AdminRequest) -> Json:
    return _describe_switches(context.records.current, request)


async def set_switch(context: AdminContext, request: AdminRequest) -> Json:
    wanted: NewSwitch = request.body
    config = context.config()
    _check_team(request, wanted.team)
    if wanted.team != EVERYBODY and not config.knows_team(wanted.team):
        raise _unknown_team(config)

    def change(registry: Registry) -> Registry:
        return registry.with_switch(wanted.team, on=wanted.on, now=time.time())

    registry = await asyncio.to_thread(context.records.change, change)
    write_audit(context, request, "switch on" if wanted.on else "switch off", wanted.team or "everybody")
    return _describe_switches(registry, request)


def _check_team(request: AdminRequest, team: str) -> None:
    """Refuse what concerns another team, or all, to a key of one."""
    if not request.visitor.may_see(team):
        raise OtherTeam(f"the key of {request.visitor.who} opens the pages of team {request.visitor.team} only")


def _describe_switches(registry: Registry, request: AdminRequest) -> Json:
    """Switches that were ever set; teams that are not listed are on. An empty name means all teams."""
    visitor = request.visitor
    found = [(team, switch) for team, switch in sorted(registry.switches.items()) if not team or visitor.may_see(team)]
    return {"switches": [{"team": team, "on": switch.on, "at": switch.at} for team, switch in found]}


def _describe_key(key: TeamKey, now: float) -> Json:
    """A key without its secret. Times are seconds since 1970; None: never."""
    return {
        "id": key.id,
        "team": key.team,
        "label": key.label,
        "state": key.why_invalid(now) or "open",
        "created": key.created,
        "expires": key.expires or None,
        "revoked": key.revoked or None,
    }


def _unknown_team(config: Config) -> Invalid:
    known = ", ".join(config.teams) or "none"
    return Invalid("unknown team", [Flaw("team", f"add it to `teams` in the configuration (known: {known})")])


ROUTES = (
    Route("GET", "/teams", list_teams, rows="teams", for_teams=True),
    Route("GET", "/keys", list_keys, rows="keys", for_teams=True),
    Route("POST", "/keys", create_key, body=NewKey, for_teams=True),
    Route("DELETE", "/keys/{key}", revoke_key, for_teams=True),
    Route("GET", "/switches", list_switches, for_teams=True),
    Route("PUT", "/switches", set_switch, body=NewSwitch, for_teams=True),
)
