"""What operators did by the admin pages or by a command, apart from the log: who, from where, what, when, how it ended.

One line of JSON each, in a file that only grows. One that has become large is set aside under the moment of its last
line and never removed: nobody may make his acts go by making many. So that no stranger can fill the disk, of tries that
were refused sixty a minute are written; the log has them all. Keys and bodies are not told, so none can stand in it.
"""

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
from proxy.telemetry.background import BackgroundWriter

FILE = "audit.jsonl"
LARGEST = 16 * 1024 * 1024
MINUTE = 60.0
REFUSED_A_MINUTE = 60
FLUSH_SECONDS = 2.0


class AuditLog:
    """The audit file of a state directory. `warn` is told what could not be written."""

    def __init__(self, folder: Path, warn: Callable[[str], None]) -> None:
        self.path = folder / FILE
        self._warn = warn
        self._minute = 0
        self._refused = 0

    def __call__(self, event: events.Event) -> None:
        """Write at once: for commands, which end right after it."""
        if (line := self.render(event)) is not None:
            self.write([line])

    def render(self, event: events.Event) -> bytes | None:
        """The line of an event; None for what does not belong here."""
        if not isinstance(event, events.AdminActed) or (event.outcome == "refused" and not self._may_tell()):
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

    def _may_tell(self) -> bool:
        minute = int(time.monotonic() // MINUTE)
        if minute != self._minute:
            self._minute, self._refused = minute, 0
        self._refused += 1
        return self._refused <= REFUSED_A_MINUTE

    def _append(self, line: bytes) -> None:
        if self.path.exists() and self.path.stat().st_size > LARGEST:
            # By two workers at once: the second sets a short file aside, and nothing is lost.
            self.path.replace(self.path.with_suffix(f".{time.time_ns()}.jsonl"))
        file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(file, line)  # whole or not at all: several workers write here
            self._hand_over(file)
        finally:
            os.close(file)

    def _hand_over(self, file: int) -> None:
        """A command may be run by root: the log belongs to whoever the proxy runs as all the same."""
        if os.geteuid() == 0:
            folder = self.path.parent.stat()
            with suppress(PermissionError):
                os.fchown(file, folder.st_uid, folder.st_gid)


class AuditListener:
    """A listener that writes the audit log from a thread: a disk that stalls must not stop the event loop."""

    def __init__(self, log: AuditLog) -> None:
        self._log = log
        self._writer = BackgroundWriter("audit", log.write)

    def __call__(self, event: events.Event) -> None:
        if (line := self._log.render(event)) is not None:
            self._writer.put(line)

    def flush(self) -> None:
        """Wait for the lines of what was done before. Blocks: call it from a thread."""
        self._writer.flush(FLUSH_SECONDS)

    def close(self) -> None:
        self._writer.close(FLUSH_SECONDS)


def told(path: Path, most: int) -> list[dict[str, Any]]:
    """The newest lines, the last one first; the file that was set aside last is looked into, too."""
    files = [*sorted(path.parent.glob(f"{path.stem}.*{path.suffix}"))[-1:], path]
    lines = [line for file in files if file.exists() for line in file.read_bytes().splitlines()]
    return list(_read(reversed(lines[-most:])))


def _read(lines: Iterator[bytes]) -> Iterator[dict[str, Any]]:
    for line in lines:
        try:
            value = json.loads(line)
        except ValueError:  # torn by a full disk
            continue
        if isinstance(value, dict):
            yield value
