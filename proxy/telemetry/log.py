"""Log lines: one per request and one per thing worth knowing. JSON on a pipe, readable on a terminal.

An event already holds nothing secret, so a line is simply the event. Levels: what an operator should act on
is a warning or an error; `debug` adds what somebody chasing a connection wants to see.
"""

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, BinaryIO, Literal

import msgspec
import structlog
from msgspec.structs import asdict

from proxy import events

Format = Literal["auto", "json", "text"]
_SEVERITIES = ("debug", "info", "warning", "error")


def is_text(wanted: Format) -> bool:
    return wanted == "text" or (wanted == "auto" and sys.stdout.isatty())


def listener(level: str, wanted: Format) -> events.Listener:
    """A listener that writes to standard output."""
    least = _SEVERITIES.index(level)
    write = _text_writer() if is_text(wanted) else _json_writer(sys.stdout.buffer)

    def listen(event: events.Event) -> None:
        line = line_of(event)
        if line is not None and _SEVERITIES.index(line[0]) >= least:
            write(line)

    return listen


Line = tuple[str, str, dict[str, Any]]


def line_of(event: events.Event) -> Line | None:
    """Severity, name and fields; None for what is only counted."""
    said = _LINES.get(type(event))
    return None if said is None else said(event)


def _text_writer() -> Callable[[Line], None]:
    processors: list[Any] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.dev.ConsoleRenderer(colors=sys.stdout.isatty(), pad_event_to=18),
    ]
    logger = structlog.wrap_logger(structlog.PrintLogger(sys.stdout), processors=processors)

    def write(line: Line) -> None:
        severity, name, fields = line
        getattr(logger, severity)(name, **fields)

    return write


def _json_writer(out: BinaryIO) -> Callable[[Line], None]:
    """Written by hand: there is a line for every request, and a chain of processors takes twice as long."""
    encode = msgspec.json.Encoder(enc_hook=str).encode

    def write(line: Line) -> None:
        severity, name, fields = line
        out.write(encode({"timestamp": datetime.now(UTC), "level": severity, "event": name, **fields}) + b"\n")
        out.flush()

    return write


def _request(event: events.RequestFinished) -> Line:
    fields: dict[str, Any] = {
        "request_id": event.request_id,
        "method": event.method,
        "route": event.route,
        "status": event.status,
        "outcome": event.outcome,
        "upstream": event.upstream,
        "ms": _ms(event.seconds),
        "overhead_ms": _ms(event.overhead_seconds),
        "first_byte_ms": _ms(event.first_byte_seconds),
        "bytes_in": event.bytes_in,
        "bytes_out": event.bytes_out,
    }
    if event.team:
        fields["team"] = event.team
    if event.reason:
        fields["reason"] = event.reason
    if event.compaction:
        fields["compaction"] = event.compaction
    if event.tokens_before:
        fields |= {"tokens_before": event.tokens_before, "tokens_after": event.tokens_after}
    return ("warning" if event.outcome in ("failed", "upstream-broke") else "info"), "request", fields


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)


def _reloaded(event: events.ConfigReloaded) -> Line:
    if event.refused_because is None:
        return "info", "config-reloaded", {}
    return "error", "config-refused", {"why": event.refused_because, "effect": "the old configuration stays in force"}


def _not_compacted(event: events.PathNotCompacted) -> Line:
    return "warning", "path-not-compacted", {"path": event.path, "effect": "relayed as it is; said once"}


def _compacted(event: events.CompactionEnded) -> Line:
    steps = [{"step": name, "messages": messages, "saved": saved} for name, messages, saved in event.steps]
    name = "compaction-rehearsed" if event.rehearsed else "compaction-ended"
    return "info", name, {**asdict(event), "steps": steps}


def _refused(event: events.Refused) -> Line:
    effect = "sent once more, and accepted" if event.helped else "the client gets the upstream's own error"
    return ("info" if event.helped else "warning"), "refused-for-size", {**asdict(event), "effect": effect}


def _cut(event: events.CutSilently) -> Line:
    what = {"conversation": event.conversation, "upstream": event.upstream}
    figures = {"tokens_sent": event.counted, "tokens_read": event.reported}
    advice = "the upstream did not read all of it: tell its window in `upstreams.window`; said once"
    return ("debug" if event.said else "warning"), "prompt-cut-silently", {**what, **figures, "advice": advice}


def _summary(event: events.SummaryEnded) -> Line:
    fields = {**asdict(event), "seconds": round(event.seconds, 3)}
    return ("info" if event.outcome == "made" else "warning"), "summary-ended", fields


def _breaker(event: events.BreakerOpened) -> Line:
    effect = "no more blocks are made for it while it fits; begin a new conversation or shorten its instructions"
    return "warning", "breaker-opened", {**asdict(event), "effect": effect}


def _admin(event: events.AdminActed) -> Line:
    fields = {**asdict(event), "details": dict(event.details)}
    return ("info" if event.outcome == "done" else "warning"), "admin", fields


def _failed_open(event: events.FailedOpen) -> Line:
    return "error", "failed-open", {**asdict(event), "effect": "the client's own bytes went on"}


_LINES: dict[type, Callable[[Any], Line]] = {
    events.RequestFinished: _request,
    events.ConfigReloaded: _reloaded,
    events.PathNotCompacted: _not_compacted,
    events.UpstreamRetried: lambda event: ("info", "upstream-retried", asdict(event)),
    events.OurFault: lambda event: ("error", "our-fault", asdict(event)),
    events.CompactionStarted: lambda event: ("debug", "compaction-started", asdict(event)),
    events.CompactionEnded: _compacted,
    events.SummaryEnded: _summary,
    events.BreakerOpened: _breaker,
    events.Refused: _refused,
    events.CutSilently: _cut,
    events.AdminActed: _admin,
    events.FailedOpen: _failed_open,
    events.StoreFailed: lambda event: ("warning", "store-failed", asdict(event)),
    events.HookFailed: lambda event: ("warning", "hook-failed", asdict(event)),
    events.StoreBack: lambda event: ("info", "store-back", asdict(event)),
    events.Lifecycle: lambda event: ("info", event.stage, dict(event.details)),
}
