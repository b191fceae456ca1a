"""The OpenAI Agents SDK, told to speak chat completions."""

from tests.end_to_end.agents.library import library

AGENT = library(
    "openai-agents",
    "openai-agents",
    "openai_agents_loop.py",
    'Tested with `set_default_openai_api("chat_completions")`; by default it speaks Responses, compacted as well.',
)
