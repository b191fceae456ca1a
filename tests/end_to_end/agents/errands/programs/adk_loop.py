"""Google's Agent Development Kit, whose models come through LiteLLM, in chat completions."""
# ruff: noqa: T201 - what a program is for

import asyncio
import sys

from google.adk.agents import LlmAgent, RunConfig
from google.adk.models.lite_llm import LiteLlm
from google.adk.runners import InMemoryRunner
from google.genai import types
from shop_tools import TOOLS

operator = LlmAgent(
    name="operator", model=LiteLlm(model="openai/scripted-1"), instruction="You are careful.", tools=list(TOOLS)
)


async def main() -> None:
    runner = InMemoryRunner(agent=operator, app_name="shop")
    session = await runner.session_service.create_session(app_name="shop", user_id="somebody")
    task = types.Content(role="user", parts=[types.Part(text=sys.argv[1])])
    options = RunConfig(max_llm_calls=500)
    said = ""
    async for event in runner.run_async(
        user_id="somebody", session_id=session.id, new_message=task, run_config=options
    ):
        for part in event.content.parts if event.content else ():
            said = part.text or said
    print(said)


asyncio.run(main())
