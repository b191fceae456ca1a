"""Lua scripts that run in the Redis server, each as one step (https://redis.io/docs/latest/develop/programmability/).

Each value begins with 8 bytes: its deadline by the server's clock, because those of replicas differ, or by the clock of
a test. The expiry of the key itself only frees the memory.
"""

from dataclasses import dataclass, field
from hashlib import sha1

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


@dataclass(frozen=True, slots=True)
class Script:
    """A script, and its name in a server that has run it."""

    text: str
    sha: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sha", sha1(self.text.encode(), usedforsecurity=False).hexdigest())


# KEYS: one of the keys, by which a Cluster finds the node. ARGV: now, seconds a block lives, how often in that time a
# use is recorded, and lists of keys, the first one of blocks. A history has thousands of keys, nearly all of which lead
# to nothing: EXISTS counts many at once, and the range is halved until it is one key.
# Returns for each list the place of the first key that has a value, and the value (then members for the script itself).
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

# KEYS: key. ARGV: a secret, to store if there is none that can key a hash (BLAKE2 takes 1 to 64 bytes). Returns the
# stored one.
LOAD_SECRET = Script("""
local stands = redis.pcall('GET', KEYS[1])
if type(stands) == 'table' and not string.find(stands.err, 'WRONGTYPE', 1, true) then return stands end
if type(stands) == 'string' and #stands > 0 and #stands <= 64 then return stands end
redis.call('SET', KEYS[1], ARGV[1])
return ARGV[1]
""")
