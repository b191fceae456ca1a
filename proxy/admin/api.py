"""Everything the admin API does: one row each, family by family."""

from collections.abc import Sequence

from proxy.admin import conversations, overview, people, policies, records, trial
from proxy.admin.routes import Route

ROUTES: Sequence[Route] = (
    *overview.ROUTES,
    *conversations.ROUTES,
    *policies.ROUTES,
    *trial.ROUTES,
    *people.ROUTES,
    *records.ROUTES,
)
