"""State that outlives a request. All stores meet one contract, tested by one suite (tests/store).

contract        what every store does with blocks, facts, documents and one secret
clock           the time of day, and the one that is believed
memory          one process, until its end
sqlite          one machine, several workers
redis           several machines
redis_client    its connections and timeouts
redis_scripts   the Lua scripts that run in the server
fallback        a worker's own memory while the shared store is away
transcripts/    original messages and answers, on disk and in an object store
activity_log    what the admin pages show of the past
"""
