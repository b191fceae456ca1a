"""What waits on this disk for an object store: the folder of the originals, kept short.

    spool/<tenant>/<conversation>/w0.1.jsonl                                   being written
    spool/<tenant>/<conversation>/20261121T090000123Z-w0-1a2b3c4d5e6f7081.jsonl  sealed: it will never change again
    spool/<tenant>/<conversation>/sent.ids                                     what stood in those that are gone

Writers know nothing of this (files.py): they go on with the next file where one was taken from them. Sealing gives a
file its name for ever: the moment, the writer, and the hash of what stands in it. Where it stands in the spool is also
what it is called in the store, so to send it again, by whomever and however often, changes nothing there.

Whoever keeps the lock of a spool seals and sends for all processes on this disk, the dead ones included; the others
only look how full it is. A lock is left by dying.

What went to the store is remembered by its ids, or each turn would bring its whole history again. That memory is
believed for an hour, and nothing is pruned from the store that was written to within two: so a conversation that was
pruned is never taken for known, and goes on whole, on whatever machine.
"""

import fcntl
import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import file_digest
from pathlib import Path

from proxy.store.transcripts.files import SENT, SENT_SECONDS, SUFFIX, Sync, locked, make, synced, whole_lines
from proxy.store.transcripts.lines import ids_in

LOCK = "sending.lock"
_OPEN = re.compile(rf"(.+)\.\d+{re.escape(SUFFIX)}")
_SEALED = re.compile(rf"\d{{8}}T\d{{9}}Z-.+-([0-9a-f]{{16}}){re.escape(SUFFIX)}")
_FIRST = re.compile(rb'\{"v":1,"at":"[^"]*","after":"[^"]*","tenant":')


@dataclass(frozen=True, slots=True)
class Segment:
    """A file that waits, as a look at the spool shows it."""

    path: Path
    bytes: int

    @property
    def sealed(self) -> bool:
        return _SEALED.fullmatch(self.path.name) is not None


class Spool:
    """The spool below a folder, for one process; its methods are for one thread, but for `sent`."""

    def __init__(self, folder: Path, seconds: float, rotate: int, sync: Sync) -> None:
        self.folder = folder
        self._seconds = seconds
        self._rotate = rotate
        self._sync = sync
        self._seen: dict[Path, float] = {}
        self._lock: int | None = None

    def take(self) -> bool:
        """Whether it is this process that seals and sends."""
        if self._lock is not None:
            return True
        make(self.folder)
        lock = os.open(self.folder / LOCK, os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return False
        self._lock = lock
        return True

    def leave(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def look(self) -> list[Segment]:
        """All that waits. What has not been there before is as old as this look."""
        found = list(_segments(self.folder))
        now = time.monotonic()
        self._seen = {one.path: self._seen.get(one.path, now) for one in found if not one.sealed}
        return found

    def ready(self, found: Sequence[Segment], *, every: bool = False) -> list[Path]:
        """The conversations that have something to send, the longest waiting first; what is due is sealed for it."""
        old = time.monotonic() - self._seconds
        sealed, due = [], []
        for one in sorted(found, key=lambda one: one.path.name):
            if one.sealed:
                sealed.append(one.path.parent)
            elif every or one.bytes >= self._rotate or self._seen.get(one.path, old) <= old:
                self._seen.pop(one.path, None)
                _seal(one.path)
                due.append(one.path.parent)
        return list(dict.fromkeys(sealed + due))

    def tidy(self) -> None:
        """Forget what is not believed any more, and the folders of those that are silent."""
        for place in map(Path, _places(self.folder)):
            with suppress(FileNotFoundError):
                if (place / SENT).stat().st_mtime < time.time() - SENT_SECONDS:
                    (place / SENT).unlink()
            with suppress(OSError):  # something stands in it
                place.rmdir()
                place.parent.rmdir()

    # --- a segment on its way, in any thread -------------------------------------------------------------------------

    def name(self, path: Path) -> str:
        """What a sealed segment is called in the store."""
        return path.relative_to(self.folder).as_posix()

    def sent(self, path: Path) -> None:
        """It is in the store: its ids are remembered, itself is not needed any more.

        A full disk remembers nothing, and only this makes room on it: then its messages go once more.
        """
        with suppress(OSError):
            _remember(path)
        path.unlink()

    def waits_on(self, path: Path) -> None:
        """It could not be sent. A closed file has to reach some disk, and now it is this one."""
        if self._sync != "never":
            synced(path)
            synced(path.parent)


def sealed_in(place: Path) -> list[Path]:
    """The segments of a conversation that are ready to go, the oldest first."""
    return sorted(path for path in place.glob(f"*{SUFFIX}") if _SEALED.fullmatch(path.name))


def intact(path: Path) -> bool:
    """Whether a sealed segment is what it was when it was sealed: a power cut may have shortened it."""
    found = _SEALED.fullmatch(path.name)
    return found is not None and found[1] == _digest(path)


def reseal(path: Path) -> None:
    """A segment that a power cut has shortened keeps its whole lines, under the name of what is left."""
    _seal(path)


def _seal(path: Path) -> None:
    """Cut off a torn end and give it its name. Whoever waits to write to it finds it gone, and begins another."""
    with suppress(FileNotFoundError), locked(path, os.O_RDWR) as number:
        end = whole_lines(number)
        os.ftruncate(number, end)
        if not end:
            path.unlink()
            return
        now = time.time_ns() // 1_000_000
        moment = time.strftime("%Y%m%dT%H%M%S", time.gmtime(now // 1000)) + f"{now % 1000:03}Z"
        path.rename(path.with_name(f"{moment}-{_writer(path.name)}-{_digest(path)}{SUFFIX}"))


def _writer(name: str) -> str:
    found = _OPEN.fullmatch(name)
    return found[1] if found else name.split("-", 1)[1].rsplit("-", 1)[0]


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()[:16]


def _remember(path: Path) -> None:
    """Of a segment that neither begins its conversation nor goes on where this memory ends, nothing: then all of it
    is written once more with the next turn, which is better than a hole.
    """
    memory = path.with_name(SENT)
    ids, begins = _told(path)
    believed = memory.exists() and memory.stat().st_mtime > time.time() - SENT_SECONDS
    if not (begins or believed):
        return
    with locked(memory, os.O_CREAT | os.O_RDWR | os.O_APPEND) as number, os.fdopen(number, "ab", closefd=False) as file:
        os.ftruncate(number, whole_lines(number) if believed else 0)
        file.writelines(b'{"v":1,"at":"%s"}\n' % one.encode() for one in ids)


def _told(path: Path) -> tuple[list[str], bool]:
    with path.open("rb") as file:
        ids = list(ids_in(file))
        file.seek(0)
        return ids, any(_FIRST.match(line) for line in file)


def _places(folder: Path) -> Iterator["os.DirEntry[str]"]:
    return (place for tenant in _entries(folder) if tenant.is_dir() for place in _entries(tenant.path))


def _segments(folder: Path) -> Iterator[Segment]:
    for place in _places(folder):
        for entry in _entries(place.path):
            with suppress(FileNotFoundError):
                if entry.name.endswith(SUFFIX):
                    yield Segment(Path(entry.path), entry.stat().st_size)


def _entries(folder: Path | str) -> list["os.DirEntry[str]"]:
    """Once a second over all that waits: that is why it is not a glob."""
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as found:
        return list(found)
    return []
