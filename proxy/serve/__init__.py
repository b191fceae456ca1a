"""The path of a request, from its first byte to its last note: everything about it that waits.

Theory of operation
-------------------

    client -> gateway -> compactor -> driver <-> decide.program.run -> ... -> upstream -> gateway -> client
                                        |
                                     performer -> store, tokenizer, models, transcripts, listeners

1. The gateway admits, reads and routes a request. The compactor parses it and makes its driver.
2. The driver performs the actions that `run` yields. At `Send` the gateway sends a request and returns how the answer
   began. At `Deliver` it delivers the answer, and the driver goes on in the background.
3. After a refusal, `decide.remedies` lists the retries. Before a lossy act, the table in `decide.conversation` says
   whether the original is written.
4. If the compactor or the driver fails, the gateway forwards the client's own bytes, or delivers the answer that is
   there.
5. A summary is asked for by `SummaryCall`: again with another body if the answer is cut off or refused. `Summarizer`
   keeps at most one call for each question under way, across workers by a claim in the store. A request that waits
   takes part in that call.

request_context    request headers, tenant, policy, facts of the model; whether it gets cache marks or a key
services           shared by the requests of a worker: known requests and blocks, secret, originals
rounds             answers of the proxy itself, and the rounds of one answer with calls of the proxy's own tools
performer          performs the actions of one request
driver             drives `run` for one request, writes its body, and reads how an answer begins
compactor          the outgoing request in place of a client's, and its driver
gateway            admits, reads, routes and delivers; the one place that fails open
summaries          calls of a model for a summary, tried again after a refusal; those under way, in all workers
"""
