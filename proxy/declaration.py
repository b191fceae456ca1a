"""Settings of a policy, declared once: as fields of plain dataclasses.

A field is a setting, and the docstring below it its description in proxy.yaml, in the JSON Schema and on the admin
pages. `proxy.config.declared` builds the models that check a configuration. Without bounds a whole number is 0 or more,
and another number from 0 to 1.
"""

from collections.abc import Callable
from dataclasses import field
from typing import Any


def setting(default: Any, *, check: Callable[[str], str | None] | None = None, **bounds: float) -> Any:  # noqa: ANN401 (a field takes any default)
    """Declare a setting with bounds (`ge`, `gt`, `le`, `lt`), or with a *check* that returns why a text is refused."""
    return field(default=default, metadata={"check": check, "bounds": bounds})


def internal(default: Any) -> Any:  # noqa: ANN401 (as above)
    """Declare a field that users cannot set."""
    return field(default=default, metadata={"is_internal": True})
