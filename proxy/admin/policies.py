"""Policies in force, the origin of each of their values, and where they apply. Changes are made in the file."""

import asyncio

from proxy import windows
from proxy.admin.context import AdminContext, AdminRequest, Json, Route
from proxy.config import InvalidConfig, Loaded, find_origins
from proxy.config.attachments import find_unreachable, sort_by_priority
from proxy.config.policies import DEFAULT, shipped_policies
from proxy.config.warnings import find_warnings
from proxy.errors import NotFound


async def list_policies(context: AdminContext, _: AdminRequest) -> Json:
    loaded = await _load(context)
    config = loaded.config
    behind = dict(find_unreachable(config.attachments))
    names = sorted(config.all_policies, key=lambda name: (name != DEFAULT, name))
    return {
        "policies": [_describe(loaded, name) for name in names],
        "attachments": [  # in the order in which they decide
            {"place": place, "unreachable_behind": behind.get(place), **each.model_dump()}
            for place, each in sort_by_priority(config.attachments)
        ],
        "doubts": [
            {"path": path, "message": why}
            for path, why in find_warnings(config, lambda name: windows.find_bundled_window(name) is not None)
        ],
    }


async def show_policy(context: AdminContext, request: AdminRequest) -> Json:
    loaded, name = await _load(context), request.names["policy"]
    if name not in loaded.config.all_policies:
        raise NotFound("unknown policy: GET /policies lists all")
    values = [
        {"path": ".".join(path), "value": value, "origin": origin} for path, value, origin in find_origins(loaded, name)
    ]
    return {**_describe(loaded, name), "values": values}


async def _load(context: AdminContext) -> Loaded:
    """The configuration in force, with origins as far as its sources still say the same."""
    config = context.config()
    try:
        loaded = await asyncio.to_thread(context.read)
    except InvalidConfig:
        return Loaded(config, {})
    return loaded if loaded.config.policies == config.policies else Loaded(config, {})


def _describe(loaded: Loaded, name: str) -> Json:
    policy = loaded.config.policy(name)
    return {
        "name": name,
        "kind": _kind(loaded, name),
        "version": policy.version,
        "mode": policy.mode,
        "inherits": loaded.config.lineage(name)[1:],
    }


def _kind(loaded: Loaded, name: str) -> str:
    if name in loaded.config.policies:
        return "file"
    return "shipped" if name in shipped_policies() else "default"


ROUTES = (
    Route("GET", "/policies", list_policies),
    Route("GET", "/policies/{policy}", show_policy),
)
