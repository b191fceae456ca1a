"""The shorter form of a history: pure functions over frozen values.

pipeline        `Draft` and `Step`; `run()` checks the invariants after every step
economics       windows, prices and calibrated counts
documents       results that hold instructions or the task
output          the output of a call without the frames of harnesses
failure_lines   the forms of lines by which programs tell of a failure
outcome         the exit code of a result, and the lines that tell how its call ended
placeholder     labels of calls, and the text that replaces an old result
fold            notes that replace a stretch of history, and the messages that stay

clear_results   steps that shorten results or drop old reasoning
drop_middle     the fold without a model: the user's words and a ledger of acts
designs/        steps that only the published designs use
steps           `STEPS`: each step by its name
summary         the fold by a model: transcript, settings, check of the answer

reasons         why a block is made, and why a history stays as it is
rules           `Rules` (a compiled policy) and `Facts` (about a request)
schedule        when a history is folded, and down to how many tokens
block           `Block`, and the other values that a store keeps
back_off        a shortened result that an agent fetches again stays whole, and similar results are appended to it
tail            the messages after a block as they are forwarded
joined_words    several messages of the user as one, which a row of separators would part otherwise
state           a history with a block in place; how a draft becomes a block
stored          values as the store keeps them: JSON with the number of its format
attempts        ways to bring a full view down to its target, without a model
worth           whether a shorter view, or a call for a summary, is worth its cost

    arrives: [call, result 40 kB]   clip_output     -> [call, head ... tail]          always
    full:    [call, result 8 kB]    clear_results   -> [call, placeholder]            when_full
             [user, call, result]   drop_middle     -> [user, note]                   fold

1. *Always* steps run on every request, over the messages that no block covers. Their result for a message depends on no
   later one, so its bytes stay the same.
2. *When-full* steps run when a block is made, over everything older than the kept messages.
3. *Fold* steps run if the history is still over its target.

A new step is listed in `STEPS` and has golden files.
"""
