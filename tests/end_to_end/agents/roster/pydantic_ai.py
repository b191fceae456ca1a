"""pydantic-ai."""

from tests.end_to_end.agents.library import library

AGENT = library(
    "pydantic-ai",
    r"pydantic-ai-slim",
    "pydantic_ai_loop.py",
    "Use `OpenAIChatModel`; `OpenAIResponsesModel` is relayed and not compacted.",
)
