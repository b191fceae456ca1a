"""The log: lines on standard output, one per request and one per incident. JSON on a pipe, text on a terminal.

Warnings and errors are what an operator should act on; `debug` adds what helps to follow one connection. Lines are
rendered where the event is emitted and written by a thread (`BackgroundWriter`): standard output may be a full disk,
a pipe that nobody empties, or closed.
"""

import os
import select
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Literal

import structlog

from proxy import events
from proxy.lifetime import BackgroundWriter
from proxy.telemetry.output import encode_json, escape_controls, list_steps, pick_fields

FLUSH_SECONDS = 2.0
"""At its end the process waits so long for the reader of the log."""
NOTICE_TIMEOUT_SECONDS = 1.0
POLL_SECONDS = 1.0
BYTES_PER_KB = 1000

Format = Literal["auto", "json", "text"]
_SEVERITIES = ("debug", "info", "warning", "error")


def is_text(wanted: Format) -> bool:
    return wanted == "text" or (wanted == "auto" and _is_terminal())


class Log:
    """A listener that writes log lines to standard output, from a thread of its own."""

    def __init__(self, level: str, wanted: Format) -> None:
        self._least = _SEVERITIES.index(level)
        self._render = _text_renderer() if is_text(wanted) else _render_json
        self._output = StandardOutput(self._render)
        self._writer = BackgroundWriter("log", self._output.write)

    def __call__(self, event: events.Event) -> None:
        line = line_of(event)
        if line is not None and _SEVERITIES.index(line[0]) >= self._least:
            data = self._render(line)
            self._writer.put(data, len(data))

    @property
    def dropped_lines(self) -> int:
        return self._writer.dropped

    def close(self) -> None:
        self._writer.close(FLUSH_SECONDS)


Line = tuple[str, str, dict[str, Any]]
Renderer = Callable[[Line], bytes]


def line_of(event: events.Event) -> Line | None:
    """Severity, name and fields; None for what is only counted."""
    make = _LINES.get(type(event))
    return None if make is None else make(event)


class StandardOutput:
    """File descriptor 1, written without Python's buffers.

    A buffer keeps what could not be written and fails again at exit, and its lock would be held by a thread that is
    stuck in a write.
    """

    def __init__(self, render: Renderer) -> None:
        self._render = render
        self._file = _output_descriptor()
        self._lost_lines = 0
        self._is_torn = False

    def write(self, lines: Sequence[bytes]) -> int:
        """A sink: returns how many lines were lost, to a full disk or a reader that is gone."""
        total_lost = 0
        for chunk, count in _chunks(lines):
            if self._lost_lines:
                # The reader of the log learns where lines are missing, as soon as it can read again.
                notice = self._render(("warning", "log-lines-dropped", {"lines": self._lost_lines}))
                if not self._write_whole(notice):
                    self._lost_lines += count
                    total_lost += count
                    continue
                self._lost_lines = 0
            if not self._write_whole(chunk):
                self._lost_lines += count
                total_lost += count
        return total_lost

    def _write_whole(self, data: bytes) -> bool:
        # A line that was cut off by a full disk must not swallow the beginning of the next one.
        data = b"\n" + data if self._is_torn else data
        rest = memoryview(data)
        try:
            while rest:
                try:
                    rest = rest[os.write(self._file, rest) :]
                except BlockingIOError:  # a terminal that another program has set to non-blocking
                    _wait_until_writable(self._file, POLL_SECONDS)
        except OSError:
            self._is_torn = self._is_torn or len(rest) < len(data)
            return False
        self._is_torn = False
        return True


def write_notice(text: str) -> None:
    """Write a few lines to standard output before the log begins; at most PIPE_BUF bytes, lost where nobody reads."""
    file = _output_descriptor()
    # A pipe that is ready takes PIPE_BUF bytes at once: this does not block.
    if _wait_until_writable(file, NOTICE_TIMEOUT_SECONDS):
        with suppress(OSError):
            os.write(file, text.encode()[: select.PIPE_BUF])


def _output_descriptor() -> int:
    """The descriptor of standard output, or of the null device where there is none.

    A process that was started with a closed standard output gives the number 1 to the next file it opens: log lines
    would be written into a database or to a client.
    """
    try:
        return sys.stdout.fileno() if sys.stdout is not None else os.open(os.devnull, os.O_WRONLY)
    except OSError:  # somebody has replaced sys.stdout by an object that is no file
        return os.open(os.devnull, os.O_WRONLY)


def _is_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


def _wait_until_writable(file: int, seconds: float) -> bool:
    poll = select.poll()
    poll.register(file, select.POLLOUT)
    return bool(poll.poll(seconds * 1000))


def _chunks(lines: Sequence[bytes]) -> Iterator[tuple[bytes, int]]:
    """Lines joined into writes of at most PIPE_BUF bytes, with their number.

    A pipe that several workers share keeps only such writes in one piece.
    """
    chunk: list[bytes] = []
    size = 0
    for line in lines:
        if chunk and size + len(line) > select.PIPE_BUF:
            yield b"".join(chunk), len(chunk)
            chunk, size = [], 0
        chunk.append(line)
        size += len(line)
    if chunk:
        yield b"".join(chunk), len(chunk)


def _text_renderer() -> Renderer:
    processors: tuple[Any, ...] = (
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False),
        structlog.dev.ConsoleRenderer(colors=_is_terminal(), pad_event_to=18),
    )

    def render(line: Line) -> bytes:
        severity, name, fields = line
        if name == "request":
            name, fields = _summarize_request(fields)
        # Only strings: whatever else there is the renderer writes as `repr`, which escapes by itself.
        entry: Any = {key: escape_controls(value) if isinstance(value, str) else value for key, value in fields.items()}
        entry["event"] = escape_controls(name)
        for process in processors:
            entry = process(None, severity, entry)
        return f"{entry}\n".encode("utf-8", "backslashreplace")

    return render


def _summarize_request(fields: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """A request in a line of a terminal: what was asked, what came of it, and what more there is to know of it."""
    sizes = f"{_format_bytes(fields['bytes_in'])} -> {_format_bytes(fields['bytes_out'])}"
    told = [fields["method"], fields["route"], str(fields["status"]), f"{fields['ms']:.0f}ms"]
    told += [text for text in (fields.get("model"), sizes, fields.get("compaction")) if text]
    if fields.get("tokens_before", 0) != fields.get("tokens_after", 0):
        told.append(f"{fields['tokens_before']} -> {fields['tokens_after']} tokens")
    usual = {"outcome": "completed", "upstream": "default"}
    shown = {name: fields.get(name) for name in ("outcome", "reason", "team", "upstream", "request_id")}
    return " ".join(told), {name: value for name, value in shown.items() if value and value != usual.get(name)}


def _format_bytes(amount: float) -> str:
    """Four digits at most, and the unit."""
    for unit in ("B", "kB"):
        if amount < BYTES_PER_KB * 10:
            return f"{amount:.0f}{unit}"
        amount /= BYTES_PER_KB
    return f"{amount:.0f}MB"


def _render_json(line: Line) -> bytes:
    """Not by structlog: there is a line for every request, and its chain of processors takes twice as long."""
    severity, name, fields = line
    return encode_json({"timestamp": datetime.now(UTC), "level": severity, "event": name, **fields}) + b"\n"


def _request(event: events.RequestFinished) -> Line:
    fields = pick_fields(event, "request_id", "method", "route", "status", "outcome", "upstream") | {
        "ms": _milliseconds(event.seconds),
        "overhead_ms": _milliseconds(event.overhead_seconds),
        "first_byte_ms": _milliseconds(event.first_byte_seconds),
    }
    fields |= pick_fields(event, "bytes_in", "bytes_out")
    fields |= {name: value for name in ("team", "model", "conversation", "reason") if (value := getattr(event, name))}
    if event.compaction:
        fields["compaction"] = event.compaction
    if event.tokens_before:
        fields |= {"tokens_before": event.tokens_before, "tokens_after": event.tokens_after}
    if event.tokens_would_be != event.tokens_after:
        fields["tokens_would_be"] = event.tokens_would_be
    return ("warning" if event.outcome in ("failed", "upstream-broke") else "info"), "request", fields


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)


def _reload(event: events.ConfigReloaded) -> Line:
    if event.refused_because is None:
        return "info", "config-reloaded", {}
    return "error", "config-refused", {"why": event.refused_because, "effect": "the old configuration stays in force"}


def _compaction(event: events.CompactionEnded) -> Line:
    fields = pick_fields(event, "conversation", "policy", "reason", "tokens_before", "tokens_after", "rehearsed")
    if event.turns is not None:
        fields["turns"] = f"{event.turns[0]}-{event.turns[1]}"
    name = "compaction-rehearsed" if event.rehearsed else "compaction-ended"
    return "info", name, fields | list_steps(event)


def _size_refusal(event: events.SizeRefused) -> Line:
    effect = "the second try was accepted" if event.helped else "the client gets the upstream's own error"
    fields = pick_fields(event, "request_id", "upstream", "kind", "limit", "helped")
    return ("info" if event.helped else "warning"), "refused-for-size", {**fields, "effect": effect}


def _truncation(event: events.PromptTruncated) -> Line:
    fields = pick_fields(event, "conversation", "upstream", "tokens_sent", "tokens_read")
    advice = "the upstream did not read all of it: set its window in `upstreams.window`; reported once"
    return ("debug" if event.is_repeated else "warning"), "prompt-cut-silently", {**fields, "advice": advice}


def _summary(event: events.SummaryEnded) -> Line:
    fields = pick_fields(
        event, "conversation", "policy", "upstream", "model", "outcome", "tries", "tokens_read", "tokens_cached",
        "tokens_written",
    )  # fmt: skip
    severity = "info" if event.outcome == "made" else "warning"
    return severity, "summary-ended", {**fields, "seconds": round(event.seconds, 3)}


def _admin_act(event: events.AdminActed) -> Line:
    fields = {**pick_fields(event, "who", "address", "act", "subject", "outcome"), "details": dict(event.details)}
    return ("info" if event.outcome == "done" else "warning"), "admin", fields


def _plain(severity: str, name: str, *names: str, **constants: str) -> Callable[[Any], Line]:
    """The line of an event that is written as it is: these fields, and the same words each time."""
    return lambda event: (severity, name, {**pick_fields(event, *names), **constants})


# Each line names its fields: a new field of an event must not reach the log unseen.
_LINES: dict[type, Callable[[Any], Line]] = {
    events.RequestFinished: _request,
    events.ConfigReloaded: _reload,
    events.PathNotCompacted: _plain(
        "warning", "path-not-compacted", "path", effect="relayed without compaction; reported once"
    ),
    events.WindowUnknown: _plain(
        "warning", "window-unknown", "upstream", "model", "policy",
        effect="no history is compacted by its size until the upstream refuses one; set `upstreams.window`; "
        "reported once",
    ),
    events.UpstreamRetried: _plain("info", "upstream-retried", "upstream", "why", "attempt"),
    events.InternalFault: _plain("error", "our-fault", "request_id", "kind", "where"),
    events.CompactionStarted: _plain(
        "debug", "compaction-started", "conversation", "policy", "reason", "tokens_before", "originals"
    ),
    events.OriginalKept: _plain("info", "original-saved", "conversation", "path"),
    events.CompactionEnded: _compaction,
    events.SummaryEnded: _summary,
    events.BreakerOpened: _plain(
        "warning", "breaker-opened", "conversation", "policy",
        effect="no more blocks are made while the conversation fits; start a new one or shorten its instructions",
    ),
    events.SizeRefused: _size_refusal,
    events.PromptTruncated: _truncation,
    events.AdminActed: _admin_act,
    events.FailedOpen: _plain(
        "error", "failed-open", "request_id", "kind", "where", effect="the client's own bytes were forwarded"
    ),
    events.StoreFailed: _plain("warning", "store-failed", "why"),
    events.HookFailed: _plain("warning", "hook-failed", "why"),
    events.StoreRecovered: _plain("info", "store-back", "what"),
    events.Lifecycle: lambda event: ("info", event.stage, dict(event.details)),
}  # fmt: skip
