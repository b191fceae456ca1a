"""A listener that writes the activity log: rows and counts for the admin pages.

An incident is the event's log line. Wrong keys are left out: they could fill the log.
"""

from collections.abc import Callable
from typing import Any

from proxy import events
from proxy.store.activity_log import ActivityLog, CounterDelta, Incident, Record
from proxy.telemetry.audit import REFUSALS_PER_MINUTE, MinuteLimit
from proxy.telemetry.lines import make_line

MICRODOLLARS_PER_DOLLAR = 1_000_000
"""Costs are counted in millionths of a dollar, because counts are integers."""


class ActivityListener:
    def __init__(self, activity_log: ActivityLog, is_listed_team: Callable[[str], bool] = bool) -> None:
        self._activity_log = activity_log
        self._is_listed_team = is_listed_team
        self._refusals = MinuteLimit(REFUSALS_PER_MINUTE)

    def __call__(self, event: events.Event) -> None:
        records: list[Record] = []
        if isinstance(event, events.RequestFinished):
            # Refusals without a team would push out all other rows.
            if event.outcome != "refused" or event.team or self._refusals.allows():
                records.append(event)
        elif isinstance(event, events.TurnEnded):
            records.append(event)
        if (count := _COUNTS.get(type(event))) is not None:
            team = getattr(event, "team", "")
            if not self._is_listed_team(team):
                team = ""  # a gateway's made-up names would be a row each in each minute
            records.append(CounterDelta(count(event), team))
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


def _count_request(event: events.RequestFinished) -> dict[str, int]:
    counts = {"requests": 1}
    names = {"refused": "refused", "failed": "failed", "client-left": "left", "upstream-broke": "broke"}
    if event.outcome in names:
        counts[names[event.outcome]] = 1
    return counts


def _count_turn(turn: events.TurnEnded) -> dict[str, int]:
    counts = {"turns": 1, "raw": turn.tokens_before, "forwarded": turn.tokens_after}
    counts |= {"unshortened": turn.tokens_unshortened, "refetches": turn.refetches}
    counts["observed"] = turn.tokens_after - turn.tokens_would_be
    counts["blocks"] = int(turn.action == "created")
    if turn.cached_tokens is not None:
        counts |= {"prompt": turn.prompt_tokens, "cached": turn.cached_tokens}
    if turn.paid_dollars is not None and turn.plain_dollars is not None:
        counts["priced"] = 1
        counts["paid"] = round(turn.paid_dollars * MICRODOLLARS_PER_DOLLAR)
        counts["plain"] = round(turn.plain_dollars * MICRODOLLARS_PER_DOLLAR)
        if turn.would_be_dollars is not None:
            counts["would-save"] = round((turn.paid_dollars - turn.would_be_dollars) * MICRODOLLARS_PER_DOLLAR)
    return counts


def _count_size_refusal(event: events.SizeRefused) -> dict[str, int]:
    if event.kind == "signature":  # of reasoning; its size is not the trouble
        return {}
    if event.helped:
        return {"overflows-helped": 1}
    return {"overflows": 1, "overflows-observed": int(event.is_observed)}


_COUNTS: dict[type, Callable[[Any], dict[str, int]]] = {
    events.RequestFinished: _count_request,
    events.TurnEnded: _count_turn,
    events.SummaryEnded: lambda event: {"summaries": 1, "spent": round(event.dollars * MICRODOLLARS_PER_DOLLAR)},
    events.SizeRefused: _count_size_refusal,
    events.FailedOpen: lambda _: {"failed-open": 1},
    events.InternalFault: lambda event: {"our-faults": event.times},
    events.StoreFailed: lambda _: {"store-faults": 1},
}
