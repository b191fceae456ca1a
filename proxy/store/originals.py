"""The originals: every message as the client sent it and every answer, once, before anything of it is folded away.

Who calls only hands over: a thread writes (transcripts/files.py). A disk that is slow, full or gone delays no request
and fails none. What could not be taken is counted, and since the client sends its history again, the next turn writes
what this one missed. Whoever must know that a history is kept waits for it: `await asyncio.wrap_future(kept.done)`.

An answer is collected as it passes and put together in the same thread, after the messages it answers.

Where originals belong into an object store, the folder is only where they wait for it (transcripts/uploads.py).
"""

import queue
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path

from proxy.store.transcripts import retention
from proxy.store.transcripts.files import MEBIBYTE, Files, Sync
from proxy.store.transcripts.lines import History, of_answer, of_history
from proxy.store.transcripts.retention import Retention
from proxy.store.transcripts.uploads import Uploads
from proxy.wire.answers import Assembly
from proxy.wire.redaction import Redaction

__all__ = ["History", "Keeping", "Kept", "Originals", "Recording", "Retention"]

WAITING = 64 * MEBIBYTE  # bytes of requests and answers that may wait for the disk
PIECE = 64 * 1024  # bytes of an answer that are collected before the thread takes them apart
SWEEP_SECONDS = 3600.0
SWEEP_SHARE = 32  # and each time this part of the bound was written


@dataclass(frozen=True, slots=True)
class Keeping:
    """How originals are kept. Without a retention another process sees to it, or nobody, or whoever uploads them."""

    rotate: int = 64 * MEBIBYTE
    sync: Sync = "rotate"
    redaction: Redaction = field(default_factory=Redaction)
    retention: Retention | None = None


@dataclass(slots=True)
class Kept:
    """A history that was handed over. `done` is True once it is written."""

    done: Future[bool] = field(default_factory=Future)
    history: History | None = None


def _silent(_warning: str) -> None:
    """Nobody listens."""


class Originals:
    """Keeps histories under `folder`, in files of its own: `writer` must be unique among the processes that share it.

    `warn` is called from any thread with a sentence for the operator; `faults` counts what was not written.
    """

    def __init__(
        self,
        folder: Path,
        writer: str,
        keeping: Keeping | None = None,
        warn: Callable[[str], None] = _silent,
        *,
        uploads: Uploads | None = None,
        waiting: int = WAITING,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.faults = 0
        self._folder = folder
        self._keeping = keeping or Keeping()
        self._files = Files(folder, writer, self._keeping.rotate, self._keeping.sync)
        self._warn = warn
        self._uploads = uploads
        self._room = waiting
        self._now = now
        self._lock = threading.Lock()
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._swept_at = float("-inf")
        self._unswept = 0
        self._thread = self._begun()

    def keep(self, history: History) -> Kept:
        """Hand a history over. Most callers go on at once."""
        return self.keep_later(history.size, lambda: history)

    def keep_later(self, size: int, history: Callable[[], History | None]) -> Kept:
        """The same where the thread is to make the history first, out of so many bytes; None: there is none."""
        kept = Kept()

        def write() -> bool:
            made = history()
            if made is not None:
                self._write(made)
                kept.history = made
            return made is not None

        self.hand_over(size, write, kept.done)
        return kept

    def record(self, kept: Kept, assembly: Assembly) -> "Recording":
        """Collect the answer to a history that was handed over."""
        return Recording(self, kept, assembly)

    def hand_over(self, size: int, act: Callable[[], bool], done: Future[bool]) -> bool:
        """An act for the thread that holds so many bytes until it is done. False: there was no room for it."""
        if not self._reserve(size):
            self._fault("the disk is too slow, and too many wait for it already")
            done.set_result(False)
            return False

        def job() -> None:
            awaited = done.set_running_or_notify_cancel()  # a client that left does not undo the writing
            written = False
            try:
                written = act()
            except OSError as fault:
                self._fault(str(fault))
            finally:
                self._release(size)
                if awaited:
                    done.set_result(written)

        self._jobs.put(job)
        return True

    def write_answer(self, kept: Kept, assembly: Assembly, *, ended: bool) -> bool:
        """In the thread. An answer to what could not be written stands nowhere either."""
        history = kept.history
        if history is None or not history.chain:
            return False
        answer = assembly.answer(ended=ended)
        lines = of_answer(history.chain[-1], answer, self._seen, self._keeping.redaction)
        return self._add(history, lambda _: {"": lines} if lines else {}) > 0

    def close(self, seconds: float = 5.0) -> bool:
        """Write what waits, for so long, and send it for as long again. False: something was not written."""
        self._jobs.put(None)
        self._thread.join(seconds)
        if self._uploads is not None:
            self._uploads.close(seconds)
        return not self._thread.is_alive()

    @property
    def _seen(self) -> str:
        now = self._now()
        return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now * 1000) % 1000:03}Z"

    def _reserve(self, size: int) -> bool:
        with self._lock:
            fits = size <= self._room
            self._room -= size if fits else 0
        return fits

    def _release(self, size: int) -> None:
        with self._lock:
            self._room += size

    def _fault(self, why: str) -> None:
        with self._lock:
            self.faults += 1
        self._warn(f"originals were not written below {self._folder}: {why}")

    # --- in the thread ---

    def _begun(self) -> threading.Thread:
        thread = threading.Thread(target=self._work, name="originals", daemon=True)
        thread.start()
        return thread

    def _work(self) -> None:
        left = False
        try:
            while (job := self._next()) is not None:
                job()
            self._files.sync()
            left = True
        finally:
            if not left:  # a fault of ours takes the thread with it, and no more than that
                self._fault("a fault of our own")
                self._thread = self._begun()

    def _next(self) -> Callable[[], None] | None:
        kept = self._keeping.retention
        if kept is None:
            return self._jobs.get()
        while True:
            due = self._swept_at + SWEEP_SECONDS - self._now()
            if due <= 0 or (kept.bytes and self._unswept > kept.bytes // SWEEP_SHARE):
                self._sweep(kept)
            try:
                return self._jobs.get(timeout=max(1.0, due))
            except queue.Empty:
                continue

    def _sweep(self, bounds: Retention) -> None:
        self._swept_at, self._unswept = self._now(), 0
        try:
            for one in retention.beyond(retention.stored_in(self._folder), bounds, self._now()):
                retention.remove(one)
        except OSError as fault:
            self._warn(f"old originals could not be removed: {fault}")

    def _write(self, history: History) -> None:
        self._add(history, lambda known: of_history(history, known, self._seen, self._keeping.redaction))

    def _add(self, history: History, lines_for: Callable[[set[str]], Mapping[str, bytes]]) -> int:
        if self._uploads is not None:
            self._uploads.admit()
        added = self._files.add(self._files.place(history.tenant, history.conversation), lines_for)
        if self._uploads is not None:
            self._uploads.wrote(added)
        self._unswept += added
        return added


class Recording:
    """One answer as it passes: collected here, taken apart in the thread while it still comes."""

    def __init__(self, originals: Originals, kept: Kept, assembly: Assembly) -> None:
        self._originals = originals
        self._kept = kept
        self._assembly = assembly
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> None:
        self._pieces.append(chunk)
        self._size += len(chunk)
        if self._size >= PIECE:
            self._hand_over()

    def end(self, *, ended: bool) -> Future[bool]:
        """No more will come; `ended`: because the upstream has said it all."""
        self._hand_over()
        done: Future[bool] = Future()
        self._originals.hand_over(
            0, lambda: self._originals.write_answer(self._kept, self._assembly, ended=ended), done
        )
        return done

    def _hand_over(self) -> None:
        data, size = b"".join(self._pieces), self._size
        self._pieces, self._size = [], 0

        def feed() -> bool:
            self._assembly.feed(data)
            return True

        if not self._originals.hand_over(size, feed, Future()):
            self._originals.hand_over(0, self._assembly.lose, Future())
