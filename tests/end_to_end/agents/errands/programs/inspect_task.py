"""An evaluation of Inspect with its own loop of tools and a scorer, by Anthropic's API."""
# ruff: noqa: T201 - what a program is for

import inspect
import sys
import typing

from inspect_ai import Task, eval  # noqa: A004 - its name
from inspect_ai.dataset import Sample
from inspect_ai.scorer import includes
from inspect_ai.solver import basic_agent
from inspect_ai.tool import Tool, ToolDef
from shop_tools import TOOLS


def as_tool(function: typing.Callable[..., str]) -> Tool:
    about, _, arguments = inspect.getdoc(function).partition("\n\nArgs:\n")
    parameters = dict(line.strip().split(": ", 1) for line in arguments.splitlines())

    async def call(**given: typing.Any) -> str:
        return function(**given)

    call.__signature__ = inspect.signature(function)
    call.__annotations__ = typing.get_type_hints(function)
    return ToolDef(call, name=function.__name__, description=about, parameters=parameters).as_tool()


task = Task(
    dataset=[Sample(input=sys.argv[1], target="halcyon")],
    solver=basic_agent(tools=[as_tool(tool) for tool in TOOLS], message_limit=400),
    scorer=includes(),
)
(log,) = eval(task, model="anthropic/scripted-1", display="none", log_dir="../logs", max_retries=0)
print(log.status, log.results.scores[0].metrics["accuracy"].value if log.results else log.error)
print(log.samples[0].output.completion)
