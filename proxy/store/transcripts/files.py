"""Transcript files: append-only, one for each conversation, shared by all processes of a machine.

    originals/<tenant>/<conversation>/current.jsonl                                being written
    originals/<tenant>/<conversation>/20261121T090000123Z-1a2b3c4d5e6f7081.jsonl   closed, on its way to an object store

Processes append under a lock (https://man7.org/linux/man-pages/man2/flock.2.html). Each reads a file once and later
only its new end. A line without its newline does not count: the next append cuts it off.

If there is an object store, closed files vanish once they are sent. A process takes lines that it saw within the last
hour for sent, and retention removes no conversation from the store within two hours of its last write.

One message is one line of JSON (https://jsonlines.org):

    {"v":1,"at":"<link>","after":"<link before it>","seen":"2026-11-21T09:00:00.000Z","under":["<head>"],"message":{…}}
    {"v":1,"head":"<hash>","seen":"…","message":{…}}
    {"v":1,"answer":0,"to":"<link>","seen":"…","model":"…","finish":"stop","usage":{…},"message":{…}}

A link stands for all messages up to this one, so forks share their trunk. System prompts and answers are no links:
clients change the former and echo the latter differently. The message is the client's own bytes; `altered` lists
secrets (or `line-breaks`) that were removed from it.
"""

import fcntl
import json
import os
import re
import secrets
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import ExitStack, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, ClassVar, Literal

from msgspec import Struct, convert, field

from proxy.foundation.lru import ByteBoundedCache
from proxy.history import splice
from proxy.history.request import Request
from proxy.store.contract import read_elapsed
from proxy.wire.answer_assembly import Answer
from proxy.wire.redaction import Redaction

VERSION = 1
SUFFIX = ".jsonl"
CURRENT = f"current{SUFFIX}"
REMEMBER_SECONDS = 3600.0
REMEMBERED_BYTES = 16 * 1024 * 1024
"""The memory that known ids take. Those that are forgotten are read again."""
BEGINNING_BYTES = 256
"""They hold a hash and a time, so no other file begins with the same bytes."""
_ID = re.compile(rb'\{"v":1,"(?:at|head)":"([!#-~]*)"')

MakeLines = Callable[[AbstractSet[str]], Mapping[str, bytes]]


class History(Struct, frozen=True):
    """A request whose messages are kept. The first link is that before the first message, the second the one at it."""

    tenant: str
    links: Sequence[bytes]
    request: Request
    policy: str = ""

    @property
    def conversation(self) -> str:
        return self.links[1].hex()

    def to_lines(self, known_ids: Container[str], seen_at: str, redaction: Redaction) -> dict[str, bytes]:
        lines: dict[str, bytes] = {}
        heads = {hash_head(message.raw): message.raw for message in self.request.head}
        for name, message in heads.items():
            if name not in known_ids:
                lines[name] = _format({"head": name, "seen": seen_at}, message, redaction)
        body = self.request.body
        start = len(body)  # all messages before a known one are known, too
        while start and self.links[start].hex() not in known_ids:
            start -= 1
        for index in range(start, len(body)):
            after, link = self.links[index].hex(), self.links[index + 1].hex()
            fields: dict[str, Any] = {"at": link, "after": after, "seen": seen_at}
            if not index:
                fields |= _drop_empty(tenant=self.tenant, wire=self.request.wire)
            if index == start:
                # The user, as the client names it in the body.
                fields |= _drop_empty(user=redaction.of_name(self.request.user))
            fields |= _drop_empty(under=tuple(heads), policy=self.policy)
            lines[link] = _format(fields, body[index].raw, redaction)
        return lines


class MessageLine(Struct, frozen=True):
    link: str = field(name="at")
    after: str
    seen: str
    message: bytes
    under: tuple[str, ...] = ()
    altered: tuple[str, ...] = ()
    tenant: str = ""
    user: str = ""


class HeadLine(Struct, frozen=True):
    link: ClassVar[str] = ""
    name: str = field(name="head")
    seen: str
    message: bytes
    altered: tuple[str, ...] = ()


class AnswerLine(Struct, frozen=True):
    link: str = field(name="to")
    seen: str
    choice: int = field(name="answer")
    message: bytes
    model: str = ""
    finish: str = ""
    usage: Mapping[str, Any] = {}
    error: Any = None
    cut: bool = False
    provider_edits: tuple[Any, ...] = ()


def render_answer_lines(to: str, answer: Answer, seen_at: str, redaction: Redaction) -> bytes:
    """Return a line for each choice of an answer; the first one has the usage and the edits of the whole."""
    error, edits = answer.error, answer.provider_edits
    if error or edits:
        error, edits = json.loads(redaction.of_json(json.dumps([error, edits]).encode())[0])
    extra = _drop_empty(model=answer.model, usage=answer.usage, error=error, cut=not answer.whole)
    extra |= _drop_empty(provider_edits=edits)
    lines = b""
    for choice in answer.choices:
        fields = {"answer": choice.index, "to": to, "seen": seen_at, "finish": choice.finish or "", **extra}
        lines += _format(fields, choice.message, redaction)
        extra.pop("usage", None)
        extra.pop("provider_edits", None)
    return lines


def hash_head(message: bytes) -> str:
    return blake2b(message, digest_size=16).hexdigest()


def find_ids(lines: Iterable[bytes]) -> Iterator[str]:
    for line in lines:
        match = _ID.match(line)
        if match and line.endswith(b"\n"):
            yield match[1].decode()


def parse(line: bytes) -> MessageLine | HeadLine | AnswerLine | None:
    try:
        if line.startswith(b'{"v":1,"answer":'):
            # It is read member by member: an upstream's error may hold anything, even the bytes that begin a message.
            members = {member.key: line[member.start : member.stop] for member in splice.iterate_members(line)}
            message = members.pop("message")
            fields = {name: json.loads(value) for name, value in members.items()}
        else:
            start, _, rest = line.partition(b',"message":')
            fields, message = json.loads(start + b"}"), rest[: rest.rindex(b"}")]
        if fields["v"] != VERSION:
            return None
        values = {**fields, "message": message}
        if "answer" in fields:
            return convert(values, AnswerLine)
        if "head" in fields:
            return convert(values, HeadLine)
        return convert(values, MessageLine)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):  # ValidationError is a ValueError
        return None


_write_json = json.JSONEncoder(separators=(",", ":")).encode
"""`json.dumps` would make an encoder for each line."""


def _format(fields: Mapping[str, Any], message: bytes, redaction: Redaction) -> bytes:
    clean, alterations = redaction.of_json(message)
    if b"\n" in clean or b"\r" in clean:  # in JSON a bare line break is always white space
        clean, alterations = clean.translate(bytes.maketrans(b"\r\n", b"  ")), (*alterations, "line-breaks")
    line = {"v": VERSION, **fields, **_drop_empty(altered=alterations)}
    return _write_json(line).encode()[:-1] + b',"message":' + clean + b"}\n"


def _drop_empty(**fields: Any) -> dict[str, Any]:  # noqa: ANN401 (any JSON)
    return {name: value for name, value in fields.items() if value}


class KnownIds(Struct):
    path: Path
    """The file that is being written."""
    since: float
    """When the first of them was read, by a clock that includes suspended time, in which other machines write on."""
    beginning: bytes = b""
    end: int = 0
    ids: set[str] = field(default_factory=set)


class TranscriptFolder(Struct, eq=False):
    """The files of all conversations. One thread appends. *is_spool*: closed files vanish once they are sent."""

    path: Path
    fsync: Literal["never", "always"] = "never"
    is_spool: bool = False
    _known: ByteBoundedCache[tuple[str, str], KnownIds] = field(
        default_factory=lambda: ByteBoundedCache(REMEMBERED_BYTES, weigh=lambda _, known: 160 * len(known.ids))
    )
    """By tenant and conversation."""

    def locate(self, tenant: str, conversation: str) -> Path:
        return self.path / file_name(tenant) / file_name(conversation)

    def append(self, tenant: str, conversation: str, make_lines: MakeLines) -> int:
        """Write the lines that `make_lines` returns for the known ids. Return their bytes."""
        key = tenant, conversation
        known = self._known.get(key)
        path = self.locate(tenant, conversation) / CURRENT if known is None else known.path
        file = _open_to_append(path)
        try:
            # The ids are forgotten until all lines are written: if the disk fills up, only the file tells how far.
            index = self._read_new_ids(path, file, self._known.pop(key))
            lines = make_lines(index.ids)
            data = b"".join(lines.values())
            if data:
                self._write(path, file, index.end, data)
        finally:
            os.close(file)
        index.beginning = index.beginning or data[:BEGINNING_BYTES]
        index.end += len(data)
        index.ids.update(lines)
        self._known[key] = index
        return len(data)

    def forget(self) -> None:
        self._known.clear()

    def check_writable(self) -> None:
        """Raise OSError if nothing can be written."""
        make_folder(self.path)
        path = self.path / f".writable-{os.getpid()}"
        try:
            path.write_bytes(b"\n" * 4096)
        finally:
            path.unlink(missing_ok=True)

    def _read_new_ids(self, path: Path, file: int, index: KnownIds | None) -> KnownIds:
        """Return the ids of the lines of a conversation, given those that are known."""
        size, now = os.fstat(file).st_size, read_elapsed()
        beginning = os.pread(file, BEGINNING_BYTES, 0)
        if index is None or not index.beginning or size < index.end or not beginning.startswith(index.beginning):
            known = KnownIds(path, since=now)
            if index is not None and self.is_spool and now - index.since <= REMEMBER_SECONDS:
                known = KnownIds(path, index.since, ids=index.ids)
            for closed_path in filter(is_closed, list_files(path.parent)):
                with suppress(FileNotFoundError), closed_path.open("rb") as lines:  # the file may just have been sent
                    known.ids.update(find_ids(lines))
            index = known
        if size > index.end:
            with os.fdopen(file, "rb", closefd=False) as lines:
                lines.seek(index.end)
                for line in lines:
                    if line.endswith(b"\n"):
                        index.ids.update(find_ids([line]))
                        index.end += len(line)
            index.beginning = beginning[: min(index.end, BEGINNING_BYTES)]
            if size > index.end:
                os.ftruncate(file, index.end)  # cut off a torn line
        return index

    def _write(self, path: Path, file: int, end: int, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(file, rest) :]
        if self.fsync == "always":
            os.fsync(file)
            if not end:  # the folder names a new file
                directory = os.open(path.parent, os.O_RDONLY)
                try:
                    os.fsync(directory)
                finally:
                    os.close(directory)


def file_name(name: str) -> str:
    """Return the name itself if it is a plain one, or else a hash."""
    if re.fullmatch(r"[0-9A-Za-z][0-9A-Za-z_.-]{0,99}", name):
        return name
    return blake2b(name.encode(), digest_size=16).hexdigest()


def list_files(folder: Path) -> list[Path]:
    """Return the closed files in the order of their closing, then the current one."""
    return sorted(folder.glob(f"*{SUFFIX}"), key=lambda path: (not is_closed(path), path.name))


def is_closed(path: Path) -> bool:
    return path.name != CURRENT


def close_file(path: Path) -> Path:
    """Give a file, whose lock the caller holds, its last name."""
    now = time.time_ns() // 1_000_000
    moment = time.strftime("%Y%m%dT%H%M%S", time.gmtime(now // 1000)) + f"{now % 1000:03}Z"
    return path.rename(path.with_name(f"{moment}-{secrets.token_hex(8)}{SUFFIX}"))


def open_locked(path: Path, flags: int) -> int:
    """Open a file with a lock, so that no other process appends to it until it is closed."""
    while True:
        with ExitStack() as stack:
            file = os.open(path, flags, 0o600)
            stack.callback(os.close, file)
            fcntl.flock(file, fcntl.LOCK_EX)
            # While this waited for the lock, the file may have been closed, which is a new name, or removed.
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file), path.stat()):
                    stack.pop_all()
                    return file


def _open_to_append(path: Path) -> int:
    tries = 0
    while True:
        try:
            if tries:
                make_folder(path.parent)
            return open_locked(path, os.O_CREAT | os.O_RDWR | os.O_APPEND)
        except FileNotFoundError:  # folders may be removed, with the last file in them, at this moment
            tries += 1
            if tries > 8:  # noqa: PLR2004 (enough)
                raise


def make_folder(folder: Path) -> None:
    """Make a folder for this user only, on every level (`parents=True` would leave those above open)."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)
