"""The lab: replay, scorecard and demo. Nothing that serves imports it.

replay/     recorded conversations through a policy or a running proxy, and the scorecard
sessions/   session files of agents, read as conversations
saved       a conversation read from a file
report      the results of a replay as an HTML page
what_if     a trial of a policy for the admin pages, in a process of its own
demo/       an agent run against a simulated model
simulated   the HTTP server in front of that model
tangents    turns that a person drops by number from a saved conversation
commands/   `replay`, `demo`, `compact`
"""
