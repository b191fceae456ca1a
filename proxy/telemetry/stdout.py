"""Standard output as several workers share it: whole lines, whatever the reader does.

It may be a full disk, a pipe that is not read, or closed.
"""

import os
import select
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

POLL_SECONDS = 1.0


class StandardOutput:
    """File descriptor 1, written without Python's buffers.

    A buffer keeps unwritten bytes and fails again at exit, and its lock would be held by a thread that is stuck in a
    write. `render_loss` makes the line that reports how many lines were lost.
    """

    def __init__(self, render_loss: Callable[[int], bytes]) -> None:
        self._render_loss = render_loss
        self._file = _open_output()
        self._lost_lines = 0
        self._is_torn = False

    def write(self, lines: Sequence[bytes]) -> int:
        """Write lines and return how many were lost, to a full disk or a reader that is gone."""
        lost_count = 0
        for chunk, count in _join_chunks(lines):
            if not (self._report_loss() and self._write_whole(chunk)):
                self._lost_lines += count
                lost_count += count
        return lost_count

    def _report_loss(self) -> bool:
        """Report missing lines as soon as the reader of the log reads again."""
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
                    _wait_until_writable(self._file, POLL_SECONDS)
        except OSError:
            self._is_torn = self._is_torn or len(rest) < len(data)
            return False
        self._is_torn = False
        return True


def write_notice(text: str) -> None:
    """Write a few lines before the log begins: at most PIPE_BUF bytes, lost without a reader."""
    file = _open_output()
    # A pipe that is ready takes PIPE_BUF bytes at once: this does not block.
    if _wait_until_writable(file, seconds=1.0):
        with suppress(OSError):
            os.write(file, text.encode()[: select.PIPE_BUF])


def is_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


def _open_output() -> int:
    """Return the descriptor of standard output, or of the null device if there is none.

    A process that was started with a closed standard output gives the number 1 to the next file it opens: log lines
    would be written into a database or to a client.
    """
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
    """Join lines into writes of at most PIPE_BUF bytes; yield each with its number of lines.

    Only such writes stay whole in a pipe that several workers share: https://man7.org/linux/man-pages/man7/pipe.7.html
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
