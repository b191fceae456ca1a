"""Where each value of a policy comes from, as the API tells it."""

from collections.abc import Iterator
from typing import Any

import msgspec

from proxy.config import Loaded, origins


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """An effective value."""

    path: str
    value: Any
    origin: str


def values(loaded: Loaded, policy: str) -> Iterator[Value]:
    for path, value, origin in origins(loaded, policy):
        yield Value(path=".".join(path), value=value, origin=origin)
