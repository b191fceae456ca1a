"""Settings of a policy, declared once: as fields of structs.

A field is a setting, and the docstring below it its description in proxy.yaml, in the JSON Schema and on the admin
pages. `proxy.config.declared` builds the models that check a configuration. Without bounds a whole number is 0 or more,
and another number from 0 to 1.

    target: Annotated[float, Bounds(gt=0, lt=1)] = 0.2
    asides: Annotated[tuple[str, ...], Check(find_pin_fault)] = ASIDES
    version: Annotated[str, INTERNAL] = ""
"""

from collections.abc import Callable
from typing import TypedDict

from msgspec import Struct


class Bounds(TypedDict, total=False):
    ge: float
    gt: float
    le: float
    lt: float


class Check(Struct, frozen=True):
    find_fault: Callable[[str], str | None]
    """Returns why a text is refused, or None."""


INTERNAL = "internal"
"""Marks a field that users cannot set."""
