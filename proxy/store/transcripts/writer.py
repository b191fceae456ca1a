"""Originals: every message as the client sent it and every answer, kept once, before anything of it is folded away.

A request only hands over; a thread writes (files.py). A disk that is slow, full or gone delays no request
that does not wait for it. What could not be written is counted, and since the client sends its history again, the next
turn writes what this one missed. A request that must know that its history is written waits for `kept.done`.

An answer is collected as it passes and put together in the same thread, after the messages it answers.
"""

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from proxy.lifetime import WorkerThread
from proxy.store.clock import SystemClock
from proxy.store.contract import ignore
from proxy.store.transcripts.archive import Archive
from proxy.store.transcripts.files import History, MakeLines, TranscriptFolder, render_answer_lines
from proxy.store.transcripts.uploads import TranscriptSettings, Uploads
from proxy.wire.answer_assembly import Assembly

ANSWER_PIECE_BYTES = 64 * 1024  # of an answer are collected before the thread takes them apart
SWEEP_SECONDS = 3600.0
SWEEP_SHARE = 32  # each time this part of the bound was written there is a sweep, too
PROBE_SECONDS = 1.0
REPORT_SECONDS = 10.0
"""One cause of failures is reported once in so many seconds: while a disk is full, each request fails."""


@dataclass(slots=True)
class SubmittedHistory:
    """The state of a history that was handed over. It holds none of its messages."""

    done: Future[bool] = field(default_factory=Future)
    """True once it is written."""
    written: tuple[str, str, str] | None = None
    """Tenant, conversation and last link, once it is written: its answers belong after that link."""


class Originals:
    """Keeps histories and answers below a folder, and takes them to an object store where there is one.

    `warn` is called from any thread with a sentence for the operator; `faults` counts what was not written; `problem`
    says why nothing can be written now, and is empty while that works.
    """

    def __init__(
        self,
        folder: Path,
        settings: TranscriptSettings | None = None,
        warn: Callable[[str], None] = ignore,
        *,
        uploads: Uploads | None = None,
        clock: SystemClock | None = None,
    ) -> None:
        self.faults = 0
        self.problem = ""
        self._settings = settings or TranscriptSettings()
        is_spool = uploads is not None
        self._folder = TranscriptFolder(folder, self._settings.rotate_bytes, self._settings.sync, is_spool=is_spool)
        self._warn = warn
        self._uploads = uploads
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._reported_at: dict[object, float] = {}
        self._room = self._settings.queue_bytes
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._swept_at = float("-inf")
        self._unswept = 0
        self._thread = WorkerThread("originals", self._run, lambda: self._note_failure("an internal fault"))

    def locate(self, tenant: str, conversation: str) -> str:
        """The folder of a conversation. What an object store has taken is in a folder of the same name there."""
        return str(self._folder.locate(tenant, conversation))

    def keep(self, history: History) -> SubmittedHistory:
        """Hand a history over. Most requests go on at once."""
        return self.keep_later(history.size, lambda: history)

    def keep_later(self, size: int, read: Callable[[], History | None]) -> SubmittedHistory:
        """The same where the thread is to read the history, out of so many bytes; None: there is none."""
        kept = SubmittedHistory()

        def write() -> bool:
            history = read()
            if history is None:
                return False
            make_lines = partial(history.to_lines, seen=self._timestamp(), redaction=self._settings.redaction)
            self._append(history.tenant, history.conversation, make_lines)
            kept.written = history.tenant, history.conversation, history.links[-1]
            return True

        self.hand_over(size, write, kept.done)
        return kept

    def check_writable(self) -> Future[bool]:
        """Find out whether something can be written: behind all that waits to be."""
        done: Future[bool] = Future()

        def check() -> bool:
            self._check_disk()
            return True

        self.hand_over(0, check, done)
        return done

    def record(self, kept: SubmittedHistory, assembly: Assembly) -> "Recording":
        """Collect the answer to a history that was handed over."""
        return Recording(self, kept, assembly)

    def hand_over(self, size: int, act: Callable[[], bool], done: Future[bool]) -> bool:
        """Queue an act that holds so many bytes. False: there is no room for it."""
        with self._lock:
            fits = size <= self._room
            self._room -= size if fits else 0
        if not fits:
            self._note_failure("the disk is too slow, and too much waits for it already")
            done.set_result(False)
            return False

        def job() -> None:
            is_awaited = done.set_running_or_notify_cancel()  # a client that left does not undo the writing
            written = False
            try:
                written = act()
            except OSError as fault:
                # Not the text, in which the path is that of a conversation.
                self._note_failure(str(fault), (type(fault), fault.errno))
            finally:
                with self._lock:
                    self._room += size
                if is_awaited:
                    done.set_result(written)

        self._jobs.put(job)
        return True

    def write_answer(self, kept: SubmittedHistory, assembly: Assembly, *, ended: bool) -> bool:
        """In the thread. An answer to what could not be written is not written either."""
        if kept.written is None:
            return False
        tenant, conversation, link = kept.written
        lines = render_answer_lines(link, assembly.answer(ended=ended), self._timestamp(), self._settings.redaction)
        return bool(self._append(tenant, conversation, lambda _: {"": lines} if lines else {}))

    def close(self, seconds: float = 5.0) -> bool:
        """Write what waits, for so long, and send it for as long again. False: something was not written."""
        self._jobs.put(None)
        is_written = self._thread.join(seconds)
        if self._uploads is not None:
            self._uploads.close(seconds)
        return is_written

    def _note_failure(self, problem: str, cause: object = None) -> None:
        """Count a failure; report it unless its cause, by default the problem, was reported lately."""
        cause, now = cause or problem, time.monotonic()
        with self._lock:
            self.faults += 1
            self.problem = problem
            is_news = now - self._reported_at.get(cause, float("-inf")) >= REPORT_SECONDS
            if is_news:
                self._reported_at[cause] = now
        if is_news:
            self._warn(f"originals were not written below {self._folder.path}: {problem}")

    def note_slow_disk(self) -> None:
        """Note that a request stopped waiting for its history, until something is written again."""
        self._note_failure("the disk is too slow: a request has stopped waiting for it")

    def _timestamp(self) -> str:
        now = self._clock.read()
        return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now * 1000) % 1000:03}Z"

    # --- in the thread ---

    def _run(self) -> None:
        while (job := self._next_job()) is not None:
            job()

    def _next_job(self) -> Callable[[], None] | None:
        while True:
            self._sweep_when_due()
            idle = PROBE_SECONDS if self.problem else SWEEP_SECONDS
            try:
                return self._jobs.get(timeout=idle)
            except queue.Empty:
                self._probe()

    def _probe(self) -> None:
        """Find out that the disk is back though no request writes to it."""
        if not self.problem:
            return
        try:
            self._check_disk()
        except OSError:
            return
        self.problem = ""

    def _check_disk(self) -> None:
        """OSError: nothing can be written."""
        if self._uploads is not None:
            self._uploads.check_room()
        self._folder.check_writable()

    def _sweep_when_due(self) -> None:
        bounds = self._settings.retention
        if bounds is None or self._uploads is not None:
            return
        now = self._clock.read_believed()
        is_time = abs(now - self._swept_at) >= SWEEP_SECONDS  # a clock may be set back
        if not (is_time or (bounds.bytes and self._unswept > bounds.bytes // SWEEP_SHARE)):
            return
        self._swept_at, self._unswept = now, 0
        try:
            Archive(self._folder.path).prune(bounds, now)
        except OSError as fault:
            self._warn(f"old originals could not be removed: {fault}")

    def _append(self, tenant: str, conversation: str, make_lines: MakeLines) -> int:
        if self._uploads is not None:
            self._uploads.check_room()
        added = self._folder.append(tenant, conversation, make_lines)
        if added:
            self.problem = ""
            self._unswept += added
            if self._uploads is not None:
                self._uploads.add_waiting(added)
        return added


class Recording:
    """One answer as it passes: collected here, taken apart in the thread while it still comes."""

    def __init__(self, originals: Originals, kept: SubmittedHistory, assembly: Assembly) -> None:
        self._originals = originals
        self._kept = kept
        self._assembly = assembly
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> None:
        self._pieces.append(chunk)
        self._size += len(chunk)
        if self._size >= ANSWER_PIECE_BYTES:
            self._hand_over()

    def end(self, *, ended: bool) -> Future[bool]:
        """No more will come; `ended`: because the upstream has said it all."""
        data, write = self._take(), partial(self._originals.write_answer, self._kept, self._assembly, ended=ended)

        def feed_and_write() -> bool:
            self._assembly.feed(data)
            return write()

        def lose_and_write() -> bool:
            self._assembly.lose()
            return write()

        done: Future[bool] = Future()
        if not self._originals.hand_over(len(data), feed_and_write, done):
            done = Future()
            self._originals.hand_over(0, lose_and_write, done)
        return done

    def _hand_over(self) -> None:
        data = self._take()

        def feed() -> bool:
            self._assembly.feed(data)
            return True

        if not self._originals.hand_over(len(data), feed, Future()):
            self._originals.hand_over(0, self._assembly.lose, Future())

    def _take(self) -> bytes:
        data = b"".join(self._pieces)
        self._pieces, self._size = [], 0
        return data
