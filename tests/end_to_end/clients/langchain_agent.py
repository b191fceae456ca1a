"""A LangChain agent and a middleware that shortens its history: `langchain_agent.py {none|summarize|edit} BASE_URL`."""
# ruff: noqa: T201 - what a program is for

import sys

from langchain.agents import create_agent
from langchain.agents.middleware import ClearToolUsesEdit, ContextEditingMiddleware, SummarizationMiddleware
from langchain_openai import ChatOpenAI
from pages import STEPS, TASKS, read_page

LIMIT_TOKENS = 60_000
way, base_url = sys.argv[1:]
model = ChatOpenAI(model="gpt-5.6", base_url=base_url, api_key="sk-made-up", max_retries=0)
middleware = {
    "none": [],
    "summarize": [SummarizationMiddleware(model, trigger=("tokens", LIMIT_TOKENS))],
    "edit": [ContextEditingMiddleware(edits=[ClearToolUsesEdit(trigger=LIMIT_TOKENS // 3)])],
}
agent = create_agent(model, [read_page], system_prompt="You read pages.", middleware=middleware[way])
ended = agent.invoke({"messages": [("user", TASKS[0])]}, {"recursion_limit": 10 * STEPS})
print(ended["messages"][-1].text)
