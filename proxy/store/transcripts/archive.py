"""Saved conversations in a folder, or in an object store with its spool: they are found, read and removed here.

If a message has several lines, the first one counts. Unreadable lines are left out.
"""

import builtins
import io
import json
import math
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Protocol

from msgspec import Struct

from proxy import recall
from proxy.config.settings import Transcripts
from proxy.history.messages import Message, read_message
from proxy.store.contract import MEBIBYTE, SystemClock
from proxy.store.transcripts.files import (
    CURRENT,
    REMEMBER_SECONDS,
    SUFFIX,
    AnswerLine,
    HeadLine,
    MessageLine,
    file_name,
    list_files,
    open_locked,
    parse,
)

SHORT_NAME_CHARACTERS = 16
PRUNE_SECONDS = 3600.0
REMOVED_PREFIX = ".removed-"
"""The beginning of the name of a folder that is being removed. A process may be killed before it is."""


class StoreFault(OSError):
    """An object store failed. The text is advice for the operator; `kind` tells different failures apart."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class StoredObject(Struct, frozen=True):
    """An object in a bucket. Its name is without the prefix of the configuration."""

    name: str
    bytes: int
    written_at: float


class ObjectStore(Protocol):
    """A place for closed files. Each method may raise StoreFault. `bucket.Bucket` is the real one."""

    @property
    def url(self) -> str: ...
    def put(self, name: str, file: Path | bytes) -> None: ...
    def get(self, name: str) -> bytes: ...
    def delete(self, name: str) -> None: ...
    def list_objects(self, folder: str = "", *, after: str = "") -> Iterator[StoredObject]: ...
    def list_folders(self) -> list[str]: ...


class Retention(Struct, frozen=True):
    """The bounds `transcripts.days` and `transcripts.mib`; 0 is no bound. Without bounds, nothing is removed."""

    days: float = 0
    bytes: float = 0

    @classmethod
    def of(cls, transcripts: Transcripts) -> "Retention":
        return cls(transcripts.days, transcripts.mib * MEBIBYTE)


class SavedConversation(Struct, frozen=True):
    place: Path
    bytes: int
    written_at: float
    store: ObjectStore | None
    objects: Sequence[StoredObject]
    is_on_disk: bool

    @property
    def tenant(self) -> str:
        return self.place.parent.name

    @property
    def name(self) -> str:
        return self.place.name

    @property
    def short_name(self) -> str:
        """The beginning of the name, as headers and logs show it."""
        return self.name[:SHORT_NAME_CHARACTERS]

    def lines(self) -> Iterator[builtins.bytes]:
        with ExitStack() as stack:
            files = _open_files(self.place, stack)
            if self.store is not None:
                objects = self.objects
                if self.is_on_disk:
                    objects = self._list_again()  # some files may have been sent before they were opened
                # They were closed before the files that still wait.
                for item in objects:
                    yield from io.BytesIO(self.store.get(item.name))
            for file in files:
                yield from file

    def erase(self) -> None:
        """Remove all of it, even if it is written to at this moment."""
        self._remove_folder(math.inf)
        for item in self._list_again():
            self.store.delete(item.name)  # type: ignore[union-attr]  # without a store there are no objects

    def remove(self) -> int:
        """Return the freed bytes. A conversation that was written to since it was found stays."""
        if self.store is None:
            return self._remove_folder(self.written_at)
        if self.is_on_disk:
            return 0
        objects, freed_bytes = self._list_again(), 0
        for item in objects:
            if item.written_at > self.written_at:
                return 0
            freed_bytes += item.bytes
        for item in reversed(objects):  # the newest first: the rest of an interrupted removal has no hole
            self.store.delete(item.name)
        return freed_bytes

    def _remove_folder(self, written_at: float) -> int:
        try:
            file = open_locked(self.place / CURRENT, os.O_CREAT | os.O_RDWR)  # no process appends until this is closed
        except FileNotFoundError:
            return 0
        try:
            if _measure(self.place)[1] > written_at:
                return 0
            # It is renamed first, so that a process that is killed half way leaves no conversation with a hole.
            removed_folder = self.place.with_name(REMOVED_PREFIX + self.place.name)
            shutil.rmtree(removed_folder, ignore_errors=True)
            self.place.rename(removed_folder)
        finally:
            os.close(file)
        with suppress(FileNotFoundError):  # another process sweeps
            shutil.rmtree(removed_folder)
        with suppress(OSError):  # the tenant has other conversations
            self.place.parent.rmdir()
        return self.bytes

    def _list_again(self) -> list[StoredObject]:
        return list(self.store.list_objects(f"{self.tenant}/{self.name}")) if self.store else []


class Archive(Struct, frozen=True):
    """All saved conversations of a folder. With an object store, the folder is its spool."""

    folder: Path
    store: ObjectStore | None = None

    @property
    def location(self) -> str:
        return self.store.url if self.store else str(self.folder)

    def find(self, name: str = "", tenant: str = "") -> Iterator[SavedConversation]:
        """Yield conversations whose names begin with `name`. `tenant` as in `teams`."""
        tenant_folder = file_name(tenant) if tenant else ""
        on_disk: dict[Path, tuple[int, float]] = {}
        for place in self.folder.glob(f"{tenant_folder or '*'}/*"):
            if place.name.startswith(name) and not place.name.startswith("."):
                size, written_at = _measure(place)
                if size:
                    on_disk[place] = size, written_at
        objects: dict[Path, list[StoredObject]] = {}
        if self.store is not None:
            for item in _list_transcripts(self.store, name, tenant_folder):
                objects.setdefault((self.folder / item.name).parent, []).append(item)
        for place in sorted({*on_disk, *objects}):
            size, written_at = on_disk.get(place, (0, 0.0))
            items = objects.get(place, [])
            for item in items:
                size += item.bytes
                written_at = max(written_at, item.written_at)
            yield SavedConversation(place, size, written_at, self.store, items, place in on_disk)

    def newest_first(self) -> list[SavedConversation]:
        return sorted(self.find(), key=lambda conversation: conversation.written_at, reverse=True)

    def read_all(self) -> Iterator["Transcript"]:
        """Read all conversations in their order, from an object store a few at a time: most of it is waiting."""
        conversations, count = self.find(), 1 if self.store is None else 8
        with ThreadPoolExecutor(count) as pool:
            while batch := list(islice(conversations, count)):
                yield from pool.map(read_transcript, batch)

    def sweep(self) -> None:
        """Remove folders that killed processes were removing, and empty folders, whose files were sent."""
        for folder in self.folder.glob(f"*/{REMOVED_PREFIX}*"):
            with suppress(FileNotFoundError):  # another process removes it
                shutil.rmtree(folder)
        if self.store is None:  # nothing was sent, so an empty folder is not the proxy's
            return
        for folder in self.folder.glob("*/*"):
            with suppress(OSError):  # a folder that is not empty stays
                folder.rmdir()
                folder.parent.rmdir()

    def find_expired(self, bounds: Retention, now: float) -> list[SavedConversation]:
        """Return the conversations that retention removes, the longest idle one first."""
        # A process may rely on objects that were written within this time (see files.py). On a disk no file is spared:
        # one that was written while the clock was ahead would stay for long.
        settled_seconds = 2 * REMEMBER_SECONDS if self.store else -math.inf
        expired_conversations, total = [], 0
        for conversation in self.newest_first():
            total += conversation.bytes
            idle = now - conversation.written_at
            is_too_old = bounds.days and idle > bounds.days * 24 * 3600
            is_too_much = bounds.bytes and total > bounds.bytes
            if (is_too_old or is_too_much) and idle >= settled_seconds:
                expired_conversations.append(conversation)
        return expired_conversations[::-1]

    def prune(self, bounds: Retention, now: float) -> int:
        """Remove expired conversations and return the freed bytes. Several processes may do so at once."""
        if not (bounds.days or bounds.bytes):
            return 0
        return sum(conversation.remove() for conversation in self.find_expired(bounds, now))


class Pruning(Struct):
    """Removes expired conversations each hour, and sooner if much was written. For one thread."""

    archive: Archive
    bounds: Retention
    warn: Callable[[str], None]
    clock: SystemClock
    due_at: float = -math.inf
    written_bytes: int = 0
    """The bytes written since the last pruning, if the owner counts them."""

    def prune_when_due(self) -> None:
        if not (self.bounds.days or self.bounds.bytes or self.archive.store):
            return
        now = self.clock.read_believed()
        is_early = self.due_at - PRUNE_SECONDS < now < self.due_at  # a clock may be set back
        is_much = self.bounds.bytes and self.written_bytes > self.bounds.bytes // 32
        if is_early and not is_much:
            return
        self.due_at, self.written_bytes = now + PRUNE_SECONDS, 0
        try:
            self.archive.sweep()
            self.archive.prune(self.bounds, now)
        except OSError as fault:
            self.warn(f"old transcripts could not be removed: {fault}")


def _measure(place: Path) -> tuple[int, float]:
    size, written_at = 0, 0.0
    for path in list_files(place):
        with suppress(FileNotFoundError):
            stat = path.stat()
            if stat.st_size:
                size += stat.st_size
                written_at = max(written_at, stat.st_mtime)
    return size, written_at


def _list_transcripts(store: ObjectStore, name: str, tenant: str) -> Iterator[StoredObject]:
    """Return the objects that are transcripts: a bucket may hold other things, too."""
    folders = [""]
    if tenant:
        folders = [tenant]
    elif name:
        folders = store.list_folders()
    for folder in folders:
        start = f"{folder}/{name}" if name else ""
        for item in store.list_objects(folder, after=start):
            if not item.name.startswith(start):
                break
            if item.name.endswith(SUFFIX) and item.name.count("/") == 2:  # noqa: PLR2004 (<tenant>/<conversation>/<file>)
                yield item


def _open_files(place: Path, stack: ExitStack) -> list[BinaryIO]:
    """Open the files of a conversation as of one moment, while other processes close (rename) and send them."""
    while True:
        paths, files = list_files(place), list[BinaryIO]()
        with ExitStack() as attempt:
            for path in paths:
                with suppress(FileNotFoundError):
                    files.append(attempt.enter_context(path.open("rb")))
            if paths == list_files(place):
                stack.push(attempt.pop_all())
                return files


class Transcript(Struct, frozen=True):
    saved: SavedConversation
    messages: Mapping[str, MessageLine]
    heads: Mapping[str, HeadLine]
    answers: Sequence[AnswerLine]

    @property
    def tenant(self) -> str:
        for line in self.messages.values():
            if line.tenant:
                return line.tenant
        return self.saved.tenant

    @property
    def users(self) -> set[str]:
        """The names, in the bodies of the requests, of the users whose messages these are."""
        return {line.user for line in self.messages.values() if line.user}

    def list_times(self) -> list[str]:
        return sorted([line.seen for line in self._list_lines()])

    def _list_lines(self) -> list[HeadLine | MessageLine | AnswerLine]:
        return [*self.heads.values(), *self.messages.values(), *self.answers]

    def leaves(self) -> list[str]:
        """Return links that nothing follows, newest first."""
        leaves = dict(self.messages)
        for line in self.messages.values():
            leaves.pop(line.after, None)
        return sorted(leaves, key=lambda link: leaves[link].seen, reverse=True)

    def path(self, leaf: str) -> list[MessageLine]:
        path, links, link = [], set(), leaf
        while link in self.messages and link not in links:
            links.add(link)
            path.append(self.messages[link])
            link = self.messages[link].after
        return path[::-1]

    def head_of(self, line: MessageLine) -> list[HeadLine]:
        """Return the system prompts of the first request with this message."""
        return [self.heads[name] for name in line.under if name in self.heads]

    def answers_to(self, link: str) -> list[AnswerLine]:
        return [answer for answer in self.answers if answer.link == link]

    def search(self, find: recall.Finder) -> Iterator[tuple[str, str, str, recall.Match]]:
        """Yield link, role and time of each message that matches, and the match. System prompts have no link."""
        for line in self._list_lines():
            message = _read_saved(line.message)
            texts: Iterable[str] = (_decode(line.message),)
            role = "?"
            if message is not None:
                texts, role = recall.list_searched_texts(message), message.role
            if isinstance(line, AnswerLine):
                role = "answer"
            passage = recall.find_first(texts, find)
            if passage is not None:
                yield line.link, role, line.seen, passage


def read_transcript(conversation: SavedConversation) -> Transcript:
    messages: dict[str, MessageLine] = {}
    heads: dict[str, HeadLine] = {}
    answers: list[AnswerLine] = []
    for raw in conversation.lines():
        match parse(raw) if raw.endswith(b"\n") else None:
            case MessageLine() as line:
                messages.setdefault(line.link, line)
            case HeadLine() as head:
                heads.setdefault(head.name, head)
            case AnswerLine() as answer:
                answers.append(answer)
    return Transcript(conversation, messages, heads, answers)


def role_and_text(raw: bytes) -> tuple[str, str]:
    """Return "?" and the bytes of a message that cannot be read."""
    message = _read_saved(raw)
    if message is None:
        return "?", _decode(raw)
    return message.role, recall.write_out(message)


def _read_saved(raw: bytes) -> Message | None:
    try:
        return read_message(json.loads(raw), raw)
    except (ValueError, RecursionError):
        return None


def _decode(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
