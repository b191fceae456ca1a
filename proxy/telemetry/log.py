"""Log lines: one per request and one per thing worth knowing. JSON on a pipe, readable on a terminal.

An event already holds nothing secret, so a line is simply the event. Levels: what an operator should act on
is a warning or an error; `debug` adds what somebody chasing a connection wants to see.
"""

import logging
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Literal

import msgspec
import structlog

from proxy import events

Format = Literal["auto", "json", "text"]


def is_text(wanted: Format) -> bool:
    return wanted == "text" or (wanted == "auto" and sys.stdout.isatty())


def listener(level: str, wanted: Format) -> events.Listener:
    """A listener that writes to standard output."""
    logger = _logger(level, text=is_text(wanted))

    def write(event: events.Event) -> None:
        said = _LINES.get(type(event))
        if said is not None:
            severity, name, fields = said(event)
            getattr(logger, severity)(name, **fields)

    return write


def _logger(level: str, *, text: bool) -> Any:  # noqa: ANN401 (structlog builds its logger's class itself)
    shared: list[Any] = [structlog.processors.add_log_level, structlog.processors.TimeStamper(fmt="iso", utc=True)]
    if text:
        render: list[Any] = [structlog.dev.ConsoleRenderer(colors=sys.stdout.isatty(), pad_event_to=18)]
        factory: Any = structlog.PrintLoggerFactory(sys.stdout)
    else:
        render = [structlog.processors.JSONRenderer(serializer=_json)]
        factory = structlog.BytesLoggerFactory(sys.stdout.buffer)
    return structlog.wrap_logger(
        factory(),
        processors=[*shared, *render],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        cache_logger_on_first_use=True,
    )


def _json(line: dict[str, Any], **_options: Any) -> bytes:  # noqa: ANN401 (structlog's signature)
    first = {name: line.pop(name) for name in ("timestamp", "level", "event")}
    return msgspec.json.encode(first | line, enc_hook=str)


Line = tuple[str, str, dict[str, Any]]


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
    events.FailedOpen: _failed_open,
    events.StoreFailed: lambda event: ("warning", "store-failed", asdict(event)),
    events.Lifecycle: lambda event: ("info", event.stage, dict(event.details)),
}
