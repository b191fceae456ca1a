"""An agent run against a simulated model: shown by `compaction-proxy demo`, measured by the tests of long runs.

Only the traffic is real: no key, no network, no randomness.

demo_run         task, tools and recorded steps as one value, and the bytes that a client sends
agent            the client: it sends its whole history with every turn
model            the simulated model: counts, remembers prefixes, refuses what is too long, answers with the next step
speech           its answers as bytes
demo_summaries   its answers to requests for a summary, good and bad
tally            totals of a run
picture          the run on a terminal
"""
