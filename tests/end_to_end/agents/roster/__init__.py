"""The agents, lightest first: libraries in a program of their user, then commands.

Each entry says how its agent is started and how its model speaks to it; what is pinned is in `../pins`.
"""

from tests.end_to_end.agents.agent import Agent
from tests.end_to_end.agents.roster import commands, libraries

AGENTS: tuple[Agent, ...] = (*libraries.AGENTS, *commands.AGENTS)
