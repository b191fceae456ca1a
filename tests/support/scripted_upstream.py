"""The scripted upstream: a real server on loopback that does what a test tells it and remembers what it was asked.

    async with Upstream(stream(*text_turn("Hello").frames(), cut())) as up:
        …                                   # a client, or a proxy, calls up.url
        assert up.requests[0].body == sent  # as it came: not decoded, not re-typed

A script is a reply, a turn (`text_turn("…")`, answered as JSON or as events, as it is asked for), an act (`hang()`,
`cut()`), or a function from a request to one of these. It speaks HTTP in raw bytes, because what is tested is bytes:
spelling and order of headers, missing lengths, resets. It notices when its client leaves, and in which phase.
"""
# ruff: noqa: F401 - a script is written in these words, which tests import from here

import asyncio
import json
import socket
import ssl
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import Any, Literal, Self

from tests.support import http_client
from tests.support.completions import (
    DONE,
    Turn,
    call_turn,
    chunk,
    comment,
    delta,
    error_event,
    event,
    finish,
    text_turn,
)
from tests.support.overflow_replies import overflow
from tests.support.upstream_replies import (
    Act,
    Close,
    Cut,
    Hang,
    Pause,
    Reply,
    WaitFor,
    answer,
    close,
    cut,
    hang,
    pause,
    raw,
    stream,
    wait_for,
)

Phase = Literal["before headers", "silent", "flowing"]
PATIENCE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Departure:
    phase: Phase
    at: float


@dataclass(slots=True)
class Request:
    """One request as it came over the wire, and what became of it. Times are those of the running loop."""

    method: str
    target: str
    head: http_client.Head
    began: float
    body: bytes = b""
    chunks: tuple[bytes, ...] = ()
    arrived: float | None = None
    phase: Phase = "before headers"
    departure: Departure | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    @property
    def headers(self) -> http_client.Headers:
        return self.head.headers

    def header(self, name: str) -> str | None:
        return self.head.first(name)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    async def end(self, within: float = PATIENCE_SECONDS) -> None:
        """Returns once its reply is out or its client is gone."""
        await asyncio.wait_for(self.ended.wait(), within)


Answerable = Reply | Turn | Act
Script = Answerable | Callable[[Request], Answerable]


def echo(request: Request) -> Reply:
    """The request's own body, under its own type."""
    return answer(request.body, headers=[("content-type", request.header("content-type") or "text/plain")])


def in_turn(*replies: Answerable) -> Callable[[Request], Answerable]:
    """The first request gets the first reply, and so on; the last one stays."""
    left = chain(replies, repeat(replies[-1]))
    return lambda request: next(left)


def by_path(scripts: dict[str, Script], otherwise: Script = echo) -> Callable[[Request], Answerable]:
    def choose(request: Request) -> Answerable:
        script = scripts.get(request.path, otherwise)
        return script(request) if callable(script) else script

    return choose


def pace_turn(turn: Turn, seconds: float) -> Callable[[Request], Reply]:
    """A turn whose events, where it is streamed, come so far apart."""

    def reply(request: Request) -> Reply:
        whole = _render_turn(turn, request)
        events = [act for part in whole.parts for act in (part, pause(seconds))]
        return stream(*events) if whole.framing == "chunked" else whole

    return reply


def _render_turn(turn: Turn, request: Request) -> Reply:
    if request.method != "POST":
        return answer({"error": {"message": "A turn is an answer to a chat.", "type": "not_found"}}, 404)
    asked = request.json
    model = asked.get("model", "scripted-1")
    if not asked.get("stream"):
        return answer(turn.completion(model))
    return stream(*turn.frames(usage=bool((asked.get("stream_options") or {}).get("include_usage")), model=model))


class Upstream:
    """The server. `script` may be exchanged at any time; `requests` grows in the order of arrival."""

    def __init__(self, script: Script = echo, *, port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        self.script = script
        self.requests: list[Request] = []
        self.connections = 0
        self.accepted = 0
        self._port = port
        self._tls = tls
        self._faults: list[BaseException] = []
        self._lines: set[asyncio.Task[None]] = set()
        self._arrival = asyncio.Condition()

    @property
    def origin(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self._port}"

    @property
    def url(self) -> str:
        """What a client would be given as its base URL."""
        return f"{self.origin}/v1"

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._open_line, "127.0.0.1", self._port, ssl=self._tls, backlog=512)
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for line in self._lines:
            line.cancel()
        await asyncio.gather(*self._lines, return_exceptions=True)
        if self._faults:
            raise BaseExceptionGroup("a script of the upstream failed", self._faults)

    def forget(self) -> None:
        """Lets go of what was recorded; a long run would keep it all."""
        self.requests.clear()

    async def wait_for_request(self, count: int = 1, within: float = PATIENCE_SECONDS) -> Request:
        """The request that makes up this number, as soon as it has arrived whole."""
        async with asyncio.timeout(within), self._arrival:
            await self._arrival.wait_for(lambda: len(self.requests) >= count and self.requests[count - 1].arrived)
            return self.requests[count - 1]

    def _open_line(self) -> "_Line":
        return _Line(self._take)

    def _take(self, line: "_Line") -> None:
        task = asyncio.ensure_future(self._serve(line))
        self._lines.add(task)
        task.add_done_callback(self._finish_line)

    def _finish_line(self, task: asyncio.Task[None]) -> None:
        self._lines.discard(task)
        if not task.cancelled() and (fault := task.exception()):
            self._faults.append(fault)

    async def _serve(self, line: "_Line") -> None:
        self.connections += 1
        self.accepted += 1
        try:
            while request := await self._receive(line):
                await self._answer(request, line)
                if line.writer.is_closing() or line.left.done():
                    break
        except (http_client.Malformed, ConnectionError, asyncio.IncompleteReadError):
            line.writer.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        finally:
            self.connections -= 1
            line.writer.close()

    async def _receive(self, line: "_Line") -> Request | None:
        head = await http_client.read_head(line.reader)
        if head is None:
            return None
        method, target, _ = head.start.decode("latin-1").split(" ")
        request = Request(method, target, head, _now())
        self.requests.append(request)
        if (head.first("expect") or "").lower() == "100-continue":
            line.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = await http_client.read_body(line.reader, head, until_close=False)
        if not body.whole:
            request.departure = Departure("before headers", _now())
            request.ended.set()
            return None
        request.body, request.chunks = body.data, body.chunks
        request.arrived = _now()
        async with self._arrival:
            self._arrival.notify_all()
        return request

    async def _answer(self, request: Request, line: "_Line") -> None:
        playing = asyncio.ensure_future(_play(_reply_to(request, self.script), request, line))
        try:
            await asyncio.wait({playing, line.left}, return_when=asyncio.FIRST_COMPLETED)
            if playing.done():
                playing.result()
            else:
                request.departure = Departure(request.phase, line.left.result())
        except ConnectionError:
            request.departure = Departure(request.phase, _now())
        finally:
            playing.cancel()
            request.ended.set()


def _reply_to(request: Request, script: Script) -> Reply:
    text = script(request) if callable(script) else script
    if isinstance(text, Turn):
        return _render_turn(text, request)
    reply = text if isinstance(text, Reply) else raw(text)
    return reply.without_body() if request.method == "HEAD" else reply


async def _play(reply: Reply, request: Request, line: "_Line") -> None:
    for act in reply.acts():
        match act:
            case bytes():
                line.writer.write(act)
                request.phase = "flowing"
                await line.writer.drain()
            case Pause(seconds):
                await asyncio.sleep(seconds)
            case WaitFor(moment):
                await moment.wait()
            case Hang():
                request.phase = "before headers" if request.phase == "before headers" else "silent"
                await asyncio.Event().wait()
            case Cut():
                await asyncio.sleep(0.02)  # a reset overtakes bytes that are still under way
                return line.reset()
            case Close():
                return line.writer.close()
    return None


def _now() -> float:
    return asyncio.get_running_loop().time()


class _Line(asyncio.StreamReaderProtocol):
    """A connection that tells the moment its other end leaves, even while nothing is read or written."""

    def __init__(self, take: Callable[["_Line"], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self.reader = asyncio.StreamReader(limit=http_client.LONGEST_HEAD)
        super().__init__(self.reader)
        self._take = take
        self.left: asyncio.Future[float] = self._loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.writer = asyncio.StreamWriter(transport, self, self.reader, self._loop)
        if (sock := transport.get_extra_info("socket")) is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._take(self)

    def eof_received(self) -> bool:
        self._leave()
        return bool(super().eof_received())

    def connection_lost(self, fault: Exception | None) -> None:
        self._leave()
        super().connection_lost(fault)

    def reset(self) -> None:
        self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    def _leave(self) -> None:
        if not self.left.done():
            self.left.set_result(self._loop.time())
