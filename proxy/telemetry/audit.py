"""The audit log: acts of operators, by the admin pages or by a command, one line of JSON each.

A large file is renamed and never removed, because an operator must not be able to push out an act by many others. Of
refused attempts only sixty a minute are written, so that a caller without a key cannot fill the disk.
"""

import errno
import json
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from proxy import events
from proxy.foundation.lifetime import BackgroundWriter

FILE = "audit.jsonl"
FILE_LIMIT_BYTES = 16 * 1024 * 1024
REFUSALS_PER_MINUTE = 60
FLUSH_SECONDS = 2.0
"""Readers and the end of the process wait at most this long for queued lines to be written."""


class MinuteLimit:
    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._minute = 0
        self._count = 0

    def allows(self) -> bool:
        minute = int(time.monotonic() // 60)
        if minute != self._minute:
            self._minute, self._count = minute, 0
        self._count += 1
        return self._count <= self._limit


def render(event: events.AdminActed) -> bytes:
    fields = {"at": datetime.now(UTC).isoformat(timespec="milliseconds"), **asdict(event)}
    line = json.dumps({**fields, "details": dict(event.details)}, ensure_ascii=False) + "\n"
    return line.encode("utf-8", "backslashreplace")


class AuditFile:
    def __init__(self, folder: Path, warn: Callable[[str], None]) -> None:
        self.path = folder / FILE
        self._warn = warn

    def write(self, lines: Sequence[bytes]) -> int:
        """Return how many lines could not be written."""
        unwritable = 0
        for line in lines:
            try:
                self._append(line)
            except OSError as fault:
                unwritable += 1
                self._warn(f"{self.path}: {fault.strerror}: audit log write failed; admin actions are not recorded")
        return unwritable

    def _append(self, line: bytes) -> None:
        if self.path.exists() and self.path.stat().st_size > FILE_LIMIT_BYTES:
            # Two workers may do this at once: the second sets a short file aside.
            self.path.replace(self.path.with_suffix(f".{time.time_ns()}.jsonl"))
        file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)  # read by `_is_torn`
        try:
            if _is_torn(file):
                line = b"\n" + line
            if os.write(file, line) < len(line):  # one write, because lines of several workers must not mix
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            give_to_folder_owner(file, self.path.parent)
        finally:
            os.close(file)


class AuditLog:
    """The audit log. It writes from a separate thread, because a disk that stalls must not stop the event loop."""

    def __init__(self, folder: Path, warn: Callable[[str], None]) -> None:
        file = AuditFile(folder, warn)
        self.path = file.path
        self._refusals = MinuteLimit(REFUSALS_PER_MINUTE)
        self._writer = BackgroundWriter("audit", file.write)

    def __call__(self, event: events.Event) -> None:
        if not isinstance(event, events.AdminActed):
            return
        if event.outcome == "refused" and not self._refusals.allows():
            return
        line = render(event)
        self._writer.put(line, len(line))

    def flush(self) -> None:
        self._writer.flush(FLUSH_SECONDS)

    def close(self) -> None:
        self._writer.close(FLUSH_SECONDS)


def _is_torn(file: int) -> bool:
    """Return True if a full disk has cut off the last line."""
    size = os.fstat(file).st_size
    return size > 0 and os.pread(file, 1, size - 1) != b"\n"


def give_to_folder_owner(file: int, folder: Path) -> None:
    """Give a file to the owner of its folder: a command that root runs must leave one that the proxy can write."""
    if os.geteuid() == 0:
        owner = folder.stat()
        with suppress(PermissionError):  # a network disk may refuse
            os.fchown(file, owner.st_uid, owner.st_gid)


def read_newest(path: Path, limit: int) -> list[dict[str, Any]]:
    """Return the newest entries, the last one first; `at` is in seconds."""
    lines: list[bytes] = []
    for file in (*sorted(path.parent.glob(f"{path.stem}.*{path.suffix}"))[-1:], path):
        if file.exists():
            lines += file.read_bytes().splitlines()
    entries = []
    for line in reversed(lines[-limit:]):
        # Some may be torn by a full disk, or not written by the proxy.
        with suppress(ValueError, TypeError, KeyError):
            entry = json.loads(line)
            entries.append({**entry, "at": datetime.fromisoformat(entry["at"]).timestamp()})
    return entries
