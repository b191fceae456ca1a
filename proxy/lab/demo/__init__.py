"""A sample agent run against a simulated model: what `compaction-proxy demo` shows and the long-run tests measure.

Nothing in here is real but the traffic: no key, no network, no chance.

run        task, tools and recorded steps as one value, and the bytes that a client sends
model      a simulated model: counts, remembers prefixes, refuses what is too long, says the next step
summaries  what it answers when it is asked to summarise, well or badly
speech     its answers as bytes
agent      the client: the whole history again with every turn
tally      totals of a run
picture    the same on a terminal
"""
