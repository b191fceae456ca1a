"""What outlives a request. One shape, several keepers, one conformance suite (tests/store).

promises.py   the contract: promises (blocks), facts, one secret
memory.py     one process, forgets
sqlite.py     one machine, several workers
originals.py  every message as it came, on disk
"""
