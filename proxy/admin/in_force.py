"""The configuration in force, the release, and the rights of the caller's key."""

import json
from hashlib import blake2b

from proxy import __version__
from proxy.admin.routes import AdminContext, AdminRequest, Json, Route
from proxy.config import Config, InvalidConfig

_LAST_RELOAD = """
select name, at, details from incidents
where name in ('config-refused', 'config-reloaded', 'listening', 'draining') order by at desc limit 1
"""


def show_configuration(context: AdminContext, _: AdminRequest) -> Json:
    """Return the configuration in force, without secrets."""
    config = context.config()
    fields = {"name", "base_url", "models", "policy"}
    return {
        "release": __version__,
        "file": str(context.file) if context.file else None,
        "version": compute_version(config),
        "refused": _find_refused_reload(context),
        "upstreams": [upstream.model_dump(mode="json", include=fields) for upstream in config.upstreams],
        "transcripts": config.transcripts.keep,
        "state": config.state.dir,
    }


def compute_version(config: Config) -> str:
    """Return a hash of all values, the same on any machine. Of secrets it holds the names only."""
    values = json.dumps(config.model_dump(mode="json"), sort_keys=True, default=str)
    return blake2b(values.encode(), digest_size=6).hexdigest()


def _find_refused_reload(context: AdminContext) -> Json | None:
    """Return the last reload if it was refused, and its sources are still invalid."""
    for row in context.activity_log.query(_LAST_RELOAD):
        if row["name"] != "config-refused":
            continue
        try:
            context.read()
        except InvalidConfig:
            return {"at": row["at"], "why": json.loads(row["details"])["why"]}
    return None


def show_visitor(_: AdminContext, request: AdminRequest) -> Json:
    visitor = request.visitor
    return {"who": visitor.who, "role": visitor.role, "team": visitor.team, "release": __version__}


ROUTES = (
    Route("GET", "/me", show_visitor, for_teams=True),
    Route("GET", "/configuration", show_configuration),
)
