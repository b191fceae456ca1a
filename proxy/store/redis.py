"""One server, any number of replicas: the store of many machines. Redis or Valkey; what it forgets costs little.

Everything is one round trip, and all of them share one connection. A server that is slow, down or moving is not waited
for twice: after a fault nobody asks it anything until it has been found well again, which is looked for every second.

How much is kept is the server's own affair (`maxmemory`). What may go expires or is evicted; the secret and the
documents have no age, so that `volatile-lru` leaves them alone.
"""

import asyncio
import secrets
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any, cast

import msgspec

from proxy.store.lua import LONGEST, NOTE, PUT, SECRET, SWAP, Script
from proxy.store.promises import GRAIN, SECRET_BYTES, Bounds, Found, StoreUnavailable
from proxy.store.resp import Address, Connection, Gone, Part, Refusal, Refused, Reply, connect

PREFIX = "cp/1"  # whoever changes what stands in a value changes this
PATIENCE = 0.25  # seconds a call waits for its answer, and a request for a connection
OPENING = 5.0  # seconds a connection may take that nobody waits for
AGAIN = 1.0  # seconds until a server that failed is looked at again
STRETCH, WIDEST = 8, 2048  # keys that are looked at in one step, at first and at most
ELSEWHERE = ("READONLY", "LOADING", "MASTERDOWN")  # by now another server may stand behind the name
CLUSTER = "it is part of a cluster: the state needs a single primary"
HINTS = {
    "LOADING": "it is still reading its data",
    "MASTERDOWN": "it is a replica without its primary",
    "READONLY": "it is a replica: let the URL name the primary",
    "NOAUTH": "it wants a password: put user and password into the URL",
    "WRONGPASS": "it does not take this user or this password",
    "NOPERM": "this user lacks a right: docs/shared-state.md lists them",
    "OOM": "it is full: raise its maxmemory, or set its maxmemory-policy to volatile-lru",
    "BUSY": "it is stuck in somebody's script",
    "MISCONF": "it cannot write its data to its disk: see its log",
    "NOREPLICAS": "it has fewer replicas than its min-replicas-to-write asks for",
    "CLUSTERDOWN": CLUSTER,
    "MOVED": CLUSTER,
    "ERR": "is it a Redis 7 or a Valkey?",
    "ERR AUTH <password> called without any password configured": "it wants none: take it out of the URL",
    "ERR DB index is out of range": "the URL ends in the number of a database: 0 is always there",
    "ERR max number of clients": "raise its maxclients",
    "ERR Script attempted to access a": CLUSTER,
    "ERR unknown command": "is it a Redis 7 or a Valkey, and no Sentinel?",
}

DEFAULT = Bounds()


def _silent(_warning: str) -> None:
    """Nobody listens."""


class RedisStore:
    """`warn` is called with a sentence for the operator, at most once a second.

    `clock`: only to move time about; without one the server's own counts, so replicas whose clocks differ agree.
    """

    def __init__(
        self,
        url: str,
        bounds: Bounds = DEFAULT,
        warn: Callable[[str], None] = _silent,
        *,
        clock: Callable[[], float] | None = None,
        patience: float = PATIENCE,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._server = _Server(Address.of(url), patience, tls, warn)
        self._seconds = bounds.seconds
        self._clock = clock

    def __repr__(self) -> str:
        return f"<RedisStore {self._server.address}>"

    async def longest(
        self, promises: Sequence[str], facts: Sequence[str] = (), *more: Sequence[str]
    ) -> tuple[Found | None, ...]:
        lists = (promises, facts, *more)
        asked = chain(_stretches("promise", promises), *(_stretches("fact", keys) for keys in lists[1:]))
        told = await self._run(LONGEST, [], self._now, self._seconds, GRAIN, *asked)
        firsts = cast("list[list[Any] | None]", told)
        return tuple(
            None if first is None else Found(keys[first[0] - 1], first[1])
            for keys, first in zip(lists, firsts, strict=True)
        )

    async def put(self, key: str, value: bytes, over: bytes | None = None) -> bytes:
        standing = await self._put("promise", key, value, self._seconds, over)
        return value if standing is None else standing

    async def fact(self, key: str) -> bytes | None:
        _, found = await self.longest((), (key,))
        return found.value if found else None

    async def note(self, key: str, value: bytes, seconds: float, over: bytes | None = None) -> None:
        if over is None:
            await self._run(NOTE, [f"{PREFIX}/fact/{key}"], self._now, seconds, value)
        else:
            await self._put("fact", key, value, seconds, over)

    async def claim(self, key: str, value: bytes, seconds: float) -> bool:
        return await self._put("fact", key, value, seconds) is None

    async def secret(self, held: bytes | None = None) -> bytes:
        return cast("bytes", await self._run(SECRET, [f"{PREFIX}/secret"], held or secrets.token_bytes(SECRET_BYTES)))

    async def document(self, key: str) -> bytes | None:
        return cast("bytes | None", await self._server.ask("GET", f"{PREFIX}/document/{key}"))

    async def swap(self, key: str, old: bytes | None, new: bytes) -> bool:
        told = (new,) if old is None else (new, old)
        return await self._run(SWAP, [f"{PREFIX}/document/{key}"], *told) == 1

    async def close(self) -> None:
        await self._server.close()

    @property
    def _now(self) -> Part:
        return "" if self._clock is None else repr(self._clock())

    async def _put(self, kind: str, key: str, value: bytes, seconds: float, over: bytes | None = None) -> bytes | None:
        """What stands instead."""
        told = (value,) if over is None else (value, over)
        return cast("bytes | None", await self._run(PUT, [f"{PREFIX}/{kind}/{key}"], self._now, seconds, *told))

    async def _run(self, script: Script, keys: list[Part], *told: Part) -> Reply:
        """A server that was restarted has to be told the script once more."""
        return await self._server.ask("EVALSHA", script.sha, len(keys), *keys, *told, instead=("EVAL", script.text))


class _Server:
    """The server as it is right now: reached, not yet tried, or out with a fault."""

    def __init__(
        self, address: Address, patience: float, tls: ssl.SSLContext | None, warn: Callable[[str], None]
    ) -> None:
        self.address = address
        self._patience = patience
        self._tls = tls or (ssl.create_default_context() if address.tls else None)
        self._warn = warn
        self._warned = 0.0
        self._connection: Connection | None = None
        self._opening: asyncio.Task[None] | None = None
        self._again: asyncio.TimerHandle | None = None
        self._fault = ""
        """Why nobody waits for it."""

    async def ask(self, *parts: Part, instead: tuple[Part, Part] | None = None) -> Reply:
        """`instead`: what to begin with where a script is not known."""
        connection = await self._reached()
        try:
            reply = await connection.call(*parts)
            if instead is not None and reply == Refusal("NOSCRIPT"):
                reply = await connection.call(*instead, *parts[2:])
        except Gone as gone:
            if connection is self._connection:
                self._out(str(gone))
            raise StoreUnavailable(f"{self.address} {gone}") from gone
        if isinstance(reply, Refusal):
            raise StoreUnavailable(self._refused(reply.kind))
        return reply

    async def close(self) -> None:
        if self._again is not None:
            self._again.cancel()
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait([self._opening])
        if self._connection is not None:
            self._connection.leave()

    async def _reached(self) -> Connection:
        """The first one to come opens it, and all wait together; while it is out nobody does."""
        if self._is_open() is None and not self._fault:
            await asyncio.wait([self._begin()], timeout=self._patience)
        connection = self._is_open()
        if connection is None:
            self._fault = self._fault or self._complain(f"let nobody in within {self._patience} s")
            raise StoreUnavailable(self._fault)
        return connection

    def _is_open(self) -> Connection | None:
        return None if self._connection is None or self._connection.gone else self._connection

    def _begin(self) -> asyncio.Task[None]:
        if self._opening is None:
            self._opening = asyncio.get_running_loop().create_task(self._open())
        return self._opening

    async def _open(self) -> None:
        try:
            async with asyncio.timeout(OPENING):
                self._connection = await connect(self.address, self._patience, self._tls)
            self._fault = ""
        except (OSError, Gone) as fault:
            self._fault = self._complain(_why(fault))
            self._again = asyncio.get_running_loop().call_later(AGAIN, self._begin)
        finally:
            self._opening = None

    def _out(self, why: str) -> None:
        """It is looked at at once, and without anybody waiting."""
        self._connection = None
        self._fault = self._complain(why)
        self._begin()

    def _refused(self, kind: str) -> str:
        if kind not in ELSEWHERE or self._connection is None:
            return self._complain(_refusal(kind))
        self._connection.leave()
        self._out(_refusal(kind))
        return self._fault

    def _complain(self, why: str) -> str:
        if time.monotonic() - self._warned >= AGAIN:
            self._warned = time.monotonic()
            self._warn(f"{self.address} {why}; requests go on without it")
        return f"{self.address} {why}"


def _stretches(kind: str, keys: Sequence[str]) -> Iterator[bytes]:
    """The keys as the server has them, in wider and wider stretches; and their end."""
    start, width = 0, STRETCH
    while start < len(keys):
        yield msgspec.msgpack.encode([f"{PREFIX}/{kind}/{key}" for key in keys[start : start + width]])
        start, width = start + width, min(2 * width, WIDEST)
    yield b""


def _why(fault: OSError | Gone) -> str:
    """TLS tells its reason apart; a name that is unknown or a port nobody listens on is told by the system."""
    if isinstance(fault, Refused):
        return _refusal(fault.kind)
    if isinstance(fault, Gone):
        return str(fault)
    if isinstance(fault, TimeoutError):
        return "cannot be reached: no answer"
    return f"cannot be reached: {getattr(fault, 'verify_message', '') or fault.strerror or type(fault).__name__}"


def _refusal(kind: str) -> str:
    hint = HINTS.get(kind)
    return f"refuses what it is asked ({kind})" + (f": {hint}" if hint else "")


async def peek(
    url: str, keys: Sequence[str], tls: ssl.SSLContext | None = None
) -> tuple[bytes | None, dict[str, bytes]]:
    """The secret, and the promises under these keys: for whoever only looks, and must not touch their age."""
    server = _Server(Address.of(url), OPENING, tls, _silent)
    try:
        secret, *values = cast(
            "list[bytes | None]",
            await server.ask("MGET", f"{PREFIX}/secret", *(f"{PREFIX}/promise/{key}" for key in keys)),
        )
    finally:
        await server.close()
    return secret, {key: value[8:] for key, value in zip(keys, values, strict=True) if value is not None}
