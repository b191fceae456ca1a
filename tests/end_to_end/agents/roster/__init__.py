"""The agents, lightest first: libraries in a program of their user, then commands. One agent, one file.

Each file says how its agent is started and how its model speaks to it; what is pinned is in `../pins`.
"""

from tests.end_to_end.agents.agent import Agent
from tests.end_to_end.agents.roster import (
    ai_sdk,
    aider,
    autogen,
    claude_code,
    codex,
    crewai,
    gptme,
    kilo,
    langgraph,
    litellm,
    llm,
    mini_swe_agent,
    mistral_vibe,
    open_interpreter,
    openai_agents,
    openai_node,
    openai_python,
    opencode,
    pi,
    pydantic_ai,
    qwen_code,
    smolagents,
)

AGENTS: tuple[Agent, ...] = (
    openai_python.AGENT,
    openai_node.AGENT,
    ai_sdk.AGENT,
    pydantic_ai.AGENT,
    openai_agents.AGENT,
    openai_agents.IN_RESPONSES,
    langgraph.AGENT,
    litellm.AGENT,
    smolagents.AGENT,
    autogen.AGENT,
    crewai.AGENT,
    llm.AGENT,
    qwen_code.AGENT,
    claude_code.AGENT,
    codex.AGENT,
    pi.AGENT,
    pi.IN_RESPONSES,
    pi.IN_MESSAGES,
    opencode.AGENT,
    kilo.AGENT,
    aider.AGENT,
    mini_swe_agent.AGENT,
    gptme.AGENT,
    mistral_vibe.AGENT,
    open_interpreter.AGENT,
)
