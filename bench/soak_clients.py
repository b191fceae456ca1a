"""The clients of bench/soak.py: most behave, the others leave whenever they like or meet an upstream that fails.

Each of them knows what it must get. What it got instead is a finding.
"""

import asyncio
import gzip
import random
import re
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Literal

from bodies import chat
from load import request_bytes

PATIENCE = 30.0
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_TASK = b"Make the failing test pass."

Leaving = Literal["while it asks", "before headers", "in silence", "mid-stream"]
Ending = Literal["whole", "broken"]


@dataclass(frozen=True, slots=True)
class SoakClient:
    """One kind of client: how often it comes, what it asks for, what the upstream does then, and when it leaves."""

    name: str
    share: float
    body: Callable[[], bytes | None]
    act: str | None = None
    path: str = "/v1/chat/completions"
    status: int = 200
    ending: Ending = "whole"
    has: bytes = b""
    leaves: Leaving | None = None
    headers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes
    ending: Ending


def _own(size: int, variants: int, *, stream: bool = False) -> Callable[[], bytes]:
    """A chat of this size; every so many of them are different conversations."""
    body = chat(size, stream=stream)
    return lambda: body.replace(_TASK, b"Make test %d pass." % random.randrange(variants), 1)


SMALL, MEDIUM, LARGE = _own(1_000, 10**9), _own(100_000, 200), _own(1_000_000, 20)
STREAM = _own(1_000, 10**9, stream=True)
ERROR = b'"type": "proxy_error"'

SOAK_CLIENTS = (
    SoakClient("a small request", 40, SMALL),
    SoakClient("a slow answer", 8, SMALL, "late"),
    SoakClient("a long history", 6, MEDIUM),
    SoakClient("a very long history", 0.5, LARGE),
    SoakClient("a compressed request", 1, lambda: gzip.compress(SMALL(), 1), headers=("Content-Encoding: gzip",)),
    SoakClient("a stream", 15, STREAM, has=b"data: [DONE]"),
    SoakClient("leaves while it asks", 3, MEDIUM, leaves="while it asks"),
    SoakClient("leaves before headers", 6, SMALL, "hold", leaves="before headers"),
    SoakClient("leaves in silence", 4, STREAM, "silent", leaves="in silence"),
    SoakClient("leaves mid-stream", 6, STREAM, "endless", leaves="mid-stream"),
    SoakClient("upstream hangs up", 2, SMALL, "drop", status=502, has=ERROR),
    SoakClient("upstream resets a stream", 2, STREAM, "cut", ending="broken", has=ERROR),
    SoakClient("upstream sends too little", 1, SMALL, "short", ending="broken"),
    SoakClient("upstream does not finish", 1, STREAM, "unfinished", ending="broken", has=ERROR),
    SoakClient("upstream streams an error", 1, STREAM, "bare-error", ending="broken", has=b'data: {"error"'),
    SoakClient("upstream is busy", 1, SMALL, "busy", status=429),
    SoakClient("upstream is broken", 1, SMALL, "broken", status=500),
    SoakClient("another path", 1, lambda: None, path="/v1/models"),
    SoakClient("no such path", 0.5, lambda: None, path="/nothing", status=404),
)
SHARES = [client.share for client in SOAK_CLIENTS]


def choose_client() -> SoakClient:
    return random.choices(SOAK_CLIENTS, SHARES)[0]


async def send_request(client: SoakClient, origin: str) -> str | None:
    """What was wrong, if anything was."""
    try:
        async with asyncio.timeout(PATIENCE):
            return await _visit(client, origin)
    except TimeoutError:
        return f"waited {PATIENCE:g} s in vain"
    except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as fault:
        return f"{type(fault).__name__}: {fault}"


async def _visit(client: SoakClient, origin: str) -> str | None:
    host, port = origin.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 20)
    headers = (*client.headers, *((f"x-act: {client.act}",) if client.act else ()))
    request = request_bytes(origin + client.path, client.body(), headers)
    with closing(writer):
        if client.leaves is not None:
            await _leave(client.leaves, request, reader, writer)
            return None
        writer.write(request)
        return _wrong(client, await _answer(reader))


async def _leave(when: Leaving, request: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(request[: len(request) // 2] if when == "while it asks" else request)
    if when in ("in silence", "mid-stream"):
        await reader.readuntil(b"\r\n\r\n")
    if when == "mid-stream":
        await reader.read(random.randrange(1, 4000))
    await asyncio.sleep(random.uniform(0, 0.02))
    if random.random() < 0.5:
        writer.transport.abort()


async def _answer(reader: asyncio.StreamReader) -> Answer:
    head = await reader.readuntil(b"\r\n\r\n")
    length = _LENGTH.search(head)
    try:
        body = await reader.readexactly(int(length[1])) if length else await read_chunked(reader)
        ending: Ending = "whole"
    except asyncio.IncompleteReadError as fault:
        body, ending = fault.partial, "broken"
    return Answer(int(head.split(b" ", 2)[1]), body, ending)


async def read_chunked(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while True:
        try:
            size = int(await reader.readuntil(b"\r\n"), 16)
            piece = await reader.readexactly(size + 2)
        except asyncio.IncompleteReadError as fault:
            raise asyncio.IncompleteReadError(body + fault.partial, None) from None
        if not size:
            return body
        body += piece[:-2]


def _wrong(client: SoakClient, answer: Answer) -> str | None:
    if answer.status != client.status:
        return f"status {answer.status} instead of {client.status}"
    if answer.ending != client.ending:
        return f"the answer's end was {answer.ending}, not {client.ending}"
    if client.has not in answer.body:
        return f"{client.has!r} is not in the answer"
    return None
