"""What is too old or too much goes: whole conversations, those first that were silent longest.

A conversation that goes on after it went is no harm: its next request brings all of it again.
"""

import builtins
import contextlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from proxy.store.transcripts.files import files_in, locked

DAY = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Retention:
    """How long and how much is kept; 0 is no bound."""

    days: float = 0
    bytes: int = 0


class Stored(Protocol):
    """A conversation where it is kept: whose, how large, and when it was last written to."""

    @property
    def tenant(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def bytes(self) -> int: ...
    @property
    def written(self) -> float: ...

    @property
    def settled(self) -> float:
        """Seconds of silence before it may go."""

    def lines(self) -> Iterator[builtins.bytes]: ...

    def remove(self) -> int:
        """The bytes that are free again. Nothing goes that somebody has written to meanwhile."""


@dataclass(frozen=True, slots=True)
class InFolder:
    """A conversation on a disk, as its folder shows it."""

    place: Path
    bytes: int
    written: float

    @property
    def tenant(self) -> str:
        return self.place.parent.name

    @property
    def name(self) -> str:
        return self.place.name

    @property
    def settled(self) -> float:
        return 0.0

    def lines(self) -> Iterator[builtins.bytes]:
        for path in files_in(self.place):
            with path.open("rb") as file:
                yield from file

    def remove(self) -> int:
        freed = 0
        for file in files_in(self.place):
            with contextlib.suppress(FileNotFoundError), locked(file, os.O_RDWR) as number:
                if any(stat.st_mtime > self.written for stat in map(_stat, files_in(self.place)) if stat):
                    return freed
                freed += os.fstat(number).st_size
                file.unlink()
        with contextlib.suppress(OSError):  # somebody has begun anew in it, and that is as well
            self.place.rmdir()
            self.place.parent.rmdir()
        return freed


def stored_in(folder: Path, name: str = "", tenant: str = "") -> Iterator[InFolder]:
    """Every conversation below the folder of the originals; or those of this tenant, or whose name begins like this."""
    places = [place for place in folder.glob("*/*") if place.name.startswith(name)]
    for place in sorted(place for place in places if place.parent.name == (tenant or place.parent.name)):
        stats = [stat for file in files_in(place) if (stat := _stat(file))]
        if stats:
            yield InFolder(place, sum(stat.st_size for stat in stats), max(stat.st_mtime for stat in stats))


def beyond(stored: Iterable[Stored], retention: Retention, now: float) -> list[Stored]:
    """Those that have to go, the oldest first."""
    newest_first = sorted(stored, key=lambda one: one.written, reverse=True)
    filled, gone = 0, []
    for one in newest_first:
        filled += one.bytes
        too_old = retention.days and now - one.written > retention.days * DAY
        too_much = retention.bytes and filled > retention.bytes
        if (too_old or too_much) and now - one.written >= one.settled:
            gone.append(one)
    return gone[::-1]


def remove(stored: Stored) -> int:
    return stored.remove()


def _stat(file: Path) -> os.stat_result | None:
    try:
        return file.stat()
    except FileNotFoundError:
        return None
