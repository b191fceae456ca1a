"""pydantic-ai, not streamed."""
# ruff: noqa: T201 - what a program is for

from pydantic_ai import Agent, UsageLimits
from pydantic_ai.models.openai import OpenAIChatModel
from workbench import MODEL, STEPS, TASK, TOOLS

model = OpenAIChatModel(MODEL)  # OPENAI_BASE_URL and OPENAI_API_KEY
engineer = Agent(model, instructions="You are a careful engineer.", tools=list(TOOLS.values()))

print(engineer.run_sync(TASK, usage_limits=UsageLimits(request_limit=STEPS)).output)
