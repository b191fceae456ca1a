"""The store that many machines share: a Redis or Valkey server, or one with Sentinels.

A request needs one round trip, a Lua script that runs as one step
(https://redis.io/docs/latest/develop/programmability/), and waits at most a moment (`redis_client.py`). The server
bounds its memory itself (`maxmemory`): blocks and facts expire or are evicted; the secret and the documents have no
expiry, so `volatile-lru` leaves them alone (https://redis.io/docs/latest/develop/reference/eviction/).
Sentinels name the primary: https://redis.io/docs/latest/operate/oss_and_stack/management/sentinel/
"""

import secrets
from collections.abc import Callable, Sequence

import msgspec

from proxy.config.state_url import parse_state_url
from proxy.store.contract import RECORDED_USES_PER_LIFETIME, SECRET_BYTES, Found, StoreLimits, ignore
from proxy.store.redis_client import CHECK_TIMEOUT_SECONDS, STORE_TIMEOUT_SECONDS, Argument, GuardedClient, Script

# Each value begins with 8 bytes: its deadline by the server's clock. The expiry of the key only frees the memory.
_PRELUDE = """
local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] + time[2] / 1000000
end

-- A value of another type or without a plausible deadline was not written by these scripts: it counts as nothing, and
-- the next write replaces it. Any other error is raised.
local function read(key)
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

local function write(key, value, seconds)
  if seconds > 0 then
    redis.call('SET', key, struct.pack('>d', now + seconds) .. value, 'PX', math.ceil(seconds * 1000))
  else
    redis.call('DEL', key)
  end
end
"""


# ARGV: now, seconds a block lives, how often in that time a use is recorded, lists of keys, the first one of blocks.
# Hardly one of the thousands of keys of a history has a value: EXISTS counts many at once, and the range is halved
# until it is one key. Returns for each list the place of the first key that has a value, and the value.
FIND_FIRST = Script(
    _PRELUDE
    + """
local function find_among(keys)
  local place = 1
  while place <= #keys do
    local last = math.min(#keys, place + 2047)
    while redis.call('EXISTS', unpack(keys, place, last)) > 0 and place < last do
      last = math.floor((place + last) / 2)
    end
    local value, deadline = read(keys[last])
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
for list = 4, #ARGV do table.insert(found, find_among(cmsgpack.unpack(ARGV[list]))) end
if found[1] then put_off_expiry(unpack(found[1])) end
return found
"""
)

# KEYS: key. ARGV: now, seconds, value, and the value that it may replace. Returns the other value stored, or nil.
PUT = Script(
    _PRELUDE
    + """
local stands = read(KEYS[1])
if stands and stands ~= ARGV[4] then return stands end
write(KEYS[1], ARGV[3], tonumber(ARGV[2]))
return false
"""
)

# KEYS: key. ARGV: now, seconds, value. Replaces any other value.
WRITE = Script(_PRELUDE + "write(KEYS[1], ARGV[3], tonumber(ARGV[2]))")

# KEYS: key. ARGV: the new document, and the old one if there is any. Returns 1 if it was still the old one.
REPLACE = Script("""
if (redis.call('GET', KEYS[1]) or nil) ~= ARGV[2] then return 0 end
redis.call('SET', KEYS[1], ARGV[1])
return 1
""")

# KEYS: key. ARGV: a secret, stored if there is none that can key BLAKE2 (1 to 64 bytes). Returns the stored one.
LOAD_SECRET = Script("""
local stands = redis.pcall('GET', KEYS[1])
if type(stands) == 'table' and not string.find(stands.err, 'WRONGTYPE', 1, true) then return stands end
if type(stands) == 'string' and #stands > 0 and #stands <= 64 then return stands end
redis.call('SET', KEYS[1], ARGV[1])
return ARGV[1]
""")


PREFIX = "cp/1"
"""The beginning of every key, with the version of the format of values."""
BLOCK, FACT = "promise", "fact"
"""Parts of the keys of blocks and facts. Blocks were called promises."""


class RedisStore:
    """`clock` is for tests; without it the server's clock counts, so replicas agree."""

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
        self._url = parse_state_url(url)
        self._client = GuardedClient(self._url, ca_file, timeout, report_back)
        self._seconds = limits.block_seconds
        self._clock = clock

    def __repr__(self) -> str:
        return f"<RedisStore {self._url}>"

    async def find_first(
        self, blocks: Sequence[str], facts: Sequence[str] = (), *fact_lists: Sequence[str]
    ) -> tuple[Found | None, ...]:
        lists = (blocks, facts, *fact_lists)
        if not any(lists):
            return (None,) * len(lists)
        packed_lists = [self._pack(BLOCK, blocks), *(self._pack(FACT, keys) for keys in lists[1:])]
        reply = await self._client.run(
            FIND_FIRST, [], self._now, self._seconds, RECORDED_USES_PER_LIFETIME, *packed_lists
        )
        if not isinstance(reply, list) or len(reply) != len(lists):
            raise self._client.odd_reply()
        return tuple(map(self._read_found, lists, reply))

    async def put_block(self, key: str, value: bytes, over: bytes | None = None) -> bytes:
        stored_block = await self._put(BLOCK, key, value, self._seconds, over)
        if stored_block is None:
            return value
        return stored_block

    async def read_fact(self, key: str) -> bytes | None:
        _, fact = await self.find_first((), (key,))
        if fact is None:
            return None
        return fact.value

    async def write_fact(self, key: str, value: bytes, seconds: float, over: bytes | None = None) -> None:
        if over is None:
            await self._client.run(WRITE, [self._key(FACT, key)], self._now, seconds, value)
        else:
            await self._put(FACT, key, value, seconds, over)

    async def claim_fact(self, key: str, value: bytes, seconds: float) -> bool:
        return await self._put(FACT, key, value, seconds) is None

    async def load_secret(self, current_secret: bytes | None = None) -> bytes:
        secret = await self._client.run(
            LOAD_SECRET, [f"{PREFIX}/secret"], current_secret or secrets.token_bytes(SECRET_BYTES)
        )
        if not isinstance(secret, bytes):
            raise self._client.odd_reply()
        return secret

    async def read_document(self, key: str) -> bytes | None:
        return await self._get(f"{PREFIX}/document/{key}")

    async def replace_document(self, key: str, old_value: bytes | None, new_value: bytes) -> bool:
        values = [new_value]
        if old_value is not None:
            values.append(old_value)
        return await self._client.run(REPLACE, [f"{PREFIX}/document/{key}"], *values) == 1

    async def peek(self, keys: Sequence[str]) -> dict[str, bytes]:
        blocks = {}
        for key in keys:
            value = await self._get(self._key(BLOCK, key))
            if value is not None:
                blocks[key] = value[8:]  # without the deadline that the scripts write before each value
        return blocks

    async def close(self) -> None:
        await self._client.close()

    @property
    def _now(self) -> Argument:
        if self._clock is None:
            return ""
        return repr(self._clock())

    def _key(self, kind: str, key: str) -> str:
        return f"{PREFIX}/{kind}/{key}"

    def _pack(self, kind: str, keys: Sequence[str]) -> bytes:
        return msgspec.msgpack.encode([self._key(kind, key) for key in keys])

    def _read_found(self, keys: Sequence[str], entry: object) -> Found | None:
        match entry:
            case None:
                return None
            case [int(number), bytes(value), *_] if 0 < number <= len(keys):
                return Found(keys[number - 1], value)
        raise self._client.odd_reply()

    async def _get(self, server_key: str) -> bytes | None:
        return self._bytes(await self._client.ask("GET", server_key))

    def _bytes(self, reply: object) -> bytes | None:
        if reply is None or isinstance(reply, bytes):
            return reply
        raise self._client.odd_reply()

    async def _put(self, kind: str, key: str, value: bytes, seconds: float, over: bytes | None = None) -> bytes | None:
        """Return the stored value if another writer was first."""
        values = [value]
        if over is not None:
            values.append(over)
        return self._bytes(await self._client.run(PUT, [self._key(kind, key)], self._now, seconds, *values))


async def peek(url: str, keys: Sequence[str], ca_file: str | None = None) -> dict[str, bytes]:
    """Return the blocks under these keys for a command, without recording a use."""
    store = RedisStore(url, timeout=CHECK_TIMEOUT_SECONDS, ca_file=ca_file)
    try:
        return await store.peek(keys)
    finally:
        await store.close()
