"""Clients that ask as fast as they are answered: raw bytes on asyncio, one connection each, every answer checked.

They are light because they share a core with the upstream, and what they spend is spent in the latency of all.
"""

import asyncio
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat, takewhile
from time import perf_counter, perf_counter_ns
from urllib.parse import urlsplit

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_SENT_AT = re.compile(rb'"content": ?"(\d{6,})"')
_END = b"0\r\n\r\n"

KEY = "sk-of-nobody"
Headers = tuple[str, ...]  # as lines


@dataclass(slots=True)
class Sample:
    """What a number of requests came to."""

    latencies: list[float] = field(default_factory=list)  # seconds, from the first byte out to the last byte in
    lags: list[float] = field(default_factory=list)  # seconds a streamed event was on its way
    seconds: float = 0.0


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)] if ordered else float("nan")


def request_bytes(url: str, body: bytes | None, headers: Headers = (), key: str = KEY) -> bytes:
    """A request with the headers of an ordinary client library."""
    parts = urlsplit(url)
    lines = [
        f"{'GET' if body is None else 'POST'} {parts.path} HTTP/1.1",
        f"Host: {parts.netloc}",
        "Accept: application/json",
        "Accept-Encoding: gzip, deflate",
        "Connection: keep-alive",
        "User-Agent: bench/1.0",
        f"Authorization: Bearer {key}",
        *headers,
    ]
    if body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join((*lines, "", "")).encode() + (body or b"")


async def ask(url: str, body: bytes, *, times: int, clients: int, headers: Headers = ()) -> Sample:
    """So many requests by so many clients at once."""
    return await _measure_load(url, repeat(request_bytes(url, body, headers), times), clients)


async def ask_in_turn(url: str, bodies: Iterable[bytes], *, headers: Headers = ()) -> Sample:
    """One request after the other, each with its own body, by one client."""
    return await _measure_load(url, (request_bytes(url, body, headers) for body in bodies), 1)


async def replay(url: str, requests: Iterable[tuple[str, bytes]], *, headers: Headers = ()) -> Sample:
    """One request after the other, each with its own key and body, by one client."""
    return await _measure_load(url, (request_bytes(url, body, headers, key) for key, body in requests), 1)


async def keep_asking(url: str, body: bytes, *, clients: int, until: asyncio.Event, headers: Headers = ()) -> Sample:
    """As `ask`, until an event happens."""
    request = request_bytes(url, body, headers)
    return await _measure_load(url, takewhile(lambda _: not until.is_set(), repeat(request)), clients)


async def visit(url: str) -> float:
    """Seconds that one look at a page takes, with a connection of its own, as health checks do it."""
    return (await _measure_load(url, iter((request_bytes(url, None),)), 1)).seconds


async def _measure_load(url: str, requests: Iterator[bytes], clients: int) -> Sample:
    loop, parts, sample = asyncio.get_running_loop(), urlsplit(url), Sample()
    done = [loop.create_future() for _ in range(clients)]
    began = perf_counter()
    for is_done in done:
        client = partial(_Client, requests, sample, is_done)
        await loop.create_connection(client, parts.hostname or "", parts.port or 0)
    await asyncio.gather(*done)
    sample.seconds = perf_counter() - began
    return sample


class _Client(asyncio.Protocol):
    """One connection, on which one request follows the other."""

    _transport: asyncio.Transport

    def __init__(self, requests: Iterator[bytes], sample: Sample, done: "asyncio.Future[None]") -> None:
        self._requests = requests
        self._sample = sample
        self.done = done
        self._asked_at = 0.0
        self._head = b""
        self._missing: int | None = None  # bytes of the answer, where it told
        self._in_body = False
        self._tail = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._next()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(exc or ConnectionError("the connection was closed before its answer was whole"))

    def _next(self) -> None:
        self._head, self._tail, self._in_body = b"", b"", False
        request = next(self._requests, None)
        if request is None:
            self.done.set_result(None)
            self._transport.close()
            return
        self._asked_at = perf_counter()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        if not self._in_body:
            head, found, data = (self._head + data).partition(b"\r\n\r\n")
            if not found:
                self._head = head
                return
            self._begin(head)
        if self._missing is not None:
            self._missing -= len(data)
            ended = self._missing <= 0
        else:
            now = perf_counter_ns()
            self._sample.lags.extend((now - int(at)) / 1e9 for at in _SENT_AT.findall(data))
            self._tail = (self._tail + data)[-len(_END) :]
            ended = self._tail == _END
        if ended:
            self._sample.latencies.append(perf_counter() - self._asked_at)
            self._next()

    def _begin(self, head: bytes) -> None:
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"not what was asked for: {head[:200]!r}")
        length = _LENGTH.search(head)
        self._missing = int(length[1]) if length else None
        self._in_body = True
