"""Files as they lie about: whole JSON, JSON lines, packed or not, alone or as the many small files of one session.

What a file is called says nothing here: its bytes are looked at. A line that is no JSON is counted, for sessions are
cut off when a machine goes down, and the rest of one is still worth reading.
"""

import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proxy.lab.saved import UnreadableError

LARGEST = 2 * 1024**3
"""Bytes: what is larger is no session."""
_PACKED = b"\x1f\x8b"
_GLANCE = 4096
"""Bytes by which a database beside the sessions is known, so that it is not read whole."""
_SKIPPED = (".git", "node_modules", "__pycache__", ".venv")


@dataclass(frozen=True, slots=True)
class Sheet:
    """What stands in a file, or in the small files that lie together: one JSON value after the other."""

    place: Path
    values: tuple[Any, ...]
    broken: int = 0
    """Lines that are no JSON."""


def sheet(place: Path) -> Sheet:
    """A file, read; a file that holds no JSON at all is an error."""
    source = _unpacked(place)
    text = source.decode("utf-8-sig", "replace")
    if (whole := _json(text)) is not None:
        return Sheet(place, (whole[0],))
    values, broken = [], 0
    for line in text.split("\n"):
        if not line.strip():
            continue
        if (found := _json(line)) is None:
            broken += 1
        else:
            values.append(found[0])
    if not values:
        raise UnreadableError(f"{place}: neither JSON nor JSON lines ({len(source):,} bytes)")
    return Sheet(place, tuple(values), broken)


def below(folder: Path) -> Iterator[Path]:
    """Every file under a folder, in a fixed order: first those that lie in it, then folder after folder."""
    entries = sorted(folder.iterdir(), key=lambda path: (path.is_dir(), path.name))
    for entry in entries:
        if entry.is_symlink() or entry.name in _SKIPPED:
            continue
        if entry.is_dir():
            yield from below(entry)
        elif entry.is_file():
            yield entry


def _unpacked(place: Path) -> bytes:
    try:
        if place.stat().st_size > LARGEST:
            raise UnreadableError(f"{place}: larger than {LARGEST:,} bytes")
        with place.open("rb") as file:
            first = file.read(_GLANCE)
            if not first.startswith(_PACKED):
                if b"\0" in first:
                    raise UnreadableError(f"{place}: no text")
                return first + file.read()
        with gzip.open(place) as packed:
            source = packed.read(LARGEST + 1)
    except (OSError, EOFError, zlib.error) as fault:
        raise UnreadableError(f"{place}: cannot be read: {fault}") from None
    if len(source) > LARGEST:
        raise UnreadableError(f"{place}: unpacks to more than {LARGEST:,} bytes")
    return source


def _json(text: str) -> tuple[Any] | None:
    """What it holds, in a tuple of one, for `null` is JSON too."""
    try:
        return (json.loads(text),)
    except (ValueError, RecursionError):
        return None
