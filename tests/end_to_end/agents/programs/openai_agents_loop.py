"""The OpenAI Agents SDK, streamed; by default it speaks Responses, so it is told to speak chat completions."""
# ruff: noqa: T201 - what a program is for

import asyncio

from agents import Agent, Runner, function_tool, set_default_openai_api, set_tracing_disabled
from workbench import MODEL, STEPS, TASK, TOOLS

set_default_openai_api("chat_completions")  # OPENAI_BASE_URL and OPENAI_API_KEY
set_tracing_disabled(True)  # traces go to OpenAI itself
engineer = Agent(
    "Engineer", instructions="You are careful.", model=MODEL, tools=[function_tool(tool) for tool in TOOLS.values()]
)


async def main() -> None:
    run = Runner.run_streamed(engineer, TASK, max_turns=STEPS)
    async for _ in run.stream_events():
        pass
    print(run.final_output)


asyncio.run(main())
