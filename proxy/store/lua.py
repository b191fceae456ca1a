"""What a Redis server does in one step: nobody comes between a look and what is done about it.

Every value carries its deadline in front, so that what has run out is gone at that moment by the clock that counts:
the server's own, because those of replicas differ, or the one handed in. The server's expiry is the broom behind it.
"""

from dataclasses import dataclass, field
from hashlib import sha1

_PRELUDE = """
local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] + time[2] / 1000000
end

-- A value of another type or without a plausible deadline was written by no script of ours: it counts as nothing, and
-- the next write replaces it. Any other error is raised.
local function standing(key)
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

local function keep(key, value, seconds)
  if seconds > 0 then
    redis.call('SET', key, struct.pack('>d', now + seconds) .. value, 'PX', math.ceil(seconds * 1000))
  else
    redis.call('DEL', key)
  end
end
"""


@dataclass(frozen=True, slots=True)
class Script:
    """A script, and by what the server knows it once it has seen it."""

    text: str
    sha: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sha", sha1(self.text.encode(), usedforsecurity=False).hexdigest())


# KEYS: one of the keys, by which a Cluster finds the node. ARGV: now, seconds a block lives, grain, and lists of keys,
# the first one of blocks. A list may have thousands of keys, nearly all of them of nothing, and to unpack them takes
# longer than to look: so it comes in batches, wider and wider ones, each unpacked only while nothing was found, and an
# empty one is its end. Of each list comes the place of the first key that stands, and its value (and what the script
# itself needs of it).
LONGEST = Script(
    _PRELUDE
    + """
local function among(keys)
  local place = 1
  while place <= #keys do
    local last = #keys
    while redis.call('EXISTS', unpack(keys, place, last)) > 0 and place < last do
      last = math.floor((place + last) / 2)
    end
    local value, deadline = standing(keys[last])
    if value then return last, value, deadline end
    place = last + 1
  end
end

local batch = 3
local function first()
  local before, found = 0, false
  while true do
    batch = batch + 1
    if ARGV[batch] == '' then return found end
    if not found then
      local keys = cmsgpack.unpack(ARGV[batch])
      local place, value, deadline = among(keys)
      if place then found = {before + place, value, deadline, keys[place]} end
      before = before + #keys
    end
  end
end

local function used(_, _, deadline, key)
  local seconds, grain = tonumber(ARGV[2]), tonumber(ARGV[3])
  if deadline - now < seconds - seconds / grain then
    redis.pcall('SETRANGE', key, 0, struct.pack('>d', now + seconds))
    redis.pcall('PEXPIRE', key, math.ceil(seconds * 1000))
  end
end

local found = {first()}
if found[1] then used(unpack(found[1])) end
while batch < #ARGV do table.insert(found, first()) end
return found
"""
)

# KEYS: key. ARGV: now, seconds, value, over (or none). What stands, if it is not this one.
PUT = Script(
    _PRELUDE
    + """
local stands = standing(KEYS[1])
if stands and stands ~= ARGV[4] then return stands end
keep(KEYS[1], ARGV[3], tonumber(ARGV[2]))
return false
"""
)

# KEYS: key. ARGV: now, seconds, value. Whatever stood there.
NOTE = Script(_PRELUDE + "keep(KEYS[1], ARGV[3], tonumber(ARGV[2]))")

# KEYS: key. ARGV: the new document, the old one (or none).
SWAP = Script("""
if (redis.call('GET', KEYS[1]) or nil) ~= ARGV[2] then return 0 end
redis.call('SET', KEYS[1], ARGV[1])
return 1
""")

# KEYS: key. ARGV: what is to stand where nothing that can key a hash does (BLAKE2 takes 1 to 64 bytes). What stands.
SECRET = Script("""
local stands = redis.pcall('GET', KEYS[1])
if type(stands) == 'table' and not string.find(stands.err, 'WRONGTYPE', 1, true) then return stands end
if type(stands) == 'string' and #stands > 0 and #stands <= 64 then return stands end
redis.call('SET', KEYS[1], ARGV[1])
return ARGV[1]
""")
