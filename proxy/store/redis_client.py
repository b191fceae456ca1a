"""A redis-py client whose calls never hold a request up: one server, or one that Sentinels name.

After a call that failed or took longer than `STORE_TIMEOUT_SECONDS`, all further calls fail at once, until a check in
the background has reached the server again.

Faults become `StoreUnavailable`. Of the server's errors only the first word is quoted, for it may repeat a password
(https://redis.io/docs/latest/develop/reference/protocol-spec/#simple-errors).
"""

import asyncio
import errno
import os
import re
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from hashlib import sha1
from typing import Any, cast

from msgspec import Struct
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import MasterNotFoundError, Sentinel, SentinelConnectionPool
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import InvalidResponse, NoScriptError, RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from proxy.config.state_url import StateUrl
from proxy.store.breaker import Breaker
from proxy.store.contract import StoreUnavailable

CHECK_SERVER = "check `state.url` and that the server runs"
_CLUSTER = "this server is part of a Cluster: name one that is not"
_RIGHTS = "this user lacks a right: docs/shared-state.md lists them"
_HINTS = {
    "LOADING": "it is still reading its data",
    "READONLY": "it is a replica: the URL must name the primary",
    "NOAUTH": "it wants a password: put user and password into the URL",
    "WRONGPASS": "it does not accept this user or this password",
    "NOPERM": _RIGHTS,
    "OOM": "it is full: raise its maxmemory, or set its maxmemory-policy to volatile-lru",
    "MISCONF": "it cannot write its data to its disk: see its log",
    "CLUSTERDOWN": _CLUSTER,
    "MOVED": _CLUSTER,
    "ERR": "is it a Redis 7 or a Valkey?",
    "ERR ACL failure in script": _RIGHTS,
    "ERR The user executing the script can't": _RIGHTS,
    "ERR AUTH <password> called without any password configured": "it has no password: take it out of the URL",
    "ERR DB index is out of range": "the URL ends in the number of a database: 0 always exists",
    "ERR max number of clients": "raise its maxclients",
    "ERR Script attempted to access a": _CLUSTER,
    "ERR unknown command": "is it a Redis 7 or a Valkey? A Sentinel needs redis+sentinel:// in state.url",
}
FAULTS = (
    RedisError, OSError, EOFError,
    # redis-py raises these while it reads another protocol, for example a RecursionError for a thousand nested lists.
    InvalidResponse, ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError,
)  # fmt: skip


def explain(fault: BaseException) -> str:
    if isinstance(fault, MasterNotFoundError):
        return f"no Sentinel that answers knows a primary of this name that is up; {CHECK_SERVER}"
    cause: BaseException | None = fault
    while cause is not None:
        if isinstance(cause, ResponseError) or getattr(cause, "status_code", None):
            return describe_refusal(find_kind(cause))
        if isinstance(cause, OSError):
            return f"cannot be reached: {_describe_os_error(cause)}; {CHECK_SERVER}"
        cause = cause.__cause__ or cause.__context__
    if isinstance(fault, RedisTimeoutError):
        return f"cannot be reached: no reply; {CHECK_SERVER}"
    if isinstance(fault, RedisConnectionError):
        return f"closed the connection; {CHECK_SERVER}"
    return "speaks another protocol: check that `state.url` is a Redis 7 or a Valkey"


def find_kind(fault: BaseException) -> str:
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
    """Return the system's text, without the addresses that asyncio adds."""
    if isinstance(fault, ssl.SSLError | socket.gaierror):  # their numbers are not those of the system
        return getattr(fault, "verify_message", "") or fault.strerror or type(fault).__name__
    if isinstance(fault, TimeoutError):
        return os.strerror(errno.ETIMEDOUT)
    number = fault.errno
    # For a name with several addresses asyncio raises one error without a number, whose text quotes all errors.
    if not number and (number_match := re.search(r"\[Errno (\d+)\]", str(fault))):
        number = int(number_match[1])
    return os.strerror(number) if number else type(fault).__name__


Argument = str | bytes | int | float

STORE_TIMEOUT_SECONDS = 0.25
CHECK_TIMEOUT_SECONDS = 5.0
CHECK_INTERVAL_SECONDS = 1.0
MAX_CONNECTIONS = 16


class Script(Struct, frozen=True, dict=True):
    text: str

    @cached_property
    def sha(self) -> str:
        """The name of the script in a server that has run it before."""
        return sha1(self.text.encode(), usedforsecurity=False).hexdigest()


def _open_client(url: StateUrl, ca_file: str | None) -> Redis:
    options: dict[str, Any] = {"socket_connect_timeout": CHECK_TIMEOUT_SECONDS, "socket_timeout": None}
    options |= {
        "username": url.user or None,
        "password": url.password or None,
        "protocol": 2,  # older servers and some proxies do not speak RESP3
        "driver_info": None,  # otherwise CLIENT SETINFO is sent: one more right for the user, two more replies to await
        "retry": Retry(NoBackoff(), 0),
        # GuardedClient waits for a free connection. A limit here would raise an error instead.
        "max_connections": 1 << 16,
    }
    if url.tls:
        options |= {name: value for name, value in url.options.items() if name.startswith("ssl_")}
        options["ssl"] = True
        if ca_file:
            options["ssl_ca_certs"] = ca_file
    if url.service:
        # Sentinels have their own users and passwords, and each is awaited for a second only: the next one may answer.
        asking = {
            **options,
            "username": url.options.get("sentinel_username"),
            "password": url.options.get("sentinel_password"),
            "socket_connect_timeout": 1.0,
            "socket_timeout": 1.0,
        }
        sentinel = Sentinel(url.nodes, sentinel_kwargs=asking)  # type: ignore[no-untyped-call]
        return cast("Redis", sentinel.master_for(url.service, db=url.database, **options))
    ((host, port),) = url.nodes
    return Redis(host=host, port=port, db=url.database, **options)


class GuardedClient:
    def __init__(
        self,
        url: StateUrl,
        ca_file: str | None,
        timeout: float,
        report_back: Callable[[str], None],
    ) -> None:
        self.url = url
        self._client = _open_client(url, ca_file)
        self._places = asyncio.Semaphore(MAX_CONNECTIONS)
        self._timeout = timeout
        self._report_back = report_back
        self._breaker = Breaker(self._try_to_reach, CHECK_INTERVAL_SECONDS)

    async def run(self, script: Script, keys: list[str], *arguments: Argument) -> object:
        """Run a script by its name. A restarted server needs its text again."""
        try:
            return await self.ask("EVALSHA", script.sha, len(keys), *keys, *arguments)
        except NoScriptError:
            return await self.ask("EVAL", script.text, len(keys), *keys, *arguments)

    async def ask(self, *command: Argument) -> object:
        """Send a command. Raise StoreUnavailable, or NoScriptError if the server has not seen the script."""
        self._breaker.check()
        try:
            return await self._wait(asyncio.ensure_future(self._execute(command)))
        except NoScriptError:
            raise
        except ResponseError as refusal:
            kind = find_kind(refusal)
            why = describe_refusal(kind)
            # These kinds are an outage: another server may have become the primary.
            if kind not in ("READONLY", "LOADING", "MASTERDOWN"):
                raise StoreUnavailable(f"{self.url} {why}") from None
        except TimeoutError:
            why = f"connection or reply timed out after {self._timeout} s; {CHECK_SERVER}"
        except FAULTS as fault:
            why = explain(fault)
        raise self._breaker.open(f"{self.url} {why}")

    def odd_reply(self) -> StoreUnavailable:
        return StoreUnavailable(f"{self.url} sent a reply of an unexpected form: is it a Redis 7 or a Valkey?")

    async def close(self) -> None:
        await self._breaker.close()
        with suppress(TimeoutError, *FAULTS):  # a server that is stuck must not delay the shutdown
            async with asyncio.timeout(self._timeout):
                await self._client.aclose()
                if isinstance(self._client.connection_pool, SentinelConnectionPool):
                    await self._client.connection_pool.sentinel_manager.aclose()

    async def _execute(self, command: tuple[Argument, ...]) -> object:
        async with self._places:
            return await self._client.execute_command(*command)  # type: ignore[no-untyped-call]

    async def _wait(self, reply: asyncio.Future[object]) -> object:
        """Wait in five steps. If the worker parses a large body meanwhile, it misses only one, and no outage begins."""
        try:
            for _ in range(5):
                await asyncio.wait([reply], timeout=self._timeout / 5)
                if reply.done():
                    return reply.result()
        finally:
            reply.cancel()
        raise TimeoutError

    async def _try_to_reach(self) -> None:
        try:
            async with asyncio.timeout(CHECK_TIMEOUT_SECONDS):
                # Connect anew: a router may have forgotten the old connections, or the name may lead elsewhere.
                await self._client.connection_pool.disconnect(inuse_connections=False)
                await self._client.execute_command("PING")  # type: ignore[no-untyped-call]
        except TimeoutError:
            self._breaker.fault = f"{self.url} cannot be reached: no reply in {CHECK_TIMEOUT_SECONDS} s; {CHECK_SERVER}"
        except FAULTS as fault:
            self._breaker.fault = f"{self.url} {explain(fault)}"
        else:
            self._breaker.fault = ""
            self._report_back(f"{self.url} answers again")
