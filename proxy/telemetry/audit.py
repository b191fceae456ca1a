"""The audit log: what operators did by the admin pages or by a command, one line of JSON each.

Who, from where, what, when, and how it ended, apart from the ordinary log. The file only grows: a large one is renamed
to the time of its last line and never removed, because an operator must not be able to push out an action by many
others. Of refused attempts only sixty a minute are written, so that a caller without a key cannot fill the disk; the
ordinary log has them all. No event holds a key or a body, so this file holds none.
"""

import errno
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from proxy import events
from proxy.lifetime import BackgroundWriter

FILE = "audit.jsonl"
FILE_LIMIT_BYTES = 16 * 1024 * 1024
MINUTE_SECONDS = 60.0
REFUSALS_PER_MINUTE = 60
FLUSH_SECONDS = 2.0
"""A reader waits so long for lines that are still in the queue, and so does the end of the process."""


class AuditLog:
    """The audit file of a state directory. `warn` is called with what could not be written."""

    def __init__(self, folder: Path, warn: Callable[[str], None]) -> None:
        self.path = folder / FILE
        self._warn = warn
        self._minute = 0
        self._refusals = 0

    def __call__(self, event: events.Event) -> None:
        """Write at once: for commands, which end right after it."""
        if (line := self.render(event)) is not None:
            self.write([line])

    def render(self, event: events.Event) -> bytes | None:
        """The line of an event; None for what does not belong here."""
        if not isinstance(event, events.AdminActed) or (
            event.outcome == "refused" and not self._is_below_refusal_limit()
        ):
            return None
        fields = {"at": datetime.now(UTC).isoformat(timespec="milliseconds"), **asdict(event)}
        line = json.dumps({**fields, "details": dict(event.details)}, ensure_ascii=False) + "\n"
        return line.encode("utf-8", "backslashreplace")

    def write(self, lines: Sequence[bytes]) -> int:
        """A sink: returns how many lines could not be written."""
        unwritable = 0
        for line in lines:
            try:
                self._append(line)
            except OSError as fault:
                unwritable += 1
                self._warn(f"{self.path}: {fault.strerror}: audit log write failed; admin actions are not recorded")
        return unwritable

    def _is_below_refusal_limit(self) -> bool:
        minute = int(time.monotonic() // MINUTE_SECONDS)
        if minute != self._minute:
            self._minute, self._refusals = minute, 0
        self._refusals += 1
        return self._refusals <= REFUSALS_PER_MINUTE

    def _append(self, line: bytes) -> None:
        if self.path.exists() and self.path.stat().st_size > FILE_LIMIT_BYTES:
            # Two workers may do this at once: the second sets a short file aside, and no line is lost.
            self.path.replace(self.path.with_suffix(f".{time.time_ns()}.jsonl"))
        file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            # A line that was cut off by a full disk must not swallow this one.
            whole = b"\n" + line if _is_torn(file) else line
            if os.write(file, whole) < len(whole):  # one write: lines of several workers must not mix
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            give_to_folder_owner(file, self.path.parent)
        finally:
            os.close(file)


def _is_torn(file: int) -> bool:
    """True where the file does not end with a line end. If another worker writes now, an empty line may be added."""
    size = os.fstat(file).st_size
    return size > 0 and os.pread(file, 1, size - 1) != b"\n"


def give_to_folder_owner(file: int, folder: Path) -> None:
    """Give a file to the owner of its folder where a command was run by root: the proxy must read and write it."""
    if os.geteuid() == 0:
        owner = folder.stat()
        with suppress(PermissionError):  # a disk over the network may know better
            os.fchown(file, owner.st_uid, owner.st_gid)


class AuditListener:
    """A listener that writes the audit log from a thread: a disk that stalls must not stop the event loop."""

    def __init__(self, log: AuditLog) -> None:
        self._log = log
        self._writer = BackgroundWriter("audit", log.write)

    def __call__(self, event: events.Event) -> None:
        if (line := self._log.render(event)) is not None:
            self._writer.put(line, len(line))

    def flush(self) -> None:
        """Wait for the lines of what was done before. Blocks: call it from a thread."""
        self._writer.flush(FLUSH_SECONDS)

    def close(self) -> None:
        self._writer.close(FLUSH_SECONDS)


def read_newest(path: Path, limit: int) -> list[dict[str, Any]]:
    """The newest entries, the last one first, also from the file that was set aside last; with `at` in seconds."""
    files = [*sorted(path.parent.glob(f"{path.stem}.*{path.suffix}"))[-1:], path]
    lines = [line for file in files if file.exists() for line in file.read_bytes().splitlines()]
    return list(_parse_lines(reversed(lines[-limit:])))


def _parse_lines(lines: Iterator[bytes]) -> Iterator[dict[str, Any]]:
    for line in lines:
        try:
            value = json.loads(line)
            yield {**value, "at": datetime.fromisoformat(value["at"]).timestamp()}
        except (ValueError, TypeError, KeyError):  # torn by a full disk, or not written by the proxy
            continue
