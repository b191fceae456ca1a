"""Uploads of transcript files to an object store, by a thread that no request waits for.

1. Every `upload_seconds`, send what is new in each file of the spool, as
   `<tenant>/<conversation>/<time>-<random>-<start>-<end>.jsonl`. A name stands for the same bytes for ever, so sending
   them twice changes nothing.
2. Note beside the file how far the store has it. A process that is killed before sends these bytes once more.
3. Remove a file once all of it is sent and nothing was written to it for an hour, or if the spool is too large.
4. While the store fails, try again after longer and longer pauses. If too much waits, nothing more may be written
   (`check_room`), as on a full disk.

Of all processes that share a spool, one at a time sends the files of all, also of those that died.
"""

import fcntl
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from proxy.lifetime import WorkerThread
from proxy.store.contract import MEBIBYTE, SystemClock, ignore
from proxy.store.transcripts.archive import Archive, Retention
from proxy.store.transcripts.files import (
    SUFFIX,
    Sync,
    has_rested,
    locate_sent,
    make_folder,
    read_sent,
    remove_sent,
    replace_sent,
)
from proxy.wire.redaction import Redaction

if TYPE_CHECKING:
    from proxy.store.transcripts.bucket import Bucket

OBJECT_BYTES = 8 * MEBIBYTE
"""Send larger ranges in parts of about this size."""
FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0
SWEEP_SECONDS = 3600.0
FIRST_SWEEP_SECONDS = 60.0
QUIET_SECONDS = 300.0  # longer than the longest pause between two tries


class RareReports:
    """Reports each cause of failures, unless it came up within `quiet_seconds`. Any thread may use it."""

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._lock = threading.Lock()
        self._last_times: dict[object, float] = {}
        self.count = 0

    def add(self, cause: object, text: str, quiet_seconds: float, *, is_sliding: bool = False) -> None:
        """Count a failure. `is_sliding`: each occurrence starts the quiet time again, also one without a report."""
        now = time.monotonic()
        with self._lock:
            self.count += 1
            is_news = now - self._last_times.get(cause, float("-inf")) >= quiet_seconds
            if is_news or is_sliding:
                self._last_times[cause] = now
        if is_news:
            self._warn(text)


@dataclass(frozen=True, slots=True)
class TranscriptSettings:
    """Without a retention, another process removes old ones."""

    sync: Sync = "never"
    redaction: Redaction = field(default_factory=Redaction)
    retention: Retention | None = None
    queue_bytes: int = 64 * MEBIBYTE
    """Bytes that may wait to be written."""
    upload_seconds: float = 5.0
    spool_bytes: int = 1024 * MEBIBYTE
    """Bytes that may wait to be uploaded."""


class Uploads:
    """`warn` and `report` are called from any thread."""

    def __init__(
        self,
        store: "Bucket",
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
        self._warn = warn
        self._report = report
        self._failures = RareReports(warn)
        self._clock = clock or SystemClock()
        self._refused: set[Path] = set()
        self._pause_seconds = 0.0
        self._failing_since: float | None = None
        self._next_sweep = time.monotonic() + FIRST_SWEEP_SECONDS
        self._leaving = threading.Event()
        self._end = 0.0
        self._thread = WorkerThread("uploads", self._run, lambda: time.sleep(FIRST_PAUSE_SECONDS))

    @property
    def faults(self) -> int:
        return self._failures.count

    def check_room(self) -> None:
        if self.waiting_bytes >= self._settings.spool_bytes:
            problem = f"{self.waiting_bytes // MEBIBYTE} MiB wait in {self._spool} for the object store"
            raise OSError(f"{problem}: see why it does not take them, or raise `transcripts.spool_mib`")

    def close(self, seconds: float = 5.0) -> bool:
        """Send for at most this long. False: something stays here for the next process."""
        self._end = time.monotonic() + seconds
        self._leaving.set()
        self._thread.join(seconds)
        remaining_bytes = sum(self._count_waiting().values())
        if remaining_bytes:
            self._report(f"{remaining_bytes} bytes of transcripts wait in {self._spool} for the next start")
        return not remaining_bytes

    def _run(self) -> None:
        """In the thread, as all that follows."""
        while True:
            self._look()
            if self._leaving.wait(self._pause_seconds or self._settings.upload_seconds):
                break
        while time.monotonic() < self._end and self._look() and self._list_files():
            time.sleep(0.01)  # another process may be sending, or writing its last lines

    def _look(self) -> bool:
        """Return False if the store or the disk failed."""
        try:
            with lock_spool(self._spool) as is_alone:
                if is_alone:
                    self._send()
                    self._remove_sent()
                    self._sweep_when_due()
        except OSError as fault:
            self._note_failure(fault)
            return False
        finally:
            self.waiting_bytes = sum(self._count_waiting().values())
        self._pause_seconds = 0.0
        return True

    def _list_files(self) -> list[tuple[Path, os.stat_result]]:
        """Return the longest idle first."""
        files = []
        for folder, _, names in os.walk(self._spool):
            for name in names:
                path = Path(folder, name)
                if path.suffix == SUFFIX:
                    with suppress(FileNotFoundError):
                        files.append((path, path.stat()))
        return sorted(files, key=lambda file: file[1].st_mtime)

    def _count_waiting(self) -> dict[Path, int]:
        """Return the unsent bytes of each file that has some."""
        waiting = {path: stat.st_size - read_sent(path)[1] for path, stat in self._list_files()}
        return {path: size for path, size in waiting.items() if size}

    def _send(self) -> None:
        """The first failure ends it for now."""
        # A conversation that was refused comes last, or it would hold up all the others.
        for path in sorted(self._count_waiting(), key=lambda path: path in self._refused):
            try:
                with suppress(FileNotFoundError), path.open("rb") as file:  # an operator may remove it meanwhile
                    self._send_file(path, file)
            except OSError:
                self._refused.add(path)
                raise
            self._refused.discard(path)

    def _send_file(self, path: Path, file: BinaryIO) -> None:
        sent = read_sent(path)
        name, start = sent
        lines = _read_lines(file, start)
        if lines and (not name or has_rested(locate_sent(path))):
            name, start = _make_name(), 0
            lines = _read_lines(file, start)
            if not replace_sent(path, file.fileno(), sent, (name, start)):
                return
        while lines:
            os.fsync(file.fileno())  # not even a power failure shortens the file to less than was sent of it
            end = start + len(lines)
            folder = path.parent.relative_to(self._spool).as_posix()
            self._store.put(f"{folder}/{name}-{start:012}-{end:012}{SUFFIX}", lines)
            self._note_success()
            if not replace_sent(path, file.fileno(), (name, start), (name, end)):
                return
            start = end
            lines = _read_lines(file, start)

    def _remove_sent(self) -> None:
        files = self._list_files()
        total = sum(stat.st_size for _, stat in files)
        for path, stat in files:
            with suppress(FileNotFoundError):
                is_due = self._leaving.is_set() or total > self._settings.spool_bytes or has_rested(path)
                if is_due and remove_sent(path):
                    total -= stat.st_size

    def _sweep_when_due(self) -> None:
        if self._settings.retention is None or time.monotonic() < self._next_sweep:
            return
        self._next_sweep = time.monotonic() + SWEEP_SECONDS
        try:
            Archive(self._spool, self._store).prune(self._settings.retention, self._clock.read_believed())
        except OSError as fault:
            self._warn(f"old transcripts could not be removed: {fault}")

    def _note_success(self) -> None:
        if self._failing_since is not None:
            seconds = time.monotonic() - self._failing_since
            self._report(f"the object store takes transcripts again, after {seconds:.0f} seconds")
            self._failing_since = None

    def _note_failure(self, fault: OSError) -> None:
        self._pause_seconds = min(LONGEST_PAUSE_SECONDS, 2 * self._pause_seconds or FIRST_PAUSE_SECONDS)
        self._failing_since = self._failing_since or time.monotonic()
        # The text of a disk's fault names a path, so it is no cause.
        self._failures.add(
            fault.errno or str(fault), f"transcripts wait in {self._spool}: {fault}", QUIET_SECONDS, is_sliding=True
        )


def _read_lines(file: BinaryIO, start: int) -> bytes:
    """Return whole lines, about as many as fit into an object."""
    file.seek(start)
    lines = file.read(OBJECT_BYTES) + file.readline()
    return lines[: lines.rfind(b"\n") + 1]


def _make_name() -> str:
    """Names are in the order in which their files began."""
    now = time.time_ns() // 1_000_000
    moment = time.strftime("%Y%m%dT%H%M%S", time.gmtime(now // 1000))
    return f"{moment}{now % 1000:03}Z-{secrets.token_hex(8)}"


@contextmanager
def lock_spool(spool: Path) -> Iterator[bool]:
    """True: this is the only process that sends."""
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
