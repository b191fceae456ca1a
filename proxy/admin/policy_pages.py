"""Policies in force, with the origin of each value, and the attachments that choose them."""

from proxy.admin.routes import AdminContext, AdminRequest, Json
from proxy.config import InvalidConfig, Loaded, find_origins
from proxy.config.policies import DEFAULT, shipped_policies
from proxy.config.warnings import find_warnings
from proxy.foundation.errors import NotFound
from proxy.models.windows import is_known_model


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
