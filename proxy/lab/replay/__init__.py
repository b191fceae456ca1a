"""Replay of recorded conversations, turn by turn, through a policy or any proxy; and the scores.

values      inputs and results                    history    a conversation read once: messages, requests, clock
sample      built-in conversations                designs    simple policies to compare with
simulation  a policy in this process              through    a running proxy, with an upstream that records
summaries   summarizers (standin: no model)       run        many conversations, in parallel, resumable
scoring     compares what was forwarded with what the agent sent
cache, prices, terms, recall, validity: one measure each (docs/scorecard.md)
scorecard   the columns of the tables
"""
