"""Performs what `core.conversation` decides for one request, with real counts, stores, models and transcripts.

compactor        the outgoing request in place of a client's, and what follows its answer. Read this first.
session          one exchange of the core: performs its actions, and writes what it decided into the request
services         what the requests of a worker share: store, secret, blocks that were read, tokenizers, originals
history_threads  where the work on large histories is done
context          what is known before: request headers, tenant, policy, the model's window
known_requests   requests that were read lately, so that only what follows them is read
local_answers    `/compact` and the compaction endpoint, answered without the upstream
summaries        summary calls to a model, and those in progress in this worker
originals        which histories are handed to the transcripts, and when
own_tools        the rounds of one request in which the model calls a tool of the proxy itself
"""
