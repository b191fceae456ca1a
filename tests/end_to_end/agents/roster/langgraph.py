"""LangGraph, by LangChain's agent."""

from tests.end_to_end.agents.library import library

AGENT = library(
    "langgraph", "langgraph", "langgraph_loop.py", "`ChatOpenAI` reads both variables from the environment."
)
