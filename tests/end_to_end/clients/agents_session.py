"""The OpenAI Agents SDK with a session that compacts by `POST /responses/compact`: `agents_session.py BASE_URL`."""
# ruff: noqa: T201 - what a program is for

import asyncio
import sys

from agents import (
    Agent,
    ModelSettings,
    OpenAIResponsesCompactionSession,
    Runner,
    SQLiteSession,
    function_tool,
    set_default_openai_client,
    set_tracing_disabled,
)
from openai import AsyncOpenAI
from pages import STEPS, TASKS, read_page

set_tracing_disabled(True)  # traces go to OpenAI itself
client = AsyncOpenAI(base_url=sys.argv[1], api_key="sk-made-up", max_retries=0)
set_default_openai_client(client)
reader = Agent(
    "Reader",
    instructions="You read pages.",
    model="gpt-5.6",
    model_settings=ModelSettings(store=False),
    tools=[function_tool(read_page)],
)


async def main() -> None:
    session = OpenAIResponsesCompactionSession(
        "pages", SQLiteSession("pages"), client=client, model="gpt-5.6", compaction_mode="input"
    )
    for task in TASKS:
        run = await Runner.run(reader, task, session=session, max_turns=2 * STEPS)
        print(run.final_output)


asyncio.run(main())
