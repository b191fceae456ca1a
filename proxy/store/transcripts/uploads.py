"""Uploads of closed transcript files to an object store, by threads that no request waits for.

1. Once a second, close files of the spool that are old or large enough.
2. Send closed files, and delete each once the store has confirmed it. Sending one twice changes nothing.
3. While the store fails, try again after longer and longer pauses. If too much waits, nothing more is written.

If several processes share a spool, one at a time sends the files of all.
"""

import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import groupby
from pathlib import Path

from msgspec import Struct, field

from proxy.foundation.lifetime import WorkerThread
from proxy.store.contract import MEBIBYTE, SystemClock, ignore
from proxy.store.transcripts.archive import Archive, ObjectStore, Pruning, Retention, StoreFault
from proxy.store.transcripts.files import SUFFIX, Sync, close_file, is_closed, make_folder, open_locked
from proxy.wire.redaction import Redaction

LOOK_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0


class RareReports:
    """Reports a cause of failures once in `quiet_seconds`. Any thread may use it."""

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._lock = threading.Lock()
        self._last_times: dict[object, float] = {}
        self.count = 0

    def add(self, cause: object, text: str, quiet_seconds: float) -> None:
        now = time.monotonic()
        with self._lock:
            self.count += 1
            is_news = now - self._last_times.get(cause, float("-inf")) >= quiet_seconds
            if is_news:
                self._last_times[cause] = now
        if is_news:
            self._warn(text)


class TranscriptSettings(Struct, frozen=True):
    """How transcripts are written and kept."""

    sync: Sync = "never"
    redaction: Redaction = field(default_factory=Redaction)
    retention: Retention = Retention()
    queue_bytes: int = 64 * MEBIBYTE
    """Bytes that may wait to be written."""
    upload_seconds: float = 5.0
    upload_bytes: int = 8 * MEBIBYTE
    """Upload a file once it is this old or this large."""
    spool_bytes: int = 1024 * MEBIBYTE
    """Bytes that may wait to be uploaded."""
    parallel_uploads: int = 4


class Uploads:
    """The thread that closes and sends files. `warn` and `report` are called from any thread."""

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
        self.waiting_bytes = 0
        self._store = store
        self._spool = spool
        self._settings = settings or TranscriptSettings()
        self._report = report
        self._failures = RareReports(warn)
        self._lock = threading.Lock()
        self._first_seen: dict[Path, float] = {}
        self._refused: set[Path] = set()
        self._pause_seconds = 0.0
        self._pause_until = 0.0
        self._failing_since: float | None = None
        clock = clock or SystemClock()
        # Pruning waits a minute: a process that is restarted again and again must not list the bucket each time.
        due_at = clock.read_believed() + 60.0
        self._pruning = Pruning(Archive(spool, store), self._settings.retention, warn, clock, due_at=due_at)
        self._leaving = threading.Event()
        self._end = 0.0
        self._thread = WorkerThread("uploads", self._run, lambda: time.sleep(LOOK_SECONDS))

    @property
    def faults(self) -> int:
        return self._failures.count

    def write(self, append: Callable[[], int]) -> int:
        """Append if there is room. The lock keeps `_look` from measuring meanwhile, so no byte counts twice."""
        with self._lock:
            self.check_room()
            added_bytes = append()
            self.waiting_bytes += added_bytes
            return added_bytes

    def check_room(self) -> None:
        if self.waiting_bytes >= self._settings.spool_bytes:
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
            files = self._list_spool()  # without the lock, because tens of thousands of files take a second
            with self._lock:
                self.waiting_bytes = sum(files.values())
            if self._is_paused:
                return
            with lock_spool(self._spool) as is_alone:
                if is_alone:
                    self._send(self._close_due(files, everything=everything))
                    self._pruning.prune_when_due()
        except OSError as fault:
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
            is_old = now - since >= self._settings.upload_seconds
            if not (is_old or everything or size >= self._settings.upload_bytes):
                self._first_seen[path] = since
            elif closed_path := self._close(path):
                closed_paths.append(closed_path)
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

    def _send(self, files: list[Path]) -> None:
        """Send all files that are due. The first failure ends this for now."""
        groups = [list(group) for _, group in groupby(files, key=lambda path: path.parent)]
        conversations, senders = iter(groups), []
        for _ in groups[: self._settings.parallel_uploads]:
            # A daemon, because a store that hangs must not keep the process from leaving.
            sender = threading.Thread(
                target=self._send_conversations, args=[conversations], name="uploads", daemon=True
            )
            sender.start()
            senders.append(sender)
        for sender in senders:
            sender.join()

    def _send_conversations(self, conversations: Iterator[list[Path]]) -> None:
        """Send conversations. The threads that run this share the iterator."""
        for paths in conversations:
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
            self.waiting_bytes -= size
            since, self._failing_since = self._failing_since, None
            self._pause_seconds = self._pause_until = 0.0
        if since is not None:
            self._report(f"the object store takes transcripts again, after {time.monotonic() - since:.0f} seconds")

    def _note_failure(self, fault: OSError) -> None:
        """Pause after a failure, for longer each time."""
        now = time.monotonic()
        with self._lock:
            if now >= self._pause_until:  # several failures at once make the pause no longer
                self._pause_seconds = min(LONGEST_PAUSE_SECONDS, 2 * self._pause_seconds or 1.0)
                self._pause_until = now + self._pause_seconds
            self._failing_since = self._failing_since or now
        kind = fault.kind if isinstance(fault, StoreFault) else "disk"
        self._failures.add(kind, f"transcripts wait in {self._spool}: {fault}", 300.0)


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
