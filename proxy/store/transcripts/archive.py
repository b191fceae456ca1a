"""Saved conversations: found, read and removed, in a folder or in an object store with its spool.

Every name begins with its tenant, then its conversation, in both places: so one conversation is found, read or removed
without a look at any other. Several processes may have written the same message: its first line counts.
A line whose newline is missing was torn and does not count. What cannot be read is left out: a transcript with a hole
in it is still of use.
"""

import builtins
import io
import json
import math
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from itertools import chain, groupby, islice
from pathlib import Path
from typing import BinaryIO, Protocol, TypeVar

from proxy.history.messages import Message, read_message
from proxy.recall import search as recall
from proxy.store.transcripts.files import (
    CURRENT,
    OPEN_TRIES,
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

DAY_SECONDS = 24 * 3600.0
SETTLED_SECONDS = 2 * REMEMBER_SECONDS
READ_AHEAD_MAX = 8
NAME_PARTS_COUNT = 3
SHORT_NAME_CHARACTERS = 16
REMOVED = ".removed-"  # no conversation is called so
T = TypeVar("T")


class StoreFault(OSError):
    """A failure of an object store, which says what to do about it. Equal failures have equal kinds."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object as a list shows it; its name is what follows the prefix."""

    name: str
    bytes: int
    written: float


class ObjectStore(Protocol):
    """Four verbs of an object store; each raises StoreFault. `bucket.Bucket` is the real one."""

    @property
    def url(self) -> str: ...
    def put(self, name: str, file: Path | bytes) -> None: ...
    def get(self, name: str) -> bytes: ...
    def delete(self, name: str) -> None: ...
    def list_objects(self, folder: str = "", *, after: str = "") -> Iterator[StoredObject]: ...
    def list_folders(self) -> list[str]: ...


@dataclass(frozen=True, slots=True)
class Retention:
    """How long and how much is kept; 0 is no bound."""

    days: float = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class SavedConversation:
    """A conversation as it was found: its folder on this disk, and its objects where there is an object store."""

    place: Path
    bytes: int
    written: float
    store: ObjectStore | None = None
    objects: Sequence[StoredObject] = ()
    is_on_disk: bool = True

    @property
    def tenant(self) -> str:
        return self.place.parent.name

    @property
    def name(self) -> str:
        return self.place.name

    @property
    def short_name(self) -> str:
        """So much of the name is what the activity log, headers and logs call a conversation."""
        return self.name[:SHORT_NAME_CHARACTERS]

    def lines(self) -> Iterator[builtins.bytes]:
        with ExitStack() as opened:
            on_disk = chain.from_iterable(_open_files(self.place, opened))
            if self.store is None:
                yield from on_disk
                return
            # Read before the objects are listed again: what is sent in between is among those.
            waiting = list(on_disk)
            for item in self._list_again() if self.is_on_disk else self.objects:
                yield from io.BytesIO(self.store.get(item.name))
            yield from waiting

    def remove(self) -> int:
        """Remove it and return the bytes this freed. It stays if it was written to since it was found."""
        return self._remove_folder() if self.store is None else self._remove_objects(self.store)

    def _remove_folder(self) -> int:
        try:
            file = open_locked(self.place / CURRENT, os.O_CREAT | os.O_RDWR)  # no process appends until this is closed
        except FileNotFoundError:
            return 0
        try:
            if _last_written(self.place) > self.written:
                return 0
            # Renamed first: a process that is killed half way leaves no conversation with a hole.
            removed = self.place.with_name(REMOVED + self.place.name)
            shutil.rmtree(removed, ignore_errors=True)
            self.place.rename(removed)
        finally:
            os.close(file)
        shutil.rmtree(removed)
        with suppress(OSError):  # the tenant has other conversations
            self.place.parent.rmdir()
        return self.bytes

    def _remove_objects(self, store: ObjectStore) -> int:
        objects = self._list_again()
        if self.is_on_disk or any(item.written > self.written for item in objects):
            return 0
        for item in reversed(objects):  # the newest first: what is left of an interrupted removal has no hole
            store.delete(item.name)
        return sum(item.bytes for item in objects)

    def _list_again(self) -> list[StoredObject]:
        return list(self.store.list_objects(f"{self.tenant}/{self.name}")) if self.store else []


@dataclass(frozen=True, slots=True)
class Archive:
    """All saved conversations: below a folder, or in an object store, and then the folder is its spool."""

    folder: Path
    store: ObjectStore | None = None

    @property
    def location(self) -> str:
        return self.store.url if self.store else str(self.folder)

    def find(self, name: str = "", tenant: str = "") -> Iterator[SavedConversation]:
        """Those whose names begin like this, of one tenant (as it is called in `teams`) or of all."""
        tenant_prefix = file_name(tenant) if tenant else ""
        on_disk = _find_in_folder(self.folder, name, tenant_prefix)
        return on_disk if self.store is None else _find_in_store(self.store, self.folder, on_disk, name, tenant_prefix)

    def newest_first(self, tenant: str = "") -> list[SavedConversation]:
        return sorted(self.find("", tenant), key=lambda one: one.written, reverse=True)

    def read_each(self, read: Callable[[SavedConversation], T]) -> Iterator[T]:
        """All of them, read, in their order. From an object store a few at a time: most of the time is waiting."""
        if self.store is None:
            yield from map(read, self.find())
            return
        found = self.find()
        with ThreadPoolExecutor(READ_AHEAD_MAX) as pool:
            while some := list(islice(found, READ_AHEAD_MAX)):
                yield from pool.map(read, some)

    def find_expired(self, bounds: Retention, now: float) -> list[SavedConversation]:
        """Those that are too old or beyond the size, the one that was silent longest first."""
        # In an object store, a process may count on what was written within this time (see files.py). A file that is
        # dated later than now was written while the clock was ahead: it is no obstacle to the size.
        settled = SETTLED_SECONDS if self.store else -math.inf
        expired, total = [], 0
        for conversation in self.newest_first():
            total += conversation.bytes
            silent = now - conversation.written
            too_old = bounds.days and silent > bounds.days * DAY_SECONDS
            if (too_old or (bounds.bytes and total > bounds.bytes)) and silent >= settled:
                expired.append(conversation)
        return expired[::-1]

    def prune(self, bounds: Retention, now: float) -> int:
        """Remove what has expired; the bytes this freed. Several processes may do so at the same time."""
        if not (bounds.days or bounds.bytes):
            return 0
        return sum(conversation.remove() for conversation in self.find_expired(bounds, now))


def _find_in_folder(folder: Path, name: str, tenant: str) -> Iterator[SavedConversation]:
    for place in sorted(folder.glob(f"{tenant or '*'}/*")):
        if place.name.startswith(name) and not place.name.startswith("."):
            stats = [stat for path in list_files(place) if (stat := _stat(path)) and stat.st_size]
            if stats:
                size, written = sum(stat.st_size for stat in stats), max(stat.st_mtime for stat in stats)
                yield SavedConversation(place, size, written)


def _find_in_store(
    store: ObjectStore, spool: Path, on_disk: Iterable[SavedConversation], name: str, tenant: str
) -> Iterator[SavedConversation]:
    waiting = {saved.place: saved for saved in on_disk}
    for place, objects in groupby(_list_transcripts(store, name, tenant), lambda item: (spool / item.name).parent):
        found, spooled = list(objects), waiting.pop(place, None)
        parts: list[StoredObject | SavedConversation] = [*found, *([spooled] if spooled else [])]
        size, written = sum(part.bytes for part in parts), max(part.written for part in parts)
        yield SavedConversation(place, size, written, store, found, spooled is not None)
    for saved in waiting.values():
        yield replace(saved, store=store)


def _list_transcripts(store: ObjectStore, name: str, tenant: str) -> Iterator[StoredObject]:
    """In the order of their names, and only transcripts: a bucket may hold other things, too."""
    for folder in [tenant] if tenant else store.list_folders() if name else [""]:
        start = f"{folder}/{name}" if name else ""
        for item in store.list_objects(folder, after=start):
            if not item.name.startswith(start):
                break
            if item.name.endswith(SUFFIX) and len(item.name.split("/")) == NAME_PARTS_COUNT:
                yield item


def _open_files(place: Path, opened: ExitStack) -> list[BinaryIO]:
    """All files of a conversation as of one moment: they are closed (renamed) and sent by other processes."""
    missed = Counter[str]()
    while True:
        paths = [path for path in list_files(place) if missed[str(path)] < OPEN_TRIES]
        with ExitStack() as files:
            try:
                found: list[BinaryIO] = [files.enter_context(path.open("rb")) for path in paths]
            except FileNotFoundError as fault:
                missed[str(fault.filename)] += 1
                continue
            opened.push(files.pop_all())
            return found


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def _last_written(place: Path) -> float:
    return max((stat.st_mtime for path in list_files(place) if (stat := _stat(path)) and stat.st_size), default=0.0)


@dataclass(frozen=True, slots=True)
class Transcript:
    """All messages of a conversation, forks included, and the answers to them."""

    saved: SavedConversation
    messages: Mapping[str, MessageLine]
    heads: Mapping[str, HeadLine]
    answers: Sequence[AnswerLine]

    @property
    def tenant(self) -> str:
        return next((line.tenant for line in self.messages.values() if line.tenant), self.saved.tenant)

    @property
    def first_seen(self) -> str:
        return min(self._times(), default="")

    @property
    def last_seen(self) -> str:
        return max(self._times(), default="")

    def leaves(self) -> list[str]:
        """The messages that nothing follows, the newest first."""
        followed = {line.after for line in self.messages.values()}
        leaves = [line for line in self.messages.values() if line.at not in followed]
        return [line.at for line in sorted(leaves, key=lambda line: line.seen, reverse=True)]

    def path(self, leaf: str) -> list[MessageLine]:
        """From the first message to this one, as far back as the lines reach."""
        path, seen, at = [], set(), leaf
        while at in self.messages and at not in seen:
            seen.add(at)
            path.append(self.messages[at])
            at = self.messages[at].after
        return path[::-1]

    def head_of(self, line: MessageLine) -> list[HeadLine]:
        """The system prompts of the request that first carried this message."""
        return [self.heads[name] for name in line.under if name in self.heads]

    def answers_to(self, at: str) -> list[AnswerLine]:
        return [answer for answer in self.answers if answer.to == at]

    def texts(self) -> Iterator[tuple[str, str, str, str]]:
        """Everything in it: at which link, by which role, when, and the text. System prompts have no link."""
        for at, seen, raw, is_answer in self._list_messages():
            role, text = role_and_text(raw)
            yield at, "answer" if is_answer else role, seen, text

    def search(self, find: recall.Finder) -> Iterator[tuple[str, str, str, recall.Match]]:
        """Every message in which something is found: at which link, by which role, when, and the match."""
        yield from ((*label, match) for label, match in recall.search(self._list_searched(), find))

    def _list_searched(self) -> Iterator[tuple[tuple[str, str, str], Iterable[str]]]:
        for at, seen, raw, is_answer in self._list_messages():
            message = _read_saved(raw)
            role = "?" if message is None else message.role
            texts = (_decode(raw),) if message is None else recall.list_searched_texts(message)
            yield (at, "answer" if is_answer else role, seen), texts

    def _list_messages(self) -> Iterator[tuple[str, str, bytes, bool]]:
        """Every message: at which link, when, its bytes, and whether it is an answer. System prompts have no link."""
        for head in self.heads.values():
            yield "", head.seen, head.message, False
        for line in self.messages.values():
            yield line.at, line.seen, line.message, False
        for answer in self.answers:
            yield answer.to, answer.seen, answer.message, True

    def _times(self) -> Iterator[str]:
        for lines in (self.messages.values(), self.heads.values(), self.answers):
            yield from (line.seen for line in lines)


def read_transcript(saved: SavedConversation) -> Transcript:
    messages: dict[str, MessageLine] = {}
    heads: dict[str, HeadLine] = {}
    answers: list[AnswerLine] = []
    for raw in saved.lines():
        match parse(raw) if raw.endswith(b"\n") else None:
            case MessageLine() as line:
                messages.setdefault(line.at, line)
            case HeadLine() as head:
                heads.setdefault(head.name, head)
            case AnswerLine() as answer:
                answers.append(answer)
    return Transcript(saved, messages, heads, answers)


def role_and_text(raw: bytes) -> tuple[str, str]:
    """The role of a message, and its text with its calls. What cannot be read is shown as it is."""
    message = _read_saved(raw)
    return ("?", _decode(raw)) if message is None else (message.role, recall.write_out(message))


def _read_saved(raw: bytes) -> Message | None:
    """A saved message; None where it cannot be read."""
    try:
        return read_message(json.loads(raw), raw)
    except (ValueError, RecursionError):
        return None


def _decode(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
