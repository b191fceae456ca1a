"""HTTP/1.1 as bytes: messages read just as they are on the wire, and a client that sends what a test says.

Libraries normalise: they fold header names, decode bodies, join chunks, follow redirects. A test of a relay needs
to see what really came, so the scripted upstream and the fidelity runner both read with these few lines.
"""

import asyncio
from contextlib import closing
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import urlsplit

LONGEST_HEAD = 4 * 1024 * 1024
NO_BODY = (204, 304)

Headers = tuple[tuple[bytes, bytes], ...]


class Malformed(ValueError):
    """What came is not HTTP/1.1."""


@dataclass(frozen=True, slots=True)
class Head:
    start: bytes
    headers: Headers

    def all(self, name: str) -> list[bytes]:
        return [value for key, value in self.headers if key.lower() == name.lower().encode()]

    def first(self, name: str) -> str | None:
        return next((value.decode("latin-1") for value in self.all(name)), None)


@dataclass(frozen=True, slots=True)
class Body:
    """What came after a head: the data, how it was cut into pieces, and whether its end was reached."""

    data: bytes
    chunks: tuple[bytes, ...]
    whole: bool


@dataclass(frozen=True, slots=True)
class Answer:
    head: Head
    body: Body

    @property
    def status(self) -> int:
        return int(self.head.start.split(b" ", 2)[1])


async def read_head(reader: asyncio.StreamReader) -> Head | None:
    """The next start line with its header list, in order and in its own spelling; None at the end of the connection."""
    try:
        text = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as end:
        if end.partial:
            raise Malformed(f"a head that does not end: {end.partial[:80]!r}") from end
        return None
    start, *lines = text[:-4].split(b"\r\n")
    return Head(start, tuple(_header(line) for line in lines))


def _header(line: bytes) -> tuple[bytes, bytes]:
    name, colon, value = line.partition(b":")
    if not colon:
        raise Malformed(f"a header line without a colon: {line[:80]!r}")
    return name, value.strip(b" \t")


async def read_body(reader: asyncio.StreamReader, head: Head, *, until_close: bool) -> Body:
    """A body in whichever of the three framings; a connection that breaks leaves it not whole, and says no more."""
    pieces: list[bytes] = []
    is_whole = False
    try:
        await _read_into(pieces, reader, head, until_close=until_close)
        is_whole = True
    except asyncio.IncompleteReadError as end:
        if head.first("content-length") is not None:
            pieces.append(end.partial)
    except ConnectionError:
        pass
    return Body(b"".join(pieces), tuple(pieces), whole=is_whole)


async def _read_into(pieces: list[bytes], reader: asyncio.StreamReader, head: Head, *, until_close: bool) -> None:
    if (head.first("transfer-encoding") or "").lower() == "chunked":
        while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
            pieces.append(await reader.readexactly(size))
            await reader.readexactly(2)
        while await reader.readuntil(b"\r\n") != b"\r\n":
            pass  # trailers
    elif (length := head.first("content-length")) is not None:
        pieces.append(await reader.readexactly(int(length)))
    elif until_close:
        while piece := await reader.read(1 << 16):
            pieces.append(piece)


def request_bytes(method: str, target: str, headers: Headers, body: bytes) -> bytes:
    """A request in one piece; the caller's header list is the whole list."""
    lines = [f"{method} {target} HTTP/1.1".encode("latin-1"), *(name + b": " + value for name, value in headers)]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


async def send(url: str, message: bytes, *, method: str = "POST") -> Answer:
    """Sends these bytes to a server and reads one answer, on a connection of its own."""
    server = urlsplit(url)
    reader, writer = await asyncio.open_connection(server.hostname, server.port, limit=LONGEST_HEAD)
    with closing(writer):
        writer.write(message)
        return await read_answer(reader, method)


async def is_answered(url: str, message: bytes) -> bool:
    try:
        return (await send(url, message, method="GET")).status == HTTPStatus.OK
    except OSError:
        return False


async def read_answer(reader: asyncio.StreamReader, method: str = "POST") -> Answer:
    head = await read_head(reader)
    while head is not None and head.start.split(b" ", 2)[1].startswith(b"1"):
        head = await read_head(reader)  # 100 Continue and the like come before the answer
    if head is None:
        raise ConnectionResetError("the server ended the connection without an answer")
    if method == "HEAD" or int(head.start.split(b" ", 2)[1]) in NO_BODY:
        return Answer(head, Body(b"", (), whole=True))
    return Answer(head, await read_body(reader, head, until_close=True))
