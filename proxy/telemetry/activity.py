"""A listener that writes the activity log: rows and counts for the admin pages.

An incident is the event's log line. Wrong keys are left out: they could fill the log.
"""

import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from proxy import events
from proxy.store.activity_log import ActivityLog, Incident, Record
from proxy.store.usage_sums import DAY_SECONDS, UsageDelta, UsageNames
from proxy.telemetry.audit import REFUSALS_PER_MINUTE, MinuteLimit
from proxy.telemetry.lines import make_line

OTHERS = "(others)"


class DailyNames:
    """The teams and models that sums have today. A gateway or a client may make up any number of names."""

    def __init__(self, teams_max: int = 500, models_max: int = 50) -> None:
        self._teams_max = teams_max
        self._models_max = models_max
        self._day = 0
        self._models: dict[str, set[str]] = {}

    def limit(self, groups: UsageNames) -> UsageNames:
        """Replace a team beyond the first 500 of a day, and a model beyond the first 50 of a team, by `(others)`."""
        day = int(time.time() // DAY_SECONDS)
        if day != self._day:
            self._day = day
            self._models.clear()
        if groups.team not in self._models and len(self._models) >= self._teams_max:
            groups = groups._replace(team=OTHERS)
        models = self._models.setdefault(groups.team, set())
        if groups.model not in models and len(models) >= self._models_max:
            return groups._replace(model=OTHERS)
        models.add(groups.model)
        return groups


class ActivityListener:
    def __init__(self, activity_log: ActivityLog) -> None:
        self._activity_log = activity_log
        self._refusals = MinuteLimit(REFUSALS_PER_MINUTE)
        self._names = DailyNames()

    def __call__(self, event: events.Event) -> None:
        records: list[Record] = []
        if isinstance(event, events.RequestFinished):
            # Refusals without a team would push out all other rows.
            if event.outcome != "refused" or event.team or self._refusals.allows():
                records.append(event)
        elif isinstance(event, events.TurnEnded):
            records.append(event)
        if (count := _COUNTS.get(type(event))) is not None:
            records.append(UsageDelta(count(event), self._names.limit(_find_groups(event))))
        if (incident := find_incident(event)) is not None:
            records.append(incident)
        if records:
            self._activity_log.record(*records)


def find_incident(event: events.Event) -> Incident | None:
    if isinstance(event, events.RequestFinished | events.OriginalKept) or (
        isinstance(event, events.AdminActed) and event.outcome != "done"
    ):
        return None
    line = make_line(event)
    if line is None or line[0] == "debug":
        return None
    severity, name, fields = line
    conversation = fields.pop("conversation", "")
    dollars = event.dollars if isinstance(event, events.SummaryEnded) else 0.0
    return Incident(severity, name, conversation, fields, dollars)


def _find_groups(event: events.Event) -> UsageNames:
    if isinstance(event, events.TurnEnded | events.SummaryEnded):
        return UsageNames(event.team, event.policy, event.model, event.key, event.upstream)
    # Only turns are asked for by model: other events would make rows for whatever model a client names.
    return UsageNames(getattr(event, "team", ""))


def _count_request(event: events.RequestFinished) -> dict[str, float]:
    counts: dict[str, float] = {"requests": 1}
    names = {"refused": "refused", "failed": "failed", "client-left": "left", "upstream-broke": "broke"}
    if event.outcome in names:
        counts[names[event.outcome]] = 1
    elif event.status >= HTTPStatus.BAD_REQUEST:
        counts["upstream_errors"] = 1
    return counts


def _count_turn(turn: events.TurnEnded) -> dict[str, float]:
    counts: dict[str, float] = {
        "turns": 1,
        "conversations": int(turn.is_first),
        "tokens_raw": turn.tokens_before,
        "tokens_unshortened": turn.tokens_unshortened,
        "tokens_forwarded": turn.tokens_after,
        "tokens_would_be": turn.tokens_would_be,
        "tokens_written": turn.output_tokens,
        "refetches": turn.refetches,
        "blocks": int(turn.action == "created"),
    }
    if turn.cached_tokens is None:
        return counts
    counts |= {"tokens_read": turn.prompt_tokens, "tokens_cached": turn.cached_tokens}
    if turn.placed:
        counts |= {"tokens_read_placed": turn.prompt_tokens, "tokens_cached_placed": turn.cached_tokens}
    if turn.paid_dollars is None or turn.plain_dollars is None:
        return counts | {"unpriced": 1}
    counts |= {"priced": 1, "paid": turn.paid_dollars, "plain": turn.plain_dollars}
    if turn.would_be_dollars is not None:
        counts["would_save"] = turn.paid_dollars - turn.would_be_dollars
    return counts


def _count_size_refusal(event: events.SizeRefused) -> dict[str, float]:
    if event.kind == "signature":  # of reasoning: the size was not refused
        return {}
    return {"overflows": 1, "overflows_helped": int(event.helped), "overflows_observed": int(event.is_observed)}


_COUNTS: dict[type, Callable[[Any], dict[str, float]]] = {
    events.RequestFinished: _count_request,
    events.TurnEnded: _count_turn,
    events.SummaryEnded: lambda event: {"summaries": 1, "spent": event.dollars},
    events.SizeRefused: _count_size_refusal,
    events.FailedOpen: lambda _: {"faults": 1},
    events.InternalFault: lambda event: {"faults": event.times},
    events.StoreFailed: lambda _: {"faults": 1},
}
