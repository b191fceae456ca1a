"""What a scripted upstream does with one request: a reply is data, and these are its words.

    answer({"ok": True}, status=201)                        one body
    stream(delta(content="Hel"), pause(0.2), cut())         server-sent events, and what happens between them
    hang()                                                  nothing at all, until the client leaves
    answer(big).after(0.5).with_compression("gzip").broken_at(99) late, compressed, and cut off

Every byte that leaves is in the reply: no header is added but the one that frames the body.
"""

import asyncio
import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from http import HTTPStatus
from http.client import responses
from typing import Any, Literal

import brotli

from proxy.wire.encodings import zstd

Framing = Literal["length", "chunked", "close"]
Pairs = Iterable[tuple[str, str]]

JSON = ("content-type", "application/json")
EVENTS = ("content-type", "text/event-stream; charset=utf-8")


@dataclass(frozen=True, slots=True)
class Pause:
    seconds: float


@dataclass(frozen=True, slots=True)
class WaitFor:
    """Silence until the test sets the event."""

    event: asyncio.Event


@dataclass(frozen=True, slots=True)
class Hang:
    """Silence until the client leaves."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The connection is reset, as by a crash."""


@dataclass(frozen=True, slots=True)
class Close:
    """The connection is closed in the ordinary way, whatever the framing still announced."""


Act = bytes | Pause | WaitFor | Hang | Cut | Close


@dataclass(frozen=True, slots=True)
class Reply:
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    parts: tuple[Act, ...] = ()
    framing: Framing = "length"
    delay: float = 0
    promised: int | None = None  # a content-length other than the true one
    headless: bool = False  # the parts are all there is on the wire

    def after(self, seconds: float) -> "Reply":
        """Late: nothing leaves for so long."""
        return replace(self, delay=seconds)

    def in_pieces(self, size: int) -> "Reply":
        """The same bytes, never more than so many at once."""
        return replace(self, parts=tuple(piece for part in self.parts for piece in _slice(part, size)))

    def with_compression(self, encoding: str) -> "Reply":
        """Each part leaves compressed and flushed, so that what streamed before streams still."""
        return replace(
            self,
            headers=(*self.headers, ("content-encoding", encoding)),
            parts=tuple(_compress_parts(self.parts, encoding)),
        )

    def broken_at(self, byte: int, how: Cut | Close | None = None) -> "Reply":
        """The body ends at this byte, though its framing announced more."""
        return replace(self, parts=(*_up_to(self.parts, byte), how or Cut()), promised=len(self.body))

    def without_body(self) -> "Reply":
        """What HEAD gets: the head of the whole answer, and nothing after it."""
        return replace(self, parts=() if not self.headless else self.parts, promised=len(self.body), framing="length")

    @property
    def body(self) -> bytes:
        return b"".join(part for part in self.parts if isinstance(part, bytes))

    def acts(self) -> Iterator[Act]:
        """Everything the connection does, the head included."""
        if self.delay:
            yield Pause(self.delay)
        if not self.headless:
            yield self.head
        for part in self.parts:
            if part == b"":
                continue
            framed = isinstance(part, bytes) and self.framing == "chunked" and not self.headless
            yield b"%x\r\n%b\r\n" % (len(part), part) if framed else part
        if self.framing == "chunked" and not self.headless:
            yield b"0\r\n\r\n"
        if self.framing == "close":
            yield Close()

    @property
    def head(self) -> bytes:
        start = f"HTTP/1.1 {self.status} {responses.get(self.status, 'Scripted')}"
        lines = [start, *(f"{name}: {value}" for name, value in (*self.headers, *self._framing_header()))]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")

    def _framing_header(self) -> Pairs:
        if self.status in (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED):
            return []
        if self.framing == "length":
            return [("content-length", str(len(self.body) if self.promised is None else self.promised))]
        return [("transfer-encoding", "chunked") if self.framing == "chunked" else ("connection", "close")]


def answer(body: Any = b"", status: int = 200, headers: Pairs = (), *, framing: Framing = "length") -> Reply:
    """One body: bytes and text as they are, anything else as JSON."""
    if isinstance(body, bytes):
        return Reply(status, tuple(headers), (body,), framing)
    text = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)
    given = tuple(headers)
    typed = given if any(name.lower() == "content-type" for name, _ in given) else (JSON, *given)
    return Reply(status, typed, (text.encode(),), framing)


def stream(*parts: Act, status: int = 200, headers: Pairs = (), framing: Framing = "chunked") -> Reply:
    """Server-sent events, each part a write of its own."""
    return Reply(status, (EVENTS, *headers), parts, framing)


def raw(*parts: Act) -> Reply:
    return Reply(parts=parts, headless=True)


pause, wait_for, hang, cut, close = Pause, WaitFor, Hang, Cut, Close


def _slice(part: Act, size: int) -> list[Act]:
    return [part[at : at + size] for at in range(0, len(part), size)] if isinstance(part, bytes) else [part]


def _up_to(parts: tuple[Act, ...], byte: int) -> Iterator[Act]:
    for part in parts:
        if not isinstance(part, bytes):
            yield part
        elif byte > 0:
            yield part[:byte]
            byte -= len(part)


def _compress_parts(parts: tuple[Act, ...], encoding: str) -> Iterator[Act]:
    squeeze, end = _COMPRESSORS[encoding]()
    for part in parts:
        yield squeeze(part) if isinstance(part, bytes) else part
    yield end()


def _zlib(window: int) -> tuple[Callable[[bytes], bytes], Callable[[], bytes]]:
    packer = zlib.compressobj(wbits=window)
    return lambda data: packer.compress(data) + packer.flush(zlib.Z_SYNC_FLUSH), packer.flush


def _brotli() -> tuple[Callable[[bytes], bytes], Callable[[], bytes]]:
    packer = brotli.Compressor()
    return lambda data: packer.process(data) + packer.flush(), packer.finish


def _zstd() -> tuple[Callable[[bytes], bytes], Callable[[], bytes]]:
    packer = zstd.ZstdCompressor()
    return lambda data: packer.compress(data) + packer.flush(zstd.ZstdCompressor.FLUSH_BLOCK), packer.flush


_COMPRESSORS = {
    "gzip": lambda: _zlib(zlib.MAX_WBITS | 16),
    "deflate": lambda: _zlib(zlib.MAX_WBITS),
    "br": _brotli,
    "zstd": _zstd,
    "identity": lambda: (bytes, bytes),
}
