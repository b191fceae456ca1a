"""The log: a line for each request and each incident, by structlog. JSON on a pipe, text on a terminal.

Events are the source of the lines (lines.py). Warnings of libraries go through the same processors, by structlog's
`ProcessorFormatter` (https://www.structlog.org/en/stable/standard-library.html). Lines are rendered on the event loop
and written by a thread, because standard output may be a pipe that is not read.
"""

import logging
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any, Literal

import structlog
from structlog.typing import Processor

from proxy import events
from proxy.lifetime import BackgroundWriter
from proxy.telemetry.lines import make_line
from proxy.telemetry.output import encode_json, escape_controls
from proxy.telemetry.stdout import StandardOutput, is_terminal
from proxy.wire.redaction import redaction

FLUSH_SECONDS = 2.0
"""On exit, wait this long for the reader of the log."""
BYTES_PER_KB = 1000

Format = Literal["auto", "json", "text"]
EventDict = MutableMapping[str, Any]


class Log:
    """A listener that writes log lines to standard output, and those of libraries until it is closed."""

    def __init__(self, level: str, log_format: Format, *, has_colours: bool = True) -> None:
        processors = _list_processors(log_format, has_colours=has_colours and is_terminal())
        # `ReturnLogger`: a call returns the rendered line, or None if the level leaves it out.
        self._logger = structlog.wrap_logger(
            structlog.ReturnLogger(),
            processors=processors,
            wrapper_class=structlog.make_filtering_bound_logger(level),
        ).bind()
        self._output = StandardOutput(self._render_loss)
        self._writer = BackgroundWriter("log", self._output.write)
        self._libraries = LibraryHandler(self, level, processors)
        logging.getLogger().addHandler(self._libraries)

    def __call__(self, event: events.Event) -> None:
        line = make_line(event)
        if line is not None:
            severity, name, fields = line
            self.put(getattr(self._logger, severity)(name, **fields))

    def put(self, text: str | None) -> None:
        """Queue a rendered line. May be called from any thread."""
        if text is not None:
            data = _encode(text)
            self._writer.put(data, len(data))

    @property
    def dropped_lines(self) -> int:
        return self._writer.dropped

    def close(self) -> None:
        logging.getLogger().removeHandler(self._libraries)
        self._writer.close(FLUSH_SECONDS)

    def _render_loss(self, count: int) -> bytes:
        text: str | None = self._logger.warning("log-lines-dropped", lines=count)
        return b"" if text is None else _encode(text)


class LibraryHandler(logging.Handler):
    """Passes warnings of libraries (aiohttp, asyncio, redis, …) to the log."""

    def __init__(self, log: Log, level: str, processors: Sequence[Processor]) -> None:
        super().__init__(max(logging.WARNING, logging.getLevelNamesMapping()[level.upper()]))
        self._log = log
        self.setFormatter(
            structlog.stdlib.ProcessorFormatter(
                foreign_pre_chain=[_describe_library_line], processors=processors, use_get_message=False
            )
        )

    def emit(self, record: logging.LogRecord) -> None:
        self._log.put(self.format(record))


def is_text(log_format: Format) -> bool:
    return log_format == "text" or (log_format == "auto" and is_terminal())


def _list_processors(log_format: Format, *, has_colours: bool) -> list[Processor]:
    if not is_text(log_format):
        return [
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.add_log_level,
            _put_name_first,
            structlog.processors.JSONRenderer(serializer=_to_json),
        ]
    return [
        structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False),
        structlog.processors.add_log_level,
        _shorten_fields,
        _escape_fields,
        structlog.dev.ConsoleRenderer(colors=has_colours, pad_event_to=18, sort_keys=True),
    ]


def _encode(text: str) -> bytes:
    return f"{text.rstrip()}\n".encode("utf-8", "backslashreplace")


def _to_json(fields: Mapping[str, Any], **_options: object) -> str:
    return encode_json(fields).decode()


def _put_name_first(_logger: object, _method: str, fields: EventDict) -> EventDict:
    return {"timestamp": fields.pop("timestamp"), "level": fields.pop("level"), "event": fields.pop("event"), **fields}


def _describe_library_line(_logger: object, _method: str, fields: EventDict) -> EventDict:
    """Name the library and its message, but no argument and no text of an exception: these may hold a credential."""
    record: logging.LogRecord = fields["_record"]
    message, _ = redaction().of_text(str(record.msg))
    line: EventDict = {"event": "library", "logger": record.name, "message": message}
    if record.exc_info and record.exc_info[1] is not None:
        line["kind"], line["where"] = events.locate_fault(record.exc_info[1])
    return line


def _escape_fields(_logger: object, _method: str, fields: EventDict) -> EventDict:
    """Control characters of clients must not reach a terminal (output.py), and a line is one line."""
    return {name: escape_controls(str(value)).replace("\n", "\\n") for name, value in fields.items()}


def _shorten_fields(_logger: object, _method: str, fields: EventDict) -> EventDict:
    """Leave usual values out of a text line."""
    if fields["event"] == "request":
        return _summarize_request(fields)
    if "steps" in fields:
        return {**fields, "steps": _summarize_steps(fields["steps"])}
    return fields


def _summarize_request(fields: EventDict) -> EventDict:
    """Put method, route, status, time, model and sizes into the text of the line; keep unusual fields."""
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


def _summarize_steps(steps: Sequence[Mapping[str, Any]]) -> str:
    """List the steps that did something, each with the tokens it saved: `clear:-1200,dedup:-80`."""
    return ",".join(f"{step['step']}:-{step['saved']}" for step in steps if step["messages"])


def _format_bytes(amount: float) -> str:
    """Write at most four digits and the unit."""
    for unit in ("B", "kB"):
        if amount < BYTES_PER_KB * 10:
            return f"{amount:.0f}{unit}"
        amount /= BYTES_PER_KB
    return f"{amount:.0f}MB"
