"""What the half hour has shown, as checks that pass or fail and as figures."""

from collections import Counter
from dataclasses import dataclass

from tests.end_to_end.fleet.deployment import Fleet


@dataclass(frozen=True, slots=True)
class Check:
    what: str
    found: str
    passed: bool


def find_results(made: Fleet, notice_seconds: float = 2) -> list[Check]:
    """`notice_seconds`: within which every replica has to follow a changed file."""
    clients, faults_injected, model = made.clients, made.faults_injected, made.model
    return [
        Check("failed requests, failures of the upstream aside", _most_common(clients.failed), not clients.failed),
        Check(
            "forwarded histories that break a rule the input had kept", _most_common(model.invalid), not model.invalid
        ),
        Check("shortened conversations with incomplete originals", str(made.lost), not made.lost),
        Check("shortened conversations with complete originals", f"{made.kept:,}", made.kept > 0),
        Check("internal errors in the logs", _most_common(made.faults), not made.faults),
        Check("every replica refused the faulty configuration", str(faults_injected.refused), faults_injected.refused),
        Check(
            "seconds until a changed policy was in effect everywhere",
            f"{max(faults_injected.noticed, default=99):.1f}",
            max(faults_injected.noticed, default=99) <= notice_seconds,
        ),
    ]


def _most_common(counted: Counter[str]) -> str:
    return "; ".join(f"{times} x {what}" for what, times in counted.most_common(5)) or "none"


def list_figures(made: Fleet) -> dict[str, object]:
    """How much was done, and what went wrong with it."""
    clients, model = made.clients, made.model
    return {
        "answered turns": clients.turns,
        "conversations": clients.conversations,
        "kills of replicas": made.faults_injected.kills,
        "connections retried": clients.again,
        "responses cut by a kill, requested again": clients.cut,
        "clients that disconnected": clients.cancelled,
        "responses by `x-compaction`": dict(clients.done),
        "forwarded requests that only extend the one before": model.went_on,
        "forwarded requests that do not": model.rewrites,
    }
