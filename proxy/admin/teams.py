"""Teams, their keys, and the switches that stop compaction for one of them or for all."""

import asyncio
import time
from fnmatch import fnmatchcase
from typing import Annotated

import msgspec
from msgspec import Meta

from proxy.access.key_uses import DOCUMENT, decode_uses
from proxy.access.registry import EVERYBODY, Registry
from proxy.access.team_keys import TeamKey, create_team_key
from proxy.admin.context import AdminContext, AdminRequest, Flaw, Invalid, Json, Route, write_audit
from proxy.admin.guard import OtherTeam
from proxy.config import Config
from proxy.config.attachments import sort_by_priority
from proxy.config.settings import TEAM_NAME
from proxy.config.values import ALL_PERCENT
from proxy.errors import NotFound
from proxy.store.contract import StoreUnavailable


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


def list_teams(context: AdminContext, request: AdminRequest) -> Json:
    registry, now = context.records.current, time.time()
    valid = [key.team for key in registry.keys.values() if not key.why_invalid(now)]
    teams = [
        {
            "name": name,
            "policy": team.policy,  # empty: the upstream's
            "deciding": list_deciding(context.config(), name),
            "upstream": team.upstream,  # empty: the first that serves the model
            "own_key": team.key is not None,
            "open_keys": valid.count(name),
            "halted": registry.is_halted(name),
        }
        for name, team in sorted(context.config().teams.items())
        if request.visitor.may_see(name)
    ]
    return {"teams": teams}


def list_deciding(config: Config, team: str) -> list[Json]:
    """The attachments that may decide for requests of a team, in their order, and the policy for what they leave."""
    deciding: list[Json] = []
    taken = 0.0
    for _, attachment in sort_by_priority(config.attachments):
        if not fnmatchcase(team, attachment.team) or attachment.rollout <= taken:
            continue
        conditions = {name: getattr(attachment, name) for name in ("key", "model", "upstream", "tag")}
        conditions = {name: glob for name, glob in conditions.items() if glob != "*"}
        deciding.append(
            {
                "policy": attachment.policy,
                "mode": attachment.mode,
                "rollout": attachment.rollout,
                "conditions": conditions,
            }
        )
        if not conditions:
            taken = attachment.rollout
        if taken == ALL_PERCENT:
            return deciding
    return [*deciding, {"policy": config.teams[team].policy, "mode": "", "rollout": ALL_PERCENT, "conditions": {}}]


async def list_keys(context: AdminContext, request: AdminRequest) -> Json:
    """All keys, each with its last use: of all replicas if they share a state that answers."""
    keys = sorted(context.records.current.keys.values(), key=lambda key: (key.team, -key.created))
    scope = "all replicas" if context.config().state.url else "this replica"
    try:
        stored = decode_uses(await context.store.read_document(DOCUMENT))
    except StoreUnavailable:
        stored, scope = {}, "this replica"
    used, now = context.records.uses.merge(stored), time.time()
    shown = [key for key in keys if request.visitor.may_see(key.team)]
    return {
        "keys": [{**_describe_key(key, now), "last_used": used.get(key.id)} for key in shown],
        "last_used_of": scope,
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
        # Here and not before: this worker may not have read yet whose key it is. A key of another team gets the same
        # answer as one that does not exist.
        if (known := registry.keys.get(key_id)) is not None and not request.visitor.may_see(known.team):
            raise KeyError(key_id)
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
    Route("GET", "/teams", list_teams, for_teams=True),
    Route("GET", "/keys", list_keys, for_teams=True),
    Route("POST", "/keys", create_key, body=NewKey, for_teams=True),
    Route("DELETE", "/keys/{key}", revoke_key, for_teams=True),
    Route("GET", "/switches", list_switches, for_teams=True),
    Route("PUT", "/switches", set_switch, body=NewSwitch, for_teams=True),
)
