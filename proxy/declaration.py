"""Settings of a policy, declared once: as fields of plain dataclasses with default, description and bounds.

`proxy.config.declared` builds the models that check a configuration from these fields; proxy.yaml, the JSON Schema and
the admin pages show the same descriptions. A field without `setting` cannot be set by users.
"""

from collections.abc import Callable
from dataclasses import field
from typing import Any


def setting(default: Any, about: str, *, check: Callable[[str], str | None] | None = None, **bounds: float) -> Any:  # noqa: ANN401 (a field takes any default)
    """Declare a field that users can set.

    *about* is its description. *bounds* are `ge`, `gt`, `le` and `lt`; without them whole numbers are 0 or more, and
    others from 0 to 1. *check* returns why a text cannot be used, or None.
    """
    return field(default=default, metadata={"about": about, "bounds": bounds, "check": check})
