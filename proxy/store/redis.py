"""The store that many machines share: a Redis or Valkey server, or one that Sentinels name.

A look-up needs one round trip, a Lua script that runs as one step
(https://redis.io/docs/latest/develop/programmability/). No request is held up for long: after a call that did not reach
a server that can write, or took longer than `STORE_TIMEOUT_SECONDS`, all further calls fail at once, until a check in
the background has reached the server.

The server bounds its memory itself (`maxmemory`): blocks and facts expire or are evicted; documents, and the secret,
have no expiry, so `volatile-lru` leaves them alone (https://redis.io/docs/latest/develop/reference/eviction/).
Sentinels name the primary: https://redis.io/docs/latest/operate/oss_and_stack/management/sentinel/

Faults become `StoreUnavailable`, with the server's own words, but for credentials that it repeats.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from hashlib import sha1
from typing import Any, cast

import msgspec
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import MasterNotFoundError, Sentinel, SentinelConnectionPool
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import InvalidResponse, NoScriptError, RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from proxy.config.state_url import StateUrl, parse_state_url
from proxy.store.contract import (
    RECORDED_USES_PER_LIFETIME,
    Breaker,
    Found,
    Keys,
    Kind,
    Replaced,
    Store,
    StoreLimits,
    StoreUnavailable,
    ignore,
)

CHECK_SERVER = "check `state.url` and that the server runs"
Argument = str | bytes | int | float
STORE_TIMEOUT_SECONDS = 0.25
CHECK_TIMEOUT_SECONDS = 5.0
CHECK_INTERVAL_SECONDS = 1.0
MAX_CONNECTIONS = 16
PREFIXES = {Kind.BLOCK: "cp/1/promise/", Kind.FACT: "cp/1/fact/", Kind.DOCUMENT: "cp/1/"}
"""The beginning of every key, with the version of the format of values. Blocks were called promises."""
_HINTS = {
    "NOAUTH": "put user and password into the URL",
    "NOPERM": "docs/shared-state.md lists the rights that this user needs",
}
FAULTS = (
    RedisError, OSError, EOFError,
    # redis-py raises these while it reads another protocol, for example a RecursionError for a thousand nested lists.
    InvalidResponse, ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError,
)  # fmt: skip


# A value that expires begins with 8 bytes: its deadline by the server's clock. The expiry of the key only frees the
# memory. A document is the bare value.
_PRELUDE = """
local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] + time[2] / 1000000
end

-- A value of another type or without a plausible deadline was not written by these scripts: it counts as nothing, and
-- the next write replaces it. Any other error is raised.
local function read(key, is_document)
  if is_document then return redis.call('GET', key) or nil end
  local kept = redis.pcall('GET', key)
  if type(kept) == 'table' then
    if string.find(kept.err, 'WRONGTYPE', 1, true) then return nil end
    kept = redis.call('GET', key)
  end
  if kept and #kept >= 8 then
    local deadline = struct.unpack('>d', kept)
    if deadline > now and deadline < now + 1e11 then return string.sub(kept, 9), deadline end
  end
end
"""


# ARGV: now, seconds a block lives, how often in that time a use is recorded, lists: of what kind, and their keys.
# Hardly one of the thousands of keys of a history has a value: EXISTS counts many at once, and the range is halved
# until it is one key. Returns for each list the place of the first key that has a value, and the value.
FIND = (
    _PRELUDE
    + """
local function find_among(keys, is_document)
  local place = 1
  while place <= #keys do
    local last = math.min(#keys, place + 2047)
    while redis.call('EXISTS', unpack(keys, place, last)) > 0 and place < last do
      last = math.floor((place + last) / 2)
    end
    local value, deadline = read(keys[last], is_document)
    if value then return {last, value, deadline, keys[last]} end
    place = last + 1
  end
  return false
end

local function put_off_expiry(_, _, deadline, key)
  local seconds, uses = tonumber(ARGV[2]), tonumber(ARGV[3])
  if deadline - now < seconds - seconds / uses then
    redis.pcall('SETRANGE', key, 0, struct.pack('>d', now + seconds))
    redis.pcall('PEXPIRE', key, math.ceil(seconds * 1000))
  end
end

local found = {}
for list = 4, #ARGV do
  local kind, keys = unpack(cmsgpack.unpack(ARGV[list]))
  local first = find_among(keys, kind == 'DOCUMENT')
  if first and kind == 'BLOCK' then put_off_expiry(unpack(first)) end
  table.insert(found, first)
end
return found
"""
)

# KEYS: key. ARGV: now, seconds (inf: for good), value, "any" or "old", and the value that it replaces if it is "old".
# Returns another value that is stored, or nil.
PUT = (
    _PRELUDE
    + """
local seconds, value = tonumber(ARGV[2]), ARGV[3]
if ARGV[4] == 'old' then
  local stands = read(KEYS[1], ARGV[2] == 'inf')
  if stands and stands ~= ARGV[5] then return stands end
end
if ARGV[2] == 'inf' then
  redis.call('SET', KEYS[1], value)
elseif seconds > 0 then
  redis.call('SET', KEYS[1], struct.pack('>d', now + seconds) .. value, 'PX', math.ceil(seconds * 1000))
else
  redis.call('DEL', KEYS[1])
end
return false
"""
)


class RedisStore(Store):
    """A store on a Redis server. `clock` is for tests; without it the server's clock counts, so replicas agree."""

    def __init__(
        self,
        url: str,
        limits: StoreLimits = StoreLimits(),
        *,
        report_back: Callable[[str], None] = ignore,
        clock: Callable[[], float] | None = None,
        timeout: float = STORE_TIMEOUT_SECONDS,
        ca_file: str | None = None,
    ) -> None:
        super().__init__(limits)
        self._url = parse_state_url(url)
        self._client = _open_client(self._url, ca_file)
        self._places = asyncio.Semaphore(MAX_CONNECTIONS)
        self._timeout = timeout
        self._report_back = report_back
        self._clock = clock
        self._breaker = Breaker(self._try_to_reach, CHECK_INTERVAL_SECONDS)

    def __repr__(self) -> str:
        return f"<RedisStore {self._url}>"

    async def find(self, *lists: Keys) -> tuple[Found | None, ...]:
        if not any(keys.names for keys in lists):
            return (None,) * len(lists)
        packed_lists = []
        for kind, names in lists:
            server_keys = [PREFIXES[kind] + name for name in names]
            packed_lists.append(msgspec.msgpack.encode((kind.name, server_keys)))
        seconds, uses = self.limits.block_seconds, RECORDED_USES_PER_LIFETIME
        reply = await self._run(FIND, [], self._now, seconds, uses, *packed_lists)
        if not isinstance(reply, list) or len(reply) != len(lists):
            raise self._odd_reply()
        results: list[Found | None] = []
        for keys, entry in zip(lists, reply, strict=True):
            match entry:
                case None:
                    results.append(None)
                case [int(number), bytes(value), *_] if 0 < number <= len(keys.names):
                    results.append(Found(keys.names[number - 1], value))
                case _:
                    raise self._odd_reply()
        return tuple(results)

    async def put(self, kind: Kind, key: str, value: bytes, seconds: float, replaces: Replaced = None) -> bytes:
        condition: list[Argument] = ["old"]
        if replaces == "anything":
            condition = ["any"]
        elif replaces is not None:
            condition.append(replaces)
        stored_value = await self._run(PUT, [PREFIXES[kind] + key], self._now, seconds, value, *condition)
        if stored_value is None:
            return value
        return self._expect_bytes(stored_value)

    async def remove(self, tenants: Collection[str], is_wanted: Callable[[str, bytes], bool]) -> None:
        for kind in (Kind.BLOCK, Kind.FACT):
            cursor = -1
            while cursor:
                # Values of another type were not written by these scripts.
                filters = "MATCH", f"{PREFIXES[kind]}*", "COUNT", 1_000, "TYPE", "string"
                match await self._ask("SCAN", max(0, cursor), *filters):
                    case [int(cursor), list(server_keys)]:
                        for server_key in server_keys:
                            key = self._expect_bytes(server_key).decode("utf-8", "replace")
                            key = key.removeprefix(PREFIXES[kind])
                            if key.partition("/")[0] not in tenants:
                                continue
                            value = await self._ask("GET", server_key)
                            if value is not None and is_wanted(key, self._expect_bytes(value)):
                                await self._ask("DEL", server_key)
                    case _:
                        raise self._odd_reply()

    async def close(self) -> None:
        await self._breaker.close()
        with suppress(TimeoutError, *FAULTS):  # a server that is stuck must not delay the shutdown
            async with asyncio.timeout(self._timeout):
                # The client leaves the connections to the Sentinels open.
                await self._client.aclose()
                if isinstance(self._client.connection_pool, SentinelConnectionPool):
                    await self._client.connection_pool.sentinel_manager.aclose()

    @property
    def _now(self) -> Argument:
        return "" if self._clock is None else repr(self._clock())

    async def _run(self, script: str, keys: list[str], *arguments: Argument) -> object:
        """Run a script by its name. A restarted server needs its text again."""
        name = sha1(script.encode(), usedforsecurity=False).hexdigest()
        try:
            return await self._ask("EVALSHA", name, len(keys), *keys, *arguments)
        except NoScriptError:
            return await self._ask("EVAL", script, len(keys), *keys, *arguments)

    async def _ask(self, *command: Argument) -> object:
        """Send a command. Raise StoreUnavailable, or NoScriptError if the server has not seen the script."""
        self._breaker.check()
        try:
            return await self._wait(asyncio.ensure_future(self._execute(command)))
        except NoScriptError:
            raise
        except ResponseError as refusal:
            why = self._describe_refusal(refusal)
            # These are an outage: another server may have become the primary.
            if find_code(refusal) not in ("READONLY", "LOADING", "MASTERDOWN"):
                raise StoreUnavailable(f"{self._url} {why}") from None
        except TimeoutError:
            why = f"connection or reply timed out after {self._timeout} s; {CHECK_SERVER}"
        except FAULTS as fault:
            why = self._explain(fault)
        raise self._breaker.open(f"{self._url} {why}")

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
            self._breaker.fault = (
                f"{self._url} cannot be reached: no reply in {CHECK_TIMEOUT_SECONDS} s; {CHECK_SERVER}"
            )
        except FAULTS as fault:
            self._breaker.fault = f"{self._url} {self._explain(fault)}"
        else:
            self._breaker.fault = ""
            self._report_back(f"{self._url} answers again")

    def _explain(self, fault: BaseException) -> str:
        if isinstance(fault, MasterNotFoundError):
            return f"no Sentinel that answers knows a primary of this name that is up; {CHECK_SERVER}"
        cause: BaseException | None = fault
        while cause is not None:
            if isinstance(cause, ResponseError) or getattr(cause, "status_code", None):
                return self._describe_refusal(cause)
            if isinstance(cause, OSError):
                return f"cannot be reached: {str(cause) or type(cause).__name__}; {CHECK_SERVER}"
            cause = cause.__cause__ or cause.__context__
        if isinstance(fault, RedisTimeoutError):
            return f"cannot be reached: no reply; {CHECK_SERVER}"
        if isinstance(fault, RedisConnectionError):
            return f"closed the connection; {CHECK_SERVER}"
        return "speaks another protocol: check that `state.url` is a Redis 7 or a Valkey"

    def _describe_refusal(self, refusal: BaseException) -> str:
        # Of a command that it does not know, a server repeats the arguments, which may be a block.
        words = str(refusal).partition(", with args")[0]
        code = find_code(refusal)
        if not words.startswith(code):
            words = f"{code} {words}"
        words = self._url.remove_credentials(words) or self._url.remove_credentials(code)
        return ": ".join(filter(None, ("refused a command", words, _HINTS.get(code))))

    def _expect_bytes(self, reply: object) -> bytes:
        if isinstance(reply, bytes):
            return reply
        raise self._odd_reply()

    def _odd_reply(self) -> StoreUnavailable:
        return StoreUnavailable(f"{self._url} sent a reply of an unexpected form: is it a Redis 7 or a Valkey?")


async def peek(url: str, keys: Sequence[str], ca_file: str | None = None) -> dict[str, bytes]:
    """Return the blocks under these keys for a command, without recording a use."""
    limits = StoreLimits(block_seconds=0.0)  # a look-up puts no expiry off to a moment that has passed
    store = RedisStore(url, limits, timeout=CHECK_TIMEOUT_SECONDS, ca_file=ca_file)
    try:
        blocks = await store.find(*(Keys(Kind.BLOCK, (key,)) for key in keys))
    finally:
        await store.close()
    return {block.key: block.value for block in blocks if block is not None}


def _open_client(url: StateUrl, ca_file: str | None) -> Redis:
    # `_wait` bounds each call, and the breaker decides when to try again.
    options: dict[str, Any] = {"socket_connect_timeout": CHECK_TIMEOUT_SECONDS, "socket_timeout": None}
    options |= {
        "username": url.user or None,
        "password": url.password or None,
        "protocol": 2,  # older servers and some proxies do not speak RESP3
        "driver_info": None,  # otherwise CLIENT SETINFO is sent: one more right for the user, two more replies to await
        "retry": Retry(NoBackoff(), 0),
        # The store waits for a free connection. A limit here would raise an error instead.
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


def find_code(refusal: BaseException) -> str:
    """Return the first word of a server's error, which redis-py leaves out of the text of some."""
    return getattr(refusal, "status_code", None) or str(refusal).partition(" ")[0]
