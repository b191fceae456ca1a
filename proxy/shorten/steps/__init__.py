"""The ways to shorten a history, as frozen values.

To add one: write it, list it in `step_registry`, give it golden files.

clip_output         the head and the tail of a huge result, when it arrives
dedup_arrivals      a pointer in place of a result that is there already
strip_reasoning     old reasoning goes
clear_results       a placeholder in place of an old result
clear_observations  the same for agents that have no tools
drop_middle         a note in place of all that is old

    arrives: [call, result 40 kB]   clip_output     -> [call, head ... tail]          always
    stride:  [call, result 8 kB]    clear_results   -> [call, placeholder]            when_full
    fold:    [user, call, result]   drop_middle     -> [user, note]                   fold

1. *Always* steps run on every request over the messages that no block covers. Their result for a message depends on it
   and on the messages before it, so a message that was forwarded once is forwarded again with the same bytes.
2. *When-full* steps run when a block is made, over everything older than the kept messages.
3. *Fold* steps run if the history is still over its target.
4. `pipeline.run` checks the invariants after each step, and throws the work of a step away that broke one.
"""
