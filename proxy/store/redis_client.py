"""A redis-py client whose calls never hold a request up: one server, Sentinel or Cluster.

A call waits at most `STORE_TIMEOUT_SECONDS`. After a call that failed, every further one fails at once, until a check
in the background has reached the server again. In a Cluster this holds for each node by itself. redis-py connects,
speaks the protocol and follows failovers.

Faults become `ReportedUnavailable`, with sentences for operators. These never quote the server, which may repeat what
it was sent, a password for example: only the first word of its error
(https://redis.io/docs/latest/develop/reference/protocol-spec/#simple-errors).
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
from dataclasses import dataclass, field
from hashlib import sha1
from types import TracebackType
from typing import Any, cast

from redis.asyncio import Redis, RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import MasterNotFoundError, Sentinel, SentinelConnectionPool
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import InvalidResponse, NoScriptError, RedisClusterException, RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from proxy.config.state_url import StateUrl
from proxy.store.contract import ReportedUnavailable

PROMOTED_ELSEWHERE = {"READONLY", "LOADING", "MASTERDOWN"}
"""Errors after which another server may have taken the name or the slots: open all connections again."""
CHECK_SERVER = "check `state.url` and that the server runs"
_CLUSTER = "this server is part of a Cluster: write redis+cluster:// in state.url"
_RIGHTS = "this user lacks a right: docs/shared-state.md lists them"
_HINTS = {
    "LOADING": "it is still reading its data",
    "READONLY": "it is a replica: the URL must name the primary",
    "NOAUTH": "it wants a password: put user and password into the URL",
    "WRONGPASS": "it does not accept this user or this password",
    "NOPERM": _RIGHTS,
    "OOM": "it is full: raise its maxmemory, or set its maxmemory-policy to volatile-lru",
    "MISCONF": "it cannot write its data to its disk: see its log",
    "CLUSTERDOWN": "some hash slots have no node that serves them (a Cluster needs redis+cluster:// in state.url)",
    "MOVED": _CLUSTER,
    "ERR": "is it a Redis 7 or a Valkey?",
    "ERR ACL failure in script": _RIGHTS,
    "ERR The user executing the script can't": _RIGHTS,
    "ERR AUTH <password> called without any password configured": "it has no password: take it out of the URL",
    "ERR DB index is out of range": "the URL ends in the number of a database: 0 always exists",
    "ERR max number of clients": "raise its maxclients",
    "ERR Script attempted to access a": _CLUSTER,
    "ERR unknown command": "is it a Redis 7 or a Valkey? A Sentinel needs redis+sentinel:// in state.url",
    "ERR This instance has cluster support disabled": "it is no Cluster: write redis:// in state.url",
}
_REASONS: dict[type[BaseException], str] = {
    RedisTimeoutError: f"cannot be reached: no reply; {CHECK_SERVER}",
    RedisConnectionError: f"closed the connection; {CHECK_SERVER}",
    RedisClusterException: (
        f"cannot be reached: no node of the Cluster answers as one, or some hash slots have no node; {CHECK_SERVER}"
    ),
}
_ERROR_NUMBER = re.compile(r"\[Errno (\d+)\]")
FAULTS = (
    RedisError, RedisClusterException, OSError, EOFError,
    # redis-py raises these while it reads another protocol: a RecursionError for a thousand nested lists
    InvalidResponse, ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError,
)  # fmt: skip


def explain(fault: BaseException) -> str:
    """Say why a server cannot be used."""
    if isinstance(fault, MasterNotFoundError):
        return f"no Sentinel that answers knows a primary of this name that is up; {CHECK_SERVER}"
    for cause in _list_causes(fault):
        if isinstance(cause, ResponseError) or getattr(cause, "status_code", None):
            return describe_refusal(find_kind(cause))
        if isinstance(cause, OSError):
            return f"cannot be reached: {_describe_os_error(cause)}; {CHECK_SERVER}"
    for kind, reason in _REASONS.items():
        if isinstance(fault, kind):
            return reason
    return "speaks another protocol: check that `state.url` is a Redis 7 or a Valkey"


def find_kind(fault: BaseException) -> str:
    """Return the first word of an error, or a beginning that is in the table."""
    text = str(fault)
    code = getattr(fault, "status_code", None)
    if code:
        text = f"{code} {text}"
    for beginning in _HINTS:
        if beginning.startswith("ERR ") and text.startswith(beginning):
            return beginning
    word = text.split(" ", 1)[0]
    return word if word.isupper() else "ERR"


def describe_refusal(kind: str) -> str:
    sentence = f"refused a command ({kind})"
    if kind in _HINTS:
        sentence += f": {_HINTS[kind]}"
    return sentence


def _describe_os_error(fault: OSError) -> str:
    """Return the system's text for a fault of a connection, without the addresses that asyncio adds."""
    if isinstance(fault, ssl.SSLError | socket.gaierror):  # their numbers are not those of the system
        return getattr(fault, "verify_message", "") or fault.strerror or type(fault).__name__
    if isinstance(fault, TimeoutError):
        return os.strerror(errno.ETIMEDOUT)
    number = fault.errno
    # For a name with several addresses asyncio raises one error that has no number and quotes those of all.
    if not number and (number_match := _ERROR_NUMBER.search(str(fault))):
        number = int(number_match[1])
    return os.strerror(number) if number else type(fault).__name__


def _list_causes(fault: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = fault
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__


Argument = str | bytes | int | float
Client = Redis | RedisCluster

STORE_TIMEOUT_SECONDS = 0.25
TICK_COUNT = 5
"""Ticks of the time-out: see `_Limit`."""
CHECK_TIMEOUT_SECONDS = 5.0
CHECK_INTERVAL_SECONDS = 1.0
NODE_TIMEOUT_SECONDS = 1.0
"""Wait this long for one Sentinel or one node of a Cluster, then ask the next one."""
MAX_CONNECTIONS = 16


@dataclass(frozen=True, slots=True)
class Script:
    """A script, and its name in a server that has run it."""

    text: str
    sha: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sha", sha1(self.text.encode(), usedforsecurity=False).hexdigest())


def _open_client(url: StateUrl, ca_file: str | None) -> Client:
    """A client that has not connected yet."""
    options: dict[str, Any] = {"socket_connect_timeout": CHECK_TIMEOUT_SECONDS, "socket_timeout": None}
    skipped_prefixes = "sentinel_" if url.tls else ("sentinel_", "ssl_")
    options |= {name: value for name, value in url.options.items() if not name.startswith(skipped_prefixes)}
    options |= {
        "username": url.user or None,
        "password": url.password or None,
        "protocol": 2,  # of RESP3 nothing is needed, and older servers and some proxies do not speak it
        "driver_info": None,  # else CLIENT SETINFO: one more right for the user, two more replies to wait for
        "retry": Retry(NoBackoff(), 0),
        # GuardedClient bounds how many are in use, and waits. A limit here would raise an error.
        "max_connections": 1 << 16,
    }
    if url.tls:
        options["ssl"] = True
        if ca_file:
            options.setdefault("ssl_ca_certs", ca_file)
    if url.topology == "cluster":
        return RedisCluster(
            startup_nodes=[ClusterNode(host, port) for host, port in url.nodes],
            reinitialize_steps=0,  # else every fifth redirection closes all connections, also those in use
            **options | {"socket_timeout": options["socket_timeout"] or NODE_TIMEOUT_SECONDS},
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
    """State of one server."""

    fault: str = ""
    """The reason why it is out, or empty."""
    check: asyncio.Task[None] | None = None


class GuardedClient:
    """The servers of a URL.

    `warn` gets a sentence for operators, at most once a second, and `report_back` another one when a server that was
    out answers again.
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
            why = f"connection or reply timed out after {self._timeout} s; {CHECK_SERVER}"
        except FAULTS as fault:
            why = explain(fault)
        raise ReportedUnavailable(self._suspend(server, why))

    def odd_reply(self) -> ReportedUnavailable:
        """Report a reply in a form that none of the scripts returns."""
        return ReportedUnavailable(self._complain("sent a reply of an unexpected form: is it a Redis 7 or a Valkey?"))

    async def close(self) -> None:
        checks = [health.check for health in self._health.values() if health.check is not None]
        for check in checks:
            check.cancel()
        await asyncio.gather(*checks, return_exceptions=True)
        with suppress(TimeoutError, *FAULTS):  # a server that is stuck says no good-bye
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
        """Return the node that serves the key's hash slot, or an empty string until the Cluster is known."""
        if isinstance(self._client, RedisCluster) and self._client.nodes_manager.slots_cache:
            with suppress(RedisClusterException):
                node = self._client.get_node_from_key(key)
                return node.name if node is not None else ""
        return ""

    def _explain_refusal(self, server: str, refusal: ResponseError) -> str:
        kind = find_kind(refusal)
        if kind in PROMOTED_ELSEWHERE:
            return self._suspend(server, describe_refusal(kind))
        return self._complain(describe_refusal(kind))

    def _suspend(self, server: str, why: str) -> str:
        """Let no request wait for this server from now on, and begin to check it."""
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
                    f"cannot be reached: no reply in {CHECK_TIMEOUT_SECONDS} s; {CHECK_SERVER}"
                )
            except FAULTS as fault:
                health.fault = self._complain(explain(fault))
            else:
                health.fault = ""
                self._report_back(f"{self.url} answers again")
                return
            await asyncio.sleep(CHECK_INTERVAL_SECONDS)

    async def _reach(self, server: str) -> None:
        """Use fresh connections: a router may have forgotten the old ones, or the name may lead elsewhere by now."""
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
    """A TimeoutError after `seconds` in which the event loop had time to read a reply.

    A worker that parses a large body is blocked for a while, and would otherwise take its Redis to be out. So time is
    counted in ticks: a blocked loop counts as one, for however long.
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
