"""The Vercel AI SDK with its OpenAI-compatible provider."""

from tests.end_to_end.agents.library import library

AGENT = library(
    "ai-sdk",
    "ai",
    "ai_sdk_loop.js",
    "`createOpenAICompatible` takes the URL as `baseURL`. With `@ai-sdk/openai`, use `openai.chat(…)`: plain "
    "`openai(…)` speaks Responses and refers to answers stored at the provider, which are relayed and not compacted.",
)
