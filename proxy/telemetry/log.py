"""The log: lines on standard output, one per request and one per incident. JSON on a pipe, text on a terminal.

Warnings and errors are what an operator should act on; `debug` adds what helps to follow one connection. Lines are
rendered where the event is emitted and written by a thread (`BackgroundWriter`): standard output may be a full disk,
a pipe that is not read, or closed.
"""

import os
import select
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal

from proxy import events
from proxy.lifetime import BackgroundWriter
from proxy.telemetry.lines import SEVERITIES, Line, make_line
from proxy.telemetry.output import encode_json, escape_controls

FLUSH_SECONDS = 2.0
"""At its end the process waits so long for the reader of the log."""
NOTICE_TIMEOUT_SECONDS = 1.0
POLL_SECONDS = 1.0
BYTES_PER_KB = 1000

_COLOURS = {"debug": 36, "info": 32, "warning": 33, "error": 31}
Format = Literal["auto", "json", "text"]
Renderer = Callable[[Line], bytes]


def is_text(wanted: Format) -> bool:
    return wanted == "text" or (wanted == "auto" and _is_terminal())


class Log:
    """A listener that writes log lines to standard output, from a thread of its own."""

    def __init__(self, level: str, wanted: Format, *, has_colours: bool = True) -> None:
        self._least = SEVERITIES.index(level)
        text = partial(_render_text, has_colours=has_colours and _is_terminal())
        self._render: Renderer = text if is_text(wanted) else _render_json
        self._output = StandardOutput(self._render)
        self._writer = BackgroundWriter("log", self._output.write)

    def __call__(self, event: events.Event) -> None:
        line = make_line(event)
        if line is not None and SEVERITIES.index(line[0]) >= self._least:
            data = self._render(line)
            self._writer.put(data, len(data))

    @property
    def dropped_lines(self) -> int:
        return self._writer.dropped

    def close(self) -> None:
        self._writer.close(FLUSH_SECONDS)


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
        lost = 0
        for chunk, count in _chunks(lines):
            if not (self._report_lost() and self._write_whole(chunk)):
                self._lost_lines += count
                lost += count
        return lost

    def _report_lost(self) -> bool:
        """Tell the reader of the log where lines are missing, as soon as it can read again."""
        if self._lost_lines and not self._write_whole(
            self._render(("warning", "log-lines-dropped", {"lines": self._lost_lines}))
        ):
            return False
        self._lost_lines = 0
        return True

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
    """Write a few lines to standard output before the log begins; at most PIPE_BUF bytes, lost if not read."""
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
    except OSError:  # sys.stdout was replaced by an object that is no file
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


def _render_text(line: Line, *, has_colours: bool) -> bytes:
    severity, name, fields = line
    if name == "request":
        name, fields = _summarize_request(fields)
    elif "steps" in fields:
        fields = {**fields, "steps": _summarize_steps(fields["steps"])}
    shown = f"[{severity:7}]"
    if has_colours:
        shown = f"\x1b[{_COLOURS[severity]}m{shown}\x1b[0m"
    values = " ".join(f"{key}={_quote(value)}" for key, value in sorted(fields.items()))
    text = f"{time.strftime('%H:%M:%S')} {shown} {escape_controls(name):18} {values}".rstrip().replace("\n", "\\n")
    return f"{text}\n".encode("utf-8", "backslashreplace")


def _quote(value: object) -> str:
    text = escape_controls(str(value))
    return repr(text) if any(mark in text for mark in " =\t") else text


def _summarize_request(fields: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """A request in a line of a terminal: what was asked, what came of it, and what more there is to know of it."""
    sizes = f"{_format_bytes(fields['bytes_in'])} -> {_format_bytes(fields['bytes_out'])}"
    words = [fields["method"], fields["route"], str(fields["status"]), f"{fields['ms']:.0f}ms"]
    words += [text for text in (fields.get("model"), sizes, fields.get("compaction")) if text]
    if fields.get("tokens_before", 0) != fields.get("tokens_after", 0):
        words.append(f"{fields['tokens_before']} -> {fields['tokens_after']} tokens")
    usual = {"outcome": "completed", "upstream": "default"}
    shown = {name: fields.get(name) for name in ("outcome", "reason", "team", "upstream", "request_id")}
    return " ".join(words), {name: value for name, value in shown.items() if value and value != usual.get(name)}


def _summarize_steps(steps: Sequence[Mapping[str, Any]]) -> str:
    """The steps that did something, each with the tokens it saved."""
    return ",".join(f"{step['step']}:-{step['saved']}" for step in steps if step["messages"])


def _format_bytes(amount: float) -> str:
    """Four digits at most, and the unit."""
    for unit in ("B", "kB"):
        if amount < BYTES_PER_KB * 10:
            return f"{amount:.0f}{unit}"
        amount /= BYTES_PER_KB
    return f"{amount:.0f}MB"


def _render_json(line: Line) -> bytes:
    severity, name, fields = line
    return encode_json({"timestamp": datetime.now(UTC), "level": severity, "event": name, **fields}) + b"\n"
