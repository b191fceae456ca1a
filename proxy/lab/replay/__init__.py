"""Replay of recorded conversations, turn by turn, through a policy or any proxy; and the scores.

values       inputs and results
history      a conversation, read once: messages, requests, times
sample       built-in conversations
drawing      a choice of conversations
run          many conversations in parallel; a run that was stopped goes on
simulation   a policy in this process
through      a running proxy, with an upstream that records
designs      simple policies to compare with
summaries    models that write summaries
standin      a summary without a model
scoring      forwarded requests compared with what the agent sent
scorecard    the columns of the tables
intervals    how far a figure would differ with other conversations

One measure each (docs/replay-your-sessions.md):

cache        the prompt cache of an upstream
prices       prices of tokens
spans        how much of what the agent wrote next was still there
recall       how much of a history is in its last view
truth        whether shortened results tell how their calls ended
documents    whether instruction documents are whole
validity     what a strict upstream refuses
"""
