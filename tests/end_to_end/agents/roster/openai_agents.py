"""The OpenAI Agents SDK, told to speak chat completions, and in Responses, its default."""

from tests.end_to_end.agents.library import library

AGENT = library(
    "openai-agents",
    "openai-agents",
    "openai_agents_loop.py",
    'Tested with `set_default_openai_api("chat_completions")`; the variable is read by the program of this test.',
    environment={"OPENAI_AGENTS_API": "chat_completions"},
)
IN_RESPONSES = library(
    "openai-agents-responses",
    "openai-agents",
    "openai_agents_loop.py",
    "The same program, with the API that the SDK speaks by default.",
    shares="openai-agents",
)
