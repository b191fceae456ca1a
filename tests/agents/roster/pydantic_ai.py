"""pydantic-ai."""

from agents.library import library

AGENT = library(
    "pydantic-ai",
    r"pydantic-ai-slim",
    "pydantic_ai_loop.py",
    "Use `OpenAIChatModel`; `OpenAIResponsesModel` is relayed and not compacted.",
)
