"""What outlives a request. One shape, several keepers, one conformance suite (tests/store).

promises.py   the contract: promises (blocks), facts, documents, one secret
memory.py     one process, forgets
sqlite.py     one machine, several workers
redis.py      many machines; resp.py is how it speaks, lua.py what the server does in one step
meanwhile.py  what a worker goes on with while a shared one is out
originals.py  every message as it came and every answer, on disk
transcripts/  what that takes: lines, files, retention, reading, proof
"""
