"""A sample agent run against a simulated model: what `compaction-proxy demo` shows and the long-run tests measure.

Nothing in here is real but the traffic: no key, no network, no chance (every text comes from a seeded generator).

code       made-up source files              workshop   tools that really work on them
logs       what programs print               story      the steps of the agent, one after the other
run        all of it as one value: task, tools, steps, and the bytes that a client sends
model      a simulated model: counts, remembers prefixes, refuses what is too long, says the next step
summaries  what it answers when it is asked to summarise, well or badly
speech     its answers as bytes               agent      the client: the whole history again with every turn
tally      what it came to                    picture    the same for a person's eyes
"""
