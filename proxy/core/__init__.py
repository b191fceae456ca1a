"""Core: decides what is forwarded in place of a client's history. Pure functions over frozen values, no I/O.

In the order in which to read it:

messages       a request and its messages, with their bytes; values computed per message
splice         changes inside JSON bytes that leave all other bytes as they are
grouping       groups and turns: where a history may be cut; pinned text
agents         conventions of agents: names of tools, output in user messages, side questions
thinking       models that bind their thinking to the history before it
window         context window, prices, whether a rewrite pays, calibration of token counts

pipeline       `Draft` and `Step`; `run()` checks the invariants after every step
steps/         the ways to shorten a history
output         the output of a call without the frames that harnesses put around it
programs       what programs print about success and failure: a table
outcome        what a result shows of success or failure
placeholder    the text in place of an old result
fold           notes in place of a stretch of history
ledger         a list of what was done in a stretch, made without a model
deeds          the entries of that list
acts           calls that act on the world, and must not be made twice
rereads        second reads that a harness refuses: the text comes again once it was shortened
documents      results that hold instructions or the task, which stay whole until a fold must take them
summaries      a summary by a model: the question, the check of the answer, its place in the history
recall         the tool by which a model reads earlier messages again
own_tools      the tools of the proxy itself, and how they are offered to a model

rules          `Rules` (a compiled policy) and `Facts` (what is known of a request)
overlay        `Block`: the replacement for the first messages of a history
identity       what a conversation is known by: a chain of hashes, the digest of its head, the keys of a store
memory         the values that a store keeps of a conversation
state          one history with its block, its view, rules and facts
attempts       ways to bring a full view down to its target, without a model
question       what a model is asked for a summary, and how the question is made to fit
planning       `decide()`: what to forward, and whether to make a new block
recovery       what to try once more after a refusal
actions        what the orchestration asks of its driver, and what comes of a request
conversation   the orchestration: one request from its arrival to its usage, as actions
"""
