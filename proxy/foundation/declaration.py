"""Settings of a policy, declared once: as fields of structs, with bounds and marks in `msgspec.Meta`.

A field is a setting, and the docstring below it its description in proxy.yaml, in the JSON Schema and on the admin
pages. `proxy.config.declared` builds the models that check a configuration. Without bounds a whole number is 0 or more,
and another number from 0 to 1.

    target: Annotated[float, Meta(gt=0, lt=1)] = 0.25
    asides: Annotated[tuple[str, ...], check_texts(find_pin_fault)] = ASIDES
    version: Annotated[str, INTERNAL] = ""
"""

from collections.abc import Callable

from msgspec import Meta

INTERNAL = Meta(extra={"is_internal": True})
"""Marks a field that users cannot set."""


def check_texts(find_fault: Callable[[str], str | None]) -> Meta:
    """Return the mark of a field whose texts are refused for the reason that *find_fault* returns."""
    return Meta(extra={"find_fault": find_fault})
