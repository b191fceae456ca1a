"""The originals on disk: every message as the client sent it, once, before anything of it is folded away.

JSON Lines, one message a line, in one file per conversation and process, which only ever grows:

    {"v":1,"at":"<chain hash>","after":"<the one before>","seen":"2026-11-21T09:00:00Z","message":{…}}
    {"v":1,"head":"<hash>","seen":"…","message":{…}}                      system prompts stand outside the chain

A chain hash stands for all that came before it, so a history that is sent again writes only what is new, and from any
line one can walk back to the first; forks share their trunk.

`keep` only hands over: a thread writes. A disk that is slow, full or gone delays no request and fails none. What could
not be taken is counted, and since the client sends its history again, the next turn writes what this one missed.
"""

import os
import queue
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

WAITING = 64 * 1024 * 1024  # bytes of requests that may wait for the disk
REMEMBERED = 100_000  # hashes at hand, about 12 MB; those of other conversations are read from their files again
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
ID = re.compile(rb'\{"v":1,"(?:at|head)":"([!#-~]*)"')
BREAKS = bytes.maketrans(b"\r\n", b"  ")  # in JSON a bare line break is only ever white space


@dataclass(frozen=True, slots=True)
class History:
    """What one request carried. `chain[i]` is the hash at `messages[i]`; the head is not part of the chain."""

    tenant: str
    conversation: str
    chain: Sequence[str]
    messages: Sequence[bytes]
    head: Sequence[bytes] = ()

    @property
    def size(self) -> int:
        return sum(map(len, self.messages)) + sum(map(len, self.head))


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
        warn: Callable[[str], None] = _silent,
        waiting: int = WAITING,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.faults = 0
        self._disk = _Disk(folder, writer, now)
        self._warn = warn
        self._room = waiting
        self._lock = threading.Lock()
        self._waiting: queue.SimpleQueue[tuple[History, Future[bool]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write_all, name="originals", daemon=True)
        self._thread.start()

    def keep(self, history: History) -> "Future[bool]":
        """Hand a history over. Most callers go on at once; who must know waits: True once it is written."""
        kept: Future[bool] = Future()
        if self._reserve(history.size):
            self._waiting.put((history, kept))
        else:
            self._fault("the disk is too slow, and too many wait for it already")
            kept.set_result(False)
        return kept

    def close(self, seconds: float = 5.0) -> bool:
        """Write what waits, for so long. False: something was left."""
        self._waiting.put(None)
        self._thread.join(seconds)
        return not self._thread.is_alive()

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
        self._warn(f"originals were not written: {why}")

    def _write_all(self) -> None:
        while (waiting := self._waiting.get()) is not None:
            history, kept = waiting
            awaited = kept.set_running_or_notify_cancel()  # a client that left does not undo the writing
            written = self._write(history)
            self._release(history.size)
            if awaited:
                kept.set_result(written)

    def _write(self, history: History) -> bool:
        try:
            self._disk.write(history)
        except OSError as fault:
            self._fault(str(fault))
            return False
        return True


class _Disk:
    """Files of conversations, and which hashes stand in them. Lives in the writer's thread."""

    def __init__(self, folder: Path, writer: str, now: Callable[[], float]) -> None:
        self._folder = folder
        self._writer = writer
        self._now = now
        self._known: OrderedDict[Path, set[str]] = OrderedDict()

    def write(self, history: History) -> None:
        stem = self._folder / _file_name(history.tenant) / _file_name(history.conversation)
        known = self._ids(stem)
        seen = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._now()))
        lines = {**_new_head(history, known, seen), **_new_messages(history, known, seen)}
        if lines:
            del self._known[stem]  # should the disk fill up half way, the file alone knows what stands in it
            _append(stem.with_name(f"{stem.name}.{self._writer}.jsonl"), b"".join(lines.values()))
            self._known[stem] = known | lines.keys()

    def _ids(self, stem: Path) -> set[str]:
        if stem not in self._known:
            self._known[stem] = {id_ for file in stem.parent.glob(f"{stem.name}.*.jsonl") for id_ in ids_in(file)}
        self._known.move_to_end(stem)
        while len(self._known) > 1 and sum(map(len, self._known.values())) > REMEMBERED:
            self._known.popitem(last=False)
        return self._known[stem]


def ids_in(file: Path) -> Iterator[str]:
    """The hashes of the whole lines of a file; a torn last line does not count."""
    with file.open("rb") as lines:
        for line in lines:
            found = ID.match(line)
            if found and line.endswith(b"\n"):
                yield found[1].decode()


def _new_head(history: History, known: set[str], seen: str) -> dict[str, bytes]:
    named = {blake2b(message, digest_size=16).hexdigest(): message for message in history.head}
    return {
        name: b'{"v":1,"head":"%s","seen":"%s","message":%s}\n'
        % (name.encode(), seen.encode(), message.translate(BREAKS))
        for name, message in named.items()
        if name not in known
    }


def _new_messages(history: History, known: set[str], seen: str) -> dict[str, bytes]:
    """From the newest back to the first that is known: all before it is known, too."""
    start = len(history.chain)
    while start and history.chain[start - 1] not in known:
        start -= 1
    before = ("", *history.chain)
    return {
        history.chain[at]: b'{"v":1,"at":"%s","after":"%s","seen":"%s","message":%s}\n'
        % (history.chain[at].encode(), before[at].encode(), seen.encode(), history.messages[at].translate(BREAKS))
        for at in range(start, len(history.chain))
    }


def _append(path: Path, lines: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with os.fdopen(os.open(path, os.O_CREAT | os.O_RDWR | os.O_APPEND, 0o600), "ab") as file:
        file.truncate(_whole_lines(file.fileno()))
        file.write(lines)


def _whole_lines(file: int) -> int:
    """Where the last whole line ends: a process that was killed while it wrote leaves a torn one behind."""
    end = os.fstat(file).st_size
    while end > 0:
        start = max(0, end - 65_536)
        found = os.pread(file, end - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0


def _file_name(name: str) -> str:
    """Tenants and conversations name folders and files; whatever is not plainly a name is named by its hash."""
    return name if NAME.fullmatch(name) else blake2b(name.encode(), digest_size=16).hexdigest()
