"""Origins of the values of a policy: the policy that sets each of them, and where that is written."""

from collections.abc import Iterator
from typing import Any

from proxy.config.loading import Loaded
from proxy.config.model import ConfigModel
from proxy.config.settings import Config
from proxy.config.shipped import policies as shipped

Path = tuple[str, ...]


def find_origins(loaded: Loaded, policy: str) -> Iterator[tuple[Path, Any, str]]:
    """List every effective value of a policy, as JSON, with its origin in words."""
    for field, value in loaded.config.policy(policy).model_dump(mode="json", exclude={"inherit"}).items():
        for part, said in value.items() if isinstance(value, dict) else [("", value)]:
            path = (field, part) if part else (field,)
            yield path, said, _setter(loaded, policy, path)


def _setter(loaded: Loaded, policy: str, path: Path) -> str:
    for ancestor in loaded.config.lineage(policy):
        if _sets(loaded.config, ancestor, path):
            if ancestor in loaded.config.policies:
                return f"{loaded.origin('policies', ancestor, *path)} (policy {ancestor})"
            if ancestor in shipped():
                return f"shipped policy {ancestor}"
    return "default"


def _sets(config: Config, policy: str, path: Path) -> bool:
    at: Any = config.all_policies.get(policy)
    for step in path:
        at = getattr(at, step) if isinstance(at, ConfigModel) and step in at.model_fields_set else None
    return at is not None
