"""On their way to an object store: segments of the spool, sent by threads that nobody waits for.

One thread looks at the spool once a second: it seals what is old or large enough and deals out the conversations that
have something to send; a few others send, each conversation in the order of its segments. When the store fails, all
pause, longer with every failure; what could not be sent stays where it is, for this process or the next one on this
disk. A fault is told once, and once more when it is another one.

What is too much for the spool is not taken any more (`SpoolFull`): that is a full disk, and treated like one.
"""

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from proxy.store.transcripts import objects
from proxy.store.transcripts.files import MEBIBYTE, Sync
from proxy.store.transcripts.retention import Retention
from proxy.store.transcripts.s3 import Bucket, StoreFault
from proxy.store.transcripts.spool import Spool, intact, reseal, sealed_in

LOOK_SECONDS = 1.0
LOOK_SHARE = 20  # a look takes at most this part of the time
LONGEST_WAIT = 60.0
SWEEP_SECONDS = 3600.0
FIRST_SWEEP_SECONDS = 60.0  # by then it is known whether the store answers
QUIET_SECONDS = 60.0  # after which a fault that comes and goes is told again
HANDOVER_SECONDS = 1.0  # that one who leaves waits for another to send, or to leave the sending to it
DISK = "disk"


class SpoolFull(OSError):
    """The object store is away, and what waits for it has filled its room."""


@dataclass(frozen=True, slots=True)
class Sending:
    """How segments are sent. Without a retention somebody else sees to the age of what is in the store."""

    seconds: float = 5.0
    """Age at which a segment goes."""
    rotate: int = 8 * MEBIBYTE
    """Size at which it goes at once."""
    room: int = 1024 * MEBIBYTE
    """How much may wait on this disk, of all processes together."""
    sync: Sync = "rotate"
    lanes: int = 4
    """How many are sent at once."""
    retention: Retention | None = None


def _silent(_words: str) -> None:
    """Nobody listens."""


class Uploads:
    """Takes what stands in the spool to a bucket. `warn` and `tell` are called from any thread, with a sentence."""

    def __init__(
        self,
        bucket: Bucket,
        folder: Path,
        sending: Sending | None = None,
        warn: Callable[[str], None] = _silent,
        tell: Callable[[str], None] = _silent,
    ) -> None:
        self.faults = 0
        self.sent = 0
        self._bucket = bucket
        self._sending = sending or Sending()
        self._spool = Spool(folder, self._sending.seconds, self._sending.rotate, self._sending.sync)
        self._warn = warn
        self._tell = tell
        self._lock = threading.Lock()
        self._waiting = 0
        self._busy: dict[Path, None] = {}
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._pause = _Pause()
        self._stubborn: dict[Path, int] = {}
        self._swept_at = time.monotonic() + FIRST_SWEEP_SECONDS - SWEEP_SECONDS
        self._leaving = threading.Event()
        self._looker = self._begun(self._look_on)
        self._lanes = [self._begun(self._send_on) for _ in range(self._sending.lanes)]

    @property
    def waiting(self) -> int:
        """Bytes in the spool, as far as is known."""
        return self._waiting

    def admit(self) -> None:
        """Called before something is written. SpoolFull: it cannot be."""
        if self._waiting >= self._sending.room:
            said = f"{self._waiting // MEBIBYTE} MiB wait in {self._spool.folder} for the object store already"
            raise SpoolFull(f"{said}: see why it does not take them, or raise `transcripts.spool_mib`")

    def wrote(self, added: int) -> None:
        with self._lock:
            self._waiting += added

    def close(self, seconds: float = 5.0) -> bool:
        """Send what waits, for so long. False: something stays here for the next process."""
        end = time.monotonic() + seconds
        self._leaving.set()
        self._looker.join(seconds)
        self._pause.forget()
        gone = self._sent_all(end)
        for _ in self._lanes:
            self._jobs.put(None)
        for lane in self._lanes:
            lane.join(max(0.0, end - time.monotonic()))
        self._spool.leave()
        self._bucket.close()
        return gone

    # --- one thread looks ---

    def _look_on(self, wait: float = 0.0) -> None:
        try:
            while not self._leaving.wait(wait):
                began = time.monotonic()
                self._look()
                wait = max(LOOK_SECONDS, LOOK_SHARE * (time.monotonic() - began))
        finally:
            if not self._leaving.is_set():  # a fault of ours takes the thread with it, and no more than that
                self._looker = self._begun(partial(self._look_on, LOOK_SECONDS))

    def _look(self, *, every: bool = False) -> None:
        try:
            found = self._spool.look()
            with self._lock:
                self._waiting = sum(one.bytes for one in found)
            if self._pause.over:
                self._sweep_when_due()
                if self._spool.take():
                    self._deal_out(self._spool.ready(found, every=every))
        except OSError as fault:
            self._failed(fault)

    def _deal_out(self, places: list[Path]) -> None:
        for place in sorted(places, key=lambda place: self._stubborn.get(place, 0)):
            if place not in self._busy:
                self._busy[place] = None
                self._jobs.put(partial(self._send, place))

    def _sent_all(self, end: float) -> bool:
        patience = time.monotonic() + HANDOVER_SECONDS
        while True:
            self._look(every=True)
            while self._busy and time.monotonic() < end:
                time.sleep(0.01)
            left = sum(one.bytes for one in self._spool.look())
            if not left or time.monotonic() >= min(end, patience) or not self._pause.over:
                break
            time.sleep(0.05)  # another process sends for all, and may be leaving, too
        if left:
            self._tell(f"{left} bytes of transcripts wait in {self._spool.folder} for the next start")
        return not left

    def _sweep_when_due(self) -> None:
        now = time.monotonic()
        if now - self._swept_at >= SWEEP_SECONDS:
            self._swept_at = now
            self._spool.tidy()
            if self._sending.retention is not None:
                self._jobs.put(partial(self._sweep, self._sending.retention))

    # --- and the others send ---

    def _send_on(self) -> None:
        left = False
        try:
            while (job := self._jobs.get()) is not None:
                job()
            left = True
        finally:
            if not left:  # likewise
                self._lanes.append(self._begun(self._send_on))

    def _send(self, place: Path) -> None:
        well = False
        try:
            for path in sealed_in(place):
                if not self._pause.over:
                    break
                self._send_one(path)
            well = True
        except OSError as fault:
            self._failed(fault)
        finally:
            self._stubborn[place] = 0 if well else self._stubborn.get(place, 0) + 1
            self._busy.pop(place, None)

    def _send_one(self, path: Path) -> None:
        if not intact(path):
            reseal(path)
            return
        size = path.stat().st_size
        try:
            with path.open("rb") as file:
                self._bucket.put(self._spool.name(path), file)
        except StoreFault:
            self._spool.waits_on(path)
            raise
        self._spool.sent(path)
        self._succeeded(size)

    def _sweep(self, bounds: Retention) -> None:
        try:
            objects.prune(self._bucket, self._spool.folder, bounds, time.time())
        except OSError as fault:
            self._warn(f"old transcripts could not be removed: {fault}")

    def _succeeded(self, size: int) -> None:
        with self._lock:
            self.sent += 1
            self._waiting -= size
            silent = self._pause.end()
        if silent:
            self._tell(f"the object store takes transcripts again, after {silent:.0f} seconds")

    def _failed(self, fault: OSError) -> None:
        with self._lock:
            self.faults += 1
            news = self._pause.begin(fault.kind if isinstance(fault, StoreFault) else DISK)
        if news:
            self._warn(f"transcripts wait in {self._spool.folder}: {fault}")

    def _begun(self, work: Callable[[], None]) -> threading.Thread:
        thread = threading.Thread(target=work, name="uploads", daemon=True)
        thread.start()
        return thread


class _Pause:
    """While a store fails: how long to wait, and what was told of it."""

    def __init__(self) -> None:
        self._failures = 0
        self._until = 0.0
        self._since: float | None = None
        self._told: dict[str, float] = {}
        self._well_at = float("-inf")

    @property
    def over(self) -> bool:
        return time.monotonic() >= self._until

    def begin(self, kind: str) -> bool:
        """Whether this has to be told. Those that fail at the same time count as one."""
        now = time.monotonic()
        if self.over:
            self._failures += 1
            self._until = now + min(LONGEST_WAIT, 0.5 * 2**self._failures)
        last = self._told.get(kind)
        if last is not None and (last >= self._well_at or now - last < QUIET_SECONDS):
            return False
        self._told[kind] = now
        self._since = self._since or now
        return True

    def forget(self) -> None:
        """Try once more, now."""
        self._until = 0.0

    def end(self) -> float:
        """For how long it had failed, if that was told; else 0."""
        now = time.monotonic()
        silent = now - self._since if self._since else 0.0
        self._failures, self._until, self._since, self._well_at = 0, 0.0, None, now
        return silent
