"""CrewAI, as it works with models that have no tools: thought, action and observation are one growing text."""
# ruff: noqa: T201 - what a program is for

from crewai import Agent, Crew, Task
from crewai.llms.providers.openai.completion import OpenAICompletion
from crewai.tools import tool
from workbench import MODEL, STEPS, TASK, TOOLS


class WithoutTools(OpenAICompletion):
    """A model that is asked for actions in its text."""

    def supports_function_calling(self) -> bool:
        return False


engineer = Agent(
    role="Engineer",
    goal="Do the task.",
    backstory="You are a careful engineer.",
    llm=WithoutTools(model=MODEL),  # OPENAI_BASE_URL and OPENAI_API_KEY
    tools=[tool(each) for each in TOOLS.values()],
    max_iter=STEPS,
    respect_context_window=False,  # it takes an unknown model for one of 8,192 tokens
)
task = Task(description=TASK, expected_output="The word to close with.", agent=engineer)

print(Crew(agents=[engineer], tasks=[task]).kickoff().raw)
