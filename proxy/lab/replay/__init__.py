"""Replay of recorded conversations, turn by turn, through a policy or any proxy; and the scores.

Theory of operation:

    session files -> Conversation -> ReplayHistory -> RequestTurn, one for each answer
                                                        |
                           Simulation (a policy) or through (a proxy): Sent
                                                        |
                             Judge: Scores and a Point per request -> Result -> scorecard

1. `ReplayHistory` parses a conversation once. Each request is its messages before one answer, at the recorded time.
2. `Simulation` drives the code of the running proxy with a store in memory and summaries that take simulated time.
3. `Judge` compares each forwarded request with the request of the agent.
4. `replay_jobs` runs all trials of a conversation in one process.

Keep in sync: `VERSION` in `replay_jobs` with the measures, since results in files are reused.

replay_values   inputs, results and prices
replay_history  a conversation, read once: messages, requests, times, and the prompt cache of its upstream
sample          built-in conversations
replay_jobs     many conversations in parallel; an interrupted run continues
simulation      a policy in this process
through         a running proxy, with an upstream that records
designs         simple policies to compare with
summarizers     models that write summaries, and a stand-in for them
scoring         forwarded requests compared with those of the agent
scorecard       the columns of the tables
conclusion      what a replay comes to, in two sentences

One measure each (docs/replay-your-sessions.md):

spans               text that the agent wrote next and that was still there
sentences           the sentences of the proxy, each with the messages that it speaks of
sentence_verdicts   whether each of them is true
original_facts      how a recorded call ended and what it does, read apart from the product
instruction_texts   documents of instructions in every role: whole, cut or gone
kept_words          messages of people and pins in the last view
validity            breaches that a strict upstream refuses
"""
