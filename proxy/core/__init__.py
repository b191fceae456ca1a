"""The heart: a client's history in, what is forwarded out. Pure functions over frozen values, standard library only.

In the order in which to read it:

what a history is   messages     a request and its messages, the client's own bytes kept
                    splice       change one value inside JSON bytes and no other byte
                    groups       where a history may be cut, and what makes one valid
                    identity     known again by its content: a chain of hashes
                    asides       what a client says about compaction in the conversation itself
how one shortens    pipeline     Draft, Step and run(): the loop that trusts no step
                    steps/       the ways to shorten, one file each
                    tools, calls                        what a call does; calls changed in their bytes
                    names, outline, placeholder         what stays of a text that is cleared
                    fold, notes, ledger/                what stands where a stretch was folded
what is promised    overlay      Block: what stands for the first messages of a history, again and again
                    pins         what must survive word for word, and the proof that it did
what a model tells  summary      a summary put in place of what it covers
                    question, retelling                 how a model is asked for one, so that it fits
                    verdict      is this answer a summary?
how it is decided   rules        what `decide()` is told: a policy's Rules, the Facts of the moment
                    economics    is this rewrite worth its price?
                    state        ConversationState: one history at one moment, with block, view, rules and facts
                    ladder       the rungs from a full view down to its target
                    planning     decide(): what to forward, and whether a new block is made
"""
