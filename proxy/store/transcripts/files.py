"""Where the lines of a conversation stand: a folder of its own, and in it a file for each process that writes.

    originals/<tenant>/<conversation>/<writer>.<number>.jsonl

Files only grow; one that is large enough is followed by the next number. What stands in a folder is read once and
then read on, so a process sees what the others wrote, and what was taken away under its hands (retention, a person)
is written again with the next request, because clients send their whole history every time.

A line counts once its newline is there. Whoever appends first cuts off a torn end: a process was killed over it, or
the disk was full. A lock on the file keeps two processes of one name (the old one still leaves, the new one is there)
from taking each other's half-written line for torn.

Where the folder is only the spool of an object store, `sent.ids` beside the files tells what went there already; after
an hour without news it is not believed any more (`spool.py` says why).
"""

import fcntl
import os
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Literal

from proxy.store.transcripts.lines import ids_in

Sync = Literal["never", "rotate", "always"]
MEBIBYTE = 1024 * 1024
REMEMBERED = 100_000  # ids at hand, about 12 MB; those of other conversations are read from their files again
UNSYNCED = 256  # files that may wait for their fsync
MISSES = 100  # how often a folder may change under one's hands
SUFFIX = ".jsonl"
SENT = "sent.ids"
SENT_SECONDS = 3600.0
_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z_.-]{0,99}")


@dataclass(slots=True)
class Standing:
    """What stands in a folder: the ids, and how far each file was read for them."""

    ids: set[str] = field(default_factory=set)
    read: dict[str, int] = field(default_factory=dict)


class Files:
    """The files of one writer, and a view of everybody's. Lives in the writer's thread."""

    def __init__(self, folder: Path, writer: str, rotate: int = 64 * MEBIBYTE, sync: Sync = "rotate") -> None:
        self._folder = folder
        self._writer = writer
        self._rotate = rotate
        self._sync = sync
        self._standing: OrderedDict[Path, Standing] = OrderedDict()
        self._unsynced: dict[Path, None] = {}

    def add(self, place: Path, lines_for: Callable[[set[str]], Mapping[str, bytes]]) -> int:
        """Write what is not there yet, by what is told of the ids that are; how many bytes it took."""
        for missed in range(MISSES):
            try:
                added = self._add(place, lines_for)
            except FileNotFoundError:  # sealed, sent or removed between one look and the next
                self._standing.pop(place, None)
                if missed == MISSES - 1:
                    raise
            else:
                if added is not None:
                    return added
        raise OSError(f"files come and go in {place}")

    def place(self, tenant: str, conversation: str) -> Path:
        return self._folder / file_name(tenant) / file_name(conversation)

    def sync(self) -> None:
        """What was written and waits for it reaches the disk."""
        waiting, self._unsynced = self._unsynced, {}
        for path in waiting:
            with suppress(FileNotFoundError):
                synced(path)
                synced(path.parent)

    def _add(self, place: Path, lines_for: Callable[[set[str]], Mapping[str, bytes]]) -> int | None:
        standing = self._caught_up(place)
        lines = lines_for(standing.ids)
        path = self._newest(place)
        if not lines:
            return 0
        del self._standing[place]  # should the disk fill up half way, the file alone knows
        end = self._append(path, b"".join(lines.values()), standing)
        if end is None:
            return None
        standing.ids.update(lines)
        standing.read[path.name] = end
        self._standing[place] = standing
        return sum(map(len, lines.values()))

    def _caught_up(self, place: Path) -> Standing:
        """What stands in a folder now."""
        standing = self._standing.pop(place, None) or Standing()
        sizes = _sizes(place)
        if not _still_stands(standing, sizes):
            standing = Standing()
        for name, size in sizes.items():
            if size > standing.read.get(name, 0):
                _read_on(place / name, standing)
        self._standing[place] = standing
        while len(self._standing) > 1 and sum(len(one.ids) for one in self._standing.values()) > REMEMBERED:
            self._standing.popitem(last=False)
        return standing

    def _newest(self, place: Path) -> Path:
        """The file to go on with, or the next one once that is large enough."""
        own = re.compile(rf"{re.escape(self._writer)}\.(\d+){re.escape(SUFFIX)}")
        sizes = {int(found[1]): size for name, size in _sizes(place).items() if (found := own.fullmatch(name))}
        number = max(sizes, default=1)
        return place / f"{self._writer}.{number + (sizes.get(number, 0) >= self._rotate)}{SUFFIX}"

    def _append(self, path: Path, data: bytes, standing: Standing) -> int | None:
        """Where the file ends afterwards; None: what was counted on does not stand there any more."""
        make(path.parent)
        with locked(path, os.O_CREAT | os.O_RDWR | os.O_APPEND) as number:
            end = whole_lines(number)
            if end != standing.read.get(path.name, 0) or not _still_stands(standing, _sizes(path.parent)):
                return None
            os.ftruncate(number, end)
            with os.fdopen(number, "ab", closefd=False) as file:
                file.write(data)
            if self._sync == "always":
                os.fsync(number)
        if self._sync == "always" and not end:
            synced(path.parent)
        if self._sync == "rotate":
            self._unsynced[path] = None
            if end + len(data) >= self._rotate or len(self._unsynced) > UNSYNCED:
                self.sync()
        return end + len(data)


def file_name(name: str) -> str:
    """Tenants and conversations name folders; whatever is not plainly a name is named by its hash."""
    return name if _NAME.fullmatch(name) else blake2b(name.encode(), digest_size=16).hexdigest()


def files_in(place: Path) -> list[Path]:
    """The files of a conversation, in the order they were begun by each writer."""
    return sorted(place.glob(f"*{SUFFIX}"), key=lambda path: (len(path.name), path.name))


@contextmanager
def locked(path: Path, flags: int) -> Iterator[int]:
    """A file that nobody else appends to meanwhile, and that was not removed."""
    while True:
        file = os.open(path, flags, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            if os.fstat(file).st_nlink:
                yield file
                return
        finally:
            os.close(file)


def whole_lines(file: int) -> int:
    """Where the last whole line ends."""
    end = os.fstat(file).st_size
    while end > 0:
        start = max(0, end - 65_536)
        found = os.pread(file, end - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0


def _sizes(place: Path) -> dict[str, int]:
    if not place.is_dir():
        return {}
    with os.scandir(place) as entries:
        stats = {entry.name: entry.stat() for entry in entries if entry.name.endswith((SUFFIX, SENT))}
    believed = time.time() - SENT_SECONDS
    return {name: stat.st_size for name, stat in stats.items() if name != SENT or stat.st_mtime > believed}


def _still_stands(standing: Standing, sizes: Mapping[str, int]) -> bool:
    return all(sizes.get(name, -1) >= end for name, end in standing.read.items())


def _read_on(path: Path, standing: Standing) -> None:
    end = standing.read.get(path.name, 0)
    with path.open("rb") as file:
        file.seek(end)
        for line in file:
            if line.endswith(b"\n"):
                standing.ids.update(ids_in([line]))
                end += len(line)
    standing.read[path.name] = end


def make(folder: Path) -> None:
    """For this user only, on every level (`parents=True` would leave those above open)."""
    if not folder.is_dir():
        make(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def synced(path: Path) -> None:
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
