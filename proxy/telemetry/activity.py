"""A listener that writes the activity log: what each event means as rows and counts of the admin pages.

The schema is this file's own, apart from the log lines: the pages query it with SQL and show `details` field by field,
so a change of wording in the log must not change them. Wrong keys are left out: they could fill the log, and the audit
log has them.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from proxy import events
from proxy.store.activity_log import ActivityLog, CounterDelta, Incident
from proxy.telemetry.output import list_steps, pick_fields
from proxy.windows import resolve_window

MICRODOLLARS_PER_DOLLAR = 1_000_000
"""Sums of money are counted in millionths of a dollar: counts are integers."""
_OUTCOME_COUNTS = {"refused": "refused", "failed": "failed", "client-left": "left", "upstream-broke": "broke"}


class ActivityListener:
    """Records events. Everything that may take time happens in the thread of the activity log."""

    def __init__(self, activity_log: ActivityLog, is_listed_team: Callable[[str], bool] = bool) -> None:
        self._activity_log = activity_log
        self._is_listed_team = is_listed_team

    def __call__(self, event: events.Event) -> None:
        if isinstance(event, events.TurnEnded):
            self._activity_log.record(event)
        if (count := _COUNTS.get(type(event))) is not None:
            team = getattr(event, "team", "")
            # Names that only a gateway in front makes up would be a row for each of them in each minute.
            self._activity_log.record(CounterDelta(count(event), team if self._is_listed_team(team) else ""))
        if (incident := incident_of(event)) is not None:
            self._activity_log.record(incident)


def incident_of(event: events.Event) -> Incident | None:
    """The row of an event on the page of events or of its conversation; None where it has none."""
    make = _INCIDENTS.get(type(event))
    return None if make is None else make(event)


# --- counts by the minute --------------------------------------------------------------------------------------------


def _count_request(event: events.RequestFinished) -> dict[str, int]:
    counts = {"requests": 1}
    if event.compaction is not None:
        counts["chats"] = 1
    if event.outcome in _OUTCOME_COUNTS:
        counts[_OUTCOME_COUNTS[event.outcome]] = 1
    return counts


def _count_turn(turn: events.TurnEnded) -> dict[str, int]:
    counts = {"turns": 1, "raw": turn.tokens_before, "forwarded": turn.tokens_after}
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


_COUNTS: dict[type, Callable[[Any], dict[str, int]]] = {
    events.RequestFinished: _count_request,
    events.TurnEnded: _count_turn,
    events.SummaryEnded: lambda event: {"summaries": 1, "spent": _microdollars_of(event)},
    events.SizeRefused: lambda event: {"overflows-helped" if event.helped else "overflows": 1},
    events.BreakerOpened: lambda _: {"breakers": 1},
    events.FailedOpen: lambda _: {"failed-open": 1},
    events.InternalFault: lambda _: {"our-faults": 1},
    events.StoreFailed: lambda _: {"store-faults": 1},
    events.PromptTruncated: lambda _: {"cut": 1},
}


# --- incidents -------------------------------------------------------------------------------------------------------


def _incident(severity: str, name: str, *names: str, **constants: str) -> Callable[[Any], Incident]:
    """The incident of an event that is shown as it is: these fields, and the same words each time."""
    return lambda event: _make(event, severity, name, pick_fields(event, *names) | constants)


def _make(event: msgspec.Struct, severity: str, name: str, details: Mapping[str, Any], dollars: float = 0) -> Incident:
    return Incident(severity, name, getattr(event, "conversation", ""), details, dollars)


def _compaction(event: events.CompactionEnded) -> Incident:
    details = pick_fields(event, "policy", "reason", "tokens_before", "tokens_after") | list_steps(event)
    return _make(event, "info", "compaction-rehearsed" if event.rehearsed else "compaction-ended", details)


def _summary(event: events.SummaryEnded) -> Incident:
    details = pick_fields(
        event, "policy", "upstream", "model", "outcome", "tries", "tokens_read", "tokens_cached", "tokens_written"
    )
    details["seconds"] = round(event.seconds, 3)
    dollars = _microdollars_of(event) / MICRODOLLARS_PER_DOLLAR
    return _make(event, "info" if event.outcome == "made" else "warning", "summary-ended", details, dollars)


def _size_refusal(event: events.SizeRefused) -> Incident:
    effect = "the second try was accepted" if event.helped else "the client got the upstream's own error"
    details = pick_fields(event, "request_id", "upstream", "kind", "limit") | {"effect": effect}
    return _make(event, "info" if event.helped else "warning", "refused-for-size", details)


def _truncation(event: events.PromptTruncated) -> Incident | None:
    advice = "the upstream did not read all of it: set its window in `upstreams.window`"
    details = pick_fields(event, "upstream", "tokens_sent", "tokens_read") | {"advice": advice}
    return None if event.is_repeated else _make(event, "warning", "prompt-cut-silently", details)


def _admin_act(event: events.AdminActed) -> Incident | None:
    details = pick_fields(event, "who", "address", "act", "subject") | {"details": dict(event.details)}
    return _make(event, "info", "admin", details) if event.outcome == "done" else None


def _reload(event: events.ConfigReloaded) -> Incident:
    if event.refused_because is None:
        return _make(event, "info", "config-reloaded", {})
    details = {"why": event.refused_because, "effect": "the old configuration stays in force"}
    return _make(event, "error", "config-refused", details)


_INCIDENTS: dict[type, Callable[[Any], Incident | None]] = {
    events.CompactionEnded: _compaction,
    events.SummaryEnded: _summary,
    events.SizeRefused: _size_refusal,
    events.PromptTruncated: _truncation,
    events.AdminActed: _admin_act,
    events.ConfigReloaded: _reload,
    events.PathNotCompacted: _incident("warning", "path-not-compacted", "path", effect="relayed without compaction"),
    events.FailedOpen: _incident(
        "error", "failed-open", "request_id", "kind", "where", effect="the client's own bytes were forwarded"
    ),
    events.InternalFault: _incident("error", "our-fault", "request_id", "kind", "where"),
    events.BreakerOpened: _incident(
        "warning", "breaker-opened", "policy",
        effect="no more blocks are made while the conversation fits; start a new one or shorten its instructions",
    ),
    events.UpstreamRetried: _incident("info", "upstream-retried", "upstream", "why", "attempt"),
    events.StoreFailed: _incident("warning", "store-failed", "why"),
    events.StoreRecovered: _incident("info", "store-back", "what"),
    events.HookFailed: _incident("warning", "hook-failed", "why"),
    events.Lifecycle: lambda event: Incident("info", event.stage, "", dict(event.details)),
}  # fmt: skip


def _microdollars_of(event: events.SummaryEnded) -> int:
    """Cost of a summary; 0 where the prices of its model are unknown. Prices are dollars per million tokens."""
    prices = resolve_window(event.model).prices_at(event.tokens_read)
    if prices is None:
        return 0
    fresh_tokens = event.tokens_read - event.tokens_cached
    read = event.tokens_cached * prices.cached + fresh_tokens * prices.fresh
    return round(read + event.tokens_written * (prices.output or 0.0))
