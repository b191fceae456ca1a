"""State that outlives a request.

    request -> Store = MemoryStore | SqliteStore | FallbackStore(RedisStore)
    request -> transcripts (originals, answers)
    event -> ActivityLog, with sums of usage <-> Fleet <-> Store

1. All stores meet one contract (contract.py), and one suite of tests judges them (tests/store).
2. Blocks are written once: the first writer wins, and every worker forwards the stored one.
3. Blocks and facts can be derived again. So a store that is slow, full, broken or away never fails a request.
4. Age is judged by a clock that does not believe a sudden jump.

contract        the methods of every store: blocks, facts, documents, one secret; clock, breaker and reports of stores
memory_store    a store in this process, alone or as a fallback while another store is away
sqlite          a store for one machine, several workers, in a file that may be replaced, locked or broken
redis           a store for several machines: its connections, timeouts and faults
transcripts/    original messages and answers, on disk and in an object store
deletions       orders to delete conversations, and the eraser of everything that is stored of them
activity_log    the history that the admin pages show
usage_sums      sums of usage by time, team, policy, model, key and upstream
fleet           the sums of all machines that share a state
"""
