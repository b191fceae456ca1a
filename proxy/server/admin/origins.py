"""Where each value of a policy comes from: the policy that sets it, which may be an ancestor, and who wrote that."""

from collections.abc import Iterator
from typing import Any

import msgspec

from proxy.config import Config, Loaded
from proxy.config.block import Block
from proxy.config.shipped import policies as shipped


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """An effective value."""

    path: str
    value: Any
    origin: str


def values(loaded: Loaded, name: str) -> Iterator[Value]:
    for field, value in loaded.config.policy(name):
        if field == "inherit":
            continue
        dumped = value.model_dump(mode="json") if isinstance(value, Block) else value
        for path, said in _leaves(field, dumped, grouped=isinstance(value, Block)):
            yield Value(path=".".join(path), value=said, origin=_setter(loaded, name, path))


def _leaves(field: str, value: Any, *, grouped: bool) -> Iterator[tuple[tuple[str, ...], Any]]:  # noqa: ANN401 (JSON)
    if grouped:
        yield from (((field, part), said) for part, said in value.items())
    else:
        yield (field,), value


def _setter(loaded: Loaded, name: str, path: tuple[str, ...]) -> str:
    for ancestor in loaded.config.lineage(name):
        if _sets(loaded.config, ancestor, path):
            if ancestor in loaded.config.policies:
                return f"{loaded.origin('policies', ancestor, *path)} (policy {ancestor})"
            if ancestor in shipped():
                return f"shipped policy {ancestor}"
    return "default"


def _sets(config: Config, policy: str, path: tuple[str, ...]) -> bool:
    at: Any = config.all_policies.get(policy)
    for step in path:
        at = getattr(at, step) if isinstance(at, Block) and step in at.model_fields_set else None
    return at is not None
