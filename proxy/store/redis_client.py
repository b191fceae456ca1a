"""A redis-py client whose calls never hold a request up: one server, Sentinel or Cluster.

A call waits `STORE_TIMEOUT_SECONDS` at most. After the first one that failed, every further call fails at once, until
a check in the background has reached the server again. In a Cluster this holds for each node by itself.

redis-py connects, speaks the protocol and follows failovers. What it raises is translated here: a store that cannot be
used is `ReportedUnavailable`, with a sentence for operators that never quotes what was sent, which may be a password.
"""

import asyncio
import errno
import os
import re
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, cast

from redis.asyncio import Redis, RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import MasterNotFoundError, Sentinel, SentinelConnectionPool
from redis.backoff import NoBackoff
from redis.exceptions import (
    ConnectionError as RedisConnectionError,
)
from redis.exceptions import (
    InvalidResponse,
    NoScriptError,
    RedisClusterException,
    RedisError,
    ResponseError,
)
from redis.exceptions import (
    TimeoutError as RedisTimeoutError,
)

from proxy.config.state_url import StateUrl
from proxy.store.contract import ReportedUnavailable
from proxy.store.redis_scripts import Script

Argument = str | bytes | int | float
Client = Redis | RedisCluster

STORE_TIMEOUT_SECONDS = 0.25
TICK_COUNT = 5
"""In which the time-out is counted: see `_Limit`."""
CHECK_TIMEOUT_SECONDS = 5.0
CHECK_INTERVAL_SECONDS = 1.0
NODE_TIMEOUT_SECONDS = 1.0
"""For one Sentinel, or one node of a Cluster: past it the next one is asked."""
MAX_CONNECTIONS, NO_LIMIT = 16, 1 << 16

_PROMOTED_ELSEWHERE = {"READONLY", "LOADING", "MASTERDOWN"}
"""Errors after which another server may have taken the name or the slots: all connections are opened again."""
_IS_RUNNING = "check `state.url` and that the server runs"
_SLOTS = "this server is part of a Cluster: write redis+cluster:// in state.url"
_RIGHTS = "this user lacks a right: docs/shared-state.md lists them"
_HINTS = {
    "LOADING": "it is still reading its data",
    "MASTERDOWN": "it is a replica without its primary",
    "READONLY": "it is a replica: the URL must name the primary",
    "NOAUTH": "it wants a password: put user and password into the URL",
    "WRONGPASS": "it does not accept this user or this password",
    "NOPERM": _RIGHTS,
    "OOM": "it is full: raise its maxmemory, or set its maxmemory-policy to volatile-lru",
    "BUSY": "it is running somebody else's script",
    "MISCONF": "it cannot write its data to its disk: see its log",
    "NOREPLICAS": "it has fewer replicas than its min-replicas-to-write asks for",
    "CLUSTERDOWN": "some hash slots have no node that serves them (a Cluster needs redis+cluster:// in state.url)",
    "MOVED": _SLOTS,
    "WRONGTYPE": "a key below cp/ holds a value that another program wrote: delete it",
    "ERR": "is it a Redis 7 or a Valkey?",
    "ERR ACL failure in script": _RIGHTS,
    "ERR The user executing the script can't": _RIGHTS,
    "ERR AUTH <password> called without any password configured": "it has no password: take it out of the URL",
    "ERR DB index is out of range": "the URL ends in the number of a database: 0 always exists",
    "ERR max number of clients": "raise its maxclients",
    "ERR Script attempted to access a": _SLOTS,
    "ERR unknown command": "is it a Redis 7 or a Valkey? A Sentinel needs redis+sentinel:// in state.url",
    "ERR This instance has cluster support disabled": "it is no Cluster: write redis:// in state.url",
}
_QUOTABLE = tuple(hint for hint in _HINTS if hint.startswith("ERR "))
"""Beginnings of errors that repeat nothing of what the server was sent."""

_REASONS: dict[type[BaseException], str] = {
    RedisTimeoutError: f"cannot be reached: no reply; {_IS_RUNNING}",
    RedisConnectionError: f"closed the connection; {_IS_RUNNING}",
    RedisClusterException: (
        f"cannot be reached: no node of the Cluster answers as one, or some hash slots have no node; {_IS_RUNNING}"
    ),
}
_ERROR_NUMBER = re.compile(r"\[Errno (\d+)\]")
_ODD_REPLY = (
    InvalidResponse, ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError,
)  # fmt: skip
"""What redis-py raises while it reads what is not Redis, such as a RecursionError for a thousand nested lists."""
_FAULTS = (RedisError, RedisClusterException, OSError, EOFError, *_ODD_REPLY)


def _open_client(url: StateUrl, ca_file: str | None) -> Client:
    """A client that has not connected yet."""
    options: dict[str, Any] = {
        "socket_connect_timeout": CHECK_TIMEOUT_SECONDS,
        "socket_timeout": None,
        **{name: value for name, value in url.options.items() if not name.startswith(("ssl_", "sentinel_"))},
        "username": url.user or None,
        "password": url.password or None,
        "protocol": 2,  # of RESP3 nothing is needed, and older servers and some proxies do not speak it
        "driver_info": None,  # else CLIENT SETINFO: one more right for the user, two more replies to wait for
        "retry": Retry(NoBackoff(), 0),
        # GuardedClient bounds how many are in use. A limit here would raise an error where waiting a moment is enough.
        "max_connections": NO_LIMIT,
    }
    if url.tls:
        options |= {"ssl": True, **({"ssl_ca_certs": ca_file} if ca_file else {})}
        options |= {name: value for name, value in url.options.items() if name.startswith("ssl_")}
    if url.topology == "cluster":
        return RedisCluster(
            startup_nodes=[ClusterNode(host, port) for host, port in url.nodes],
            reinitialize_steps=0,  # else every fifth redirection closes all connections, also those in use
            **{**options, "socket_timeout": options["socket_timeout"] or NODE_TIMEOUT_SECONDS},
        )
    if url.topology == "sentinel":
        # Sentinels have users and passwords of their own, and are asked one after the other: each for a short time.
        asking = {
            **options,
            "username": url.options.get("sentinel_username"),
            "password": url.options.get("sentinel_password"),
            "socket_connect_timeout": NODE_TIMEOUT_SECONDS,
            "socket_timeout": NODE_TIMEOUT_SECONDS,
        }
        sentinel = Sentinel(url.nodes, sentinel_kwargs=asking)  # type: ignore[no-untyped-call]
        return cast("Redis", sentinel.master_for(url.service, db=url.database, **options))
    ((host, port),) = url.nodes
    return Redis(host=host, port=port, db=url.database, **options)


@dataclass(slots=True)
class _Health:
    """State of one server: usable, or out with a fault."""

    fault: str = ""
    """Why it is out; empty while it is usable."""
    check: asyncio.Task[None] | None = None


class GuardedClient:
    """The servers behind a URL. `warn` is called with a sentence for operators, at most once a second, and
    `report_back` with another one when a server that was out answers again.
    """

    def __init__(
        self,
        url: StateUrl,
        ca_file: str | None,
        timeout: float,
        warn: Callable[[str], None],
        report_back: Callable[[str], None],
    ) -> None:
        self.url = url
        self._client = _open_client(url, ca_file)
        self._places = asyncio.Semaphore(int(url.options.get("max_connections", MAX_CONNECTIONS)))
        self._timeout = timeout
        self._warn = warn
        self._report_back = report_back
        self._warned = 0.0
        self._health: dict[str, _Health] = {}

    async def run(self, script: Script, keys: list[str], *arguments: Argument) -> object:
        """Run a script and return its reply. A server that was restarted or replaced has to be sent its text again."""
        try:
            return await self.ask(keys[0], "EVALSHA", script.sha, len(keys), *keys, *arguments)
        except NoScriptError:
            return await self.ask(keys[0], "EVAL", script.text, len(keys), *keys, *arguments)

    async def ask(self, key: str, *command: Argument) -> object:
        """Send a command to the server that holds this key. ReportedUnavailable, or NoScriptError."""
        server = self._server_of(key)
        health = self._health.setdefault(server, _Health())
        if health.fault:
            raise ReportedUnavailable(health.fault)
        try:
            async with _Limit(self._timeout), self._places:
                return await self._execute(key, command)
        except NoScriptError:
            raise
        except ResponseError as refusal:
            raise ReportedUnavailable(self._explain_refusal(server, refusal)) from None
        except TimeoutError:
            why = f"connection or reply timed out after {self._timeout} s; {_IS_RUNNING}"
        except _FAULTS as fault:
            why = _explain(fault)
        raise ReportedUnavailable(self._suspend(server, why))

    def odd_reply(self) -> ReportedUnavailable:
        """Report a reply in a form that none of the scripts returns."""
        return ReportedUnavailable(self._complain("sent a reply of an unexpected form: is it a Redis 7 or a Valkey?"))

    async def close(self) -> None:
        checks = [health.check for health in self._health.values() if health.check is not None]
        for check in checks:
            check.cancel()
        await asyncio.gather(*checks, return_exceptions=True)
        with suppress(TimeoutError, *_FAULTS):  # a server that is stuck says no good-bye
            async with asyncio.timeout(self._timeout):
                await self._client.aclose()
                if isinstance(self._client, RedisCluster):  # after a fault its aclose() closes nothing
                    await self._client.nodes_manager.aclose()
                    await self._client.nodes_manager.aclose("startup_nodes")
                elif isinstance(self._client.connection_pool, SentinelConnectionPool):
                    await self._client.connection_pool.sentinel_manager.aclose()

    async def _execute(self, key: str, command: tuple[Argument, ...]) -> object:
        if isinstance(self._client, Redis):
            return await self._client.execute_command(*command)  # type: ignore[no-untyped-call]
        await self._client.initialize()
        # Told which node: redis-py 8.1 sends EVALSHA to any, and is redirected each time.
        node = self._client.get_node_from_key(key)
        try:
            return await self._client.execute_command(*command, target_nodes=node)
        except RedisConnectionError:  # dropped while it was idle, which is not looked at as it is on a single server
            await self._client.initialize()
            return await self._client.execute_command(*command, target_nodes=self._client.get_node_from_key(key))

    def _server_of(self, key: str) -> str:
        """The node that serves the key's hash slot, once the Cluster is known; else the whole of it."""
        if isinstance(self._client, RedisCluster) and self._client.nodes_manager.slots_cache:
            with suppress(RedisClusterException):
                node = self._client.get_node_from_key(key)
                return node.name if node is not None else ""
        return ""

    def _explain_refusal(self, server: str, refusal: ResponseError) -> str:
        kind = _kind(refusal)
        if kind in _PROMOTED_ELSEWHERE:
            return self._suspend(server, _refusal(kind))
        return self._complain(_refusal(kind))

    def _suspend(self, server: str, why: str) -> str:
        """From now on no request waits for this server; whether it is well again is looked for at once."""
        health = self._health[server]
        health.fault = self._complain(why)
        if health.check is None or health.check.done():
            health.check = asyncio.get_running_loop().create_task(self._check(server, health))
        return health.fault

    async def _check(self, server: str, health: _Health) -> None:
        while health.fault:
            try:
                async with asyncio.timeout(CHECK_TIMEOUT_SECONDS):
                    await self._reach(server)
            except TimeoutError:
                health.fault = self._complain(
                    f"cannot be reached: no reply in {CHECK_TIMEOUT_SECONDS} s; {_IS_RUNNING}"
                )
            except _FAULTS as fault:
                health.fault = self._complain(_explain(fault))
            else:
                health.fault = ""
                self._report_back(f"{self.url} answers again")
                return
            await asyncio.sleep(CHECK_INTERVAL_SECONDS)

    async def _reach(self, server: str) -> None:
        """Over fresh connections: a router may have forgotten the old ones, or the name may lead elsewhere by now."""
        if isinstance(self._client, Redis):
            await self._client.connection_pool.disconnect(inuse_connections=False)
            await self._client.execute_command("PING")  # type: ignore[no-untyped-call]
            return
        await self._client.initialize()
        await self._client.nodes_manager.initialize()  # who serves which slot, after a failover
        node = self._client.get_node(node_name=server) if server else self._client.get_random_primary_node()
        if node is not None:  # else it left the Cluster, and no key leads to it any more
            await self._client.execute_command("PING", target_nodes=node)

    def _complain(self, why: str) -> str:
        if time.monotonic() - self._warned >= CHECK_INTERVAL_SECONDS:
            self._warned = time.monotonic()
            self._warn(f"{self.url} {why}")
        return f"{self.url} {why}"


class _Limit:
    """TimeoutError after so many seconds in which the event loop had time to read a reply.

    A worker that parses a large body is blocked for a while, and would otherwise take its Redis to be out. So the
    time is counted in ticks: however long the loop was blocked, it counts as one.
    """

    def __init__(self, seconds: float) -> None:
        self._tick_seconds = seconds / TICK_COUNT
        self._ticks_left = TICK_COUNT
        self._timeout = asyncio.timeout(None)
        self._alarm: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()
        self._tick()

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        await self._timeout.__aexit__(kind, fault, trace)

    def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        if self._ticks_left:
            self._ticks_left -= 1
            self._alarm = loop.call_later(self._tick_seconds, self._tick)
        else:
            self._timeout.reschedule(loop.time())


def _explain(fault: BaseException) -> str:
    """Why a server cannot be used, without a word of what it sent: that may repeat what it was sent."""
    if isinstance(fault, MasterNotFoundError):
        return f"no Sentinel that answers knows a primary of this name that is up; {_IS_RUNNING}"
    for cause in _causes(fault):
        if isinstance(cause, ResponseError) or getattr(cause, "status_code", None):
            return _refusal(_kind(cause))
        if isinstance(cause, OSError):
            return f"cannot be reached: {_describe_os_error(cause)}; {_IS_RUNNING}"
    other = "speaks another protocol: check that `state.url` is a Redis 7 or a Valkey"
    return next((why for kind, why in _REASONS.items() if isinstance(fault, kind)), other)


def _describe_os_error(fault: OSError) -> str:
    """The system's text for a fault of a connection, without the addresses that asyncio puts into it."""
    if isinstance(fault, ssl.SSLError | socket.gaierror):  # their numbers are not those of the system
        return getattr(fault, "verify_message", "") or fault.strerror or type(fault).__name__
    if isinstance(fault, TimeoutError):
        return os.strerror(errno.ETIMEDOUT)
    # For a name with several addresses asyncio raises one error that has no number and quotes those of all.
    quoted = _ERROR_NUMBER.search(str(fault))
    number = fault.errno or (int(quoted[1]) if quoted else 0)
    return os.strerror(number) if number else type(fault).__name__


def _causes(fault: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = fault
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__


def _kind(fault: BaseException) -> str:
    """The first word of an error, or a known beginning that quotes nothing."""
    code = getattr(fault, "status_code", None)
    text = f"{code} {fault}" if code else str(fault)
    word = text.split(" ", 1)[0]
    return next((known for known in _QUOTABLE if text.startswith(known)), word if word.isupper() else "ERR")


def _refusal(kind: str) -> str:
    hint = _HINTS.get(kind)
    return f"refused a command ({kind})" + (f": {hint}" if hint else "")
