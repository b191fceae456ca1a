"""CrewAI without tool calls: actions are in the model's text, and what they gave is added to the same message."""

import json

from tests.end_to_end.agents.library import act, library
from tests.end_to_end.agents.model import Habits, last_step
from tests.end_to_end.agents.task import Action
from tests.support.completions import Turn, text_turn


def _act(action: Action) -> Turn:
    function = act(action).message["tool_calls"][0]["function"]
    arguments = json.dumps(json.loads(function["arguments"]))
    return text_turn(f"Action: {function['name']}\nAction Input: {arguments}\n")


def _closes(word: str) -> Turn:
    return text_turn(f"Final Answer: {word}")


AGENT = library(
    "crewai",
    "crewai",
    "crewai_loop.py",
    "Without tool calls, output is part of the model's own messages, behind `Observation:`: only this is cleared. "
    "With tools they are results as usual. It takes an unknown model for one of 8,192 tokens and writes summaries of "
    "its own, unless an agent has `respect_context_window=False`.",
    habits=Habits(lambda body: last_step(body) + 1, _act, _closes),
    environment={"CREWAI_DISABLE_TELEMETRY": "true", "OTEL_SDK_DISABLED": "true", "CREWAI_TRACING_ENABLED": "false"},
)
