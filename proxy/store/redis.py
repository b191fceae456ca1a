"""The store that many machines share: a Redis or Valkey server, or one with Sentinels.

A request needs one round trip, a Lua script that runs as one step
(https://redis.io/docs/latest/develop/programmability/), and waits at most a moment (`redis_client.py`). The server
bounds its memory itself (`maxmemory`): blocks and facts expire or are evicted; documents, and the secret, have no
expiry, so `volatile-lru` leaves them alone (https://redis.io/docs/latest/develop/reference/eviction/).
Sentinels name the primary: https://redis.io/docs/latest/operate/oss_and_stack/management/sentinel/
"""

from collections.abc import Callable, Collection, Sequence

import msgspec

from proxy.config.state_url import parse_state_url
from proxy.store.contract import (
    ANYTHING,
    RECORDED_USES_PER_LIFETIME,
    Anything,
    Found,
    Keys,
    Kind,
    Store,
    StoreLimits,
    ignore,
)
from proxy.store.redis_client import CHECK_TIMEOUT_SECONDS, STORE_TIMEOUT_SECONDS, Argument, GuardedClient, Script

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
FIND = Script(
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
PUT = Script(
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


PREFIXES = {Kind.BLOCK: "cp/1/promise/", Kind.FACT: "cp/1/fact/", Kind.DOCUMENT: "cp/1/"}
"""The beginning of every key, with the version of the format of values. Blocks were called promises."""


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
        self._client = GuardedClient(self._url, ca_file, timeout, report_back)
        self._clock = clock

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
        reply = await self._client.run(FIND, [], self._now, seconds, uses, *packed_lists)
        if not isinstance(reply, list) or len(reply) != len(lists):
            raise self._client.odd_reply()
        return tuple([self._read_found(keys.names, entry) for keys, entry in zip(lists, reply, strict=True)])

    async def put(
        self, kind: Kind, key: str, value: bytes, seconds: float, replaces: bytes | Anything | None = None
    ) -> bytes:
        condition: list[Argument] = ["old"]
        if replaces is ANYTHING:
            condition = ["any"]
        elif replaces is not None:
            condition.append(replaces)
        stored_value = await self._client.run(PUT, [PREFIXES[kind] + key], self._now, seconds, value, *condition)
        if stored_value is None:
            return value
        return self._expect_bytes(stored_value)

    async def remove(self, tenants: Collection[str], is_wanted: Callable[[str, bytes], bool]) -> None:
        for kind in (Kind.BLOCK, Kind.FACT):
            cursor = -1
            while cursor:
                # Values of another type were not written by these scripts.
                filters = "MATCH", f"{PREFIXES[kind]}*", "COUNT", 1_000, "TYPE", "string"
                match await self._client.ask("SCAN", max(0, cursor), *filters):
                    case [int(cursor), list(server_keys)]:
                        for server_key in server_keys:
                            key = self._expect_bytes(server_key).decode("utf-8", "replace")
                            key = key.removeprefix(PREFIXES[kind])
                            if key.partition("/")[0] not in tenants:
                                continue
                            value = await self._client.ask("GET", server_key)
                            if value is not None and is_wanted(key, self._expect_bytes(value)):
                                await self._client.ask("DEL", server_key)
                    case _:
                        raise self._client.odd_reply()

    async def peek(self, keys: Sequence[str]) -> dict[str, bytes]:
        blocks = {}
        for key in keys:
            value = await self._client.ask("GET", PREFIXES[Kind.BLOCK] + key)
            if value is not None:
                blocks[key] = self._expect_bytes(value)[8:]  # without the deadline that the script writes before it
        return blocks

    async def close(self) -> None:
        await self._client.close()

    @property
    def _now(self) -> Argument:
        return "" if self._clock is None else repr(self._clock())

    def _read_found(self, keys: Sequence[str], entry: object) -> Found | None:
        match entry:
            case None:
                return None
            case [int(number), bytes(value), *_] if 0 < number <= len(keys):
                return Found(keys[number - 1], value)
        raise self._client.odd_reply()

    def _expect_bytes(self, reply: object) -> bytes:
        if isinstance(reply, bytes):
            return reply
        raise self._client.odd_reply()


async def peek(url: str, keys: Sequence[str], ca_file: str | None = None) -> dict[str, bytes]:
    """Return the blocks under these keys for a command, without recording a use."""
    store = RedisStore(url, timeout=CHECK_TIMEOUT_SECONDS, ca_file=ca_file)
    try:
        return await store.peek(keys)
    finally:
        await store.close()
