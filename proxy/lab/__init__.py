"""The lab: replay, scorecard and demo. Nothing that serves imports it.

replay/     recorded conversations through a policy or a running proxy, and the scorecard
sessions/   session files of agents, read as conversations
report      the results of a replay as an HTML page
demo/       an agent run against a simulated model
commands/   `replay`, `demo`, `compact`
"""
