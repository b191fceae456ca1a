"""What was done by the admin pages, kept apart from the log: who, from where, what, when, and how it ended.

One line of JSON each, in a file that only grows until it is large, and then makes room for the next one. Keys and
bodies are not told, so none can stand in it.
"""

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from proxy import events

FILE = "audit.jsonl"
LARGEST = 16 * 1024 * 1024


class Audit:
    """A listener. `warn` hears of what could not be written."""

    def __init__(self, folder: Path, warn: Callable[[str], None]) -> None:
        self.path = folder / FILE
        self._warn = warn

    def __call__(self, event: events.Event) -> None:
        if isinstance(event, events.AdminActed):
            told = {"at": datetime.now(UTC).isoformat(timespec="milliseconds"), **asdict(event)}
            line = json.dumps({**told, "details": dict(event.details)}, ensure_ascii=False) + "\n"
            try:
                self._write(line.encode("utf-8", "replace"))
            except OSError as fault:
                self._warn(f"{self.path}: {fault.strerror}: what is done by the admin pages is not written down")

    def _write(self, line: bytes) -> None:
        if self.path.exists() and self.path.stat().st_size > LARGEST:
            self.path.replace(self.path.with_suffix(".before.jsonl"))
        file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(file, line)  # whole or not at all: several workers write here
        finally:
            os.close(file)


def told(path: Path, most: int) -> list[dict[str, Any]]:
    """The newest lines, the last one first."""
    try:
        lines = path.read_bytes().splitlines()[-most:]
    except FileNotFoundError:
        return []
    return list(_read(reversed(lines)))


def _read(lines: Iterator[bytes]) -> Iterator[dict[str, Any]]:
    for line in lines:
        try:
            value = json.loads(line)
        except ValueError:  # torn by a full disk
            continue
        if isinstance(value, dict):
            yield value
