"""What is too old or too much goes: whole conversations, those first that were silent longest.

A conversation that goes on after it went is no harm: its next request brings all of it again.
"""

import contextlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from proxy.store.transcripts.files import files_in, locked

DAY = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Retention:
    """How long and how much is kept; 0 is no bound."""

    days: float = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Stored:
    """A conversation as its folder shows it: how large, and when it was last written to."""

    place: Path
    bytes: int
    written: float

    @property
    def tenant(self) -> str:
        return self.place.parent.name

    @property
    def name(self) -> str:
        return self.place.name


def stored_in(folder: Path) -> Iterator[Stored]:
    """Every conversation below the folder of the originals."""
    for place in sorted(folder.glob("*/*")):
        stats = [stat for file in files_in(place) if (stat := _stat(file))]
        if stats:
            yield Stored(place, sum(stat.st_size for stat in stats), max(stat.st_mtime for stat in stats))


def beyond(stored: Iterable[Stored], retention: Retention, now: float) -> list[Stored]:
    """Those that have to go, the oldest first."""
    newest_first = sorted(stored, key=lambda one: one.written, reverse=True)
    filled, gone = 0, []
    for one in newest_first:
        filled += one.bytes
        too_old = retention.days and now - one.written > retention.days * DAY
        if too_old or (retention.bytes and filled > retention.bytes):
            gone.append(one)
    return gone[::-1]


def remove(stored: Stored) -> int:
    """The bytes that are free again. Nothing goes that somebody has written to meanwhile."""
    freed = 0
    for file in files_in(stored.place):
        with contextlib.suppress(FileNotFoundError), locked(file, os.O_RDWR) as number:
            if any(stat.st_mtime > stored.written for stat in map(_stat, files_in(stored.place)) if stat):
                return freed
            freed += os.fstat(number).st_size
            file.unlink()
    with contextlib.suppress(OSError):  # somebody has begun anew in it, and that is as well
        stored.place.rmdir()
        stored.place.parent.rmdir()
    return freed


def _stat(file: Path) -> os.stat_result | None:
    try:
        return file.stat()
    except FileNotFoundError:
        return None
