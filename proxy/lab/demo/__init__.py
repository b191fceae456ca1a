"""An agent run against a simulated model: shown by `compaction-proxy demo`, measured by the tests of long runs.

Only the traffic is real: no key, no network, no randomness.

agent    task, tools and recorded steps, and the client that sends its whole history with every turn
model    the simulated model, its summaries, and the HTTP server in front of it
picture  totals of a run, with the proxy and without, on a terminal
"""
