"""What is forwarded in place of a history: pure functions over frozen values.

pipeline     `Draft` and `Step`; `run()` checks the invariants after every step
steps/       the ways to shorten a history
window       context window, prices, whether a rewrite pays, calibration of token counts
rules        `Rules` (a compiled policy) and `Facts` (what is known of a request)

output       the output of a call without the frames that harnesses put around it
programs     words and lines by which programs tell of failure and success: tables
outcome      the exit code of a result, and the lines that tell how its call ended
call_labels  labels by which a model finds a call again
placeholder  the text in place of an old result
notes        framed messages of the proxy itself
kept_messages  messages that stay in a fold
fold         notes in place of a stretch of history
ledger       a list of what was done in a stretch, made without a model
touched_files  files that a call reads and changes
acts         calls that act on the world, and must not be made twice
documents    results that hold instructions or the task, which stay whole until a fold must take them
transcript_text  a stretch of history as text, for a model that summarizes it
summary_check  the check of a model's answer
summary      a summary by a model: its settings and its place in the history

step_registry  all steps by name, those of `designs` too
block        `Block`: the replacement for the first messages of a history
memory       the values that a store keeps of a conversation
state        one history with its block, its view, rules and facts
attempts     ways to bring a full view down to its target, without a model
"""
