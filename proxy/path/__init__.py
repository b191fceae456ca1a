"""The path of a request, from its first byte to its last note.

Decided without I/O:

planning         `decide()`: what to forward, and whether to make a new block
actions          what the orchestration asks of its driver, and what comes of a request
recovery         what to try once more after a refusal
conversation     the orchestration: one request from its arrival to its usage, as actions

Performed:

context          what is known before: request headers, tenant, policy, the model's window
services         what the requests of a worker share: store, secret, blocks that were read, tokenizers, originals
history_threads  where the work on large histories is done
known_requests   requests that were read lately, so that only what follows them is read
originals        which histories are handed to the transcripts, and when
session          one exchange: performs its actions, and writes what it decided into the request
local_answers    `/compact` and the compaction endpoint, answered without the upstream
compactor        the outgoing request in place of a client's, and what follows its answer
gateway          admits, reads, routes and delivers; the one place that fails open. Read this first.
"""
