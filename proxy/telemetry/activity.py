"""A listener that writes the activity log: what each event means as rows and counts of the admin pages.

The schema is this file's own, apart from the log lines: the pages query it with SQL and show `details` field by field,
so a change of wording in the log must not change them. Wrong keys are left out: they could fill the log, and the audit
log has them.
"""

from collections.abc import Callable, Mapping
from typing import Any

from proxy import events
from proxy.store.activity_log import ActivityLog, CounterDelta, Incident
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
        if counts := _counts_of(event):
            team = getattr(event, "team", "")
            # Names that only a gateway in front makes up would be a row for each of them in each minute.
            self._activity_log.record(CounterDelta(counts, team if self._is_listed_team(team) else ""))
        if (incident := incident_of(event)) is not None:
            self._activity_log.record(incident)


def incident_of(event: events.Event) -> Incident | None:
    """The row of an event on the page of events or of its conversation; None where it has none."""
    make = _INCIDENTS.get(type(event))
    return None if make is None else make(event)


def _counts_of(event: events.Event) -> Mapping[str, int]:
    count = _COUNTS.get(type(event))
    return {} if count is None else count(event)


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


def _compaction(event: events.CompactionEnded) -> Incident:
    steps = [{"step": name, "messages": messages, "saved": saved} for name, messages, saved in event.steps]
    details = {
        "policy": event.policy,
        "reason": event.reason,
        "tokens_before": event.tokens_before,
        "tokens_after": event.tokens_after,
        "steps": steps,
    }
    name = "compaction-rehearsed" if event.rehearsed else "compaction-ended"
    return Incident("info", name, event.conversation, details)


def _summary(event: events.SummaryEnded) -> Incident:
    details = {
        "policy": event.policy,
        "upstream": event.upstream,
        "model": event.model,
        "outcome": event.outcome,
        "tries": event.tries,
        "tokens_read": event.tokens_read,
        "tokens_cached": event.tokens_cached,
        "tokens_written": event.tokens_written,
        "seconds": round(event.seconds, 3),
    }
    severity = "info" if event.outcome == "made" else "warning"
    dollars = _microdollars_of(event) / MICRODOLLARS_PER_DOLLAR
    return Incident(severity, "summary-ended", event.conversation, details, dollars)


def _size_refusal(event: events.SizeRefused) -> Incident:
    details = {
        "request_id": event.request_id,
        "upstream": event.upstream,
        "kind": event.kind,
        "limit": event.limit,
        "effect": "the second try was accepted" if event.helped else "the client got the upstream's own error",
    }
    return Incident("info" if event.helped else "warning", "refused-for-size", "", details)


def _truncation(event: events.PromptTruncated) -> Incident | None:
    if event.is_repeated:
        return None
    details = {
        "upstream": event.upstream,
        "tokens_sent": event.tokens_sent,
        "tokens_read": event.tokens_read,
        "advice": "the upstream did not read all of it: set its window in `upstreams.window`",
    }
    return Incident("warning", "prompt-cut-silently", event.conversation, details)


def _admin_act(event: events.AdminActed) -> Incident | None:
    if event.outcome != "done":
        return None
    details = {
        "who": event.who,
        "address": event.address,
        "act": event.act,
        "subject": event.subject,
        "details": dict(event.details),
    }
    return Incident("info", "admin", "", details)


def _reload(event: events.ConfigReloaded) -> Incident:
    if event.refused_because is None:
        return Incident("info", "config-reloaded", "", {})
    details = {"why": event.refused_because, "effect": "the old configuration stays in force"}
    return Incident("error", "config-refused", "", details)


def _path(event: events.PathNotCompacted) -> Incident:
    return Incident("warning", "path-not-compacted", "", {"path": event.path, "effect": "relayed without compaction"})


def _failed_open(event: events.FailedOpen) -> Incident:
    details = {"request_id": event.request_id, "kind": event.kind, "where": event.where}
    return Incident("error", "failed-open", "", {**details, "effect": "the client's own bytes were forwarded"})


def _fault(event: events.InternalFault) -> Incident:
    details = {"request_id": event.request_id, "kind": event.kind, "where": event.where}
    return Incident("error", "our-fault", "", details)


def _breaker(event: events.BreakerOpened) -> Incident:
    effect = "no more blocks are made while the conversation fits; start a new one or shorten its instructions"
    return Incident("warning", "breaker-opened", event.conversation, {"policy": event.policy, "effect": effect})


def _retry(event: events.UpstreamRetried) -> Incident:
    details = {"upstream": event.upstream, "why": event.why, "attempt": event.attempt}
    return Incident("info", "upstream-retried", "", details)


_INCIDENTS: dict[type, Callable[[Any], Incident | None]] = {
    events.CompactionEnded: _compaction,
    events.SummaryEnded: _summary,
    events.SizeRefused: _size_refusal,
    events.PromptTruncated: _truncation,
    events.AdminActed: _admin_act,
    events.ConfigReloaded: _reload,
    events.PathNotCompacted: _path,
    events.FailedOpen: _failed_open,
    events.InternalFault: _fault,
    events.BreakerOpened: _breaker,
    events.UpstreamRetried: _retry,
    events.StoreFailed: lambda event: Incident("warning", "store-failed", "", {"why": event.why}),
    events.StoreRecovered: lambda event: Incident("info", "store-back", "", {"what": event.what}),
    events.HookFailed: lambda event: Incident("warning", "hook-failed", "", {"why": event.why}),
    events.Lifecycle: lambda event: Incident("info", event.stage, "", dict(event.details)),
}


def _microdollars_of(event: events.SummaryEnded) -> int:
    """Cost of a summary; 0 where the prices of its model are unknown. Prices are dollars per million tokens."""
    prices = resolve_window(event.model).prices_at(event.tokens_read)
    if prices is None:
        return 0
    fresh_tokens = event.tokens_read - event.tokens_cached
    read = event.tokens_cached * prices.cached + fresh_tokens * prices.fresh
    return round(read + event.tokens_written * (prices.output or 0.0))
