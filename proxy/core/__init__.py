"""Core: decides what is forwarded in place of a client's history. Pure functions over frozen values, no I/O.

In the order in which to read it:

values of a conversation  model/        messages, groups and turns, splicing, identity (the chain of hashes)
                          head          the digest of what stands before a conversation
ways to shorten           pipeline      Draft, Step and run(), which checks the laws after every step
                          steps/        one way to shorten per file; steps/compat/ holds those no default uses
                          outcome, placeholder   what a result shows of success, and what stands where it was
                          fold, notes   what stands where a stretch was folded
what stays                overlay       Block: what stands for the first messages of a history, again and again
                          pins          what must survive word for word, and the check that it did
summaries by a model      summaries/    the question, the check of the answer, the summary in place of what it covers
today's agents            agents/       their tools, the ledger of their work, their questions, their outputs as text
the decision              rules         a policy's Rules and the Facts of a request
                          economics     whether a rewrite is worth its price
                          state         ConversationState: one history with block, view, rules and facts
                          ladder        the rungs from a full view down to its target
                          planning      decide(): what to forward, and whether a new block is made
the orchestration         conversation  one request from its first byte to its last note, as actions
                          memory, window, calibration, recovery, accounting   what it remembers and learns
"""
