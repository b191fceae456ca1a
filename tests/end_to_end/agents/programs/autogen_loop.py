"""AutoGen: a coder whose answers hold shell scripts, and an executor that runs them. Not streamed, no tools."""
# ruff: noqa: T201 - what a program is for

import asyncio

from autogen_agentchat.agents import AssistantAgent, CodeExecutorAgent
from autogen_agentchat.conditions import TextMentionTermination
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_ext.code_executors.local import LocalCommandLineCodeExecutor
from autogen_ext.models.openai import OpenAIChatCompletionClient
from workbench import MODEL, TASK

ABOUT = {
    "vision": False,
    "function_calling": False,
    "json_output": False,
    "family": "unknown",
    "structured_output": False,
}


async def main() -> None:
    model = OpenAIChatCompletionClient(model=MODEL, model_info=ABOUT)  # OPENAI_BASE_URL and OPENAI_API_KEY
    coder = AssistantAgent("coder", model, system_message="You are a careful engineer. Answer with a ```sh script.")
    executor = CodeExecutorAgent("executor", LocalCommandLineCodeExecutor(work_dir="."))
    team = RoundRobinGroupChat([coder, executor], termination_condition=TextMentionTermination("halcyon", ["coder"]))
    done = await team.run(task=TASK)
    print(done.messages[-1].content)


asyncio.run(main())
