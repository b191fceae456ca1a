"""The path of a request, from its first byte to its last note.

Theory of operation
-------------------

    client -> gateway -> compactor -> driver <-> run -> ... -> upstream -> gateway -> client
                                        |
                                     performer -> store, tokenizer, models, transcripts, listeners

1. The gateway admits, reads and routes a request. The compactor parses it and makes its driver.
2. `run` is the whole life of the request as one generator. It yields actions and is sent the result of each: count
   these pieces, look this up, wait for a summary, *send*, *deliver*. It does no I/O, has no clock, and keeps its state
   in local variables and frozen values.
3. The driver performs the actions. At `Send` it hands an outgoing request to the gateway, which sends it and returns
   how the answer began. At `Deliver` the gateway delivers the answer to the client, and the driver goes on in the
   background.
4. After a refusal, `remedies` lists the retries. Before a lossy act, the table in `originals_rule` says whether the
   original is written.
5. If anything in 2 or 3 fails, the gateway forwards the client's own bytes, or delivers the answer that is there.

To be kept in sync: a new action is declared in `actions`, and performed by `performer`, by `lab.replay.simulation` and
by `tests/support/compaction_worker.py`.

Decided without I/O:

planning         `decide()`: the plan for a history, and whether to make a new block
originals_rule   whether originals are written before a lossy act: a truth table
conversation     one request, the memory of its conversation, and the facts from both
recovery         how short a refused request has to become: figures only
actions          the actions that a request asks its driver for
recognition      is the history large enough to matter, whose is it, is it remembered?
remember         originals before a lossy act; blocks and windows once a request is accepted
remedies         the retries after a refusal
accounting       the cost of a turn, the upstream's count, the next summary
program          `run`: the whole life of a request as one generator. Read this first.

Performed:

request_context  the context besides the conversation: request headers, tenant, policy, facts of the model
services         shared by the requests of a worker: store, secret, blocks that were read, tokenizers, originals
window_probe     asks upstreams how large their windows are
history_threads  where the work on large histories is done
known_requests   requests that were read lately, so that only what follows them is read
originals        which histories are handed to the transcripts, and how long a request waits for it
local_answers    `/compact` and the compaction endpoint, answered without the upstream
outgoing         a request as it leaves, and the body that is written for it
performer        performs the actions of one request
driver           drives `run` for one request, off the event loop if the history is large
bypassed         the driver of a request whose own bytes are forwarded in any case
answer_rounds    the rounds of an answer in which the model calls the proxy's own tools
compactor        the outgoing request in place of a client's, and its driver
gateway          admits, reads, routes and delivers; the one place that fails open
"""
