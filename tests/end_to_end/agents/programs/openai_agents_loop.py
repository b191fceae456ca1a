"""The OpenAI Agents SDK, streamed, in the API that OPENAI_AGENTS_API names; its default is Responses."""
# ruff: noqa: T201 - what a program is for

import asyncio
import os

from agents import Agent, Runner, function_tool, set_default_openai_api, set_tracing_disabled
from workbench import MODEL, STEPS, TASK, TOOLS

if api := os.environ.get("OPENAI_AGENTS_API"):  # noqa: TID251 (a program by itself)
    set_default_openai_api(api)  # OPENAI_BASE_URL and OPENAI_API_KEY are read by the SDK
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
