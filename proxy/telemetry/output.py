"""Writing what is told: lines from a queue in the background, and text that can be written whatever it holds.

The event loop must never wait for a pipe that nobody empties or for a disk that stalls. What does not fit into the
queue is dropped and counted. Used by the log and the audit log.

Names come from clients and figures from upstreams. Half a surrogate pair or an integer of 400 digits must not cost a
log line; a control character that a tool has fetched must not set the title of a terminal, fill its clipboard or forge
lines. Used by the log, the hooks and every command that prints.
"""

import json
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TextIO

import msgspec

from proxy import events
from proxy.lifetime import WorkerThread

QUEUE_LIMIT_BYTES = 8 * 1024 * 1024
GATHER_SECONDS = 0.005
"""After the first line the thread waits so long for more: one write, and one wake-up, for many lines.

Each wake-up takes the interpreter away from the event loop: with 50 ms a request of 100 kB costs a third less, but
several tests still expect a line at once.
"""

Sink = Callable[[Sequence[bytes]], int]
"""Writes lines, returns how many of them could not be written. Must not raise."""


class BackgroundWriter:
    """A thread and the queue of lines in front of it. `put` never blocks and never raises."""

    def __init__(self, name: str, sink: Sink, limit_bytes: int = QUEUE_LIMIT_BYTES) -> None:
        self._sink = sink
        self._limit_bytes = limit_bytes
        self._lines: list[bytes] = []
        self._waiting_bytes = 0
        self._unwritten_lines = 0  # in the queue or in the hands of the sink
        self._dropped_lines = 0
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._thread = WorkerThread(name, self._write_lines, self._count_lost_lines)

    @property
    def dropped_lines(self) -> int:
        return self._dropped_lines

    def put(self, line: bytes) -> None:
        with self._changed:
            if self._closing.is_set() or self._waiting_bytes + len(line) > self._limit_bytes:
                self._dropped_lines += 1
                return
            self._lines.append(line)
            self._waiting_bytes += len(line)
            self._unwritten_lines += 1
            if len(self._lines) == 1:
                self._changed.notify_all()

    def flush(self, seconds: float) -> bool:
        """Wait until every line has been written or dropped; False when the time was too short."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._unwritten_lines, seconds)

    def close(self, seconds: float) -> None:
        """Write what is waiting, for at most this long. Later lines are dropped."""
        self._closing.set()
        with self._changed:
            self._changed.notify_all()
        self._thread.join(seconds)

    def _count_lost_lines(self) -> None:
        """A fault of the sink has lost the lines that it had."""
        with self._changed:
            self._dropped_lines += self._unwritten_lines - len(self._lines)
            self._unwritten_lines = len(self._lines)

    def _write_lines(self) -> None:
        while lines := self._take_lines():
            unwritable = self._sink(lines)
            with self._changed:
                self._dropped_lines += unwritable
                self._unwritten_lines -= len(lines)
                self._changed.notify_all()

    def _take_lines(self) -> list[bytes]:
        """Everything that is waiting; empty once the writer is closed and the queue is written."""
        with self._changed:
            self._changed.wait_for(lambda: self._lines or self._closing.is_set())
        self._closing.wait(GATHER_SECONDS)
        with self._changed:
            lines, self._lines, self._waiting_bytes = self._lines, [], 0
            return lines


_encode = msgspec.json.Encoder(enc_hook=str).encode

# All but the line feed and the tab: C0 and C1 controls, marks that reverse the direction of text, half surrogate pairs
# (these cannot be printed at all).
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def encode_json(fields: Mapping[str, Any]) -> bytes:
    """JSON of one object, on one line."""
    try:
        return _encode(fields)
    except (UnicodeEncodeError, OverflowError):  # half a surrogate pair; an integer of more than 64 bits
        return json.dumps(fields, default=str, separators=(",", ":")).encode()


def escape_controls(text: str) -> str:
    r"""The text with each control character written as `\x1b` or `\u202e`."""
    return _CONTROLS.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}"  # noqa: PLR2004


class EscapedOutput:
    """A text stream that escapes what is written to it; everything else is the stream's own.

    Bytes that are written to its `buffer` are data for a program, and stay as they are.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write(escape_controls(text))

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._stream, name)


def pick_fields(event: msgspec.Struct, *names: str) -> dict[str, Any]:
    """These fields of an event. Each reader names its own: a new field must not reach a log or a program unseen."""
    return {name: getattr(event, name) for name in names}


def list_steps(event: events.CompactionEnded) -> dict[str, Any]:
    """The steps of a compaction and their effects, as one field."""
    return {"steps": [{"step": name, "messages": messages, "saved": saved} for name, messages, saved in event.steps]}
