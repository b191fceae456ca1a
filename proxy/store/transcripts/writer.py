"""Originals: the messages of a history as its client sent them, and the answers to it, each kept once.

A thread writes them. A slow or full disk delays only requests that wait for `SubmittedHistory.done`. The next turn
writes missing messages, because the client sends its history again.

What nobody waits for is gathered for a moment: each wake-up of the thread takes the interpreter from the event loop. A
process that is killed loses it, as it loses what waits for a slow disk.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from proxy.config.settings import Transcripts
from proxy.foundation.lifetime import WorkerThread
from proxy.history.request import Request
from proxy.store.contract import MEBIBYTE, RareReports, SystemClock, ignore
from proxy.store.deletions import OrderIndex, is_deleted
from proxy.store.transcripts.archive import Archive, Pruning, Retention
from proxy.store.transcripts.files import History, MakeLines, TranscriptFolder, render_answer_lines
from proxy.store.transcripts.uploads import Uploads
from proxy.wire.answer_assembly import Assembly
from proxy.wire.redaction import Redaction

PROBE_SECONDS = 1.0
GATHER_SECONDS = 0.1
QUEUE_BYTES = 64 * MEBIBYTE
"""Bytes that may wait to be written."""
REPORT_SECONDS = 10.0
"""Seconds between two reports of one problem: while a disk is full, each request fails."""


class SubmittedHistory(Struct):
    """A history that was handed to the writer. It holds no messages."""

    since: float
    """When its request came. What is deleted by a later order is not written."""
    done: Future[bool] = field(default_factory=Future)
    written_as: tuple[str, str, str] | None = None
    """Tenant, conversation and last link, once it is written. Its answers are written after that link."""
    user: str = ""


class OriginalsWriter:
    """The queue and the thread that write originals. `problem` tells why nothing can be written now, or is empty."""

    def __init__(
        self,
        folder: Path,
        transcripts: Transcripts,
        warn: Callable[[str], None] = ignore,
        *,
        redaction: Redaction | None = None,
        prunes: bool = True,
        uploads: Uploads | None = None,
        clock: SystemClock | None = None,
    ) -> None:
        self.problem = ""
        self._deletions: OrderIndex = {}
        self._redaction = redaction or Redaction()
        self._folder = TranscriptFolder(folder, transcripts.fsync, is_spool=uploads is not None)
        self.failures = RareReports(warn)
        self._uploads = uploads
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._room = QUEUE_BYTES
        self._jobs: deque[Callable[[], None] | None] = deque()
        self._has_jobs = threading.Event()
        self._is_urgent = threading.Event()
        bounds = Retention.of(transcripts) if prunes and uploads is None else Retention()  # `uploads` prunes by itself
        self._pruning = Pruning(Archive(folder), bounds, warn, self._clock)
        self._thread = WorkerThread("originals", self._run, lambda: self.note_failure("an internal fault"))

    def locate(self, tenant: str, conversation: str) -> str:
        return str(self._folder.locate(tenant, conversation))

    def keep(self, history: History, since: float | None = None) -> SubmittedHistory:
        request = history.request
        # Only what is written waits: the source, and in other APIs than chat its pieces, would take as much again.
        written_request = Request(b"", request.messages, (), user=request.user, wire=request.wire)
        queued_history = replace(history, request=written_request)
        return self.keep_later(len(request.source), lambda: queued_history, since)

    def keep_later(self, size: int, read: Callable[[], History | None], since: float | None = None) -> SubmittedHistory:
        """Let the thread read a history, or None, from *size* bytes. It came at *since*: by default now."""
        submission = SubmittedHistory(since or self._clock.read())

        def write() -> bool:
            history = read()
            if history is None:
                return False
            user = submission.user = self._redaction.of_name(history.request.user)
            if is_deleted(self._deletions, history.tenant, history.conversation, user, submission.since):
                return False
            make_lines = partial(history.to_lines, seen_at=self._timestamp(), redaction=self._redaction)
            self._append(history.tenant, history.conversation, make_lines)
            submission.written_as = history.tenant, history.conversation, history.links[-1].hex()
            return True

        self.hand_over(size, write, submission.done)
        return submission

    def hurry(self) -> None:
        """Write now what is in the queue: somebody waits for it."""
        self._is_urgent.set()

    def check_writable(self) -> Future[bool]:
        """Try to write, after everything that waits in the queue."""
        done: Future[bool] = Future()
        self.hand_over(0, self._check_disk, done)
        return done

    def forget(self, deletions: OrderIndex) -> None:
        """Forget which messages are written: these orders remove files. What came before them stays unwritten."""
        self._deletions = deletions
        self.hand_over(0, self._folder.forget)

    def note_failure(self, problem: str, cause: object = None) -> None:
        self.problem = problem
        text = f"originals were not written below {self._folder.path}: {problem}"
        self.failures.add(text, REPORT_SECONDS, cause or problem)

    def hand_over(self, size: int, act: Callable[[], bool | None], done: Future[bool] | None = None) -> bool:
        """Queue an act that holds *size* bytes. Return False if there is no room. *done* gets whether it wrote."""
        with self._lock:
            fits = size <= self._room
            if fits:
                self._room -= size
        if not fits:
            self.note_failure("the disk is too slow, and too much waits for it already")
            if done is not None:
                done.set_result(False)
            return False

        def job() -> None:
            # A client that left does not undo the writing.
            is_awaited = done is not None and done.set_running_or_notify_cancel()
            is_written = False
            try:
                is_written = bool(act())
            except OSError as fault:
                # The text has the path of a conversation. As the cause it would make each report a new one.
                self.note_failure(str(fault), (type(fault), fault.errno))
            finally:
                with self._lock:
                    self._room += size
                if done is not None and is_awaited:
                    done.set_result(is_written)

        self._jobs.append(job)
        self._has_jobs.set()
        if self._room < QUEUE_BYTES // 2:
            self.hurry()
        return True

    def close(self, seconds: float = 5.0) -> bool:
        """Write for *seconds* at most, then send for as long. Return False if something was not written."""
        self._jobs.append(None)
        self._has_jobs.set()
        self.hurry()
        is_written = self._thread.join(seconds)
        if self._uploads is not None:
            self._uploads.close(seconds)
        return is_written

    def write_answer(self, submission: SubmittedHistory, assembly: Assembly, *, ended: bool) -> bool:
        """Write an answer after its history. This and all methods below run in the thread of the writer."""
        if submission.written_as is None:
            return False
        tenant, conversation, link = submission.written_as
        if is_deleted(self._deletions, tenant, conversation, submission.user, submission.since):
            return False
        answer = assembly.answer(ended=ended)
        data = render_answer_lines(link, answer, self._timestamp(), self._redaction)
        if not data:
            return False
        self._append(tenant, conversation, lambda _: {"": data})
        return True

    def _run(self) -> None:
        while True:
            self._pruning.prune_when_due()
            # After an internal fault, some jobs of a batch may be left.
            if not self._jobs and not self._has_jobs.wait(PROBE_SECONDS if self.problem else 3600.0):
                with suppress(OSError):  # the problem stays
                    self._check_disk()
                    self.problem = ""
                continue
            self._is_urgent.wait(GATHER_SECONDS)
            self._is_urgent.clear()
            self._has_jobs.clear()
            for _ in range(len(self._jobs)):
                job = self._jobs.popleft()
                if job is None:
                    return
                job()

    def _check_disk(self) -> bool:
        if self._uploads is not None:
            self._uploads.check_room()
        self._folder.check_writable()
        return True

    def _append(self, tenant: str, conversation: str, make_lines: MakeLines) -> None:
        if self._uploads is not None:
            self._uploads.check_room()
        added_bytes = self._folder.append(tenant, conversation, make_lines)
        if self._uploads is not None:
            self._uploads.waiting_bytes += added_bytes
        if added_bytes:
            self.problem = ""
            self._pruning.written_bytes += added_bytes

    def _timestamp(self) -> str:
        now = self._clock.read()
        return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now * 1000) % 1000:03}Z"


class Recording(Struct, eq=False):
    """An answer, collected on the event loop and taken apart in the thread while it still comes."""

    originals: OriginalsWriter
    submission: SubmittedHistory
    assembly: Assembly
    _pieces: list[bytes] = []
    _size: int = 0

    def feed(self, chunk: bytes) -> None:
        self._pieces.append(chunk)
        self._size += len(chunk)
        if self._size >= 64 * 1024:
            self._hand_over_pieces()

    def end(self, *, ended: bool) -> Future[bool]:
        """End the recording. *ended*: whether the answer is complete."""
        self._hand_over_pieces()
        done: Future[bool] = Future()
        write = partial(self.originals.write_answer, self.submission, self.assembly, ended=ended)
        self.originals.hand_over(0, write, done)
        return done

    def _hand_over_pieces(self) -> None:
        data = b"".join(self._pieces)
        self._pieces, self._size = [], 0
        if not self.originals.hand_over(len(data), partial(self.assembly.feed, data)):
            self.assembly.lose()
