"""What operators did by the admin pages or by a command, apart from the log: who, from where, what, when, how it ended.

One line of JSON each, in a file that only grows. One that has become large is set aside under the moment of its last
line and never removed: nobody may make his acts go by making many. So that no stranger can fill the disk, of tries that
were refused sixty a minute are written; the log has them all. Keys and bodies are not told, so none can stand in it.
"""

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from proxy import events

FILE = "audit.jsonl"
LARGEST = 16 * 1024 * 1024
MINUTE = 60.0
REFUSED_A_MINUTE = 60


class Audit:
    """A listener. `warn` hears of what could not be written."""

    def __init__(self, folder: Path, warn: Callable[[str], None]) -> None:
        self.path = folder / FILE
        self._warn = warn
        self._minute = 0
        self._refused = 0

    def __call__(self, event: events.Event) -> None:
        if isinstance(event, events.AdminActed) and (event.outcome != "refused" or self._may_tell()):
            told = {"at": datetime.now(UTC).isoformat(timespec="milliseconds"), **asdict(event)}
            line = json.dumps({**told, "details": dict(event.details)}, ensure_ascii=False) + "\n"
            try:
                self._write(line.encode("utf-8", "replace"))
            except OSError as fault:
                self._warn(f"{self.path}: {fault.strerror}: what operators do is not written down")

    def _may_tell(self) -> bool:
        minute = int(time.monotonic() // MINUTE)
        if minute != self._minute:
            self._minute, self._refused = minute, 0
        self._refused += 1
        return self._refused <= REFUSED_A_MINUTE

    def _write(self, line: bytes) -> None:
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
