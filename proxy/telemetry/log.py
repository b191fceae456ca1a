"""The log: a line for each request and each incident, by structlog. JSON on a pipe, text on a terminal.

Warnings of libraries go through the same processors (https://www.structlog.org/en/stable/standard-library.html). Lines
are written by a thread, because standard output may be a pipe that is not read.
"""

import logging
import os
import select
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import structlog
from structlog.typing import EventDict, Processor

from proxy import events
from proxy.foundation.lifetime import BackgroundWriter
from proxy.telemetry.lines import encode_json, escape_controls, make_line
from proxy.wire.redaction import redaction


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
            if not (self._report_loss() and self._write_whole(chunk)):
                self._lost_lines += count
                lost_count += count
        return lost_count

    def _report_loss(self) -> bool:
        if self._lost_lines and not self._write_whole(self._render_loss(self._lost_lines)):
            return False
        self._lost_lines = 0
        return True

    def _write_whole(self, data: bytes) -> bool:
        if self._is_torn:  # end the line that a full disk has cut off
            data = b"\n" + data
        rest = memoryview(data)
        try:
            while rest:
                try:
                    rest = rest[os.write(self._file, rest) :]
                except BlockingIOError:  # a terminal that another program has set to non-blocking
                    _wait_until_writable(self._file, seconds=1.0)
        except OSError:
            self._is_torn = self._is_torn or len(rest) < len(data)
            return False
        self._is_torn = False
        return True


def write_notice(text: str) -> None:
    """Write a line before the log begins. It has at most PIPE_BUF bytes, and is lost if the pipe is full."""
    file = _open_output()
    # A pipe that is ready takes PIPE_BUF bytes at once.
    if _wait_until_writable(file, seconds=1.0):
        with suppress(OSError):
            os.write(file, text.encode()[: select.PIPE_BUF])


def is_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


def _open_output() -> int:
    """Return the null device if standard output is closed: another file may have its number."""
    try:
        if sys.stdout is not None:
            return sys.stdout.fileno()
    except OSError:  # sys.stdout was replaced by an object that is no file
        pass
    return os.open(os.devnull, os.O_WRONLY)


def _wait_until_writable(file: int, seconds: float) -> bool:
    poll = select.poll()
    poll.register(file, select.POLLOUT)
    return bool(poll.poll(seconds * 1000))


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

    def __init__(self, level: str, log_format: str, *, has_colours: bool = True) -> None:
        processors = _list_processors(log_format, has_colours=has_colours and is_terminal())
        # A call returns the rendered line, or None if the level leaves it out.
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
        """Queue a line. Any thread may call this."""
        if text is not None:
            data = _encode(text)
            self._writer.put(data, len(data))

    @property
    def dropped_lines(self) -> int:
        return self._writer.dropped

    def close(self) -> None:
        logging.getLogger().removeHandler(self._libraries)
        self._writer.close(seconds=2.0)

    def _render_loss(self, count: int) -> bytes:
        text: str | None = self._logger.warning("log-lines-dropped", lines=count)
        return b"" if text is None else _encode(text)


class LibraryHandler(logging.Handler):
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


def is_text(log_format: str) -> bool:
    return log_format == "text" or (log_format == "auto" and is_terminal())


def _list_processors(log_format: str, *, has_colours: bool) -> list[Processor]:
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
    """Describe a line of a library without arguments and texts of exceptions, which may hold a credential."""
    record: logging.LogRecord = fields["_record"]
    message, _ = redaction().of_text(str(record.msg))
    line: EventDict = {"event": "library", "logger": record.name, "message": message}
    if record.exc_info and record.exc_info[1] is not None:
        line["kind"], line["where"] = events.locate_fault(record.exc_info[1])
    return line


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
