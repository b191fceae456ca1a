"""The policies that come with the product: three ways to run it, and one for each design it grew from.

The figures of those are the designs' own, so that anyone can run what they describe. Ours are measured.
"""

from collections.abc import Mapping
from functools import cache

from proxy.config.policies import Policy


@cache
def policies() -> Mapping[str, Policy]:
    return {name: Policy.model_validate(values) for name, values in _SHIPPED.items()}


_SHIPPED = {
    "observe": {"mode": "observe"},
    "off": {"mode": "off"},
}
