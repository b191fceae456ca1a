"""What outlives a request. One shape, several keepers, one conformance suite (tests/store).

promises.py   the contract: promises (blocks), facts, one secret
memory.py     one process, forgets
sqlite.py     one machine, several workers
originals.py  every message as it came and every answer, on disk
transcripts/  what that takes: lines, files, retention, reading, proof
"""
