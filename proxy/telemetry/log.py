"""The log: a line for each request and each incident, by structlog. JSON on a pipe, text on a terminal.

    event -> make_line: severity, name, fields -> structlog's processors -> BackgroundWriter -> standard output

1. Each line names its fields, because a new field of an event must not reach a log or a page unseen.
2. Half a surrogate pair or an integer of 400 digits must not cost a line, and a control character must not forge one or
   set a terminal's title (https://invisible-island.net/xterm/ctlseqs/ctlseqs.html).
3. Warnings of libraries go through the same processors.
4. Lines are written by a thread, because standard output may be a pipe that is not read.
"""

import json
import logging
import os
import re
import select
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, TextIO

import msgspec
import structlog
from structlog.typing import EventDict, Processor

from proxy import events
from proxy.foundation.lifetime import BackgroundWriter
from proxy.wire.redaction import redaction

# C0 and C1 controls but for line feed and tab, marks that reverse text, and half surrogate pairs.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def encode_json(fields: Mapping[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(fields, enc_hook=str)
    except (UnicodeEncodeError, OverflowError):  # half a surrogate pair; an integer of more than 64 bits
        return json.dumps(fields, default=str, separators=(",", ":")).encode()


def escape_controls(text: str) -> str:
    r"""Write each control character as `\x1b` or `\u202e`."""

    def escape(match: re.Match[str]) -> str:
        code = ord(match[0])
        return f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}"  # noqa: PLR2004

    return _CONTROLS.sub(escape, text)


class EscapedOutput:
    """A text stream that escapes control characters. Bytes that are written to its `buffer` stay as they are."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write(escape_controls(text))

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._stream, name)


def pick_fields(event: msgspec.Struct, *names: str) -> dict[str, Any]:
    return {name: getattr(event, name) for name in names}


def to_milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)


SEVERITIES = ("debug", "info", "warning", "error")
FAILED_OUTCOMES = ("failed", "upstream-broke")
Line = tuple[str, str, dict[str, Any]]


def make_line(event: events.Event) -> Line | None:
    """Return None for an event that is only counted."""
    make = _LINES.get(type(event))
    return None if make is None else make(event)


def _request(event: events.RequestFinished) -> Line:
    fields: dict[str, Any] = {
        "request_id": event.request_id,
        "method": event.method,
        "route": event.route,
        "status": event.status,
        "outcome": event.outcome,
        "upstream": event.upstream,
        "ms": to_milliseconds(event.seconds),
        "overhead_ms": to_milliseconds(event.overhead_seconds),
        "first_byte_ms": to_milliseconds(event.first_byte_seconds),
        "bytes_in": event.bytes_in,
        "bytes_out": event.bytes_out,
    }
    for name in ("client", "team", "model", "conversation", "reason"):
        if value := getattr(event, name):
            fields[name] = value
    if event.trace is not None:
        fields["trace_id"] = event.trace.trace_id
    if event.compaction:
        fields["compaction"] = event.compaction
    if event.tokens_before:
        fields |= {"tokens_before": event.tokens_before, "tokens_after": event.tokens_after}
    if event.refetches:
        fields["refetches"] = event.refetches
    if event.tokens_would_be != event.tokens_after:
        fields["tokens_would_be"] = event.tokens_would_be
    if event.outcome in FAILED_OUTCOMES:
        return "warning", "request", fields
    return "info", "request", fields


def _refetch_rate(event: events.RefetchRate) -> Line:
    fields = {"team": event.team, "share": round(event.share, 2)}
    if not event.is_high:
        return "info", "fetches-low-again", fields
    effect = (
        "its agents fetch again much of what was shortened, so its histories are only shortened if they would not fit; "
        "give the team a policy that keeps more (docs/policies.md)"
    )
    return "warning", "fetches-high", {**fields, "effect": effect}


def _switch(event: events.SwitchTurned) -> Line:
    severity = "info" if event.state == "on" else "warning"
    name = "switch-lifted" if event.state == "on" else "switch-set"
    effects = {
        "on": "histories are shortened again as their policies say",
        "still-fit": "no new block is made unless the request would be refused as too long; "
        "behind a block, long and repeated results are still cut as they arrive",
        "off": "no new block is made, and requests that become too long are refused; "
        "behind a block, long and repeated results are still cut as they arrive",
        "bypass": "the clients' own histories are forwarded where they fit, else the shortened ones",
    }
    fields = {"team": event.team or "everybody", "state": event.state, "effect": effects.get(event.state)}
    return severity, name, fields


def _reload(event: events.ConfigReloaded) -> Line:
    if event.refused_because is not None:
        effect = "the old configuration stays in force"
        return "error", "config-refused", {"why": event.refused_because, "effect": effect}
    fields = {}
    for name, values in (("changed", event.changed), ("policies", event.policies), ("needs_restart", event.waiting)):
        if values:
            fields[name] = ", ".join(values)
    return "warning" if event.waiting else "info", "config-reloaded", fields


def _lifecycle(event: events.Lifecycle) -> Line:
    severity = "warning" if event.stage == "supervisor-lost" else "info"
    return severity, event.stage, dict(event.details)


def _certificate(event: events.CertificateReloaded) -> Line:
    if event.refused_because is None:
        return "info", "certificate-reloaded", {}
    return "error", "certificate-refused", {"why": event.refused_because, "effect": "the old certificate stays in use"}


def _compaction(event: events.CompactionEnded) -> Line:
    fields = pick_fields(event, "request_id", "conversation", "policy", "reason", "tokens_before", "tokens_after")
    if event.turns is not None:
        fields["turns"] = f"{event.turns[0]}-{event.turns[1]}"
    name = "compaction-observed" if event.is_observed else "compaction-ended"
    fields["steps"] = []
    for step, messages, saved_tokens in event.steps:
        fields["steps"].append({"step": step, "messages": messages, "saved": saved_tokens})
    return "info", name, fields


def _fault(event: events.InternalFault) -> Line:
    fields = pick_fields(event, "request_id", "kind", "where")
    if event.times != 1:
        fields["times"] = event.times
    return "error", "our-fault", fields


def _size_refusal(event: events.SizeRefused) -> Line:
    severity, effect = "warning", "the client gets the upstream's own error"
    if event.helped:
        severity, effect = "info", "the second try was accepted"
    elif event.is_observed:
        effect = "the client gets the upstream's own error: it was only observed, else it would be tried shortened"
    fields = pick_fields(event, "request_id", "upstream", "kind", "limit", "helped")
    return severity, "refused-for-size", {**fields, "effect": effect}


def _view_refusal(event: events.ViewRefused) -> Line:
    severity, effect = (
        "info",
        "it was refused as the client had sent it, too; the client gets the upstream's first error",
    )
    if event.helped:
        severity, effect = "warning", "the history was accepted as the client had sent it; please report this"
    fields = pick_fields(event, "request_id", "upstream", "helped")
    return severity, "shortened-refused", {**fields, "effect": effect}


def _truncation(event: events.PromptTruncated) -> Line:
    fields = pick_fields(event, "conversation", "upstream", "tokens_sent", "tokens_read")
    advice = "the upstream did not read all of it: set its window in `upstreams.window`; reported once"
    severity = "debug" if event.is_repeated else "warning"
    return severity, "prompt-cut-silently", {**fields, "advice": advice}


def _summary(event: events.SummaryEnded) -> Line:
    fields = pick_fields(
        event, "request_id", "conversation", "policy", "upstream", "model", "outcome", "tries", "tokens_read",
        "tokens_cached", "tokens_written",
    )  # fmt: skip
    severity = "info" if event.outcome == "made" else "warning"
    return severity, "summary-ended", {**fields, "seconds": round(event.seconds, 3)}


def _admin_act(event: events.AdminActed) -> Line:
    fields = {**pick_fields(event, "who", "address", "act", "subject", "outcome"), "details": dict(event.details)}
    severity = "info" if event.outcome == "done" else "warning"
    return severity, "admin", fields


def _plain(severity: str, name: str, *names: str, **constants: str) -> Callable[[Any], Line]:
    return lambda event: (severity, name, {**pick_fields(event, *names), **constants})


_LINES: dict[type, Callable[[Any], Line]] = {
    events.RequestFinished: _request,
    events.ConfigReloaded: _reload,
    events.ConfigDoubted: _plain("warning", "config-warning", "setting", "why"),
    events.CertificateReloaded: _certificate,
    events.WindowUnknown: _plain(
        "warning", "window-unknown", "upstream", "model", "policy",
        effect="until the upstream refuses a history as too long, its size counts only against limits in tokens, such "
        "as the 95,000 of `trigger: auto`; set `upstreams.window`; reported once",
    ),
    events.WindowSmall: _plain(
        "info", "window-small", "upstream", "model", "window",
        effect="calls for summaries read up to a quarter of what requests read; write `policy: small-window` at the "
        "upstream to have none, or `policy: default` to keep them; reported once",
    ),
    events.ClientRewrites: _plain(
        "warning", "client-rewrites", "conversation", "model",
        effect="each turn misses the provider's cache, because the client shortens its own results at every turn; "
        "switch that off in the client (docs/clients.md); reported once",
    ),
    events.RefetchRate: _refetch_rate,
    events.UpstreamRetried: _plain("info", "upstream-retried", "upstream", "why", "attempt"),
    events.InternalFault: _fault,
    events.CompactionStarted: _plain(
        "info", "compaction-started", "request_id", "conversation", "policy", "reason", "tokens_before", "originals"
    ),
    events.OriginalKept: _plain("info", "original-saved", "conversation", "path"),
    events.CompactionEnded: _compaction,
    events.SummaryEnded: _summary,
    events.RecallAnswered: _plain(
        "info", "recall-answered", "request_id", "conversation", "number", "calls", "returned_bytes"
    ),
    events.SizeRefused: _size_refusal,
    events.ViewRefused: _view_refusal,
    events.PromptTruncated: _truncation,
    events.AdminActed: _admin_act,
    events.SwitchTurned: _switch,
    events.FailedOpen: _plain(
        "error", "failed-open", "request_id", "kind", "where", effect="the client's own bytes were forwarded"
    ),
    events.StoreFailed: _plain("warning", "store-failed", "why"),
    events.HookFailed: _plain("warning", "hook-failed", "why"),
    events.ExportFailed: _plain("warning", "export-failed", "why"),
    events.StoreRecovered: _plain("info", "store-back", "what"),
    events.Lifecycle: _lifecycle,
}  # fmt: skip


class StandardOutput:
    """File descriptor 1 without Python's buffers: they fail again at exit, and a stuck thread holds their lock."""

    def __init__(self, render_loss: Callable[[int], bytes]) -> None:
        self._render_loss = render_loss
        self._file = _open_output()
        self._lost_lines = 0
        self._is_torn = False

    def write(self, lines: Sequence[bytes]) -> int:
        """Return how many lines were lost."""
        lost_count = 0
        for chunk, count in _join_chunks(lines):
            if self._lost_lines and self._write_whole(self._render_loss(self._lost_lines)):
                self._lost_lines = 0
            if self._lost_lines or not self._write_whole(chunk):
                self._lost_lines += count
                lost_count += count
        return lost_count

    def _write_whole(self, data: bytes) -> bool:
        if self._is_torn:  # end the line that a full disk has cut off
            data = b"\n" + data
        rest = memoryview(data)
        try:
            while rest:
                try:
                    rest = rest[os.write(self._file, rest) :]
                except BlockingIOError:  # a terminal that another program has set to non-blocking
                    _wait_until_writable(self._file)
        except OSError:
            self._is_torn = self._is_torn or len(rest) < len(data)
            return False
        self._is_torn = False
        return True


def write_notice(text: str) -> None:
    """Write a line before the log begins. It has at most PIPE_BUF bytes, and is lost if the pipe is full."""
    file = _open_output()
    # A pipe that is ready takes PIPE_BUF bytes at once.
    if _wait_until_writable(file):
        with suppress(OSError):
            os.write(file, text.encode()[: select.PIPE_BUF])


def is_terminal() -> bool:
    return sys.stdout.isatty()


def _open_output() -> int:
    try:
        return sys.stdout.fileno()
    except OSError:  # sys.stdout was replaced by an object that is no file
        return os.open(os.devnull, os.O_WRONLY)


def _wait_until_writable(file: int) -> bool:
    """Wait for a second at most."""
    poll = select.poll()
    poll.register(file, select.POLLOUT)
    return bool(poll.poll(1_000))


def _join_chunks(lines: Sequence[bytes]) -> Iterator[tuple[bytes, int]]:
    """Join lines into writes that stay whole in a shared pipe: https://man7.org/linux/man-pages/man7/pipe.7.html"""
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


class Log:
    """The log of one process. `log_format` is auto, json or text."""

    def __init__(self, level: str, log_format: str, *, color: bool = True) -> None:
        processors: list[Processor] = [
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.add_log_level,
            _render_json,
        ]
        if is_text(log_format):
            colours = color and is_terminal()
            processors = [
                structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False),
                structlog.processors.add_log_level,
                _shorten_fields,
                _escape_fields,
                structlog.dev.ConsoleRenderer(colors=colours, pad_event_to=18, sort_keys=True),
            ]
        self._processors = processors
        self._left_out = SEVERITIES[: SEVERITIES.index(level)]
        self.writer = BackgroundWriter("log", StandardOutput(self._render_loss).write)
        self._libraries = LibraryHandler(self, level)
        logging.getLogger().addHandler(self._libraries)

    def __call__(self, event: events.Event) -> None:
        line = make_line(event)
        if line is not None:
            self.write(*line)

    def write(self, severity: str, name: str, fields: Mapping[str, Any]) -> None:
        """Queue a line. Any thread may call this."""
        data = self._render(severity, name, fields)
        if data:
            self.writer.put(data, len(data))

    def close(self) -> None:
        logging.getLogger().removeHandler(self._libraries)
        self.writer.close(seconds=2.0)

    def _render(self, severity: str, name: str, fields: Mapping[str, Any]) -> bytes:
        """Return a line, or nothing if the level leaves it out."""
        if severity in self._left_out:
            return b""
        line: Any = {"event": name, **fields}
        for processor in self._processors:
            line = processor(None, severity, line)
        # Half a surrogate pair must not cost the line.
        return f"{line.rstrip()}\n".encode("utf-8", "backslashreplace")

    def _render_loss(self, count: int) -> bytes:
        return self._render("warning", "log-lines-dropped", {"lines": count})


class LibraryHandler(logging.Handler):
    """Writes warnings of libraries without arguments and texts of exceptions, which may hold a credential."""

    def __init__(self, log: Log, level: str) -> None:
        super().__init__(max(logging.WARNING, logging.getLevelNamesMapping()[level.upper()]))
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        message, _ = redaction().of_text(str(record.msg))
        fields = {"logger": record.name, "message": message}
        if record.exc_info and record.exc_info[1] is not None:
            fields["kind"], fields["where"] = events.locate_fault(record.exc_info[1])
        self._log.write(record.levelname.lower(), "library", fields)


def is_text(log_format: str) -> bool:
    return log_format == "text" or (log_format == "auto" and is_terminal())


def _render_json(_logger: object, _method: str, fields: EventDict) -> str:
    # These three come first, with the values that the fields have.
    return encode_json({"timestamp": "", "level": "", "event": "", **fields}).decode()


def _escape_fields(_logger: object, _method: str, fields: EventDict) -> EventDict:
    """Escape control characters in all fields: those of clients must not reach a terminal, and a line is one line."""
    escaped_fields = {}
    for name, value in fields.items():
        escaped_fields[name] = escape_controls(str(value)).replace("\n", "\\n")
    return escaped_fields


def _shorten_fields(_logger: object, _method: str, fields: EventDict) -> EventDict:
    if fields["event"] == "request":
        return _summarize_request(fields)
    if "steps" in fields:
        steps = [f"{step['step']}:-{step['saved']}" for step in fields["steps"] if step["messages"]]
        return {**fields, "steps": ",".join(steps)}
    return fields


def _summarize_request(fields: EventDict) -> EventDict:
    words = [fields["method"], fields["route"], str(fields["status"]), f"{fields['ms']:.0f}ms"]
    if fields.get("model"):
        words.append(fields["model"])
    words.append(f"{_format_bytes(fields['bytes_in'])} -> {_format_bytes(fields['bytes_out'])}")
    if fields.get("compaction"):
        words.append(fields["compaction"])
    if fields.get("tokens_before", 0) != fields.get("tokens_after", 0):
        words.append(f"{fields['tokens_before']} -> {fields['tokens_after']} tokens")
    line = {"timestamp": fields["timestamp"], "level": fields["level"], "event": " ".join(words)}
    usual_values = {"outcome": "completed", "upstream": "default"}
    for name in ("outcome", "reason", "team", "upstream", "request_id"):
        value = fields.get(name)
        if value and value != usual_values.get(name):
            line[name] = value
    return line


def _format_bytes(amount: float) -> str:
    for unit, size in (("B", 1), ("kB", 1_000)):
        if amount < 10_000 * size:
            return f"{amount / size:.0f}{unit}"
    return f"{amount / 1_000_000:.0f}MB"
