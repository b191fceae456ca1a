"""Uploads of closed transcript files to an object store, by a thread that no request waits for.

Once a second it looks at the spool (files.py): it closes files that are old or large enough and sends the closed ones,
several conversations at a time, each in the order of its files. Of all processes that share a spool one does so at a
time, under a lock, for the others too and for those that died. The name of a file in the spool is also its name in the
store, so that sending it again changes nothing.

While the store fails, files stay where they are, for this process or the next one; it is tried again after longer and
longer pauses. A failure is reported once. What is too much for the spool is not taken any more (`SpoolFull`): that is
treated like a full disk.
"""

import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from proxy.lifetime import WorkerThread
from proxy.store.clock import SystemClock
from proxy.store.contract import MEBIBYTE, ignore
from proxy.store.transcripts.archive import Archive, ObjectStore, Retention, StoreFault
from proxy.store.transcripts.files import SUFFIX, Sync, close_file, is_closed, make_folder, open_locked
from proxy.wire.redaction import Redaction

LOOK_SECONDS = 1.0
LOOK_SHARE = 20  # listing the spool takes at most this part of the time
FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0
SWEEP_SECONDS = 3600.0
FIRST_SWEEP_SECONDS = 60.0
# A fault of a kind that was not seen for so long is reported again. Longer than the longest pause between two tries.
QUIET_SECONDS = 300.0


class SpoolFull(OSError):
    """The object store is away, and what waits for it has filled its room."""


@dataclass(frozen=True, slots=True)
class TranscriptSettings:
    """How originals are written and uploaded. Without a retention, another process removes what is old."""

    rotate_bytes: int = 64 * MEBIBYTE
    sync: Sync = "rotate"
    redaction: Redaction = field(default_factory=Redaction)
    retention: Retention | None = None
    queue_bytes: int = 64 * MEBIBYTE
    """For what waits to be written."""
    upload_seconds: float = 5.0
    upload_bytes: int = 8 * MEBIBYTE
    """A file is uploaded once it is so old or so large."""
    spool_bytes: int = 1024 * MEBIBYTE
    """For what waits to be uploaded."""
    parallel_uploads: int = 4


class Uploads:
    """The uploads of one process. `warn` and `report` are called from any thread, with a sentence."""

    def __init__(
        self,
        store: ObjectStore,
        spool: Path,
        settings: TranscriptSettings | None = None,
        warn: Callable[[str], None] = ignore,
        report: Callable[[str], None] = ignore,
        *,
        clock: SystemClock | None = None,
    ) -> None:
        self.faults = 0
        self.sent = 0
        self.waiting_bytes = 0
        self._store = store
        self._spool = spool
        self._settings = settings or TranscriptSettings()
        self._warn = warn
        self._report = report
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._first_seen: dict[Path, float] = {}
        self._refused: set[Path] = set()
        self._pause_seconds = 0.0
        self._pause_until = 0.0
        self._failing_since: float | None = None
        self._last_reported: dict[str, float] = {}
        self._listing_seconds = 0.0
        self._next_sweep = time.monotonic() + FIRST_SWEEP_SECONDS
        self._leaving = threading.Event()
        self._end = 0.0
        self._thread = WorkerThread("uploads", self._run, lambda: time.sleep(LOOK_SECONDS))

    def check_room(self) -> None:
        """Called before something is written. SpoolFull: it may not be."""
        if self.waiting_bytes >= self._settings.spool_bytes:
            problem = f"{self.waiting_bytes // MEBIBYTE} MiB wait in {self._spool} for the object store"
            raise SpoolFull(f"{problem}: see why it does not take them, or raise `transcripts.spool_mib`")

    def add_waiting(self, written: int) -> None:
        with self._lock:
            self.waiting_bytes += written

    def close(self, seconds: float = 5.0) -> bool:
        """Send what waits, for at most so long. False: something stays here for the next process."""
        self._end = time.monotonic() + seconds
        self._leaving.set()
        self._thread.join(seconds)
        left = sum(self._list_spool().values())
        if left:
            self._report(f"{left} bytes of transcripts wait in {self._spool} for the next start")
        return not left

    @property
    def _is_paused(self) -> bool:
        return time.monotonic() < self._pause_until

    # --- in the thread ---

    def _run(self) -> None:
        pause = 0.0
        while not self._leaving.wait(pause):
            self._look()
            pause = max(LOOK_SECONDS, LOOK_SHARE * self._listing_seconds)
        self._pause_until = 0.0
        while time.monotonic() < self._end and not self._is_paused and any(self._list_spool().values()):
            self._look(everything=True)
            time.sleep(0.01)  # another process may be sending, or writing its last lines

    def _look(self, *, everything: bool = False) -> None:
        try:
            began = time.monotonic()
            files = self._list_spool()
            self._listing_seconds = time.monotonic() - began
            with self._lock:
                self.waiting_bytes = sum(files.values())
            if not self._is_paused:
                with lock_spool(self._spool) as is_alone:
                    if is_alone:
                        self._send(self._close_due(files, everything=everything))
                        self._sweep_when_due()
        except OSError as fault:
            self._note_failure(fault)

    def _list_spool(self) -> dict[Path, int]:
        """All files, with their sizes."""
        found = {}
        for path in self._spool.glob(f"*/*/*{SUFFIX}"):
            with suppress(FileNotFoundError):
                found[path] = path.stat().st_size
        return found

    def _close_due(self, files: Mapping[Path, int], *, everything: bool) -> list[Path]:
        """The closed files in the order in which they are to be sent; files that are due are closed first."""
        now = time.monotonic()
        opened = {path: size for path, size in files.items() if not is_closed(path)}
        self._first_seen = {path: self._first_seen.get(path, now) for path in opened}
        closed = [path for path in files if path not in opened]
        for path, size in opened.items():
            old = now - self._first_seen[path] >= self._settings.upload_seconds
            if (old or everything or size >= self._settings.upload_bytes) and (made := self._close(path)):
                closed.append(made)
        # A conversation whose file was refused comes last, or it would hold up all the others.
        return sorted(closed, key=lambda path: (path.parent in self._refused, path.parent, path.name))

    def _close(self, path: Path) -> Path | None:
        self._first_seen.pop(path, None)
        with suppress(FileNotFoundError):
            file = open_locked(path, os.O_RDWR)
            try:
                with os.fdopen(file, "rb", closefd=False) as lines:
                    if any(line.endswith(b"\n") for line in lines):
                        return close_file(path, self._settings.sync)
                path.unlink()  # nothing but a torn line
            finally:
                os.close(file)
        return None

    def _send(self, files: list[Path]) -> None:
        """Send all of them, several conversations at a time; the first failure ends it for now."""
        waiting = iter([list(group) for _, group in groupby(files, key=lambda path: path.parent)])
        # Daemons, for a store that hangs must not keep the process from leaving.
        senders = [
            threading.Thread(target=self._send_conversations, args=[waiting], name="uploads", daemon=True)
            for _ in range(min(self._settings.parallel_uploads, len(files)))
        ]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join()

    def _send_conversations(self, waiting: Iterator[list[Path]]) -> None:
        """In each of the threads, which share `waiting`."""
        for paths in waiting:
            try:
                for path in paths:
                    if self._is_paused:
                        return
                    self._send_file(path)
            except OSError as fault:
                self._refused.add(paths[0].parent)
                self._note_failure(fault)
            else:
                self._refused.discard(paths[0].parent)

    def _send_file(self, path: Path) -> None:
        size = path.stat().st_size
        self._store.put(path.relative_to(self._spool).as_posix(), path)
        path.unlink()
        with self._lock:
            self.sent += 1
            self.waiting_bytes -= size
            since, self._failing_since = self._failing_since, None
            self._pause_seconds = self._pause_until = 0.0
        if since is not None:
            self._report(f"the object store takes transcripts again, after {time.monotonic() - since:.0f} seconds")

    def _sweep_when_due(self) -> None:
        if time.monotonic() < self._next_sweep:
            return
        self._next_sweep = time.monotonic() + SWEEP_SECONDS
        for place in self._spool.glob("*/*"):
            with suppress(OSError):  # something is in it
                (place / "sent.ids").unlink(missing_ok=True)  # left by version 0.1
                place.rmdir()
                place.parent.rmdir()
        if self._settings.retention is not None:
            try:
                Archive(self._spool, self._store).prune(self._settings.retention, self._clock.read_believed())
            except OSError as fault:
                self._warn(f"old transcripts could not be removed: {fault}")

    def _note_failure(self, fault: OSError) -> None:
        """Count a failure and pause, for longer each time; report what was not reported lately."""
        kind, now = fault.kind if isinstance(fault, StoreFault) else "disk", time.monotonic()
        with self._lock:
            self.faults += 1
            if now >= self._pause_until:  # several at the same time make the pause no longer
                self._pause_seconds = min(LONGEST_PAUSE_SECONDS, 2 * self._pause_seconds or FIRST_PAUSE_SECONDS)
                self._pause_until = now + self._pause_seconds
            self._failing_since = self._failing_since or now
            is_news = now - self._last_reported.get(kind, float("-inf")) > QUIET_SECONDS
            self._last_reported[kind] = now
        if is_news:
            self._warn(f"transcripts wait in {self._spool}: {fault}")


@contextmanager
def lock_spool(spool: Path) -> Iterator[bool]:
    """Try to become the only process that sends, until this ends. The lock of a process that dies is free again."""
    make_folder(spool)
    folder = os.open(spool, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        yield False
    else:
        yield True
    finally:
        os.close(folder)
