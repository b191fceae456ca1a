"""The decisions about one request, without I/O or clock: results in, actions out.

Theory of operation
-------------------

`run` in `program` is the whole life of a request as one generator (`bypass` and `compact` are those of requests that
leave unread, and of compaction alone). It yields actions (count these pieces, look this up, wait for a summary, *send*,
*deliver*) and is sent the result of each.

Actions are performed by an `Interpreter`: that of the proxy (`serve/performer.py`), that of the replay
(`lab/replay/simulation.py`), and those of tests. A new action is a class in `actions`, with a method of `Interpreter`;
mypy tells which interpreter lacks it.

question      the question for a summary, and how it is made to fit
planning      `make_plan()`: the plan for a history, and whether to make a new block
conversation  one request with what is remembered of its conversation; when originals are written
actions       the actions that a request asks for, the contract of those who perform them, and the stages of a request
remember      looks up what is remembered of a conversation, stores blocks and windows, accounts the turn
remedies      the retries after a refusal, and how short a refused request has to become
program       `run`: the whole life of a request as one generator. Read this first.
"""
