"""Teams, their keys, and the switches that limit compaction for one of them or for all; deletions; policies in force.

A policy is shown with the origin of each value, and with the attachments that choose it.
"""

import time
from collections import Counter
from operator import methodcaller
from typing import Annotated

from msgspec import Meta, Struct

from proxy import assembly
from proxy.access.registry import EVERYBODY, KEY_USES, Registry, TeamKey, create_team_key, decode_uses
from proxy.admin.routes import AdminContext, AdminRequest, Invalid, Json, act
from proxy.config.faults import InvalidConfig
from proxy.config.loading import Loaded, find_origins
from proxy.config.policies import DEFAULT, shipped_policies
from proxy.config.settings import TEAM_NAME, Config
from proxy.config.warnings import find_warnings
from proxy.foundation.errors import NotFound
from proxy.models.windows import is_known_model
from proxy.store.contract import StoreUnavailable
from proxy.store.deletions import Deletion
from proxy.wire.http_head import SwitchState


class NewKey(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    team: Annotated[str, Meta(pattern=TEAM_NAME)]
    days: Annotated[float, Meta(ge=0, le=36_500)] = 0.0
    """Days until the key expires; 0: it never does."""
    label: Annotated[str, Meta(max_length=200)] = ""


class NewDeletion(Struct, frozen=True, forbid_unknown_fields=True):
    """The conversations that meet all of these are deleted."""

    conversation: Annotated[str, Meta(max_length=200)] = ""
    user: Annotated[str, Meta(max_length=2_000)] = ""
    team: Annotated[str, Meta(max_length=200)] = ""
    before: Annotated[float, Meta(ge=0)] = 0.0


class NewSwitch(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    state: SwitchState
    team: Annotated[str, Meta(pattern=f"^$|{TEAM_NAME}")] = EVERYBODY


def list_teams(context: AdminContext, _: AdminRequest) -> Json:
    config = context.config()
    registry = context.records.current
    now = time.time()
    valid_keys = Counter[str]()
    for key in registry.keys.values():
        if not key.why_invalid(now):
            valid_keys[key.team] += 1
    teams = []
    for name, team in sorted(config.teams.items()):
        teams.append(
            {
                "name": name,
                "policy": team.policy,  # empty: the upstream's
                "stores_text": any(config.policy(policy).store_text for policy in config.list_policies_of_team(name)),
                "upstream": team.upstream,  # empty: the first that serves the model
                "open_keys": valid_keys[name],
                "switch": registry.find_state(name),
            }
        )
    return {"teams": teams}


async def list_keys(context: AdminContext, _: AdminRequest) -> Json:
    """List all keys. Their last use is that by any replica, if the state that replicas share answers."""
    scope = "all replicas" if context.config().state.url else "this replica"
    stored_uses: dict[str, float] = {}
    try:
        stored_uses = decode_uses(await context.store.read_document(KEY_USES))
    except StoreUnavailable:
        scope = "this replica"
    last_uses = context.records.uses.merge(stored_uses)
    now, registry = time.time(), context.records.current
    keys = [
        {**_describe_key(key, now), "last_used": last_uses.get(key.id)}
        for key in sorted(registry.keys.values(), key=lambda key: (key.team, -key.created))
    ]
    return {"keys": keys, "last_used_of": scope}


async def create_key(context: AdminContext, request: AdminRequest) -> Json:
    new_key: NewKey = request.body
    config = context.config()
    now = time.time()
    if new_key.team not in config.teams:  # a team that only a gateway's header names takes no keys
        raise _unknown_team(config)
    text, key = create_team_key(new_key.team, now, days=new_key.days, label=new_key.label)
    change = methodcaller("with_key", key)
    await act(context, request, change, "create key", key.id, team=key.team, days=new_key.days)
    return {"key": text, "told": _describe_key(key, now)}


async def revoke_key(context: AdminContext, request: AdminRequest) -> Json:
    key_id = request.names["key"]
    now = time.time()
    try:
        registry = await act(context, request, methodcaller("with_key_revoked", key_id, now), "revoke key", key_id)
    except KeyError:
        raise NotFound("unknown key id: GET /keys lists all") from None
    return _describe_key(registry.keys[key_id], now)


async def delete_conversations(context: AdminContext, request: AdminRequest) -> Json:
    """Order a deletion, which every machine obeys within seconds. The audit log names no conversation and no user."""
    new_deletion: NewDeletion = request.body
    user = assembly.build_redaction(context.config()).of_name(new_deletion.user)
    order = Deletion.order(
        conversation=new_deletion.conversation, user=user, team=new_deletion.team, before=new_deletion.before
    )
    if not order.conditions:
        raise Invalid("nothing is named", "$", "name a conversation, a user, a team or a time")
    change, conditions = methodcaller("with_deletion", order), ", ".join(order.conditions)
    await act(context, request, change, "delete conversations", order.id, by=conditions)
    return {"id": order.id, "user": user}


def list_switches(context: AdminContext, _: AdminRequest) -> Json:
    return _describe_switches(context.records.current)


async def set_switch(context: AdminContext, request: AdminRequest) -> Json:
    new_switch: NewSwitch = request.body
    config = context.config()
    if new_switch.team != EVERYBODY and not config.knows_team(new_switch.team):
        raise _unknown_team(config)
    change = methodcaller("with_switch", new_switch.team, new_switch.state, time.time())
    team = new_switch.team or "everybody"
    return _describe_switches(await act(context, request, change, f"switch {new_switch.state}", team))


def _describe_switches(registry: Registry) -> Json:
    """Return the switches that were ever set. An empty name means all teams."""
    switches = []
    for team, switch in sorted(registry.switches.items()):
        switches.append({"team": team, "state": switch.state, "at": switch.at})
    return {"switches": switches}


def _describe_key(key: TeamKey, now: float) -> Json:
    """Describe a key without its text. Times are seconds since 1970; None: never."""
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
    teams = ", ".join(config.teams) or "none"
    return Invalid("unknown team", "team", f"add it to `teams` in the configuration (known: {teams})")


def list_policies(context: AdminContext, _: AdminRequest) -> Json:
    loaded_config = _load(context)
    config = loaded_config.config
    names = sorted(config.all_policies, key=lambda name: (name != DEFAULT, name))
    return {
        "policies": [_describe(loaded_config, name) for name in names],
        "attachments": [attachment.model_dump() for attachment in config.attachments],
        "doubts": [{"path": path, "message": why} for path, why in find_warnings(config, is_known_model)],
    }


def show_policy(context: AdminContext, request: AdminRequest) -> Json:
    loaded_config = _load(context)
    name = request.names["policy"]
    if name not in loaded_config.config.all_policies:
        raise NotFound("unknown policy: GET /policies lists all")
    values = []
    for path, value, origin in find_origins(loaded_config, name):
        values.append({"path": ".".join(path), "value": value, "origin": origin})
    return {**_describe(loaded_config, name), "values": values}


def _load(context: AdminContext) -> Loaded:
    """Return the configuration in force, with origins if its sources still say the same."""
    config = context.config()
    try:
        loaded_config = context.read()
    except InvalidConfig:
        return Loaded(config, {})
    if loaded_config.config.policies != config.policies:
        return Loaded(config, {})
    return loaded_config


def _describe(loaded_config: Loaded, name: str) -> Json:
    policy = loaded_config.config.policy(name)
    return {
        "name": name,
        "kind": find_kind(loaded_config, name),
        "version": policy.version,
        "mode": policy.mode,
        "inherits": loaded_config.config.lineage(name)[1:],
    }


def find_kind(loaded_config: Loaded, name: str) -> str:
    """Return who wrote a policy: "file", "shipped" or "default"."""
    if name in loaded_config.config.policies and "policies" in loaded_config.config.model_fields_set:
        return "file"
    if name in shipped_policies():
        return "shipped"
    return "default"
