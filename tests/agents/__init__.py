"""Agents that must run unmodified through the proxy, each in an environment of its own.

Each is told a base URL and a key, and what keeps it from asking a human. `task.py` is what they are to do, `model.py`
the scripted model that does it with them, `strict.py` an upstream's rules, `record.py` what the upstream saw.
A new agent is a file with its `AGENT`, a file with its pins for `install.py`, and a line here.
"""

from agents import aider, mini_swe_agent, opencode
from agents.agent import Agent

AGENTS: tuple[Agent, ...] = (opencode.AGENT, aider.AGENT, mini_swe_agent.AGENT)
