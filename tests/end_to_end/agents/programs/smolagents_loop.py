"""smolagents' CodeAgent: calls are Python in the answer's text, results are messages of the user. Streamed."""
# ruff: noqa: T201 - what a program is for

from smolagents import CodeAgent, OpenAIServerModel, tool
from workbench import MODEL, STEPS, TASK, TOOLS

model = OpenAIServerModel(MODEL)  # OPENAI_BASE_URL and OPENAI_API_KEY
agent = CodeAgent(
    [tool(each) for each in TOOLS.values()],
    model,
    max_steps=STEPS,
    stream_outputs=True,
    max_print_outputs_length=20_000,
)

print(agent.run(TASK))
