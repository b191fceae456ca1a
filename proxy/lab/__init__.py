"""The lab: everything that judges the proxy. Nothing that serves imports it.

replay/     recorded conversations through a policy or a running proxy: the scorecard
sessions/   the session files of today's agents, as conversations
report      the same results as an HTML page
what_if     the admin API's what-if, in a process of its own
demo/       a sample agent run against a simulated model
simulated   the API in front of that model
tangents    turns that a person drops by number from a saved conversation
saved       reading a conversation from a file
commands/   `replay`, `demo`, `compact`: commands of the lab
"""
