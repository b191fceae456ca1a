"""Uploads of closed transcript files to an object store, by threads that no request waits for.

1. Once a second, close files of the spool that are old or large enough.
2. Send closed files, and delete each once the store has confirmed it. Sending one twice changes nothing.
3. While the store fails, try again after longer and longer pauses. If too much waits, nothing more is written.
   While only some conversations are refused, these alone wait for the pause.

If several processes share a spool, one at a time sends the files of all.
"""

import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import groupby
from pathlib import Path

from proxy.config.settings import Transcripts
from proxy.foundation.lifetime import WorkerThread
from proxy.store.contract import MEBIBYTE, RareReports, SystemClock, ignore
from proxy.store.transcripts.archive import Archive, ObjectStore, Pruning, Retention, StoreFault
from proxy.store.transcripts.files import SUFFIX, close_file, is_closed, make_folder, open_locked

LOOK_SECONDS = 1.0
FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0
UPLOAD_BYTES = 8 * MEBIBYTE
"""A file is sent once it is this large, or as old as `transcripts.upload_seconds`."""
UPLOADS_AT_ONCE_MAX = 4


class Uploads:
    """The thread that closes and sends files."""

    def __init__(
        self,
        store: ObjectStore,
        spool: Path,
        transcripts: Transcripts,
        warn: Callable[[str], None] = ignore,
        report: Callable[[str], None] = ignore,
        *,
        clock: SystemClock | None = None,
    ) -> None:
        self.failures = RareReports(warn)
        self.waiting_bytes = 0
        """The size of the spool. It is measured at each look, and estimated in between."""
        self._store = store
        self._spool = spool
        self._transcripts = transcripts
        self._report = report
        self._first_seen: dict[Path, float] = {}
        self._refused: set[Path] = set()
        self._pause_seconds = 0.0
        self._pause_until = 0.0
        self._failing_since: float | None = None
        """When the store began to fail; None while it takes any files."""
        clock = clock or SystemClock()
        # Pruning waits a minute: a process that is restarted again and again must not list the bucket each time.
        due_at = clock.read_believed() + 60.0
        self._pruning = Pruning(Archive(spool, store), Retention.of(transcripts), warn, clock, due_at)
        self._leaving = threading.Event()
        self._end = 0.0
        self._thread = WorkerThread("uploads", self._run, lambda: time.sleep(LOOK_SECONDS))

    def check_room(self) -> None:
        """Raise OSError if too much waits already. Any thread may call this."""
        if self.waiting_bytes >= self._transcripts.spool_mib * MEBIBYTE:
            problem = f"{self.waiting_bytes // MEBIBYTE} MiB wait in {self._spool} for the object store"
            raise OSError(f"{problem}: see why it does not take them, or raise `transcripts.spool_mib`")

    def close(self, seconds: float = 5.0) -> bool:
        """Send files for *seconds* at most. Return False if some wait for the next process."""
        self._end = time.monotonic() + seconds
        self._leaving.set()
        self._thread.join(seconds)
        remaining_bytes = sum(self._list_spool().values())
        if remaining_bytes:
            self._report(f"{remaining_bytes} bytes of transcripts wait in {self._spool} for the next start")
        return not remaining_bytes

    @property
    def _is_paused(self) -> bool:
        return time.monotonic() < self._pause_until

    def _run(self) -> None:
        """Look and send until the end. This and all methods below run in the thread of uploads."""
        while True:
            self._look()
            if self._leaving.wait(LOOK_SECONDS):
                break
        self._pause_until = 0.0
        while time.monotonic() < self._end and not self._is_paused and any(self._list_spool().values()):
            self._look(everything=True)
            time.sleep(0.01)  # another process may be sending, or writing its last lines

    def _look(self, *, everything: bool = False) -> None:
        try:
            files = self._list_spool()
            self.waiting_bytes = sum(files.values())
            if self._is_paused and self._failing_since is not None:
                return
            with lock_spool(self._spool) as is_alone:
                if is_alone:
                    self._send(self._close_due(files, everything=everything))
                    self._pruning.prune_when_due()
        except OSError as fault:
            self._begin_outage()
            self._note_failure(fault)

    def _list_spool(self) -> dict[Path, int]:
        sizes = {}
        for path in self._spool.glob(f"*/[!.]*/*{SUFFIX}"):  # the pattern skips conversations that are being removed
            with suppress(FileNotFoundError):
                sizes[path] = path.stat().st_size
        return sizes

    def _close_due(self, files: Mapping[Path, int], *, everything: bool) -> list[Path]:
        """Close the files that are due. Return all closed files in the order of sending."""
        now = time.monotonic()
        first_seen, closed_paths = self._first_seen, []
        self._first_seen = {}
        for path, size in files.items():
            if is_closed(path):
                closed_paths.append(path)
                continue
            since = first_seen.get(path, now)
            is_old = now - since >= self._transcripts.upload_seconds
            if not (is_old or everything or size >= UPLOAD_BYTES):
                self._first_seen[path] = since
            elif closed_path := self._close(path):
                closed_paths.append(closed_path)
        self._refused &= {path.parent for path in closed_paths}
        if self._is_paused:
            closed_paths = [path for path in closed_paths if path.parent not in self._refused]
        # A conversation whose file was refused comes last, or it would hold up all the others.
        return sorted(closed_paths, key=lambda path: (path.parent in self._refused, path.parent, path.name))

    def _close(self, path: Path) -> Path | None:
        with suppress(FileNotFoundError):
            file = open_locked(path, os.O_RDWR)
            try:
                with os.fdopen(file, "rb", closefd=False) as lines:
                    if lines.readline().endswith(b"\n"):
                        return close_file(path)
                path.unlink()  # the file has only a torn line
            finally:
                os.close(file)
        return None

    def _send(self, files: Sequence[Path]) -> None:
        """Send files, of several conversations at once. Two failures in a row end this for now."""
        groups = [list(group) for _, group in groupby(files, key=lambda path: path.parent)]
        conversations, outcomes, refused_before = iter(groups), list[OSError | None](), set(self._refused)
        send = partial(self._send_conversations, conversations, outcomes)
        senders = []
        for _ in groups[:UPLOADS_AT_ONCE_MAX]:
            # A daemon, because a store that hangs must not keep the process from leaving.
            senders.append(threading.Thread(target=send, name="uploads", daemon=True))
            senders[-1].start()
        for sender in senders:
            sender.join()
        if None in outcomes:
            if self._failing_since is not None:
                seconds = time.monotonic() - self._failing_since
                self._report(f"the object store takes transcripts again, after {seconds:.0f} seconds")
                self._failing_since = None
        elif not self._refused <= refused_before:
            self._begin_outage()
        if not self._refused:
            self._pause_seconds = 0.0
        for fault in filter(None, outcomes):
            self._note_failure(fault)

    def _send_conversations(self, conversations: Iterator[list[Path]], outcomes: list[OSError | None]) -> None:
        """Send conversations, and add the fault of each file to the outcomes, or None once it is stored.

        The threads that run this share both.
        """
        for paths in conversations:
            for path in paths:
                if len(outcomes) > 1 and None not in outcomes[-2:]:
                    return
                try:
                    size = path.stat().st_size
                    self._store.put(path.relative_to(self._spool).as_posix(), path)
                    path.unlink()
                except OSError as fault:
                    outcomes.append(fault)
                    self._refused.add(path.parent)
                    break
                outcomes.append(None)
                self.waiting_bytes -= size
            else:
                self._refused.discard(paths[0].parent)

    def _begin_outage(self) -> None:
        if self._failing_since is None:
            self._failing_since = time.monotonic()
            # The pause of a refused conversation may be long by now, and would hold up all others.
            self._pause_seconds = self._pause_until = 0.0

    def _note_failure(self, fault: OSError) -> None:
        """Pause after a failure, for longer each time."""
        now = time.monotonic()
        if not self._is_paused:  # several failures at once make the pause no longer
            self._pause_seconds = min(LONGEST_PAUSE_SECONDS, 2 * self._pause_seconds or FIRST_PAUSE_SECONDS)
            self._pause_until = now + self._pause_seconds
        kind = fault.kind if isinstance(fault, StoreFault) else "disk"
        self.failures.add(f"transcripts wait in {self._spool}: {fault}", 300.0, kind)


@contextmanager
def lock_spool(spool: Path, *, waits: bool = False) -> Iterator[bool]:
    """Hold the lock of the spool, and yield whether this is the only process that sends or removes."""
    make_folder(spool)
    folder = os.open(spool, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX if waits else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        yield False
    else:
        yield True
    finally:
        os.close(folder)
