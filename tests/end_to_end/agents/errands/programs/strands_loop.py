"""Strands Agents with Anthropic's API, streamed."""
# ruff: noqa: T201 - what a program is for

import os
import sys

from shop_tools import TOOLS
from strands import Agent, tool
from strands.models.anthropic import AnthropicModel

client = {"base_url": os.environ["ANTHROPIC_BASE_URL"], "api_key": os.environ["OPENAI_API_KEY"]}  # noqa: TID251 (a program by itself)
model = AnthropicModel(client_args=client, model_id="scripted-1", max_tokens=4_096)
operator = Agent(
    model=model, tools=[tool(each) for each in TOOLS], system_prompt="You are careful.", callback_handler=None
)
# It keeps the newest 40 messages of its own accord, unless it is told not to.
print(operator(sys.argv[1]))
