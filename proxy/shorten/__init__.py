"""The shorter form of a history: pure functions over frozen values.

pipeline        `Draft` and `Step`; `run()` checks the invariants after every step
economics       windows, prices, lifetimes of caches and calibrated counts
documents       results that hold instructions or the task
output          the output of a call without the frames of harnesses
outcome         the exit code of a result, and the lines that tell of a failure or how its call ended
placeholder     labels of calls, and the text that replaces an old result
fold            notes that replace a stretch of history, the messages that stay, and the user's words between notes

clear_results   steps that shorten results or drop old reasoning
drop_middle     the fold without a model: the user's words and a ledger of acts
steps           `STEPS`: each step by its name
summary         the fold by a model: transcript, settings, check of the answer

rules           `Rules` (a compiled policy) and `Facts` (about a request); when a history is folded, and how far
block           `Block` as it is stored; the reasons of decisions
back_off        refetches: a shortened result that is fetched again stays whole, with similar results appended to it
state           a history with a block in place, its tail as it is forwarded, and how a draft becomes a block
attempts        ways to bring a full view down to its target, without a model
bounds          the most that a rewrite can free: whether one need be tried at all
tool_designs    steps that only the published designs use

    arrives: [call, result 40 kB]   clip_output     -> [call, head ... tail]          always
    full:    [call, result 8 kB]    clear_results   -> [call, placeholder]            when_full
             [user, call, result]   drop_middle     -> [user, note]                   fold

1. *Always* steps run on every request, over the messages that no block covers. Their result for a message depends on no
   later one, so its bytes stay the same.
2. *When-full* steps run when a history is rewritten, over everything older than the kept messages.
3. *Fold* steps run if that neither halves the history nor brings it to its target, and there is no summary.

A new step is listed in `STEPS` and has golden files.
"""
