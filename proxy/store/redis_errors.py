"""Sentences for operators about faults of a Redis.

They never quote the server, which may repeat what it was sent, a password for example. The first word of its error is
quoted, and the hints are about errors that operators meet when they set a server up or when it fills up
(https://redis.io/docs/latest/develop/reference/protocol-spec/#simple-errors).
"""

import errno
import os
import re
import socket
import ssl
from collections.abc import Iterator

from redis.asyncio.sentinel import MasterNotFoundError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import InvalidResponse, RedisClusterException, RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

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
