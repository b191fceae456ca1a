"""Transcript files: their format, and how they are written: append-only, a folder for each conversation.

    originals/<tenant>/<conversation>/current.jsonl                              being written, by all workers
    originals/<tenant>/<conversation>/20261121T090000123Z-1a2b3c4d5e6f7081.jsonl   closed: it never changes again

One message is one line of JSON:

    {"v":1,"at":"<link>","after":"<the one before>","seen":"2026-11-21T09:00:00.000Z","under":["<head>"],"message":{…}}
    {"v":1,"head":"<hash>","seen":"…","message":{…}}                          system prompts are outside the chain
    {"v":1,"answer":0,"to":"<link>","seen":"…","model":"…","finish":"stop","usage":{…},"message":{…}}

A link of the chain stands for all that came before it, so a history that is sent again adds only what is new, and from
any line one can walk back to the first; forks share their trunk. The first line also carries the `tenant`, and its
`after` is the link that the chain begins with. A model's answer is kept beside the chain, because a client's echo
of it, which comes with the next request, is another text.

The message is the client's own bytes. Where it was changed before it was written, `altered` says by what (the kind of
a secret that was taken out, `line-breaks` outside of its texts), and its link still stands for the original.

All processes of a disk append to the same file, under a lock. It was read once and is then read on, so
an append costs the same however many files and conversations there are. A file that is not the one that was read (it
was closed by another process, or its conversation was removed) makes the next append read the folder again.

A line counts once its newline is there. The next append cuts off a torn end: a process was killed over it, or the disk
was full.

Where the folder is the spool of an object store, closed files vanish once they are sent. What a process saw in the
folder within the last hour it takes for sent, and nothing is removed from a store that was written to within two: so a
conversation that was removed there is never taken for known, and is written whole again by its next request.
"""

import fcntl
import json
import os
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal

import msgspec

from proxy.history import splice
from proxy.store.clock import read_elapsed
from proxy.store.contract import MEBIBYTE
from proxy.wire.answer_assembly import Answer
from proxy.wire.redaction import Redaction

VERSION = 1
LINE_BREAKS = "line-breaks"
_ID = re.compile(rb'\{"v":1,"(?:at|head)":"([!#-~]*)"')
_BREAK = re.compile(rb"[\r\n]")
_BREAKS = bytes.maketrans(b"\r\n", b"  ")  # in JSON a bare line break is only ever white space
_MESSAGE = b',"message":'
_ANSWER = b'{"v":1,"answer":'
SUFFIX = ".jsonl"
CURRENT = f"current{SUFFIX}"
OPEN_TRIES = 8
"""Opening a file that other processes rename or remove; what is missing each time is a link to nothing."""
REMEMBER_SECONDS = 3600.0
REMEMBERED_IDS_MAX = 100_000  # about 12 MB; those of other conversations are read from their files again
LOCATED_MAX = 1_000
BEGINNING_BYTES = 256  # of a file; they hold a hash and a time, so no other file begins like it
_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z_.-]{0,99}")
_CLOSED = re.compile(rf"\d{{8}}T\d{{9}}Z-.+{re.escape(SUFFIX)}")


@dataclass(frozen=True, slots=True)
class History:
    """Messages of one request. `links[i]` is the link at `messages[i]`; the head has no links."""

    tenant: str
    conversation: str
    links: Sequence[str]
    messages: Sequence[bytes]
    head: Sequence[bytes] = ()
    """System prompts."""
    origin: str = ""
    """The link before the first of these messages."""
    policy: str = ""
    """The policy by which it was treated, with its version."""
    wire: str = ""
    """The API that it came by, where it is not Chat Completions."""
    size: int = 0
    """The bytes that it holds while it waits to be written."""

    def to_lines(self, known: Container[str], seen: str, redaction: Redaction) -> dict[str, bytes]:
        """The lines that are not known yet, by their ids."""
        named = {hash_head(message): message for message in self.head}
        lines = {
            name: _format({"head": name, "seen": seen}, message, redaction)
            for name, message in named.items()
            if name not in known
        }
        start = len(self.links)  # searched from the newest back, because all before a known one is known, too
        while start and self.links[start - 1] not in known:
            start -= 1
        for index in range(start, len(self.links)):
            before = self.links[index - 1] if index else self.origin
            fields: dict[str, Any] = {"at": self.links[index], "after": before, "seen": seen}
            first = {} if index else {"tenant": self.tenant, "wire": self.wire}
            optional = *first.items(), ("under", tuple(named)), ("policy", self.policy)
            fields |= {name: value for name, value in optional if value}
            lines[self.links[index]] = _format(fields, self.messages[index], redaction)
        return lines


class MessageLine(msgspec.Struct, frozen=True):
    """A message, read back."""

    at: str
    after: str
    seen: str
    message: bytes
    under: tuple[str, ...] = ()
    altered: tuple[str, ...] = ()
    tenant: str = ""
    policy: str = ""
    wire: str = ""


class HeadLine(msgspec.Struct, frozen=True):
    """A system prompt, read back."""

    name: str = msgspec.field(name="head")
    seen: str
    message: bytes
    altered: tuple[str, ...] = ()


class AnswerLine(msgspec.Struct, frozen=True):
    """A model's answer to the history that ends at the link `to`, read back."""

    to: str
    seen: str
    choice: int = msgspec.field(name="answer")
    message: bytes
    model: str = ""
    finish: str = ""
    usage: Mapping[str, Any] = {}
    error: Any = None
    cut: bool = False
    altered: tuple[str, ...] = ()


Line = MessageLine | HeadLine | AnswerLine


def render_answer_lines(to: str, answer: Answer, seen: str, redaction: Redaction) -> bytes:
    """The lines of an answer, one for each of its choices; the first carries what it cost."""
    error = json.loads(redaction.of_json(json.dumps(answer.error).encode())[0])
    optional = {"model": answer.model, "usage": answer.usage, "error": error, "cut": not answer.whole}
    extra = {name: value for name, value in optional.items() if value}
    lines = []
    for choice in answer.choices:
        fields = {"answer": choice.index, "to": to, "seen": seen, "finish": choice.finish or "", **extra}
        lines.append(_format(fields, choice.message, redaction))
        extra.pop("usage", None)
    return b"".join(lines)


def hash_head(message: bytes) -> str:
    return blake2b(message, digest_size=16).hexdigest()


def find_ids(lines: Iterable[bytes]) -> Iterator[str]:
    """The ids in those of these lines that are whole."""
    for line in lines:
        if line.endswith(b"\n") and (found := _ID.match(line)):
            yield found[1].decode()


def parse(line: bytes) -> Line | None:
    """A whole line, read back; None for one that this format does not know."""
    try:
        if line.startswith(_ANSWER):
            # Member by member: an upstream's error may hold anything, also the bytes that begin a message elsewhere.
            members = {member.key: line[member.start : member.stop] for member in splice.iterate_members(line)}
            message = members.pop("message")
            fields = {name: json.loads(value) for name, value in members.items()}
        else:
            start, _, rest = line.partition(_MESSAGE)
            fields, message = json.loads(start + b"}"), rest[: rest.rindex(b"}")]
        kind: Any = AnswerLine if "answer" in fields else HeadLine if "head" in fields else MessageLine
        read: Line = msgspec.convert({**fields, "message": message}, kind)
        return read if fields["v"] == VERSION else None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):  # ValidationError is a ValueError
        return None


def _format(fields: Mapping[str, Any], message: bytes, redaction: Redaction) -> bytes:
    clean, kinds = redaction.of_json(message)
    if _BREAK.search(clean):
        clean, kinds = clean.translate(_BREAKS), (*kinds, LINE_BREAKS)
    line = {"v": VERSION, **fields, **({"altered": kinds} if kinds else {})}
    start = json.dumps(line, separators=(",", ":")).encode()
    return start[:-1] + _MESSAGE + clean + b"}\n"


Sync = Literal["never", "rotate", "always"]
MakeLines = Callable[[AbstractSet[str]], Mapping[str, bytes]]


@dataclass(slots=True)
class _Known:
    """The ids in a conversation's files, and how far its current file was read for them."""

    since: float
    """When the first of them was found in the folder. Other machines go on while this one is suspended."""
    beginning: bytes = b""
    end: int = 0
    ids: set[str] = field(default_factory=set)


class TranscriptFolder:
    """The files below a folder, for one process. Appending is for one thread.

    `is_spool`: closed files vanish once they are sent, and then it goes by what it remembers of them.
    """

    def __init__(
        self, path: Path, rotate_bytes: int = 64 * MEBIBYTE, sync: Sync = "rotate", *, is_spool: bool = False
    ) -> None:
        self.path = path
        self.sync = sync
        self._rotate_bytes = rotate_bytes
        self._is_spool = is_spool
        self._known: OrderedDict[Path, _Known] = OrderedDict()

    def locate(self, tenant: str, conversation: str) -> Path:
        """The folder of a conversation."""
        return _locate(self.path, tenant, conversation)

    def append(self, tenant: str, conversation: str, make_lines: MakeLines) -> int:
        """Write the lines that are made of the ids that are known; how many bytes."""
        place = self.locate(tenant, conversation)
        with ExitStack() as held:
            file = _open_to_append(place)
            held.callback(os.close, file)
            known = self._read_on(place, file)
            lines = make_lines(known.ids)
            if not lines:
                return 0
            if known.end >= self._rotate_bytes:
                close_file(place / CURRENT, self.sync)
                file = _open_to_append(place)
                held.callback(os.close, file)
                known.beginning, known.end = b"", 0
            # Forgotten until all is written: should the disk fill up half way, only the file itself knows how far.
            del self._known[place]
            data = b"".join(lines.values())
            self._write(place, file, known.end, data)
            known.beginning = known.beginning or data[:BEGINNING_BYTES]
            known.end += len(data)
            known.ids.update(lines)
            self._known[place] = known
        return len(data)

    def check_writable(self) -> None:
        """Write and remove a small file. OSError: nothing can be written."""
        make_folder(self.path)
        path = self.path / f".writable-{os.getpid()}"
        try:
            path.write_bytes(b"\n" * 4096)
        finally:
            path.unlink(missing_ok=True)

    def _read_on(self, place: Path, file: int) -> _Known:
        """The ids in this conversation, with those that other processes have written since the last look."""
        size, now = os.fstat(file).st_size, read_elapsed()
        beginning = os.pread(file, BEGINNING_BYTES, 0)
        known = self._known.pop(place, None)
        if known is None or not known.beginning or size < known.end or not beginning.startswith(known.beginning):
            if known is None or not self._is_spool or now - known.since > REMEMBER_SECONDS:
                known = _Known(now)
            known = _Known(known.since, ids=known.ids | _ids_in_folder(place))
        if size > known.end:
            with os.fdopen(file, "rb", closefd=False) as lines:
                lines.seek(known.end)
                for line in lines:
                    if line.endswith(b"\n"):
                        known.ids.update(find_ids([line]))
                        known.end += len(line)
            known.beginning = beginning[: min(known.end, BEGINNING_BYTES)]
        self._known[place] = known
        while len(self._known) > 1 and sum(len(found.ids) for found in self._known.values()) > REMEMBERED_IDS_MAX:
            self._known.popitem(last=False)
        return known

    def _write(self, place: Path, file: int, end: int, data: bytes) -> None:
        os.ftruncate(file, end)  # what follows the last whole line is a torn one
        with os.fdopen(file, "ab", closefd=False) as stream:
            stream.write(data)
        if self.sync == "always":
            os.fsync(file)
            if not end:
                sync_path(place)


def _ids_in_folder(place: Path) -> set[str]:
    """All ids in the closed files."""
    ids: set[str] = set()
    for path in list_files(place):
        if path.name != CURRENT:
            with suppress(FileNotFoundError), path.open("rb") as lines:  # it is sent at this moment
                ids.update(find_ids(lines))
    return ids


@lru_cache(maxsize=LOCATED_MAX)
def _locate(folder: Path, tenant: str, conversation: str) -> Path:
    return folder / file_name(tenant) / file_name(conversation)


def file_name(name: str) -> str:
    """The folder of a tenant or conversation: its name where that is a plain one, or else its hash."""
    return name if _NAME.fullmatch(name) else blake2b(name.encode(), digest_size=16).hexdigest()


def list_files(place: Path) -> list[Path]:
    """The files of a conversation: closed ones in the order of their closing, then those that are being written."""
    return sorted(place.glob(f"*{SUFFIX}"), key=lambda path: (not is_closed(path), len(path.name), path.name))


def is_closed(path: Path) -> bool:
    return _CLOSED.fullmatch(path.name) is not None


def close_file(path: Path, sync: Sync) -> Path:
    """Give a file, whose lock the caller holds, the name that it keeps for ever."""
    if sync != "never":
        sync_path(path)
    now = time.time_ns() // 1_000_000
    moment = time.strftime("%Y%m%dT%H%M%S", time.gmtime(now // 1000)) + f"{now % 1000:03}Z"
    closed = path.with_name(f"{moment}-{secrets.token_hex(8)}{SUFFIX}")
    path.rename(closed)
    if sync != "never":
        sync_path(path.parent)
    return closed


def open_locked(path: Path, flags: int) -> int:
    """Open a file that no other process appends to until this is closed, and that still has its name."""
    while True:
        file = os.open(path, flags, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            if _is_same(file, path):
                return file
        except OSError:
            os.close(file)
            raise
        os.close(file)


def _open_to_append(place: Path) -> int:
    tries = OPEN_TRIES
    while True:
        make_folder(place)
        tries -= 1
        try:
            return open_locked(place / CURRENT, os.O_CREAT | os.O_RDWR | os.O_APPEND)
        except FileNotFoundError:
            # The folder may be removed, with the last file in it, right before the file is opened.
            if not tries:
                raise


def _is_same(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False


def make_folder(folder: Path) -> None:
    """Create it for this user only, on every level (`parents=True` would leave those above open)."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def sync_path(path: Path) -> None:
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
