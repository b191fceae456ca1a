"""The path of a request, from its first byte to its last note.

Theory of operation
-------------------

    client -> gateway -> compactor -> driver <-> run -> ... -> upstream -> gateway -> client
                                        |
                                     performer -> store, tokenizer, models, transcripts, listeners

1. The gateway admits, reads and routes a request. The compactor parses it and makes its driver.
2. `run` is the whole life of the request as one generator without I/O or clock. It yields actions (count these pieces,
   look this up, wait for a summary, *send*, *deliver*) and is sent the result of each.
3. The driver performs them. At `Send` the gateway sends a request and returns how the answer began. At `Deliver` it
   delivers the answer, and the driver goes on in the background.
4. After a refusal, `remedies` lists the retries. Before a lossy act, the table in `conversation` says whether the
   original is written.
5. If 2 or 3 fails, the gateway forwards the client's own bytes, or delivers the answer that is there.

To be kept in sync: an action of `actions` is performed by `performer`, by `lab.replay.simulation` and by
`tests/support/compaction_worker.py`.

Decided without I/O:

planning         `decide()`: the plan for a history, and whether to make a new block
conversation     one request with the memory of its conversation; when originals are written
actions          the actions that a request asks its driver for
remember         looks up the memory of a conversation, stores blocks and windows, accounts the turn
remedies         the retries after a refusal, and how short a refused request has to become
program          `run`: the whole life of a request as one generator. Read this first.

Performed:

request_context  request headers, tenant, policy, facts of the model
services         shared by the requests of a worker: known requests and blocks, secret, originals
placement        cache marks and a key: whether a request gets them, and what was added
answers          answers of the proxy itself
rounds           the rounds of one answer, in which the model calls the proxy's own tools
performer        performs the actions of one request
driver           drives `run` for one request, and writes its body
compactor        the outgoing request in place of a client's, and its driver
gateway          admits, reads, routes and delivers; the one place that fails open
"""
