"""A writer in the background: lines go into a bounded queue, and a thread hands them to a sink that may be slow.

The event loop must never wait for a pipe that nobody empties or for a disk that stalls. What does not fit into the
queue is dropped and counted. Used by the log and the audit log.
"""

import threading
from collections.abc import Callable, Sequence

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
        self._name = name
        self._thread = self._start_thread()

    @property
    def dropped_lines(self) -> int:
        return self._dropped_lines

    def put(self, line: bytes) -> None:
        with self._changed:
            if not self._is_working and not self._closing.is_set():
                # A fault of the sink has ended it (the process reports that), and the lines it had are lost.
                self._dropped_lines += self._unwritten_lines - len(self._lines)
                self._unwritten_lines = len(self._lines)
                self._thread = self._start_thread()
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

    def _start_thread(self) -> threading.Thread:
        self._is_working = True
        # A daemon: a thread that is stuck in a write must not keep the process alive.
        thread = threading.Thread(target=self._work, name=self._name, daemon=True)
        thread.start()
        return thread

    def _work(self) -> None:
        try:
            self._write_lines()
        finally:
            self._is_working = False

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
