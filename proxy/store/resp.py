"""As much of Redis' protocol as a store needs (RESP2, which every server of that family speaks), over one connection.

Calls go out at once and are answered in their order, so any number of requests share the connection. One that is not
answered in time takes the connection with it: whatever came later would be taken for the answer to somebody else.

Of an error its first word is told, and more only where that is known to quote nothing: what the server was sent may be
a password.
"""

import asyncio
import socket
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from ssl import SSLContext
from typing import TypeAlias
from urllib.parse import unquote, urlsplit

PORT = 6379
SCHEMES = {"redis": False, "rediss": True}
FORM = "not a URL of the form redis://host:6379/0 (with TLS: rediss://host:6379/0)"
PLAIN = (  # beginnings of errors that quote nothing
    b"ERR AUTH <password> called without any password configured",
    b"ERR DB index is out of range",
    b"ERR max number of clients",
    b"ERR Script attempted to access a",
    b"ERR unknown command",
)
IDLE, PROBE, PROBES = 15, 5, 3
"""Seconds until a silent line is tried by the system, from one try to the next, and how often: a router that forgot it
tells nobody, and whoever asked over it next would wait in vain."""


class Gone(Exception):
    """The connection is of no use any more."""


class Refused(Gone):
    """The server lets us in, but not do anything: an error of this kind."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Refusal:
    """The server answered with an error of this kind."""

    kind: str


Reply: TypeAlias = "bytes | int | Refusal | list[Reply] | None"
Part: TypeAlias = str | bytes | int | float


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server is and as whom to come. Whom is never shown."""

    host: str
    port: int = PORT
    database: int = 0
    tls: bool = False
    user: str = field(default="", repr=False)
    password: str = field(default="", repr=False)

    @classmethod
    def of(cls, url: str) -> "Address":
        """Of `redis://user:password@host:port/database`; `rediss://` is TLS."""
        try:
            parts = urlsplit(url)
            tls, host, port = SCHEMES[parts.scheme], parts.hostname or "localhost", parts.port or PORT
            database = int(parts.path.strip("/") or 0)
        except (KeyError, ValueError):  # which would quote it
            raise ValueError(FORM) from None
        if parts.query or parts.fragment or database < 0:  # options that nobody would heed, or half a password
            raise ValueError(FORM)
        return cls(host, port, database, tls, unquote(parts.username or ""), unquote(parts.password or ""))

    def __str__(self) -> str:
        scheme, host = "rediss" if self.tls else "redis", f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{host}:{self.port}/{self.database}"

    @property
    def greetings(self) -> list[tuple[Part, ...]]:
        """What is said first. The last one is for a server that is still reading its data, or is stuck."""
        told: list[tuple[Part, ...]] = []
        if self.password:
            told.append(("AUTH", self.user, self.password) if self.user else ("AUTH", self.password))
        if self.database:
            told.append(("SELECT", self.database))
        return [*told, ("PING",)]


class Connection(asyncio.Protocol):
    """One way to a server, until it is `gone`."""

    def __init__(self, patience: float) -> None:
        self.gone = False
        self._patience = patience
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._calls: deque[asyncio.Future[Reply]] = deque()

    async def call(self, *parts: Part) -> Reply:
        """The answer, in time. A loop that was busy when it came has not waited in vain: answers go before alarms."""
        if self._transport is None or self.gone:
            raise Gone("the connection was lost")
        loop = asyncio.get_running_loop()
        reply: asyncio.Future[Reply] = loop.create_future()
        self._calls.append(reply)
        self._transport.write(_packed(parts))
        alarm = loop.call_later(self._patience, self.leave, f"gave no answer in {self._patience} s")
        try:
            return await reply
        finally:
            alarm.cancel()

    def leave(self, why: str = "the connection was closed") -> None:
        """Nobody waits any longer."""
        self.gone = True
        if self._transport is not None:
            self._transport.abort()
        for reply in self._calls:
            if not reply.done():
                reply.set_exception(Gone(why))
        self._calls.clear()

    # --- as the loop tells it ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, asyncio.Transport):
            self._transport = transport
            _watch(transport.get_extra_info("socket"))

    def connection_lost(self, exc: Exception | None) -> None:
        self.leave("hung up" if exc is None else f"hung up ({type(exc).__name__})")

    def data_received(self, data: bytes) -> None:
        self._received += data
        try:
            while self._calls:
                answer, end = _reply(self._received, 0)
                del self._received[:end]
                reply = self._calls.popleft()
                if not reply.done():
                    reply.set_result(answer)
        except _MoreToCome:
            return
        except ValueError:
            self.leave("speaks another protocol")


async def connect(address: Address, patience: float, tls: SSLContext | None) -> Connection:
    """A connection that may be used: the server knows us and is ready."""
    loop = asyncio.get_running_loop()
    made = partial(Connection, patience)
    _, connection = await loop.create_connection(made, address.host, address.port, ssl=tls if address.tls else None)
    try:
        refusals = [each for told in address.greetings if isinstance(each := await connection.call(*told), Refusal)]
    except (Gone, asyncio.CancelledError):
        connection.leave()
        raise
    if refusals:
        connection.leave()
        raise Refused(refusals[0].kind)
    return connection


def _watch(line: socket.socket) -> None:
    line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", IDLE), ("TCP_KEEPINTVL", PROBE), ("TCP_KEEPCNT", PROBES)):
        if (option := getattr(socket, name, None)) is not None:
            line.setsockopt(socket.IPPROTO_TCP, option, value)


class _MoreToCome(Exception):
    """The answer is not whole yet."""


def _packed(parts: tuple[Part, ...]) -> bytes:
    told = [part if isinstance(part, bytes) else str(part).encode() for part in parts]
    return b"*%d\r\n" % len(told) + b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in told)


def _reply(data: bytearray, at: int) -> tuple[Reply, int]:
    """The reply that begins here, and where the next one does."""
    stop = data.find(b"\r\n", at)
    if stop < 0:
        raise _MoreToCome
    kind, told, at = data[at : at + 1], bytes(data[at + 1 : stop]), stop + 2
    match kind:
        case b"+":
            return told, at
        case b"-":
            return Refusal(_kind(told)), at
        case b":":
            return int(told), at
        case b"$":
            return _bulk(data, at, int(told))
        case b"*":
            return _list(data, at, int(told))
    raise ValueError(kind)


def _kind(error: bytes) -> str:
    plain = (known for known in PLAIN if error.startswith(known))
    return next(plain, error.split(b" ", 1)[0]).decode("ascii", "replace")


def _bulk(data: bytearray, at: int, size: int) -> tuple[bytes | None, int]:
    if size < 0:
        return None, at
    if len(data) < at + size + 2:
        raise _MoreToCome
    return bytes(data[at : at + size]), at + size + 2


def _list(data: bytearray, at: int, size: int) -> tuple[Reply, int]:
    if size < 0:
        return None, at
    items: list[Reply] = []
    for _ in range(size):
        item, at = _reply(data, at)
        items.append(item)
    return items, at
