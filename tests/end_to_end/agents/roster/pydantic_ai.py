"""pydantic-ai."""

from tests.end_to_end.agents.library import library

AGENT = library(
    "pydantic-ai",
    r"pydantic-ai-slim",
    "pydantic_ai_loop.py",
    "`OpenAIChatModel` was tested; `OpenAIResponsesModel` is compacted as well.",
)
