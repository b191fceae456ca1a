"""The decisions about one request, without I/O or clock: results in, actions out.

Theory of operation
-------------------

`run` in `program` is the whole life of a request as one generator. It yields actions (count these pieces, look this up,
wait for a summary, *send*, *deliver*) and is sent the result of each.

To be kept in sync: an action of `actions` that has a result is performed by `serve/performer.py`, by
`lab/replay/simulation.py` and by `tests/support/compaction_worker.py`. `drive` performs actions that need not wait.

question      the question for a summary, and how it is made to fit
planning      `make_plan()`: the plan for a history, and whether to make a new block
memory        what the store remembers of a conversation, and how it is looked up
conversation  one request with the memory of its conversation; when originals are written
actions       the actions that a request asks its driver for
remember      looks up the memory of a conversation, stores blocks and windows, accounts the turn
remedies      the retries after a refusal, and how short a refused request has to become
program       `run`: the whole life of a request as one generator. Read this first.
"""
