"""Policies in force, the source of each value, and the attachments that assign them to requests."""

from fnmatch import fnmatchcase

from proxy.admin.routes import AdminContext, AdminRequest, Json, Route
from proxy.config import InvalidConfig, Loaded, find_origins
from proxy.config.policies import DEFAULT, shipped_policies
from proxy.config.warnings import find_warnings
from proxy.errors import NotFound
from proxy.models.windows import is_known_model


def list_policies(context: AdminContext, request: AdminRequest) -> Json:
    """Return all policies. A key of one team sees only its attachments, and no warnings: they name other teams."""
    loaded = _load(context)
    config = loaded.config
    team = request.visitor.team
    attachments = [
        attachment.model_dump() for attachment in config.attachments if not team or fnmatchcase(team, attachment.team)
    ]
    doubts = []
    if not team:
        doubts = [{"path": path, "message": why} for path, why in find_warnings(config, is_known_model)]
    names = sorted(config.all_policies, key=lambda name: (name != DEFAULT, name))
    return {
        "policies": [_describe(loaded, name) for name in names],
        "attachments": attachments,
        "doubts": doubts,
    }


def show_policy(context: AdminContext, request: AdminRequest) -> Json:
    loaded = _load(context)
    name = request.names["policy"]
    if name not in loaded.config.all_policies:
        raise NotFound("unknown policy: GET /policies lists all")
    values = [
        {"path": ".".join(path), "value": value, "origin": origin} for path, value, origin in find_origins(loaded, name)
    ]
    return {**_describe(loaded, name), "values": values}


def _load(context: AdminContext) -> Loaded:
    """Return the configuration in force, with origins if its sources still say the same."""
    config = context.config()
    try:
        loaded = context.read()
    except InvalidConfig:
        return Loaded(config, {})
    if loaded.config.policies != config.policies:
        return Loaded(config, {})
    return loaded


def _describe(loaded: Loaded, name: str) -> Json:
    policy = loaded.config.policy(name)
    return {
        "name": name,
        "kind": find_kind(loaded, name),
        "version": policy.version,
        "mode": policy.mode,
        "inherits": loaded.config.lineage(name)[1:],
    }


def find_kind(loaded: Loaded, name: str) -> str:
    """Return who wrote a policy: "file", "shipped" or "default"."""
    if name in loaded.config.policies and "policies" in loaded.config.model_fields_set:
        return "file"
    if name in shipped_policies():
        return "shipped"
    return "default"


ROUTES = (
    Route("GET", "/policies", list_policies, for_teams=True),
    Route("GET", "/policies/{policy}", show_policy, for_teams=True),
)
