"""The OpenAI Agents SDK, told to speak chat completions."""

from tests.end_to_end.agents.library import library

AGENT = library(
    "openai-agents",
    "openai-agents",
    "openai_agents_loop.py",
    'Needs `set_default_openai_api("chat_completions")`: by default it speaks Responses, which is relayed and not '
    "compacted.",
)
