"""State that outlives a request: one contract, several kinds of stores, one conformance suite for all (tests/store).

contract.py       blocks, facts, documents, one secret: what every store does with them
memory.py         one process, until its end
sqlite.py         one machine, several workers
redis.py          many machines; redis_client.py: connections and time-outs; redis_scripts.py: what the server does
fallback.py       the store of a worker while a shared store is out
transcripts/      every message as it came and every answer, on disk and in an object store
activity_log.py   what the admin pages show of the past
"""
