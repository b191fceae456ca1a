"""The difference between two configurations: names of settings and versions of policies, but no values."""

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from proxy.config.settings import Config
from proxy.config.values import ConfigModel


class Changes(Struct, frozen=True):
    settings: tuple[str, ...]
    """The paths of changed settings, such as `upstreams.0.key`."""
    policies: tuple[str, ...]
    """Changed policies, such as `default 1a2b3c4d -> 5e6f7a8b`. `none` is the version of a missing policy."""


def find_changes(old: Config, new: Config) -> Changes:
    versions = []
    for name in sorted({*old.all_policies, *new.all_policies}):
        before, after = _find_version(old, name), _find_version(new, name)
        if before != after:
            versions.append(f"{name} {before} -> {after}")
    return Changes(tuple(_list_changed(old, new, "")), tuple(versions))


def _find_version(config: Config, policy: str) -> str:
    return config.policy(policy).version if policy in config.all_policies else "none"


def _list_changed(old: object, new: object, place: str) -> Iterator[str]:
    if old == new:
        return
    parts, new_parts = _list_parts(old), _list_parts(new)
    if not parts or not new_parts:
        yield place.removeprefix(".")
        return
    for name in dict.fromkeys([*parts, *new_parts]):
        yield from _list_changed(parts.get(name), new_parts.get(name), f"{place}.{name}")


def _list_parts(value: object) -> Mapping[str, object]:
    """Return the settings of a group, or the entries of a list or table of groups. A single setting has none."""
    if isinstance(value, ConfigModel):
        return {name: getattr(value, name) for name in type(value).model_fields}
    entries: Mapping[str, object] = {}
    if isinstance(value, Mapping):
        entries = value
    elif isinstance(value, Sequence) and not isinstance(value, str):
        entries = {str(number): entry for number, entry in enumerate(value)}
    return entries if all(isinstance(entry, ConfigModel) for entry in entries.values()) else {}
