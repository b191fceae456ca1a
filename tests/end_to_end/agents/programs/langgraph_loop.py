"""A LangGraph agent, streamed."""
# ruff: noqa: T201 - what a program is for

from langchain.agents import create_agent
from langchain_openai import ChatOpenAI
from workbench import MODEL, STEPS, TASK, TOOLS

model = ChatOpenAI(model=MODEL, streaming=True)  # OPENAI_BASE_URL and OPENAI_API_KEY
agent = create_agent(model, list(TOOLS.values()), system_prompt="You are a careful engineer.")

ended = agent.invoke({"messages": [("user", TASK)]}, {"recursion_limit": 2 * STEPS})

print(ended["messages"][-1].text)
